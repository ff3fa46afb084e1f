"""make demo: a cluster of local nodes whose training grows, loses a node, loses the head and gets it back.
Every claim is checked."""
import json
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

from telling import PYTHON, RUBATO, STEPS, TRAIN, Broken, Story, paint, prove, read_lines, tell

CLUSTER_FILE = """\
cluster_name: demo
provider: {{type: local}}
max_workers: {nodes}
available_node_types:
  small:
    resources: {{CPU: 1}}
    min_workers: {nodes}
    max_workers: {nodes}
"""
MARK = "RUBATO_DEMO_MARK"


class ClusterStory(Story):
    def __init__(self):
        super().__init__()
        self.file = self.folder / "demo.yaml"
        self.mark = str(uuid.uuid4())
        self.env = os.environ | {"XDG_STATE_HOME": str(self.folder / "state"), "NO_COLOR": "1", MARK: self.mark}
        self.env.pop("RUBATO_CLUSTER", None)
        self.home = self.folder / "state/rubato/clusters/demo"
        self.job = ""

    # Asking the cluster.

    def rubato(self, *words, check=True):
        """Runs a command; what it printed. `check`: it must succeed."""
        done = subprocess.run([RUBATO, *words], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and done.returncode != 0:
            raise Broken(f"`rubato {' '.join(words)}` ended with {done.returncode}:\n{done.stderr}")
        return done.stdout or done.stderr

    def ask(self, *words):
        return json.loads(self.rubato(*words, "--json"))

    def show(self, *words, lines=99, check=True):
        """Runs a command as a person would, and shows what it printed."""
        self.type("rubato " + " ".join(words).replace(str(self.folder) + "/", ""))
        for line in self.rubato(*words, check=check).rstrip().splitlines()[:lines]:
            print(f"         {paint('2', line)}", flush=True)

    def nodes(self):
        return {node["id"]: node for node in self.ask("status")["nodes"]}

    def running(self, workers, after):
        """Waits until the job runs with so many workers in a generation above `after`; the job."""

        def found():
            job = self.ask("job", "show", self.job)
            if job["phase"] in ("succeeded", "failed", "stopped"):
                raise Broken(f"the job ended too early: {job['phase']}, {job['reason']}")
            there = job["phase"] == "running" and job["workers"] == workers and job["generation"] > after
            return job if there else None

        return self.wait(f"a group of {workers}", found)

    def record(self):
        return read_lines(self.home / f"jobs/{self.job}/output/record.jsonl")

    def evidence(self):
        return "\n".join(self.rubato(*words, check=False) for words in
                         (["status"], ["events"], ["logs", self.job or "none"]))

    def marked(self):
        """The living processes that this demo started."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
        return found

    # The story.

    def play(self):
        generation = self.begins()
        generation = self.grows(generation)
        generation = self.loses_a_node(generation)
        self.loses_the_head(generation)
        self.ends()

    def begins(self):
        self.title("A cluster of two small nodes on this machine, and a training that wants 2 to 4 workers.")
        self.file.write_text(CLUSTER_FILE.format(nodes=2))
        self.show("up", str(self.file), lines=3)
        submit = ["submit", "--workers", "2:4", "--name", "spirals", "--prewarm", "torch"]
        self.type(" ".join(["rubato", *submit, "train.py"]))
        before = time.monotonic()
        self.job = self.rubato(*submit, "--python", PYTHON, "--env", "GLOO_SOCKET_IFNAME=lo", str(TRAIN),
                               str(STEPS)).strip()
        job = self.running(2, 0)
        self.good(f"2 workers run after {time.monotonic() - before:.2f} s")
        self.trains(2)
        self.show("why", "spirals")
        return job["generation"]

    def grows(self, generation):
        self.title("The file is edited to four nodes: `up` changes only what differs, and the training grows.")
        self.file.write_text(CLUSTER_FILE.format(nodes=4))
        before = time.monotonic()
        self.show("up", str(self.file), lines=3)
        job = self.running(4, generation)
        self.good(f"grew to 4 in {time.monotonic() - before:.2f} s")
        self.trains(4)
        self.show("status", lines=11)
        return job["generation"]

    def loses_a_node(self, generation):
        victim = self.ask("job", "show", self.job)["members"][-1]["node"]
        self.title("A node dies: its agent is killed, its worker dies with it.")
        self.type(f"kill -9 <agent of {victim}>")
        known = set(self.nodes())
        before = time.monotonic()
        os.kill(int((self.home / f"nodes/{victim}/daemon.pid").read_text().split()[0]), signal.SIGKILL)

        def replaced():
            job = self.running(4, generation)
            return job if victim not in [member["node"] for member in job["members"]] else None

        job = self.wait(f"a replacement for {victim}", replaced)
        fresh = sorted(set(self.nodes()) - known)
        if len(fresh) != 1:
            raise Broken(f"one node should have been replaced by one, but these are new: {fresh}")
        self.good(f"{fresh[0]} replaces {victim}; 4 workers again after {time.monotonic() - before:.2f} s")
        self.trains(4)
        return job["generation"]

    def loses_the_head(self, generation):
        self.title("The head dies. Its supervisor starts it again; the workers do not notice.")
        cluster = self.ask("status")["cluster"]
        self.type("kill -9 <head>")
        before = time.monotonic()
        os.kill(cluster["head"]["pid"], signal.SIGKILL)

        def back():
            head = self.ask("status")["cluster"]["head"]
            return head if head["pid"] != cluster["head"]["pid"] else None

        self.wait("a new head", back)
        self.good(f"a head answers again after {time.monotonic() - before:.2f} s; nobody typed anything")
        self.show("status", lines=2)
        self.trains(4)
        job = self.running(4, 0)
        epoch = self.ask("status")["cluster"]["head"]["epoch"]
        if epoch != cluster["head"]["epoch"] + 1:
            raise Broken(f"the head's epoch is {epoch} after {cluster['head']['epoch']}")
        if job["generation"] != generation:
            raise Broken(f"the head's death restarted the workers: generation {job['generation']}, not {generation}")
        self.good(f"head {epoch} has adopted the job: still generation {generation}, no worker was restarted")
        self.trains(4)

    def ends(self):
        self.title("The training ends.")

        def ended():
            job = self.ask("job", "show", self.job)
            return job if "ended" in job else None

        job = self.wait("the end of the job", ended)
        if job["phase"] != "succeeded":
            raise Broken(f"the job {job['phase']}: {job['reason']}")
        if job["restarts_used"] != 0:
            raise Broken("a loss or a rescale was counted as a restart")
        self.show("events")
        self.show("fetch", self.job, "result")
        starts, again, loss = prove(read_lines(self.folder / "result/record.jsonl"))
        self.good(f"{STEPS} steps in {starts} generations: each counted once ({again} were done again after a "
                  f"checkpoint)")
        self.good(f"every sample was seen exactly once an epoch; loss {loss:.4f}, as without any of this")

    def close(self):
        if self.home.exists():
            self.show("down", "-y", "--purge", check=False)
        left = self.marked()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        super().close()
        if left:
            raise Broken(f"`rubato down` left {len(left)} processes")


if __name__ == "__main__":
    tell(ClusterStory)
