"""What the tests on Kubernetes share: a control plane, nodes that run pods, and waiting for objects.

Each test has its own (3 s on a quiet machine): what it breaks is its own. It is skipped where there is none, see
tools/kubernetes.sh.
"""
import contextlib
import os
import shutil

import harness
import kube_cluster
from harness import RUBATO, wait_until
from kube_api import ApiError
from kube_proxy import KubeProxy
from kubelet import Kubelet, Network


class KubeCase(harness.Case):
    nodes_count = 2
    node_cpu = 4
    control_plane = {}  # options of KubeCluster

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("pods of the test need root: network namespaces")
        try:
            kube_cluster.programs()
        except kube_cluster.Unavailable as why:
            self.skipTest(str(why))
        super().setUp()
        self._stack = contextlib.ExitStack()
        try:
            self.network = self._stack.enter_context(Network(self.folder / "network"))
            self.kube = self._stack.enter_context(kube_cluster.KubeCluster(
                self.folder / "control", self.network.address, mark=self.mark, **self.control_plane))
            self.nodes = self._stack.enter_context(Kubelet(self.kube, self.network, self.folder / "nodes", self.mark))
            for n in range(self.nodes_count):
                self.nodes.add_node(f"n{n + 1}", cpu=self.node_cpu)
            self.nodes.wait_until_ready()
        except BaseException:
            self._stack.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.api = self.kube.api

    def tearDown(self):
        if any(case is self for case, _ in self._result.failures + self._result.errors):
            print(self._told(), flush=True)
        self._stack.close()
        super().tearDown()

    def _told(self):
        try:
            return self.kube.story() + "\n" + self.nodes.story()
        except Exception as error:  # a story of a failure must not hide it
            return f"(no story: {error})"

    def proxy(self):
        return self._stack.enter_context(KubeProxy(self.kube))

    # --- objects

    def get(self, path):
        """None when it is not there."""
        try:
            return self.api.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def pods(self, selector="", namespace="default"):
        """{name: pod} of those that are not being deleted."""
        query = f"?labelSelector={selector}" if selector else ""
        items = self.api.get(f"/api/v1/namespaces/{namespace}/pods{query}")["items"]
        return {pod["metadata"]["name"]: pod for pod in items if "deletionTimestamp" not in pod["metadata"]}

    def pod(self, name, namespace="default"):
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def wait_for_phase(self, name, *phases, namespace="default"):
        def reached():
            pod = self.pod(name, namespace)
            return pod if pod and pod["status"].get("phase") in phases else None

        return wait_until(reached, lambda: f"pod {name} to be {phases}: {self.pod(name, namespace)}\n{self._told()}")

    def wait_for(self, condition, what):
        return wait_until(condition, lambda: f"{what}\n{self._told()}")

    def rubato(self, *words, code=0, env=None, timeout=harness.WAIT):
        """A command with the administrator's kubeconfig."""
        import subprocess
        done = subprocess.run([RUBATO, *map(str, words)], capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, cwd=self.folder,
                              env=self.environment(KUBECONFIG=str(self.kube.kubeconfig), **(env or {})))
        if code is not None:
            self.assertEqual(done.returncode, code, f"rubato {words}\n{done.stdout}\n{done.stderr}")
        return done


def shell_pod(name, script, restart="Never", image="test/any", spec=None, container=None, **metadata):
    """A pod that runs a shell script."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata},
            "spec": {"restartPolicy": restart, "terminationGracePeriodSeconds": 20, **(spec or {}), "containers": [
                {"name": "main", "image": image, "command": ["sh", "-c", script], **(container or {})}]}}
