#!/usr/bin/python3
"""A real Kubernetes 1.20 for tests: etcd, API server (TLS, RBAC, service accounts), controllers, scheduler.

    with KubeCluster(folder) as kube:
        kube.kubeconfig                     of an administrator, with a client certificate
        kube.token_kubeconfig               the same rights by a token
        kube.account_kubeconfig("default", "operator")      of a service account, with its token
        kube.kubectl("get", "pods", "-A")   its output; AssertionError unless it ends with 0 (code=None: the result)
        kube.json("get", "pods")            the decoded reply;  kube.apply(yaml_text_or_objects)
        kube.api                            kube_api.Api of the administrator
        kube.stop("apiserver"); kube.start("apiserver")     and "etcd", "controllers", "scheduler"

Nothing runs pods here: kubelet.py does. All processes die with the test, and close() leaves nothing.

By hand, as root (tools/kubernetes.sh has built it, some minutes, once):

    tests/e2e/kube_cluster.py --keep                    until ^C; prints `export KUBECONFIG=...` and where the logs are
    tests/e2e/kube_cluster.py --keep --nodes 2          with two nodes that run pods (kubelet.py)
    tests/e2e/kube_cluster.py --keep --nodes 2 --image rubato=build/release/rubato --image bad/image=
                                                        an image with this file at /rubato; one that cannot be had
    tests/e2e/kube_cluster.py --nodes 1 -- kubectl get nodes        a command with KUBECONFIG and PATH set; then its end
"""
import argparse
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import yaml

from harness import ROOT, WAIT, die_with_parent, free_port, memory_folder, wait_until
from kube_api import Api, ApiError

CONTROLLERS = ("namespace,serviceaccount,serviceaccount-token,endpoint,endpointslice,garbagecollector,podgc,replicaset,"
               "replicationcontroller,deployment,job,statefulset,daemonset,resourcequota,nodelifecycle,disruption,"
               "persistentvolume-binder,ttl-after-finished,csrapproving,root-ca-cert-publisher,clusterrole-aggregation")


class Unavailable(Exception):
    """This machine has no Kubernetes, and nothing is broken: tests skip with this reason."""


# `make test` builds it beside everything else: where that takes longer, its tests are left out rather than waited for.
BUILD_MAX_S = 35 * 60
# A test that is out of its time (cmake/tests.cmake) has failed: none waits so long for the build.
WAIT_MAX_S = 10 * 60


