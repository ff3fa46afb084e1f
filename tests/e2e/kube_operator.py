"""What the tests of `rubato operator` share: the operator as a process, ElasticJobs, and what their workers wrote.

Workers are tests/scripts/steps.py, steered by files in the test's folder, which their pods have at /out.
"""
import os
import signal
import subprocess

import yaml

from harness import RUBATO, SCRIPTS, die_with_parent, free_port, wait_until
from kube_testing import KubeCase

IMAGE = "example.com/rubato:test"
JOBS = "/apis/rubato.dev/v1/namespaces/default/elasticjobs"


class Operator:
    """One `rubato operator` on this machine, its output in a file."""

    def __init__(self, case, name, kubeconfig, flags):
        self.name, self._case, self._log = name, case, case.folder / f"{name}.log"
        self._argv = [RUBATO, "operator", "--launcher-image", IMAGE, "--kubeconfig", str(kubeconfig), *flags]
        self.process = None
        self.start()

    def start(self):
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(self._argv, env=self._case.environment(), cwd=self._case.folder, stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def kill_soon(self):
        """From any thread: kill -9, and nothing more."""
        os.kill(self.process.pid, signal.SIGKILL)

    def again(self, before=lambda: None):
        """Waits for its end, which somebody else brings about, and starts it again, after a call of `before`."""
        self.process.wait()
        before()
        return self.start()

    @property
    def log(self):
        return self._log.read_text(errors="replace")


class OperatorCase(KubeCase):
    def setUp(self):
        super().setUp()
        self.operators = []
        self.nodes.image("example.com/rubato", {"/rubato": RUBATO}, entrypoint=["/rubato"])

    def tearDown(self):
        for one in self.operators:
            if one.process.poll() is None:
                one.kill()
        super().tearDown()

    def _told(self):
        logs = "".join(f"--- {one.name}\n{one.log[-5000:]}\n" for one in self.operators)
        shown = "jsonpath={range .items[*]}{.metadata.name}: {.status}{'\\n'}{end}"
        jobs = self.kube.kubectl("get", "elasticjobs.rubato.dev", "-A", "-o", shown, code=None).stdout[-6000:]
        return f"{super()._told()}\n{logs}--- workers: {self.steps()}\n{jobs}"

    def install_crd(self):
        self.kube.kubectl("apply", "-f", "-", stdin=self.rubato("k8s", "manifests", "--crd").stdout)
        self.kube.kubectl("wait", "--for=condition=established", "crd", "elasticjobs.rubato.dev")

    def operator(self, *flags, kubeconfig=None):
        one = Operator(self, f"operator{len(self.operators)}", kubeconfig or self.kube.kubeconfig, flags)
        self.operators.append(one)
        return one

    def supervisor_url(self):
        """As pods reach an operator on this machine."""
        return f"http://{self.network.address}:{free_port()}"

    def job(self, name, replicas=2, least=1, most=3, command=None, image="test/worker", container=None, **spec):
        """An ElasticJob of ours."""
        worker = {"name": "worker", "image": image, "volumeMounts": [{"name": "out", "mountPath": "/out"}],
                  "command": command or ["/usr/bin/python3", str(SCRIPTS / "steps.py"), "/out"], **(container or {})}
        return {"apiVersion": "rubato.dev/v1", "kind": "ElasticJob", "metadata": {"name": name}, "spec": {
            "replicas": replicas, "minReplicas": least, "maxReplicas": most, **spec, "template": {"spec": {
                "terminationGracePeriodSeconds": 20, "containers": [worker],
                "volumes": [{"name": "out", "hostPath": {"path": str(self.folder)}}]}}}}

    def status(self, name, path=JOBS):
        job = self.get(f"{path}/{name}")
        return job.get("status", {}) if job else None

    def condition(self, name, kind):
        return next((one for one in (self.status(name) or {}).get("conditions", ()) if one["type"] == kind), {})

    def wait_for_job(self, name, phase):
        return self.wait_for(lambda: (self.status(name) or {}).get("phase") == phase and self.status(name),
                             f"job {name} to be {phase}")

    def wait_for_block(self, name, reason):
        return self.wait_for(lambda: self.condition(name, "Blocked").get("reason") == reason and
                             self.condition(name, "Blocked"), f"job {name} to be blocked by {reason}")

    def job_pods(self, name):
        return self.pods(f"rubato.dev/job={name}")

    def wait_for_world(self, size, after=0):
        """Waits until a whole group of that size has started, told after so many lines; the number of lines then."""

        def formed():
            lines = self.steps()
            for end in range(len(lines), after + size - 1, -1):
                # Lines of one start stand together, apart from late ones of the start before.
                group = [line for line in lines[after:end] if line["world"] == size]
                for master in {line["master"] for line in group}:
                    if {line["rank"] for line in group if line["master"] == master} >= set(range(size)):
                        return len(lines)
            return None

        return self.wait_for(formed, f"a group of {size} after {after} lines")

    def scale(self, name, replicas):
        self.kube.kubectl("scale", "elasticjob", name, f"--replicas={replicas}")
