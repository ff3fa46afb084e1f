#!/usr/bin/python3
"""A real kubelet with containerd and runc as a node of the tests' Kubernetes, by hand, as root: tools/real-kubelet.sh.

No test uses it: a kubelet wants a machine for its own. Images, none of which is pulled from anywhere:
    rubato:test     FROM scratch, as deploy/Dockerfile makes it: the binary of this checkout, user 65532
    host:test       a root with nothing but links into /usr: mount this machine's /usr and /etc/alternatives by hostPath
Service addresses lead nowhere but that of the API server: names of services give the addresses of their pods.
"""
import argparse
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import types
from hashlib import sha256
from pathlib import Path

import yaml

from harness import RUBATO, die_with_parent, free_port, wait_until
from kube_api import Api
from kube_cluster import KubeCluster
from kubelet import Kubelet, Network

API_SERVICE = ("10.0.0.1", 443)  # the address of the service `kubernetes`; there is no kube-proxy
PAUSE = "int pause(void); int main(void) { for (;;) pause(); }\n"


def image_archive(name, files, links=(), config=None):
    """What `docker save` writes, of one layer. `files` is {path inside: bytes or a path here}."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        made = set()
        for path, source in files.items():
            for folder in list(Path(path).parents)[::-1][1:]:
                if str(folder) not in made:
                    entry = tarfile.TarInfo(str(folder).lstrip("/"))
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
                    made.add(str(folder))
            data = source if isinstance(source, bytes) else Path(source).read_bytes()
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(temporary)
        for path, target in links:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    layer = layer.getvalue()
    settings = json.dumps({"architecture": "amd64", "os": "linux", "config": config or {},
                           "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]}}).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        manifest = json.dumps([{"Config": "config.json", "RepoTags": [f"docker.io/library/{name}"],
                                "Layers": ["layer.tar"]}]).encode()
        for path, data in (("config.json", settings), ("layer.tar", layer), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


class RealNode:
    def __init__(self, kube, network, folder, kubelet, name="real"):
        self.kube, self.network, self.folder, self.name = kube, network, Path(folder), name
        self._kubelet, self._processes, self._stop = kubelet, [], threading.Event()
        self.folder.mkdir(parents=True)
        self.socket = self.folder / "containerd.sock"
        try:
            self._start_containerd()
            self._import_images()
            self._open_services()
            self._start_kubelet()
        except BaseException:
            self.close()
            raise

    def _run(self, name, *argv):
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes.append(subprocess.Popen(
                list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                preexec_fn=die_with_parent, start_new_session=True))

    def ctr(self, *words, stdin=None):
        return subprocess.run(["ctr", "-a", str(self.socket), "-n", "k8s.io", *words], input=stdin,
                              capture_output=True, check=True).stdout

    def _start_containerd(self):
        cni = self.folder / "cni"
        cni.mkdir()
        (cni / "10-bridge.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [{
            "type": "bridge", "bridge": self.network.bridge, "isGateway": False, "hairpinMode": True,
            "ipam": {"type": "host-local", "dataDir": str(self.folder / "ipam"), "routes": [{"dst": "0.0.0.0/0"}],
                     "ranges": [[{"subnet": f"{self.network.subnet}.0/24", "rangeStart": f"{self.network.subnet}.10",
                                  "rangeEnd": f"{self.network.subnet}.250", "gateway": self.network.address}]]}}]}))
        (self.folder / "containerd.toml").write_text(f"""
