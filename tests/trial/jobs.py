"""The mixed jobs of a trial: drawn from the seed, fed so that some always run and some always wait."""
import json
import threading
import time
from dataclasses import asdict, dataclass, field


@dataclass
class Plan:
    """One job to be: what it runs, and how it must end."""
    name: str
    kind: str
    flags: list
    number: float
    expected: str  # "succeeded", "failed", "stopped"
    elastic: bool = False
    timeout_s: float = 0.0
    stop_after_s: float = 0.0
    job: str = ""  # its id, once it is submitted
    asked: list = field(default_factory=list)  # of each submission: [when, exit code, last words]


RESTARTS = ["--max-restarts", "60"]  # more than a trial's strikes on one job: a killed worker costs one
QUICK = ["--checkpoint-timeout", "3s", "--grace", "2s"]


def draw(dice, index, lines_max):
    """The index-th job. Each kind says which promise it is there for."""
    name = f"t{index:04d}"
    roll = dice.random()
    if roll < 0.28:  # a success that must stay one
        return Plan(name, "run", ["--workers", str(dice.choice((1, 1, 2))), *RESTARTS, *QUICK], dice.uniform(0.2, 3),
                    "succeeded")
    if roll < 0.36:  # it ends long before its time-out, and must not be said to have failed by it
        return Plan(name, "run", ["--timeout", "25s", *RESTARTS, *QUICK], dice.uniform(0.5, 2), "succeeded",
                    timeout_s=25)
    if roll < 0.44:
        return Plan(name, "fail", ["--max-restarts", str(dice.choice((0, 1))), *QUICK], dice.uniform(0.1, 1), "failed")
    if roll < 0.52:
        return Plan(name, "retry", ["--workers", "2", *RESTARTS, *QUICK], dice.uniform(0.3, 1), "succeeded")
    if roll < 0.58:
        return Plan(name, "endless", ["--timeout", "4s", *RESTARTS, *QUICK], 0, "failed", timeout_s=4)
    if roll < 0.64:
        return Plan(name, dice.choice(("endless", "stubborn")), [*RESTARTS, *QUICK], 0, "stopped",
                    stop_after_s=dice.uniform(0.5, 4))
    if roll < 0.80:
        return Plan(name, "steps", ["--workers", dice.choice(("1:3", "2:4")), *RESTARTS, *QUICK],
                    dice.randrange(10, 60), "succeeded", elastic=True)
    if roll < 0.88:
        return Plan(name, "slow", ["--workers", dice.choice(("1:2", "1:3")), *RESTARTS, *QUICK],
                    dice.randrange(10, 30), "succeeded", elastic=True)
    return Plan(name, "print", ["--workers", str(dice.choice((1, 2))), *RESTARTS, *QUICK],
                min(lines_max, dice.choice((2_000, 20_000, 100_000))), "succeeded")


class Feeder(threading.Thread):
    """Submits jobs until told to stop, `active` of them unfinished at a time; stops those that a person would stop."""

    def __init__(self, cluster, dice, active, lines_max):
        super().__init__(daemon=True)
        self.cluster, self.dice, self.active, self.lines_max = cluster, dice, active, lines_max
        self.plans, self.ended = [], {}
        self.done = threading.Event()
        self.problem = None

    def run(self):
        try:
            while not self.done.is_set():
                self._refresh()
                while len(self.plans) - len(self.ended) < self.active and not self.done.is_set():
                    plan = draw(self.dice, len(self.plans), self.lines_max)
                    self.plans.append(plan)
                    self.submit(plan)
                    self._stop_due()
                self._stop_due()
                self.done.wait(0.4)
        except Exception as error:  # the trial reports it: a thread has nobody else to tell
            self.problem = repr(error)

    def submit(self, plan):
        """Until it is accepted: the head may be dead or stopped."""
        while True:
            # A refused or unanswered submission may still have become a job; its name tells.
            found = self._find(plan.name) if plan.asked else None
            if found:
                plan.job = found
                return
            done = self.cluster.rubato("submit", "--name", plan.name, *plan.flags, "-d", self.cluster.here, "worker.py",
                                       self.cluster.folder, plan.kind, f"{plan.number:g}")
            plan.asked.append([time.monotonic(), done.code, (done.err.strip().splitlines() or [""])[0][:200]])
            if done.code == 0:
                plan.job = done.out.strip()
                return
            time.sleep(0.3)

    def _find(self, name):
        while True:
            jobs = self.cluster.json("jobs", "--all")
            if jobs is not None:
                return next((job["id"] for job in jobs["jobs"] if job["name"] == name), None)
            time.sleep(0.3)

    def _refresh(self):
        jobs = self.cluster.json("jobs", "--all")
        for job in jobs["jobs"] if jobs else ():
            if job["phase"] in ("succeeded", "failed", "stopped"):
                self.ended[job["name"]] = job["phase"]

    def _stop_due(self):
        for plan in self.plans:
            if plan.stop_after_s and plan.job and plan.name not in self.ended and \
                    time.monotonic() > plan.asked[-1][0] + plan.stop_after_s:
                self.cluster.rubato("stop", plan.job)  # asked again until it has ended: the head may be away

    def unfinished(self):
        self._refresh()
        self._stop_due()
        return [plan.name for plan in self.plans if plan.name not in self.ended]

    def write(self, path):
        path.write_text("\n".join(json.dumps(asdict(plan)) for plan in self.plans) + "\n")
