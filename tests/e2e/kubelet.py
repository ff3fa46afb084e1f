"""Plays the kubelets of a test cluster: nodes whose pods are real processes of this machine. Needs root.

    network = Network(folder); kube = KubeCluster(folder, network.address)
    with Kubelet(kube, network, folder) as nodes:
        nodes.add_node("n1", cpu=4, memory="8Gi", gpus=0, labels={}, taints=())
        nodes.image("rubato/rubato", {"/rubato": RUBATO}, entrypoint=["/rubato"])     others run on this file system
        nodes.image("no/such", bad=True)                      ErrImagePull, until it is made good
        nodes.evict("default", "pod")                         as under disk pressure: Failed, reason Evicted
        nodes.refuse_next("OutOfpods")                        the next pod that comes to a node: Failed, never started
        nodes.lose("n1")         no more signs of it; its pods run on, unreachable      nodes.find("n1") ends that
        nodes.crash("n1")        the same, and its processes are dead;                  find() starts its pods again
        nodes.logs("default", "pod")    nodes.pid("default", "pod", container)    nodes.running("default", "pod")
        nodes.storage            the folder in which a persistent volume NAME is the folder NAME

`kubectl logs` and WebSocket exec work (kubelet_server.py). One thread starts every process, for the kernel ends a
process with the thread that has started it; a second one writes to the API server, so that no pod waits for that.
"""
import http.client
import queue
import threading
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path

from harness import MARK, wait_until
from kube_api import Api, ApiError
from kube_container import Image
from kube_network import Network
from kube_pod import Pod
from kube_podspec import Sources
from kubelet_server import KubeletServer

TICK_S = 0.03
LEASE_S = 2  # between two signs of life of a node


def now_text():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Node:
    def __init__(self, name):
        self.name, self.lost = name, False