version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/containerd-state"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:test"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
""")
        self._run("containerd", "containerd", "--config", self.folder / "containerd.toml")
        wait_until(self.socket.exists, "containerd")

    def _import_images(self):
        source = self.folder / "pause.c"
        source.write_text(PAUSE)
        subprocess.run(["gcc", "-O2", "-static", "-o", self.folder / "pause", source], check=True)
        merged = [(one, f"usr/{one}") for one in ("bin", "sbin", "lib", "lib64")]
        for archive in (image_archive("pause:test", {"/pause": self.folder / "pause"},
                                      config={"Entrypoint": ["/pause"]}),
                        image_archive("rubato:test", {"/rubato": RUBATO},
                                      config={"Entrypoint": ["/rubato"], "User": "65532:65532"}),
                        image_archive("host:test", {"/etc/hostname": b""}, merged,
                                      {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["sh"]})):
            self.ctr("images", "import", "--snapshotter", "overlayfs", "-", stdin=archive)

    def _open_services(self):
        """The API server at its service's address, and names of services for pods."""
        # A bridge takes the lowest address of its ports, and those of pods come and go: pods would lose sight of it.
        address = Path(f"/sys/class/net/{self.network.bridge}/address").read_text().strip()
        subprocess.run(["ip", "link", "set", self.network.bridge, "address", address], check=True)
        subprocess.run(["ip", "addr", "add", f"{API_SERVICE[0]}/32", "dev", self.network.bridge], check=True)
        self._run("proxy", sys.executable, "-c", FORWARD, *API_SERVICE, self.kube.address, self.kube.port)
        self._api = Api(self.kube.kubeconfig)
        self._names = threading.Thread(target=self._keep_names, daemon=True)
        self._names.start()

    def _keep_names(self):
        while not self._stop.wait(0.3):
            try:
                seen = self._api.get("/api/v1/endpoints")["items"]
            except Exception:  # the API server may be away for a while
                continue
            known = types.SimpleNamespace(kube=self.kube, _endpoints={Kubelet._key(one): one for one in seen})
            self.network.names = Kubelet._names(known)

    def _start_kubelet(self):
        port = free_port(self.network.address)
        config = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                  "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False},
                                     "x509": {"clientCAFile": str(self.kube.ca)}},
                  "authorization": {"mode": "AlwaysAllow"}, "address": self.network.address, "port": port,
                  "healthzPort": 0, "cgroupDriver": "cgroupfs", "failSwapOn": False, "clusterDomain": "cluster.local",
                  "clusterDNS": [self.network.address], "enforceNodeAllocatable": [], "makeIPTablesUtilChains": False,
                  "resolvConf": "/etc/resolv.conf", "imageGCHighThresholdPercent": 100,
                  "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                  "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s"}
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(config))
        self._run("kubelet", self._kubelet, f"--config={self.folder}/kubelet.yaml",
                  f"--kubeconfig={self.kube.kubeconfig}", f"--root-dir={self.folder}/kubelet",
                  f"--cert-dir={self.folder}/pki", "--container-runtime=remote",
                  f"--container-runtime-endpoint=unix://{self.socket}", f"--hostname-override={self.name}",
                  f"--node-ip={self.network.address}", "--v=2")

        def ready():
            nodes = {one["metadata"]["name"]: one for one in self._api.get("/api/v1/nodes")["items"]}
            return any(one["type"] == "Ready" and one["status"] == "True"
                       for one in nodes.get(self.name, {}).get("status", {}).get("conditions", ()))

        wait_until(ready, lambda: f"the kubelet: {(self.folder / 'kubelet.log').read_text()[-3000:]}", 120)

    def close(self):
        self._stop.set()
        with contextlib.suppress(Exception):
            self._api.delete("/api/v1/namespaces/default/pods")
            time.sleep(3)
        for process in self._processes[::-1]:  # the kubelet first: it must not start what we end
            if process.args[0] != "containerd":
                process.kill()
                process.wait()
        with contextlib.suppress(Exception):
            for one in self.ctr("tasks", "list", "-q").decode().split():
                subprocess.run(["ctr", "-a", str(self.socket), "-n", "k8s.io", "tasks", "kill", "-s", "KILL", one],
                               capture_output=True)
            time.sleep(1)
            for one in self.ctr("containers", "list", "-q").decode().split():
                subprocess.run(["ctr", "-a", str(self.socket), "-n", "k8s.io", "tasks", "delete", "-f", one],
                               capture_output=True)
                subprocess.run(["ctr", "-a", str(self.socket), "-n", "k8s.io", "containers", "delete", one],
                               capture_output=True)
        for process in self._processes:
            process.terminate()
            process.wait()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for path in sorted((one for one in mounts if one.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "-l", path], capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# HOST PORT to HOST PORT: bytes both ways.
FORWARD = """
import socket, sys, threading
here, there = (sys.argv[1], int(sys.argv[2])), (sys.argv[3], int(sys.argv[4]))
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for one in (a, b):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
server = socket.create_server(here)
while True:
    a, _ = server.accept()
    b = socket.create_connection(there)
    for pair in ((a, b), (b, a)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubelet", required=True, type=Path, help="the program; tools/real-kubelet.sh builds it")
    parser.add_argument("command", nargs="*", help="a command to run, after --")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="rubato-real-"))
    code = 0
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(folder / "network"))
        kube = stack.enter_context(KubeCluster(folder / "control", network.address))
        stack.enter_context(RealNode(kube, network, folder / "node", options.kubelet))
        print(f"export KUBECONFIG={kube.kubeconfig} PATH={kube.bin}:$PATH\n# logs: {folder}", flush=True)
        if options.command:
            code = subprocess.run(options.command, env=os.environ | kube.environment()).returncode
        else:
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    sys.exit(code)


if __name__ == "__main__":
    main()
