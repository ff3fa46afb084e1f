#!/usr/bin/env python3
"""Pods as nodes: `rubato up` with `provider: {type: kubernetes}` on a real control plane, and what ssh is to hosts."""
import json
import os
import re
import socket
import subprocess
from pathlib import Path

import harness
import yaml
from harness import RUBATO, wait_until
from kube_testing import KubeCase, shell_pod
from terminal import Terminal

EXAMPLES = harness.ROOT / "deploy/examples"
WAITS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


class Shell(KubeCase):
    """`rubato k8s shell` and `forward`: a command in a pod by way of the API server."""
    nodes_count = 1

    def setUp(self):
        super().setUp()
        self.kube.apply(shell_pod("box", WAITS))
        self.wait_for_phase("box", "Running")

    def shell(self, line, stdin=b"", code=0, pod="default/box/main"):
        env = self.environment(KUBECONFIG=str(self.kube.kubeconfig))
        done = subprocess.run([RUBATO, "k8s", "shell", pod, line], input=stdin, capture_output=True, env=env,
                              timeout=harness.WAIT)
        self.assertEqual(done.returncode, code, f"{line}: {done.stderr}")
        return done

    def check_streams(self):
        done = self.shell("hostname; echo oops >&2; exit 7", code=7)
        self.assertEqual((done.stdout, done.stderr), (b"box\n", b"oops\n"))
        # Every byte there and back, more than any buffer holds, and the end of the input is seen.
        blob = os.urandom(3_000_000)
        self.assertEqual(self.shell("cat", stdin=blob).stdout, blob)
        self.assertEqual(self.shell("wc -c", stdin=blob).stdout.split(), [b"3000000"])
        # A command that ends before its input does.
        with subprocess.Popen([RUBATO, "k8s", "shell", "default/box/main", "echo early"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE,
                              env=self.environment(KUBECONFIG=str(self.kube.kubeconfig))) as early:
            self.assertEqual(early.stdout.read(), b"early\n")
            self.assertEqual(early.wait(harness.WAIT), 0)
        self.assertEqual(self.shell("exit 255", code=255).stderr, b"")

    def test_streams_and_exit_codes_go_through(self):
        self.check_streams()
        lost = self.shell("true", code=255, pod="default/nobody/main").stderr.decode()
        self.assertRegex(lost, 'rubato k8s shell: .*pods "nobody" not found')
        self.assertIn("refused", self.shell("true", code=255, pod="bad").stderr.decode())
        nobody = self.kube.user_kubeconfig("nobody", "/O=nobody/CN=nobody")
        done = subprocess.run([RUBATO, "k8s", "shell", "default/box/main", "true"], capture_output=True, text=True,
                              env=self.environment(KUBECONFIG=str(nobody)), stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 255)
        self.assertRegex(done.stderr, "refused: .*cannot (get|create) resource")

    def test_an_older_cluster_that_cannot_end_the_input(self):
        self.nodes.server.protocols = ("v4.channel.k8s.io",)
        self.check_streams()

    def test_a_terminal_there_is_this_one(self):
        env = self.environment(KUBECONFIG=str(self.kube.kubeconfig))
        argv = [RUBATO, "k8s", "shell", "--tty", "default/box/main", "exec bash --norc"]
        with Terminal(argv, env, self.folder, rows=33, columns=99) as screen:
            screen.type("echo $((40+2)) $TERM\r")
            screen.expect("42 xterm")
            screen.type("until [ \"$(stty size)\" = '33 99' ]; do sleep 0.05; done; echo s''ize\r")
            screen.expect("size")
            screen.resize(44, 88)
            screen.type("until [ \"$(stty size)\" = '44 88' ]; do sleep 0.05; done; echo res''ized\r")
            screen.expect("resized")
            # Ctrl-C is a key of the terminal there, and nothing that happens here.
            screen.type("stty raw -echo; echo re''ady; head -c 1 | od -An -tx1; stty sane\r")
            screen.expect("ready")
            screen.interrupt()
            screen.expect(" 03")
            screen.type("exit 9\r")
            self.assertEqual(screen.end(), 9)

    def test_a_socket_leads_to_a_port_of_the_pod(self):
        # The program as `up` puts it there, and somebody who listens.
        self.shell("mkdir -p ~/.rubato/bin && cat >~/.rubato/bin/rubato && chmod +x ~/.rubato/bin/rubato",
                   stdin=Path(RUBATO).read_bytes())
        self.shell(f"{harness.PYTHON} -m http.server --bind 127.0.0.1 -d /etc 8123 >/dev/null 2>&1 </dev/null &")
        path = str(self.folder / "way.sock")
        self.rubato("k8s", "forward", path, "default/box/main", "8123")

        def fetched():
            try:
                with socket.socket(socket.AF_UNIX) as way:
                    way.settimeout(harness.WAIT)
                    way.connect(path)
                    way.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
                    parts = []
                    while part := way.recv(65536):
                        parts.append(part)
                    return b"".join(parts)
            except ConnectionError:  # nobody listens at the port yet
                return b""

        self.wait_for(lambda: fetched().endswith(b"box\n"), "the page through the socket")
        serving = lambda: [pid for pid in os.listdir("/proc") if pid.isdigit() and path.encode() in self._cmdline(pid)]
        self.assertNotEqual(serving(), [])
        os.unlink(path)  # nobody needs it any more
        wait_until(lambda: not serving(), "the end of the forward")

    @staticmethod
    def _cmdline(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as text:
                return text.read()
        except OSError:
            return b""


class PodNodes(KubeCase):
    """A cluster whose machines are pods; this machine is the laptop."""
    cluster = "lab"

    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"
        self.state.mkdir()
        self.write_file()

    def tearDown(self):
        if hasattr(self, "state"):
            failed = any(case is self for case, _ in self._result.failures + self._result.errors)
            if failed:
                for words in (["status"], ["jobs", "--all"], ["events", "--limit", "60"]):
                    done = self.rubato(*words, "--cluster", self.cluster, code=None)
                    print(f"--- rubato {' '.join(words)}\n{(done.stdout + done.stderr)[-5000:]}", flush=True)
                done = self.rubato("exec", self.cluster,
                                   "tail -n 60 ~/.local/state/rubato/clusters/local/head/daemon.log", code=None)
                print(f"--- the head's log\n{(done.stdout + done.stderr)[-8000:]}", flush=True)
            self.rubato("down", "-y", "cluster.yaml", code=None)
        super().tearDown()

    def environment(self, **changes):
        known = {"KUBECONFIG": str(self.kube.kubeconfig)} if hasattr(self, "kube") else {}
        return super().environment(**({"XDG_STATE_HOME": str(self.folder / "state"), "USER": "tester",
                                       "GLOO_SOCKET_IFNAME": None} | known | changes))

    def write_file(self, least=1, most=3, cpu="1", image="test/any", provider=""):
        def pod(size):
            return {"spec": {"containers": [{"image": image, "resources": {"requests": {"cpu": size}}}]}}

        (self.folder / "cluster.yaml").write_text(yaml.safe_dump({
            "cluster_name": self.cluster,
            "provider": {"type": "kubernetes", "namespace": "default"} | yaml.safe_load(f"{{{provider}}}"),
            "max_workers": most, "idle_timeout_minutes": 0.05, "head_node_type": "head",
            "available_node_types": {
                "head": {"node_config": pod("500m"), "resources": {"CPU": 1}, "max_workers": 0},
                "worker": {"node_config": pod(cpu), "resources": {"CPU": 2}, "min_workers": least,
                           "max_workers": most}}}))

    def json(self, *words):
        return json.loads(self.rubato(*words, "--json", "--cluster", self.cluster).stdout)

    def cluster_pods(self):
        return self.pods(f"rubato.dev/cluster={self.cluster}")

    def wait_for_pods(self, *names):
        self.wait_for(lambda: set(self.cluster_pods()) == set(names), f"the pods {names}")

    def submit(self, *flags):
        return self.rubato("submit", "--cluster", self.cluster, *flags).stdout.strip()

    def wait_for_job(self, job, *phases):
        return self.wait_for(lambda: self.json("job", "show", job)["phase"] in phases, f"{phases} of {job}")

    def test_up_makes_a_cluster_of_pods_that_scales_and_down_leaves_nothing(self):
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        self.wait_for_pods("lab-head", "lab-worker-1")
        again = self.rubato("up", "-y", "cluster.yaml")
        self.assertEqual(again.stderr, "nothing to change: 'lab' is up with 2 nodes\n")
        # The head acts with an account that may handle pods, and nothing else; workers have none.
        self.assertEqual(self.pod("lab-head")["spec"]["serviceAccountName"], "rubato-lab-head")
        self.assertEqual(self.pod("lab-worker-1")["spec"].get("automountServiceAccountToken"), False)
        done = self.rubato("exec", "cluster.yaml", "hostname; echo oops >&2; exit 7", code=7)
        self.assertEqual((done.stdout, "oops" in done.stderr), ("lab-head\n", True))
        # Work for two more: their pods come, and go when nobody needs them.
        work = self.folder / "work"
        work.mkdir()
        (work / "job.py").write_text(
            "import os, socket, time\nprint('rank', os.environ['RANK'], 'on', socket.gethostname(), flush=True)\n"
            "while not os.path.exists('/tmp/go') and os.environ['RANK'] == '0': time.sleep(0.05)\n")
        job = self.submit("--workers", "3", "--cpus", "2", "-d", work, "job.py")
        self.wait_for(lambda: len(self.cluster_pods()) == 4, "two more pods")
        logs = lambda: self.rubato("logs", job, "--cluster", self.cluster).stdout
        self.wait_for(lambda: all(f"rank {rank} on lab-worker-" in logs() for rank in range(3)), "all ranks")
        seat = re.search(r"rank 0 on (lab-worker-\d+)", logs()).group(1)
        self.rubato("k8s", "shell", f"default/{seat}/node", "touch /tmp/go")
        self.wait_for_job(job, "succeeded")
        self.wait_for(lambda: len(self.cluster_pods()) == 2, "the end of two pods")
        done = self.rubato("down", "-y", "cluster.yaml")
        self.assertRegex(done.stderr, "machines? ended")
        self.assertEqual(self.api.get("/api/v1/namespaces/default/pods")["items"], [])
        self.assertIsNone(self.get("/api/v1/namespaces/default/serviceaccounts/rubato-lab-head"))
        self.assertIn("is not running", self.rubato("down", "-y", "cluster.yaml").stderr)

    def test_files_and_terminals(self):
        self.rubato("up", "-y", "cluster.yaml")
        folder = self.folder / "tree"
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/file").write_text("contents\n")
        self.rubato("rsync-up", "--all-nodes", "cluster.yaml", folder, "~/tree")
        for pod in ("lab-head", "lab-worker-1"):
            got = self.rubato("k8s", "shell", f"default/{pod}/node", "cat tree/deep/file; echo more >>tree/deep/file")
            self.assertEqual(got.stdout, "contents\n")
        self.rubato("rsync-down", "cluster.yaml", "~/tree/", self.folder / "back")
        self.assertEqual((self.folder / "back/deep/file").read_text(), "contents\nmore\n")
        for flags, name in (([], "lab-head"), (["--node", "worker-1"], "lab-worker-1")):
            with Terminal([RUBATO, "attach", "cluster.yaml", *flags], self.environment(), self.folder) as screen:
                screen.type("echo at `hostname`; exit 4\r")
                screen.expect(f"at {name}")
                self.assertEqual(screen.end(), 4)

    def submit_saver(self):
        """A job that saves when it is asked to end, and ends well when it may; its id, and how its log is read."""
        work = self.folder / "work"
        work.mkdir()
        (work / "job.py").write_text(
            "import os, signal, socket, sys, time\n"
            "def save(*_):\n"
            "    time.sleep(0.5)\n"
            "    print('saved on', socket.gethostname(), flush=True)\n"
            "    sys.exit(143)\n"
            "signal.signal(signal.SIGTERM, save)\n"
            "print('runs on', socket.gethostname(), flush=True)\n"
            "while not os.path.exists('/tmp/go'): time.sleep(0.05)\n")
        job = self.submit("--workers", "1", "--cpus", "2", "-d", work, "job.py")
        return job, lambda: self.rubato("logs", job, "--cluster", self.cluster, code=None).stdout

    def node_is_up(self, name):
        return any(node["id"] == name and node["phase"] == "up" for node in self.json("status")["nodes"])

    def test_a_pod_that_is_deleted_is_replaced_and_its_workers_save(self):
        self.rubato("up", "-y", "cluster.yaml")
        job, logs = self.submit_saver()
        self.wait_for(lambda: "runs on lab-worker-1" in logs(), "the job")
        self.kube.kubectl("delete", "pod", "lab-worker-1", "--wait=false")
        self.wait_for(lambda: set(self.cluster_pods()) - {"lab-head", "lab-worker-1"}, "another pod")
        elsewhere = lambda: re.search(r"runs on (lab-worker-(?!1\b)\d+)", logs())
        # Where the agent's goodbye does not arrive, its lease of two minutes has to end first.
        wait_until(elsewhere, lambda: f"the job there; so far:\n{logs()}", timeout=2 * harness.WAIT)
        self.wait_for(lambda: "saved on lab-worker-1" in logs(), "the first pod's last line")
        self.rubato("k8s", "shell", f"default/{elsewhere()[1]}/node", "touch /tmp/go")
        self.wait_for_job(job, "succeeded")

    def test_a_head_whose_container_dies_goes_on_and_others_may_connect(self):
        self.rubato("up", "-y", "cluster.yaml")
        job, logs = self.submit_saver()
        self.wait_for(lambda: "runs on lab-worker-1" in logs(), "the job")
        before = self.pod("lab-worker-1")["metadata"]["uid"]
        os.kill(self.nodes.pid("default", "lab-head", "node"), 9)
        restarts = lambda: self.pod("lab-head")["status"]["containerStatuses"][0]["restartCount"]
        self.wait_for(lambda: restarts() == 1, "the container's second life")
        # Somebody else, with nothing but the file and a kubeconfig; nobody types `up`.
        other = {"XDG_STATE_HOME": str(self.folder / "other")}
        wait_until(lambda: self.rubato("connect", "cluster.yaml", env=other, code=None).returncode == 0,
                   lambda: self.rubato("connect", "cluster.yaml", env=other, code=None).stderr)
        shown = json.loads(self.rubato("status", "--json", "--cluster", self.cluster, env=other).stdout)
        self.assertEqual({node["id"] for node in shown["nodes"]}, {"head", "worker-1"})
        self.wait_for(lambda: self.node_is_up("worker-1"), "the worker that has lost nothing")
        self.assertEqual(self.pod("lab-worker-1")["metadata"]["uid"], before)
        self.rubato("k8s", "shell", "default/lab-worker-1/node", "touch /tmp/go")
        self.wait_for_job(job, "succeeded")
        self.assertEqual(logs().count("runs on"), 1, "it was never interrupted")
        self.rubato("down", "-y", "cluster.yaml", env=other)
        self.wait_for(lambda: not self.cluster_pods(), "the end of all pods")

    def test_a_head_on_a_volume_survives_its_pod(self):
        self.kube.kubectl("apply", "-f", EXAMPLES / "storage.yaml")
        text = yaml.safe_load((EXAMPLES / "cluster-of-pods.yaml").read_text())
        types = text["available_node_types"]
        types["worker"] = types.pop("gpu") | {"resources": {"CPU": 2}, "min_workers": 1}
        for each in types.values():
            each["node_config"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m"}}
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump(text))
        self.rubato("up", "-y", "cluster.yaml")
        job, logs = self.submit_saver()
        self.wait_for(lambda: "runs on lab-worker-1" in logs(), "the job")
        head = self.pod("lab-head-0")
        self.kube.kubectl("delete", "pod", "lab-head-0")
        # Nobody types anything: another pod, another address, the same head.
        self.wait_for(lambda: (self.pod("lab-head-0") or head)["metadata"]["uid"] != head["metadata"]["uid"],
                      "another pod of the head")
        again = self.wait_for_phase("lab-head-0", "Running")
        self.assertNotEqual(again["status"]["podIP"], head["status"]["podIP"])
        shown = lambda: self.rubato("job", "show", job, "--json", "--cluster", self.cluster, code=None)
        self.wait_for(lambda: shown().returncode == 0, "the head")
        self.rubato("k8s", "shell", "default/lab-worker-1/node", "touch /tmp/go")
        self.wait_for_job(job, "succeeded")
        self.assertEqual(logs().count("runs on"), 1, "it was never interrupted")
        self.assertEqual(set(self.cluster_pods()), {"lab-head-0", "lab-worker-1"})
        self.rubato("down", "-y", "cluster.yaml")
        self.wait_for(lambda: not self.cluster_pods(), "the end of all pods")
        self.assertIsNone(self.get("/apis/apps/v1/namespaces/default/statefulsets/lab-head"))

    def test_a_pod_without_room_is_told_by_why(self):
        self.write_file(least=0, cpu="100", provider="pending_timeout: 3s")
        self.rubato("up", "-y", "cluster.yaml")
        work = self.folder / "work"
        work.mkdir()
        (work / "job.py").write_text("print('ran')\n")
        job = self.submit("--workers", "1", "--cpus", "2", "-d", work, "job.py")
        self.assertIn("rubato why --last", self.rubato("why", job, "--cluster", self.cluster).stdout)
        why = lambda: " ".join(self.rubato("why", "--last", "--cluster", self.cluster).stdout.split())
        wait_until(lambda: "0/2 nodes are available" in why(), lambda: f"the scheduler's reason in: {why()}")


if __name__ == "__main__":
    harness.main()
