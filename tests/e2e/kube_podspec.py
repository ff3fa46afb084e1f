"""What a pod's specification means on a node of a test: environment, command, volumes as folders of this machine."""
import base64
import os
import re
import shutil
from pathlib import Path

from kube_api import ApiError
from kube_container import DEFAULT_PATH, expand


class NotYet(Exception):
    """Something that the pod refers to is not there; (reason, message) as in a container's waiting state."""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


def field(pod, path, pod_ip, host_ip):
    """The value of a fieldRef."""
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if keyed:
        return pod["metadata"].get(keyed.group(1), {}).get(keyed.group(2), "")
    if path in ("metadata.labels", "metadata.annotations"):
        values = pod["metadata"].get(path.partition(".")[2], {})
        return "".join(f'{name}="{value}"\n' for name, value in sorted(values.items()))
    return {"status.podIP": pod_ip, "status.podIPs": pod_ip, "status.hostIP": host_ip,
            "metadata.name": pod["metadata"]["name"], "metadata.namespace": pod["metadata"]["namespace"],
            "metadata.uid": pod["metadata"]["uid"], "spec.nodeName": pod["spec"].get("nodeName", ""),
            "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default")}[path]


def amount(text):
    """A resource quantity as a number: 500m, 2, 1Gi."""
    for suffix, factor in (("m", 1e-3), ("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30), ("Ti", 2**40), ("k", 1e3),
                           ("M", 1e6), ("G", 1e9)):
        if str(text).endswith(suffix):
            return float(str(text)[:-len(suffix)]) * factor
    return float(text)


def resource(container, path):
    kind, name = path.split(".", 1)  # limits.cpu
    given = container.get("resources", {})
    value = given.get(kind, {}).get(name) or given.get("requests", {}).get(name) or "0"
    return str(int(-(-amount(value) // 1)))


class Sources:
    """Config maps and secrets of the API server."""

    def __init__(self, api):
        self._api = api

    def data(self, kind, namespace, name, optional=False):
        """{key: bytes} of a configmap or secret; NotYet when it is not there."""
        try:
            found = self._api.get(f"/api/v1/namespaces/{namespace}/{kind}s/{name}")
        except ApiError as error:
            if error.code != 404:
                raise
            if optional:
                return {}
            raise NotYet("CreateContainerConfigError", f'{kind} "{name}" not found') from None
        if kind == "secret":
            return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}
        return {key: value.encode() for key, value in found.get("data", {}).items()} | \
            {key: base64.b64decode(value) for key, value in found.get("binaryData", {}).items()}

    def token(self, namespace, account, projection):
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "audiences": [projection["audience"]] if projection.get("audience") else [],
            "expirationSeconds": projection.get("expirationSeconds", 3600)}}
        reply = self._api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", request)
        return reply["status"]["token"].encode()

    def claim(self, namespace, name):
        """The persistent volume behind a claim."""
        claim = self._api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
        if claim.get("status", {}).get("phase") != "Bound":
            raise NotYet("ContainerCreating", f'persistentvolumeclaim "{name}" is not bound')
        return self._api.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")


def environment(pod, container, image, sources, base, pod_ip, host_ip):
    namespace = pod["metadata"]["namespace"]
    env = {"PATH": DEFAULT_PATH, "HOME": "/root", "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
           "LC_ALL": "C.UTF-8"} | image.env | base
    for source in container.get("envFrom", ()):
        kind = "configmap" if "configMapRef" in source else "secret"
        ref = source.get("configMapRef") or source["secretRef"]
        data = sources.data(kind, namespace, ref["name"], ref.get("optional"))
        env |= {source.get("prefix", "") + key: value.decode() for key, value in data.items()}
    for one in container.get("env", ()):
        ref = one.get("valueFrom")
        if not ref:
            env[one["name"]] = expand(one.get("value", ""), env)
        elif "fieldRef" in ref:
            env[one["name"]] = field(pod, ref["fieldRef"]["fieldPath"], pod_ip, host_ip)
        elif "resourceFieldRef" in ref:
            env[one["name"]] = resource(container, ref["resourceFieldRef"]["resource"])
        else:
            kind = "configmap" if "configMapKeyRef" in ref else "secret"
            key = ref.get("configMapKeyRef") or ref["secretKeyRef"]
            value = sources.data(kind, namespace, key["name"], key.get("optional")).get(key["key"])
            if value is None and not key.get("optional"):
                raise NotYet("CreateContainerConfigError", f"couldn't find key {key['key']} in {kind} {key['name']}")
            if value is not None:
                env[one["name"]] = value.decode()
    return env


def command(container, image, env):
    """The argv: command replaces the image's entry point, args the rest."""
    start = container.get("command") or image.entrypoint
    return [expand(word, env) for word in [*start, *container.get("args", ())]]


class Volumes:
    """A pod's volumes, each a folder below the pod's own; persistent ones below the cluster's."""

    def __init__(self, pod, folder, storage, sources, pod_ip, host_ip):
        self._pod, self._folder, self._storage, self._sources = pod, folder, storage, sources
        self._pod_ip, self._host_ip = pod_ip, host_ip
        self.paths = {}

    def prepare(self):
        for volume in self._pod["spec"].get("volumes", ()):
            self.paths[volume["name"]] = self._one(volume)

    def refresh(self, pod):
        """Labels and annotations that a container reads as a file follow the pod."""
        self._pod = pod
        for volume in pod["spec"].get("volumes", ()):
            if "downwardAPI" in volume and volume["name"] in self.paths:
                self._files(volume["name"], self._downward(volume["downwardAPI"]))

    def mounts(self, container):
        found = []
        for mount in container.get("volumeMounts", ()):
            source = self.paths[mount["name"]]
            if mount.get("subPath"):
                source = source / mount["subPath"]
                if not source.exists():
                    source.mkdir(parents=True)
            found.append((source, mount["mountPath"], mount.get("readOnly", False)))
        return found

    def _one(self, volume):
        namespace = self._pod["metadata"]["namespace"]
        if "hostPath" in volume:
            return self._host_path(volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            persistent = self._sources.claim(namespace, volume["persistentVolumeClaim"]["claimName"])
            if "hostPath" in persistent["spec"]:
                return self._host_path(persistent["spec"]["hostPath"])
            # EFS, NFS and others: any name of one is one folder, the same for all pods.
            path = self._storage / persistent["metadata"]["name"]
            path.mkdir(parents=True, exist_ok=True)
            return path
        if "configMap" in volume or "secret" in volume:
            return self._files(volume["name"], self._data(volume))
        if "downwardAPI" in volume:
            return self._files(volume["name"], self._downward(volume["downwardAPI"]))
        if "projected" in volume:
            return self._files(volume["name"], self._projected(volume["projected"]))
        if "emptyDir" in volume or set(volume) == {"name"}:
            path = self._folder / volume["name"]
            path.mkdir(parents=True, exist_ok=True)
            os.chmod(path, 0o777)
            return path
        raise NotYet("ContainerCreating", f"the test's kubelet has no volumes like {volume}")

    @staticmethod
    def _host_path(ref):
        path = Path(ref["path"])
        if not path.exists() and ref.get("type", "") in ("", "DirectoryOrCreate"):
            path.mkdir(parents=True)
        if not path.exists():
            raise NotYet("ContainerCreating", f"hostPath {path} is not there")
        return path

    def _data(self, volume):
        kind = "configmap" if "configMap" in volume else "secret"
        ref = volume.get("configMap") or volume["secret"]
        data = self._sources.data(kind, self._pod["metadata"]["namespace"], ref.get("name") or ref["secretName"],
                                  ref.get("optional"))
        if ref.get("items"):
            data = {item["path"]: data[item["key"]] for item in ref["items"]}
        return data

    def _downward(self, ref):
        return {item["path"]: field(self._pod, item["fieldRef"]["fieldPath"], self._pod_ip, self._host_ip).encode()
                for item in ref.get("items", ()) if "fieldRef" in item}

    def _projected(self, ref):
        data = {}
        for source in ref["sources"]:
            if "serviceAccountToken" in source:
                projection, account = source["serviceAccountToken"], self._pod["spec"].get("serviceAccountName")
                data[projection["path"]] = self._sources.token(self._pod["metadata"]["namespace"], account or "default",
                                                               projection)
            elif "downwardAPI" in source:
                data |= self._downward(source["downwardAPI"])
            else:
                data |= self._data(source)
        return data

    def _files(self, name, data):
        path = self._folder / name
        path.mkdir(parents=True, exist_ok=True)
        for key, value in data.items():
            target = path / key
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = path / f".{key.replace('/', '_')}.draft"
            draft.write_bytes(value)
            draft.rename(target)
        return path

    def remove(self):
        shutil.rmtree(self._folder, ignore_errors=True)
