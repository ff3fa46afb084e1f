"""What a trial does to its cluster: kills and pauses, drawn from the seed; who was hit and when is written down.

A pause is SIGSTOP to one process, and SIGCONT after a while; the workers of a paused agent run on. A head that is
killed must come back by itself, also when its supervisor dies with it; half of those times somebody types `rubato up`.
"""
import math
import random
import signal
import threading
import time
from dataclasses import asdict, dataclass

from cluster import Process, Up, alive

# Each kind with its weight. "new": the process that is started in the place of the killed one is paused at once.
KINDS = {
    "kill-head": 14, "kill-agent": 12, "kill-worker": 10, "pause-head": 16, "pause-agent": 18, "pause-all": 4,
    "kill-head-pause-new": 8, "kill-agent-pause-new": 4, "kill-head-and-agent": 4, "kill-worker-then-agent": 4,
    "pause-head-and-agent": 4, "pause-agent-kill-head": 4, "kill-head-twice": 3, "kill-worker-and-head": 3,
    "kill-supervisor": 5, "kill-head-and-supervisor": 8, "pause-supervisor": 3, "pause-supervisor-kill-head": 3,
}
HEAD_BACK_MAX_S = 40     # until a killed head is there again: its supervisor waits up to 10 s, and the machine is busy
NEW_PROCESS_MAX_S = 40  # how long to wait for the process in the place of a killed one


@dataclass
class Strike:
    index: int
    kind: str
    gap_s: float    # since the strike before
    pause_s: float  # of what is paused
    delay_s: float  # until `rubato up` where it is needed, or the second half
    which: float    # 0..1: which agent or worker
    calm: bool      # the cluster has time to recover first: one that is only ever down proves little


def log_uniform(dice, low, high):
    return math.exp(dice.uniform(math.log(low), math.log(high)))


def draw(seed, count, pause_max_s):
    """The schedule: the same for the same seed. Two pauses in three are short: those must hurt nobody."""
    dice = random.Random(f"strikes {seed}")
    strikes = []
    for index in range(count):
        low, high = (0.1, min(2.0, pause_max_s)) if dice.random() < 0.66 else (min(2.0, pause_max_s / 2), pause_max_s)
        kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
        strikes.append(Strike(index, kind, dice.uniform(0.2, 3.4), log_uniform(dice, low, high),
                              log_uniform(dice, 0.02, 4.0), dice.random(), dice.random() < 0.4))
    return strikes


