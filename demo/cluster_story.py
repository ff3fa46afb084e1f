"""make demo: a cluster of local nodes whose adaptive training grows, is told that a node will go, loses a node, loses
the head and gets it back, in place all the while. Every claim is checked; the timeline is printed."""
import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

from telling import LIMIT, PYTHON, RUBATO, TRAIN, Broken, Story, paint, read_lines, tell
from timeline import prove_samples, render, timeline

SAMPLES = 960  # as in train.py

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
        return self.wait(f"a group of {workers}", lambda: next(
            (job for job in [self.running_any(after)] if job and job["workers"] == workers), None))

    def running_any(self, after):
        """The job if it runs in a generation above `after`, with however many."""
        job = self.ask("job", "show", self.job)
        if job["phase"] in ("succeeded", "failed", "stopped"):
            raise Broken(f"the job ended too early: {job['phase']}, {job['reason']}")
        return job if job["phase"] == "running" and job["generation"] > after else None

    def output(self, name):
        return self.home / f"jobs/{self.job}/output/{name}"

    def trains(self, world, more=25):
        """Waits for some more steps in that world; tells the last."""
        old = len(read_lines(self.output("metrics.jsonl")))

        def found():
            new = [line for line in read_lines(self.output("metrics.jsonl"))[old:] if line.get("workers") == world]
            return new[-1] if len(new) >= more else None

        last = self.wait(f"training with {world} workers", found)
        self.good(f"step {last['step']:4d}, {world} workers, batch size {last['batch_size']}, loss {last['loss']:.2f}")

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
        generation = self.drains_a_node(generation)
        generation = self.loses_a_node(generation)
        self.loses_the_head(generation)
        self.ends()

    def begins(self):
        self.title("A cluster of two small nodes on this machine, and a training that wants 2 to 4 workers.")
        self.file.write_text(CLUSTER_FILE.format(nodes=2))
        self.show("up", str(self.file), lines=3)
        submit = ["submit", "--workers", "2:4", "--name", "pictures", "--prewarm", "torch"]
        self.type(" ".join(["rubato", *submit, "train.py"]))
        before = time.monotonic()
        # It tells nobody what more workers are worth to it: on two busy cores that would be another story each time.
        mute = ["--env", "DEMO_MUTE=1"]
        slower = ["--env", "DEMO_STEP_TIME"] if "DEMO_STEP_TIME" in os.environ else []
        self.job = self.rubato(*submit, "--python", PYTHON, "--env", "GLOO_SOCKET_IFNAME=lo", *mute, *slower,
                               str(TRAIN)).strip()
        job = self.running(2, 0)
        self.good(f"2 workers run after {time.monotonic() - before:.2f} s")
        self.trains(2, more=90)
        self.show("why", "pictures")
        return job["generation"]

    def grows(self, generation):
        self.title("The file is edited to four nodes: `up` changes only what differs, and the training grows.")
        self.file.write_text(CLUSTER_FILE.format(nodes=4))
        before = time.monotonic()
        self.show("up", str(self.file), lines=3)
        job = self.running(4, generation)
        self.good(f"grew to 4 in {time.monotonic() - before:.2f} s, in place: the first two trained on meanwhile")
        self.trains(4, more=60)
        self.show("status", lines=11)
        return job["generation"]

    def drains_a_node(self, generation):
        leaver = self.ask("job", "show", self.job)["members"][0]["node"]
        self.title("A spot machine will be taken in two minutes: the job leaves it in place, and a new one comes.")
        before = time.monotonic()
        self.show("drain", leaver, "--deadline", "2m", lines=3)

        def left():
            job = self.running_any(generation)
            return job if job and leaver not in [member["node"] for member in job["members"]] else None

        job = self.wait(f"a job without {leaver}", left)
        self.good(f"{leaver} was left after {time.monotonic() - before:.2f} s")
        job = self.running(4, generation)
        self.good(f"4 workers again after {time.monotonic() - before:.2f} s")
        self.trains(4)
        return self.ask("job", "show", self.job)["generation"]

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
            try:
                head = self.ask("status")["cluster"]["head"]
            except Broken:  # a slow machine needs longer than a command waits
                return None
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
        self.title("The training is told to end with this pass over its data.")
        self.output("finish").touch()

        def ended():
            job = self.ask("job", "show", self.job)
            return job if "ended" in job else None

        job = self.wait("the end of the job", ended)
        if job["phase"] != "succeeded":
            raise Broken(f"the job {job['phase']}: {job['reason']}")
        if job["restarts_used"] != 0:
            raise Broken("a loss or a rescale was counted as a restart")
        self.show("fetch", self.job, "result")
        result = self.folder / "result"
        self.title("What happened, from the cluster's events and the training's metrics:")
        for line in render(timeline(read_lines(result / "metrics.jsonl"), self.changes())):
            print(f"         {line}", flush=True)
        steps, passes, again, processes, accuracy = prove_samples(read_lines(result / "samples.jsonl"), SAMPLES)
        if processes != 6:  # two at first, two for growth, one for each node that went
            raise Broken(f"{processes} processes have trained, not 6: somebody was restarted")
        if accuracy < 0.7:  # one in four is chance
            raise Broken(f"after {passes} passes it is right about {100 * accuracy:.0f} % of the pictures only")
        self.good(f"{steps} steps by {processes} processes, of which none was restarted; "
                  f"{again} {'was' if again == 1 else 'were'} taken again")
        self.good(f"every sample was seen exactly once an epoch, in each of {passes}; right about "
                  f"{100 * accuracy:.0f} % of the pictures")

    def changes(self):
        """{generation: how it came to be}, from the cluster's events."""
        lines = self.rubato("events", "--limit", "1000", "--json").splitlines()
        started = [event["data"] for event in map(json.loads, lines)
                   if event["type"] == "job-started" and event["job"] == self.job]
        return {one["generation"]: one.get("change", "") for one in started}

    def close(self):
        if self.home.exists():
            self.show("down", "-y", "--purge", check=False)
        deadline = time.monotonic() + LIMIT
        while (left := self.marked()) and time.monotonic() < deadline:
            time.sleep(0.03)  # the guard of a process may need a moment to see that it is gone
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().close()
        if left:
            raise Broken(f"`rubato down` left {len(left)} processes")


if __name__ == "__main__":
    tell(ClusterStory)