def _still_built():
    """A build runs, and has not taken too long."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("RUBATO_CACHE") or f"{cache}/rubato")
    try:
        began = int((folder / "kubernetes-build/began").read_text())
        with (folder / "kubernetes.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return time.time() < began + BUILD_MAX_S
    except (OSError, ValueError):
        return False


def programs():
    """The folder of the programs, once they are built; Unavailable where they are not."""
    end = time.monotonic() + WAIT_MAX_S
    while True:
        building = _still_built() and time.monotonic() < end
        done = subprocess.run([ROOT / "tools/kubernetes.sh", "--where"], capture_output=True, text=True)
        if done.returncode == 0:
            return Path(done.stdout.strip())
        if not building:
            raise Unavailable(done.stderr.strip())
        time.sleep(1)


class KubeCluster:
    def __init__(self, folder, address="127.0.0.1", node_grace_s=40, toleration_s=300, flags=(), mark=None):
        """`address` is where the API server listens: one of the pods' bridge where there are pods. A node is NotReady
        after node_grace_s without a sign; its pods are deleted toleration_s later."""
        self.bin = programs()
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.address, self.port, self.etcd_port = address, free_port(address), free_port()
        self.server = f"https://{address}:{self.port}"
        self._node_grace_s, self._toleration_s, self._flags, self._mark = node_grace_s, toleration_s, list(flags), mark
        self._processes = {}
        self._etcd_data = memory_folder("rubato-etcd-")
        self._end_on_sigterm()
        try:
            self._make_identities()
            for name in ("etcd", "apiserver"):
                self.start(name)
            self.api = Api(self.kubeconfig)
            self.wait_until_ready()
            for name in ("controllers", "scheduler"):
                self.start(name)
            self._wait_for_default_account()
        except BaseException:
            self.close()
            raise

    # --- identities

    def _make_identities(self):
        self.ca, ca_key = self.folder / "ca.crt", self.folder / "ca.key"
        self._openssl("-keyout", ca_key, "-out", self.ca, "-subj", "/CN=rubato-test-ca")
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        addresses = {self.address, "127.0.0.1", "10.0.0.1"}
        self.certificate("server", "/CN=kube-apiserver",
                         ",".join([f"DNS:{name}" for name in names] + [f"IP:{one}" for one in sorted(addresses)]))
        self.certificate("kubelet-client", "/O=system:masters/CN=apiserver")
        subprocess.run(["openssl", "genrsa", "-out", self.folder / "accounts.key", "2048"], check=True,
                       stderr=subprocess.DEVNULL)
        token = secrets.token_hex(16)
        (self.folder / "tokens.csv").write_text(f'{token},token-admin,1,"system:masters"\n')
        self.kubeconfig = self.user_kubeconfig("admin", "/O=system:masters/CN=admin")
        self.token_kubeconfig = self._write_kubeconfig("token-admin", {"token": token})
        # All controllers as one user: with an account each, the cluster takes seconds longer to start.
        self.user_kubeconfig("controllers", "/O=system:masters/CN=system:kube-controller-manager")
        self.user_kubeconfig("scheduler", "/CN=system:kube-scheduler")

    def _openssl(self, *words):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", *map(str, words)], check=True, capture_output=True)

    def certificate(self, name, subject, alternatives=None):
        """Signed by the cluster's authority: folder/NAME.crt and NAME.key."""
        more = ["-addext", f"subjectAltName={alternatives}"] if alternatives else []
        crt, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        self._openssl("-keyout", key, "-out", crt, "-subj", subject, "-CA", self.ca, "-CAkey", self.folder / "ca.key",
                      "-addext", "basicConstraints=CA:FALSE", *more)
        return crt, key

    def user_kubeconfig(self, name, subject):
        """For a new user with a client certificate: /O=GROUP/CN=USER."""
        crt, key = self.certificate(name, subject)
        return self._write_kubeconfig(name, {"client-certificate": str(crt), "client-key": str(key)})

    def account_kubeconfig(self, namespace, account, server=None):
        """For a service account that is there, with its token."""

        def token():
            accounts = self.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}").get("secrets")
            if not accounts:
                return None
            from base64 import b64decode
            secret = self.api.get(f"/api/v1/namespaces/{namespace}/secrets/{accounts[0]['name']}")
            return b64decode(secret["data"]["token"]).decode()

        token = wait_until(token, f"a token of {namespace}/{account}")
        return self._write_kubeconfig(f"{namespace}-{account}", {"token": token}, server)

    def _write_kubeconfig(self, name, user, server=None):
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": "test", "cluster": {"server": server or self.server,
                                                      "certificate-authority": str(self.ca)}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name}}]}))
        os.chmod(path, 0o600)
        return path

    def kubeconfig_through(self, server, name="through"):
        """The administrator's, at another address: a proxy's."""
        user = yaml.safe_load(self.kubeconfig.read_text())["users"][0]["user"]
        return self._write_kubeconfig(name, user, server)

    # --- processes

    def _commands(self):
        here = self.folder
        etcd = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        return {
            "etcd": ["etcd", "--name", "kube", "--data-dir", self._etcd_data, "--listen-client-urls", etcd,
                     "--advertise-client-urls", etcd, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                     "--initial-cluster", f"kube={peer}", "--log-level", "error"],
            "apiserver": [
                self.bin / "kube-apiserver", f"--etcd-servers={etcd}", f"--bind-address={self.address}",
                f"--advertise-address={self.address if self.address != '127.0.0.1' else '10.0.0.2'}",
                f"--secure-port={self.port}", f"--tls-cert-file={here}/server.crt",
                f"--tls-private-key-file={here}/server.key", f"--client-ca-file={self.ca}",
                "--authorization-mode=Node,RBAC", f"--token-auth-file={here}/tokens.csv",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={here}/accounts.key",
                f"--service-account-signing-key-file={here}/accounts.key", "--service-cluster-ip-range=10.0.0.0/24",
                f"--kubelet-client-certificate={here}/kubelet-client.crt",
                f"--kubelet-client-key={here}/kubelet-client.key", "--kubelet-preferred-address-types=InternalIP",
                f"--default-not-ready-toleration-seconds={self._toleration_s}",
                f"--default-unreachable-toleration-seconds={self._toleration_s}", "--allow-privileged",
                "--endpoint-reconciler-type=none", "--profiling=false", *self._flags],
            "controllers": [
                self.bin / "kube-controller-manager", f"--kubeconfig={here}/controllers.kubeconfig",
                f"--service-account-private-key-file={here}/accounts.key", f"--root-ca-file={self.ca}",
                "--leader-elect=false", "--port=0", "--secure-port=0", f"--controllers={CONTROLLERS}",
                f"--node-monitor-grace-period={self._node_grace_s}s", "--node-monitor-period=1s",
                "--kube-api-qps=200", "--kube-api-burst=300"],
            "scheduler": [self.bin / "kube-scheduler", f"--kubeconfig={here}/scheduler.kubeconfig",
                          "--leader-elect=false", "--port=0", "--secure-port=0",
                          "--kube-api-qps=200", "--kube-api-burst=300"],
        }

    def start(self, name):
        if not hasattr(self, "_peer_port"):
            self._peer_port = free_port()
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GOMAXPROCS": "2"}
        if self._mark:
            environment["RUBATO_TEST_MARK"] = self._mark
        with open(self.log(name), "ab") as log:
            self._processes[name] = subprocess.Popen(
                list(map(str, self._commands()[name])), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=environment, preexec_fn=die_with_parent, start_new_session=True)

    def stop(self, name, number=signal.SIGKILL):
        process = self._processes.pop(name, None)
        if process:
            process.send_signal(number)
            process.wait()

    def log(self, name):
        return self.folder / f"{name}.log"

    def wait_until_ready(self):
        def ready():
            self._assert_alive()
            try:
                return self.api.get("/readyz", raw=True) == "ok"
            except (OSError, ApiError):
                time.sleep(0.05)
                return False

        wait_until(ready, lambda: f"the API server: {self.log('apiserver').read_text()[-3000:]}", max(WAIT, 300))

    def _assert_alive(self):
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} ended: {self.log(name).read_text()[:3000]}"

    def _wait_for_default_account(self):
        """Before that no pod can be made."""

        def there():
            self._assert_alive()
            try:
                account = self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
                return account.get("secrets")
            except ApiError:
                return False

        wait_until(there, lambda: f"the default service account: {self.log('controllers').read_text()[-3000:]}",
                   max(WAIT, 300))

    # --- commands

    def environment(self, **changes):
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.folder), "LC_ALL": "C.UTF-8",
                       "KUBECONFIG": str(self.kubeconfig)}
        if self._mark:
            environment["RUBATO_TEST_MARK"] = self._mark
        return environment | changes

    def kubectl(self, *words, stdin=None, code=0, timeout=WAIT):
        words = list(map(str, words))
        done = subprocess.run([str(self.bin / "kubectl"), *words], input=stdin, capture_output=True, text=True,
                              env=self.environment(), timeout=timeout, cwd=self.folder)
        if code is None:
            return done
        assert done.returncode == code, f"kubectl {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words):
        return json.loads(self.kubectl(*words, "-o", "json"))

    def apply(self, what):
        """YAML text, an object, or a list of objects."""
        if not isinstance(what, str):
            what = yaml.safe_dump_all(what if isinstance(what, list) else [what])
        return self.kubectl("apply", "-f", "-", stdin=what)

    def story(self):
        """What a person needs after a failure."""
        parts = []
        for words in (["get", "pods", "-A", "-o", "wide"], ["get", "nodes"],
                      ["get", "events", "-A", "--sort-by=.metadata.creationTimestamp"]):
            done = self.kubectl(*words, code=None)
            parts.append(f"--- kubectl {' '.join(words)}\n{(done.stdout + done.stderr)[-6000:]}")
        return "\n".join(parts)

    # --- the end

    @staticmethod
    def _end_on_sigterm():
        """A test that runs out of its time is told with SIGTERM: it must still take everything away."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def close(self):
        if hasattr(self, "api"):
            self.api.close()
        for name in ("scheduler", "controllers", "apiserver", "etcd"):  # kubectl of a test may still run: it is killed
            self.stop(name)
        shutil.rmtree(self._etcd_data, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="until ^C")
    parser.add_argument("--folder", type=Path, help="for its files; removed at the end unless given")
    parser.add_argument("--nodes", type=int, default=0, help="so many nodes that run pods (needs root)")
    parser.add_argument("--image", action="append", default=[], metavar="NAME=FILE",
                        help="an image that holds this file as /NAME-OF-FILE; without FILE: one that cannot be pulled")
    parser.add_argument("command", nargs="*", help="a command to run, after --")
    return parser.parse_args(words)


def main():
    options = parse(sys.argv[1:])
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rubato-kube-"))
    code = 0
    try:
        with contextlib.ExitStack() as stack:
            if options.nodes:
                import kubelet
                network = stack.enter_context(kubelet.Network(folder / "network"))
                kube = stack.enter_context(KubeCluster(folder / "control", network.address))
                player = stack.enter_context(kubelet.Kubelet(kube, network, folder / "nodes"))
                for image in options.image:
                    name, _, path = image.partition("=")
                    player.image(name, path or None)
                for n in range(options.nodes):
                    player.add_node(f"node-{n + 1}")
            else:
                kube = stack.enter_context(KubeCluster(folder))
            print(f"export KUBECONFIG={kube.kubeconfig} PATH={kube.bin}:$PATH\n# logs: {kube.folder}/*.log", flush=True)
            if options.command:
                code = subprocess.run(options.command, env=os.environ | kube.environment()).returncode
            with contextlib.suppress(KeyboardInterrupt):
                while options.keep:
                    signal.pause()
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