class Kubelet:
    def __init__(self, kube, network, folder, mark=None):
        self.kube, self.network, self.folder = kube, network, Path(folder)
        self.storage = self.folder / "storage"
        self.storage.mkdir(parents=True)
        self.api = Api(kube.kubeconfig)
        self.sources = Sources(self.api)
        self.base_env = {"KUBERNETES_SERVICE_HOST": kube.address, "KUBERNETES_SERVICE_PORT": str(kube.port)}
        if mark:
            self.base_env[MARK] = mark
        self.pods, self.nodes = {}, {}  # pods by uid
        self._images = {}
        self._refusals = []
        self._seen, self._endpoints = {}, {}
        self._work, self._dirty = queue.Queue(), queue.Queue()
        self._pending = set()  # in _dirty
        self._stop = threading.Event()
        self.server = KubeletServer(self)
        self._threads = [threading.Thread(target=target, daemon=True) for target in
                         (self._loop, self._report, self._watch_pods, self._watch_endpoints, self._renew_leases)]
        for thread in self._threads:
            thread.start()

    # --- what tests do

    def add_node(self, name, cpu=4, memory="8Gi", gpus=0, labels=None, taints=(), pods=60):
        capacity = {"cpu": str(cpu), "memory": memory, "pods": str(pods), "ephemeral-storage": "20Gi"}
        if gpus:
            capacity["nvidia.com/gpu"] = str(gpus)
        self.api.post("/api/v1/nodes", {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                                                  "kubernetes.io/arch": "amd64"} | (labels or {})},
            "spec": {"taints": list(taints)}})
        self.api.merge(f"/api/v1/nodes/{name}/status", {"status": {
            "capacity": capacity, "allocatable": capacity, "conditions": self._conditions(),
            "addresses": [{"type": "InternalIP", "address": self.network.address},
                          {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.server.port}},
            "nodeInfo": {"kubeletVersion": "v1.20.2", "containerRuntimeVersion": "rubato-test://1", "osImage": "test",
                         "machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "test",
                         "kubeProxyVersion": "v1.20.2", "operatingSystem": "linux", "architecture": "amd64"}}})
        self.api.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", self._lease(name))
        self.nodes[name] = Node(name)

    def wait_until_ready(self):
        """Until pods can be bound to all nodes: their taint of a new node is gone."""

        def untainted():
            return all("node.kubernetes.io/not-ready" not in [taint["key"] for taint in node["spec"].get("taints", ())]
                       for node in self.api.get("/api/v1/nodes")["items"] if node["metadata"]["name"] in self.nodes)

        wait_until(untainted, "the nodes to be ready")

    def image(self, name, files=None, entrypoint=(), env=None, workdir="/", bad=False):
        """`name` without its tag, or with one. `files` is {path inside: path here}; folders can be written to."""
        self._images[name] = Image(files, entrypoint, env, workdir, bad)

    def find_image(self, name):
        return self._images.get(name) or self._images.get(name.rpartition(":")[0] or name) or Image()

    def refuse_next(self, reason):
        """As a kubelet that has no room after all: the pod's status has a reason, and no container in it."""
        self._refusals.append(reason)

    def evict(self, namespace, name, message="The node was low on resource: ephemeral-storage."):
        self._call(lambda: self.pod(namespace, name).evict(message))

    def lose(self, name):
        self.nodes[name].lost = True
        self._call(lambda: [pod.cut() for pod in self._pods_of(name)])

    def crash(self, name):
        self.nodes[name].lost = True
        self._call(lambda: [pod.die() for pod in self._pods_of(name)])

    def find(self, name):
        """The node is back. What has happened meanwhile to its pods reaches it now."""

        def back():
            for pod in self._pods_of(name):
                pod.mend()
            self.nodes[name].lost = False
            for pod in self._pods_of(name):
                if pod.uid not in self._seen:
                    self._forget(pod)
            for seen in list(self._seen.values()):
                self._handle(seen)

        self._call(back)

    def pod(self, namespace, name):
        """The pod of that name that runs here now, or ran last."""
        found = [pod for pod in list(self.pods.values()) if (pod.namespace, pod.name) == (namespace, name)]
        assert found, f"no pod {namespace}/{name} on these nodes: {[pod.name for pod in self.pods.values()]}"
        return found[-1]

    def running(self, namespace, name):
        return any((pod.namespace, pod.name) == (namespace, name) and pod.alive() for pod in list(self.pods.values()))

    def pid(self, namespace, name, container=None):
        return self.pod(namespace, name).container_pid(container)

    def logs(self, namespace, name, container=None, previous=False):
        """Also of a pod that is gone: the latest of that name."""
        folders = sorted((self.folder / "logs").glob(f"{namespace}_{name}_*"), key=lambda path: path.stat().st_mtime)
        if not folders:
            return ""
        kinds = [folders[-1] / container] if container else sorted(folders[-1].iterdir())
        parts = []
        for kind in kinds:
            starts = sorted(kind.glob("*.log"), key=lambda path: int(path.stem))
            chosen = starts[-2:-1] if previous else starts[-1:]
            parts += [path.read_text(errors="replace") for path in chosen]
        return "".join(parts)

    def story(self):
        parts = []
        for folder in sorted((self.folder / "logs").glob("*")):
            for path in sorted(folder.glob("*/*.log")):
                parts.append(f"--- log of {path.relative_to(self.folder)}\n{path.read_text(errors='replace')[-3000:]}")
        errors = self.folder / "errors.log"
        if errors.exists():
            parts.append(f"--- the kubelet's own errors\n{errors.read_text()[:3000]}")
        return "\n".join(parts)

    # --- threads

    def _call(self, function):
        """Runs it in the loop's thread; its result or exception."""
        reply = queue.Queue()

        def run():
            try:
                reply.put((function(), None))
            except BaseException as error:  # handed to the caller
                reply.put((None, error))

        self._work.put(run)
        value, error = reply.get()
        if error:
            raise error
        return value

    def _loop(self):
        while not self._stop.is_set():
            try:
                self._work.get(timeout=TICK_S)()
            except queue.Empty:
                pass
            for pod in list(self.pods.values()):
                if self.nodes[pod.node].lost:
                    continue
                try:
                    if pod.advance() and pod.uid not in self._pending:
                        self._pending.add(pod.uid)
                        self._dirty.put(pod.uid)
                except Exception:  # often the API server is away: the next tick tries again; the story has the rest
                    with open(self.folder / "errors.log", "a") as log:
                        log.write(f"{pod.name}: {traceback.format_exc()}")
        for pod in list(self.pods.values()):
            pod.close()

    def _watch_pods(self):
        watch = Api(self.kube.kubeconfig)
        self._watch_api = watch
        for event in watch.watch("/api/v1/pods", self._stop):
            if event["type"] == "LISTED":
                self._work.put(lambda pods=event["object"]["items"]: self._replace(pods))
            elif event["type"] == "DELETED":
                self._work.put(lambda pod=event["object"]: self._deleted(pod["metadata"]["uid"]))
            else:
                self._work.put(lambda pod=event["object"]: self._handle(pod))

    def _replace(self, pods):
        gone = set(self._seen) - {pod["metadata"]["uid"] for pod in pods}
        for uid in gone:
            self._deleted(uid)
        for pod in pods:
            self._handle(pod)

    def _handle(self, pod):
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        self._seen[uid] = pod
        if node not in self.nodes or self.nodes[node].lost:
            return
        if uid not in self.pods:
            if pod["status"].get("phase") in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]:
                return
            self.pods[uid] = Pod(self, pod)
            if self._refusals:
                self.pods[uid].refuse(self._refusals.pop(0))
        self.pods[uid].update(pod)

    def _deleted(self, uid):
        self._seen.pop(uid, None)
        pod = self.pods.get(uid)
        if pod and not self.nodes[pod.node].lost:
            self._forget(pod)

    def _forget(self, pod):
        """Its object is gone, perhaps by force: the processes end now."""
        pod.close()
        self.pods.pop(pod.uid, None)

    def _pods_of(self, node):
        return [pod for pod in self.pods.values() if pod.node == node]

    def _report(self):
        while True:
            uid = self._dirty.get()
            if uid is None:
                return
            self._pending.discard(uid)
            pod = self.pods.get(uid)
            if not pod or self.nodes[pod.node].lost:
                continue
            try:
                pod.report(self.api)
            except ApiError as error:
                self._stop.wait(0.02 if error.code in (404, 409) else 0.2)
            except (OSError, http.client.HTTPException):
                self._stop.wait(0.2)  # the next tick finds it unreported

    def _watch_endpoints(self):
        watch = Api(self.kube.kubeconfig)
        self._endpoint_api = watch
        for event in watch.watch("/api/v1/endpoints", self._stop):
            if event["type"] == "LISTED":
                self._endpoints = {self._key(one): one for one in event["object"]["items"]}
            elif event["type"] == "DELETED":
                self._endpoints.pop(self._key(event["object"]), None)
            else:
                self._endpoints[self._key(event["object"])] = event["object"]
            self.network.names = self._names()

    @staticmethod
    def _key(one):
        return one["metadata"]["namespace"], one["metadata"]["name"]

    def _names(self):
        names = {"kubernetes.default.svc.cluster.local": [self.kube.address]}
        for (namespace, name), one in self._endpoints.items():
            domain = f"{name}.{namespace}.svc.cluster.local"
            addresses = [address for subset in one.get("subsets", ()) for address in subset.get("addresses", ())]
            names[domain] = sorted({address["ip"] for address in addresses}) or None
            for address in addresses:
                if address.get("hostname"):
                    names.setdefault(f"{address['hostname']}.{domain}", []).append(address["ip"])
        return {name: value for name, value in names.items() if value}

    def _renew_leases(self):
        api = Api(self.kube.kubeconfig)
        while not self._stop.wait(LEASE_S):
            for node in list(self.nodes.values()):
                if node.lost:
                    continue
                path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
                try:
                    api.merge(path, {"spec": self._lease(node.name)["spec"]})
                    if self._is_down(api, node.name):
                        healthy = {"status": {"conditions": self._conditions()}}
                        api.strategic(f"/api/v1/nodes/{node.name}/status", healthy)
                except (ApiError, OSError, http.client.HTTPException):
                    continue
        api.close()

    @staticmethod
    def _is_down(api, name):
        conditions = api.get(f"/api/v1/nodes/{name}")["status"].get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] != "True" for one in conditions)

    @staticmethod
    def _lease(name):
        stamp = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": stamp}}

    @staticmethod
    def _conditions():
        stamp = now_text()
        return [{"type": kind, "status": "True" if kind == "Ready" else "False", "reason": "Test", "message": "",
                 "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
                for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")]

    def close(self):
        self._stop.set()
        self._dirty.put(None)
        self.server.close()
        for name in ("_watch_api", "_endpoint_api"):
            if hasattr(self, name):
                getattr(self, name).close()
        for thread in self._threads:
            end = time.monotonic() + 60
            while thread.is_alive() and time.monotonic() < end:
                for name in ("_watch_api", "_endpoint_api"):  # it may just have begun to watch
                    if hasattr(self, name):
                        getattr(self, name).close()
                thread.join(0.2)
        self.api.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


__all__ = ["Kubelet", "Network"]