class Striker:
    def __init__(self, cluster):
        self.cluster = cluster
        self._paused = set()
        self._lock = threading.Lock()
        self._threads = []
        self._head_due = None  # when somebody types `rubato up`
        self._keeper = threading.Thread(target=self._keep_head, daemon=True)
        self._ending = threading.Event()
        self._keeper.start()

    def strike(self, strike):
        self.cluster.note("strike", at=time.monotonic(), **{"strike": asdict(strike)})
        getattr(self, "_" + strike.kind.replace("-", "_"))(strike)

    def settle(self):
        """Waits until nobody is paused any more, and the head has been started again."""
        index = 0
        while index < len(self._threads):  # one may start another
            self._threads[index].join()
            index += 1
        while self._head_due is not None or not self.cluster.head():
            time.sleep(0.05)
        self._ending.set()
        self._keeper.join()

    # --- kinds

    def _kill_head(self, strike):
        self._kill("head", None, self.cluster.head())

    def _kill_supervisor(self, strike):
        self._kill("supervisor", None, self.cluster.supervisor())

    def _kill_head_and_supervisor(self, strike):
        """The head first stands still: it would replace its supervisor. A stand-in is left, or a person."""
        head = self._hold(self.cluster.head())
        if head:
            head.send(signal.SIGSTOP)
        if strike.which < 0.5:
            self._head_due = time.monotonic() + strike.delay_s
        self._kill_supervisor(strike)
        if head:
            at = time.monotonic()
            if head.send(signal.SIGKILL):
                self.cluster.note("kill", at=at, target="head", name=None, pid=head.pid)
            head.close()

    def _pause_supervisor(self, strike):
        self._pause("supervisor", None, self.cluster.supervisor(), strike.pause_s)

    def _pause_supervisor_kill_head(self, strike):
        self._pause_supervisor(strike)
        self._kill_head(strike)

    def _kill_agent(self, strike):
        self._kill("agent", *self._agent(strike))

    def _kill_worker(self, strike):
        workers = self.cluster.workers()
        if workers:
            job, generation, rank, pid = workers[int(strike.which * len(workers))]
            self._kill("worker", f"{job}.{generation}.{rank}", pid, f"RUBATO_JOB_ID={job}")

    def _pause_head(self, strike):
        self._pause("head", None, self.cluster.head(), strike.pause_s)

    def _pause_agent(self, strike):
        self._pause("agent", *self._agent(strike), strike.pause_s)

    def _pause_all(self, strike):
        self._pause_head(strike)
        for node, pid in self.cluster.agents().items():
            self._pause("agent", node, pid, strike.pause_s)

    def _kill_head_pause_new(self, strike):
        before = self.cluster.head()
        self._kill_head(strike)
        self._pause_next(strike, "head", lambda: {None: self.cluster.head()}, {before})

    def _kill_agent_pause_new(self, strike):
        before = set(self.cluster.agents().values())
        self._kill_agent(strike)
        self._pause_next(strike, "agent", self.cluster.agents, before)

    def _kill_head_and_agent(self, strike):
        self._kill_agent(strike)
        self._kill_head(strike)

    def _kill_worker_then_agent(self, strike):
        """The job gathers for one rank's failure when another node goes."""
        self._kill_worker(strike)
        time.sleep(min(strike.delay_s, 1.5))
        self._kill_agent(strike)

    def _pause_head_and_agent(self, strike):
        self._pause_head(strike)
        self._pause_agent(strike)

    def _pause_agent_kill_head(self, strike):
        self._pause_agent(strike)
        self._kill_head(strike)

    def _kill_head_twice(self, strike):
        before = self.cluster.head()
        self._kill_head(strike)
        pid = self._wait_for_new(lambda: {None: self.cluster.head()}, {before})
        if pid:
            time.sleep(strike.which * 0.3)
            self._kill("head", None, pid[1])

    def _kill_worker_and_head(self, strike):
        self._kill_worker(strike)
        self._kill_head(strike)

    # --- how

    def _agent(self, strike):
        agents = list(self.cluster.agents().items())
        return agents[int(strike.which * len(agents))] if agents else (None, None)

    def _hold(self, pid, word=None):
        try:
            return Process(pid, word or str(self.cluster.folder)) if pid else None
        except OSError:  # it is gone, or another one has its number
            return None

    def _kill(self, what, name, pid, word=None):
        process = self._hold(pid, word)
        if process:
            at = time.monotonic()
            if process.send(signal.SIGKILL):
                self.cluster.note("kill", at=at, target=what, name=name, pid=pid)
            process.close()

    def _pause(self, what, name, pid, seconds):
        with self._lock:
            if pid is None or pid in self._paused:
                return
            process = self._hold(pid)
            if process is None:
                return
            self._paused.add(pid)
        thread = threading.Thread(target=self._pause_for, args=(what, name, process, seconds), daemon=True)
        self._threads.append(thread)
        begin = time.monotonic()
        process.send(signal.SIGSTOP)
        thread.begin = begin
        thread.start()

    def _pause_for(self, what, name, process, seconds):
        begin = threading.current_thread().begin
        time.sleep(seconds)
        process.send(signal.SIGCONT)
        self.cluster.note("pause", at=begin, until=time.monotonic(), target=what, name=name, pid=process.pid)
        with self._lock:
            self._paused.discard(process.pid)
        process.close()

    def _wait_for_new(self, list_pids, before):
        """(name, pid) of a process that was not there before."""
        deadline = time.monotonic() + NEW_PROCESS_MAX_S
        while time.monotonic() < deadline:
            for name, pid in list_pids().items():
                if pid and pid not in before and alive(pid):
                    return name, pid
            time.sleep(0.005)
        return None

    def _pause_next(self, strike, what, list_pids, before):
        def wait():
            found = self._wait_for_new(list_pids, before)
            if found:
                time.sleep(strike.which * 0.4)
                self._pause(what, *found, strike.pause_s)

        thread = threading.Thread(target=wait, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _keep_head(self):
        """The person, or cron, who types `rubato up` after a while; and who sees to it that a head comes back."""
        there, running, due_of = time.monotonic(), None, None
        while not self._ending.wait(0.02):
            due = self._head_due
            if running and running.ended():
                code, _ = running.result()
                running = None
                if code == 0 and due_of == due and self.cluster.head():
                    self._head_due = due = None
            if due is not None and time.monotonic() >= due:
                if running and due_of != due:
                    running.give_up()
                elif not running:
                    running, due_of = Up(self.cluster), due
            if self._head_due is not None or self.cluster.head() or self._is_paused(self.cluster.supervisor()):
                there = time.monotonic()
            elif time.monotonic() > there + HEAD_BACK_MAX_S:
                self.cluster.note("died", at=there)  # nobody has brought it back
                self._head_due = time.monotonic()

    def _is_paused(self, pid):
        with self._lock:
            return pid in self._paused
