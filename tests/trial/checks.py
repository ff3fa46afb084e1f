"""From the evidence of a trial to its violations. Pure: everything comes from files that workers and the trial wrote,
and from the journal as `rubato events` prints it.

    every job ends once, as its kind must
    a generation whose workers all ended with 0, on nodes that nobody hurt, is the last one
    a generation ends only by what was done to it, by itself, or by a change of its size
    a node is lost only when its agent was killed, or paused beyond its lease
    no worker of a generation starts while one of an older generation is alive (but under a paused agent)
    what a worker has printed is in its log once, in order
"""
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

LEASE_S = 2.4     # shorter pauses hurt nobody: the head's 3 s of silence, less a beat, less what a busy machine adds
STALL_S = 1.0     # the trial itself did not run for so long: neither did others
SLACK_S = 3.0     # from a cause to its effect on a busy machine
ADOPTION_S = 15.0  # a new head waits so long for its agents


@dataclass
class Worker:
    rank: int
    world: int
    node: str
    pid: int
    start: float
    last: float                 # when it was last seen alive
    term: float | None = None   # when it was told to end
    code: int | None = None     # None: it did not end by itself
    ended: float | None = None
    printed: int = 0

    def broke(self):
        """When it stopped being a healthy part of its generation; None: it ended with 0 by itself, untold."""
        if self.term is not None and (self.ended is None or self.term < self.ended):
            return self.term
        if self.code is None:
            return self.last
        return self.ended if self.code != 0 else None


@dataclass
class Evidence:
    plans: list                 # of jobs.Plan, as dicts
    events: list                # the journal
    lives: dict                 # {job: {generation: [Worker]}}
    kills: list = field(default_factory=list)
    pauses: list = field(default_factory=list)
    stalls: list = field(default_factory=list)
    ups: list = field(default_factory=list)
    deaths: list = field(default_factory=list)  # of heads that nobody killed
    logs: dict = field(default_factory=dict)  # {job: lines}
    began: float = 0.0

    def name(self, at):
        return f"{at - self.began:.2f}"


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def read_lives(folder):
    ticks = {}
    for path in (folder / "ticks").iterdir():
        text = path.read_text().split()
        ticks[path.name] = (float(text[0]), int(text[1])) if text else (0.0, 0)
    lives = {}
    for path in sorted((folder / "lives").glob("*.jsonl")):
        job = path.name.removesuffix(".jsonl")
        workers = {}
        for line in read_lines(path):
            key = (line["generation"], line["rank"], line["pid"])
            if line["what"] == "start":
                last, printed = ticks.get(f"{job}.{key[0]}.{key[1]}.{key[2]}", (line["at"], 0))
                workers[key] = Worker(line["rank"], line["world"], line["node"], line["pid"], line["at"],
                                      max(last, line["at"]), printed=printed)
            elif line["what"] == "term":
                workers[key].term = line["at"]
            else:
                workers[key].code, workers[key].ended = line["code"], line["at"]
                workers[key].printed = line.get("printed", 0)
        lives[job] = defaultdict(list)
        for (generation, _, _), worker in sorted(workers.items()):
            lives[job][generation].append(worker)
    return lives


def flat(event):
    """A record as `rubato events --json` prints it, with its fields beside its type."""
    fields = event.get("data", {}) | {name: value for name, value in event.items() if name != "data"}
    if event["type"] == "job-ended":
        fields["result"] = ("succeeded", "failed", "stopped")[fields["result"]]
    return fields


def read(folder):
    folder = Path(folder)
    strikes = read_lines(folder / "strikes.jsonl")
    kinds = ("kill", "pause", "stall", "up", "died", "began")
    of = {what: [line for line in strikes if line["what"] == what] for what in kinds}
    logs = {path.stem: read_lines(path) for path in (folder / "logs").glob("*.jsonl")}
    events = [flat(event) for event in read_lines(folder / "events.jsonl")]
    return Evidence(read_lines(folder / "plans.jsonl"), events, read_lives(folder),
                    of["kill"], merge_pauses(of["pause"]), of["stall"], of["up"], of["died"], logs,
                    of["began"][0]["at"])


def merge_pauses(pauses):
    """Two pauses of one process with less than a beat between them are one."""
    merged = []
    for pause in sorted(pauses, key=lambda pause: (pause["pid"], pause["at"])):
        if merged and merged[-1]["pid"] == pause["pid"] and pause["at"] - merged[-1]["until"] < 0.7:
            merged[-1] = merged[-1] | {"until": max(merged[-1]["until"], pause["until"])}
        else:
            merged.append(pause)
    return merged


# --- causes

def head_away(evidence):
    """When no head decided: [(from, to)], with the time in which a new one waits for its agents."""
    away = [(pause["at"], pause["until"]) for pause in evidence.pauses if pause["target"] == "head"]
    for kill in evidence.kills:
        if kill["target"] == "head":
            back = [up["until"] for up in evidence.ups if up["at"] >= kill["at"] - 0.1 and up["code"] == 0]
            back += [event["mono"] for event in evidence.events
                     if event["type"] == "head-started" and event.get("mono", 0) > kill["at"]]
            away.append((kill["at"], min(back, default=float("inf")) + ADOPTION_S))
    return sorted(away)


def effects_until(evidence, at):
    """Until when something that happened then may show its effect: a head must be there to act on it."""
    end = at + 2 * SLACK_S
    for begin, back in head_away(evidence):
        if begin <= end:
            end = max(end, back + 2 * SLACK_S)
    return end


def hurt_node(evidence, node, begin, end):
    """Why this node may have been lost between the two times: words, or None. No two nodes have the same name."""
    if any(kill["target"] == "agent" and kill["name"] == node and kill["at"] <= end for kill in evidence.kills):
        return "killed agent"
    for pause in evidence.pauses:
        if pause["target"] == "agent" and pause["name"] == node and pause["until"] - pause["at"] >= LEASE_S and \
                pause["at"] <= end and effects_until(evidence, pause["until"]) >= begin:
            return "paused agent"
    return None


def stalled(evidence, begin, end):
    return any(stall["at"] <= end and stall["until"] >= begin - SLACK_S for stall in evidence.stalls)


def cause_of_end(evidence, plan, generation, workers, following):
    """Why this generation ended before its workers had all ended with 0: words, or None: without a cause."""
    begin = min(worker.start for worker in workers)
    broke = min((at for at in map(Worker.broke, workers) if at is not None), default=max(w.last for w in workers))
    for kill in evidence.kills:
        if kill["target"] == "worker" and kill["name"].startswith(f"{plan['job']}.{generation}.") and \
                kill["at"] <= broke + SLACK_S:
            return "killed worker"
    for worker in workers:
        if worker.code not in (None, 0) and worker.ended <= broke + SLACK_S:
            return "its own failure"
    for node in sorted({worker.node for worker in workers} | seats_of(evidence, plan["job"], generation)):
        words = hurt_node(evidence, node, begin, broke + SLACK_S)
        if words:
            return words
    first = min(worker.start for worker in evidence.lives[plan["job"]][min(evidence.lives[plan["job"]])])
    # Its time counts from the order to start; on a busy machine Python needs a while until a worker's life begins.
    first = min([first, *(event["mono"] for event in evidence.events
                          if event["type"] == "job-started" and event["job"] == plan["job"] and "mono" in event)])
    if plan["timeout_s"] and broke >= first + plan["timeout_s"] - 0.5:
        return "time-out"
    if plan["stop_after_s"] and broke >= plan["asked"][0][0] + plan["stop_after_s"] - 0.1:
        return "stopped"
    if plan["elastic"] and following is not None and resized(evidence, plan["job"], following):
        return "other size"
    return "stall of the machine" if stalled(evidence, begin, broke) else None


def seats_of(evidence, job, generation):
    """Its nodes, as the journal has them: a worker that was killed as it started has written nothing."""
    return {seat["node"] for event in evidence.events if event["type"] == "job-placed" and event["job"] == job and
            event["generation"] == generation for seat in event["seats"]}


def resized(evidence, job, generation):
    return any(event["type"] == "job-placed" and event["job"] == job and event["generation"] == generation and
               ("grows from" in event["cause"] or "makes room" in event["cause"]) for event in evidence.events)


# --- the checks: each yields violations as text

def check_ends(evidence):
    ends = Counter(event["job"] for event in evidence.events if event["type"] == "job-ended")
    results = {event["job"]: event for event in evidence.events if event["type"] == "job-ended"}
    names = Counter(event["spec"]["name"] for event in evidence.events if event["type"] == "job-submitted")
    for plan in evidence.plans:
        said = f"{plan['name']} ({plan['job'] or 'no id'}, {plan['kind']})"
        if names[plan["name"]] != 1:
            yield f"{said}: submitted once, and there are {names[plan['name']]} jobs of it"
        elif ends[plan["job"]] != 1:
            yield f"{said}: ended {ends[plan['job']]} times"
        elif results[plan["job"]]["result"] != plan["expected"] and not late(evidence, plan):
            end = results[plan["job"]]
            yield f"{said}: {end['result']} ({end['reason']}), must be {plan['expected']}"
    unknown = set(names) - {plan["name"] for plan in evidence.plans}
    if unknown:
        yield f"jobs that nobody submitted: {sorted(unknown)}"


def late(evidence, plan):
    """Whether a job with a time-out has really used it up: by interruptions, not by running."""
    generations = evidence.lives.get(plan["job"], {})
    if not plan["timeout_s"] or plan["expected"] != "succeeded" or not generations:
        return False
    first = min(worker.start for workers in generations.values() for worker in workers)
    end = max((event["mono"] for event in evidence.events
               if event["type"] == "job-ended" and event["job"] == plan["job"] and "mono" in event), default=first)
    # One whose agent died after it, while no head was there, is known to nobody.
    done = [max(w.ended for w in workers) for workers in generations.values()
            if all(w.code == 0 and w.term is None for w in workers) and
            not any(hurt_node(evidence, w.node, w.ended, end) for w in workers)]
    return not done or min(done) - first >= plan["timeout_s"] - 0.5


def check_successes(evidence):
    for plan in evidence.plans:
        generations = evidence.lives.get(plan["job"], {})
        for generation, workers in generations.items():
            again = [g for g in generations if g > generation]
            whole = len(workers) == workers[0].world and all(w.code == 0 and w.broke() is None for w in workers)
            if not whole or not again:
                continue
            begin, end = min(w.ended for w in workers), min(w.start for g in again for w in generations[g])
            if any(hurt_node(evidence, w.node, w.ended, end) for w in workers) or stalled(evidence, begin, end):
                continue  # its success may not have been known to anybody else
            yield (f"{plan['name']} ({plan['job']}, {plan['kind']}): generation {generation} succeeded at "
                   f"{evidence.name(max(w.ended for w in workers))} s, and generation {min(again)} ran")
    # The same by the journal alone: all seats done is a success, whoever dies after it.
    seats, done = {}, defaultdict(set)
    for event in evidence.events:
        if event["type"] == "job-placed":
            if done[event["job"]] and done[event["job"]] == seats.get(event["job"]):
                yield f"{event['job']}: all seats were done, and generation {event['generation']} was placed"
            seats[event["job"]], done[event["job"]] = {seat["node"] for seat in event["seats"]}, set()
        elif event["type"] == "seat-done":
            done[event["job"]].add(event["node"])


def check_generations(evidence):
    for plan in evidence.plans:
        generations = evidence.lives.get(plan["job"], {})
        order = sorted(generations)
        for generation, following in zip(order, [*order[1:], None]):
            workers = generations[generation]
            ranks = Counter(worker.rank for worker in workers)
            if any(count > 1 for count in ranks.values()):
                yield f"{plan['name']} ({plan['job']}): a rank of generation {generation} ran twice"
            if following is None and all(worker.broke() is None for worker in workers):
                continue
            if following is not None and all(worker.broke() is None for worker in workers) and \
                    len(workers) == workers[0].world:
                continue  # check_successes judges it
            if cause_of_end(evidence, plan, generation, workers, following) is None:
                ends = [f"rank {w.rank} on {w.node} ({w.pid}) "
                        f"{evidence.name(w.start)}..{evidence.name(w.broke() or w.last)}" for w in workers]
                yield (f"{plan['name']} ({plan['job']}, {plan['kind']}): generation {generation} ended without a "
                       "cause: " + "; ".join(ends))


def check_overlaps(evidence):
    for plan in evidence.plans:
        generations = evidence.lives.get(plan["job"], {})
        for generation, workers in generations.items():
            for older in (g for g in generations if g < generation):
                for old in generations[older]:
                    start = min(worker.start for worker in workers)
                    # A stopped agent cannot end its workers, nor can one that is about to wake up.
                    if old.last > start + 0.3 and not paused_around(evidence, old.node, start) and \
                            not stalled(evidence, start, old.last):
                        yield (f"{plan['name']} ({plan['job']}): generation {generation} started at "
                               f"{evidence.name(start)} s while rank {old.rank} of {older} on {old.node} lived until "
                               f"{evidence.name(old.last)} s")


def paused_around(evidence, node, at):
    return any(pause["target"] == "agent" and pause["name"] == node and pause["at"] <= at + SLACK_S and
               pause["until"] >= at - SLACK_S for pause in evidence.pauses)


def check_nodes(evidence):
    for event in evidence.events:
        if event["type"] != "node-lost":
            continue
        at = event["mono"]
        if hurt_node(evidence, event["node"], at, at + SLACK_S) is None and not stalled(evidence, at - SLACK_S, at):
            yield f"node {event['node']} lost at {evidence.name(at)} s without a cause: {event['reason']}"


def check_journal(evidence):
    offsets = [event["offset"] for event in evidence.events]
    if offsets != list(range(1, len(offsets) + 1)):
        yield f"the journal's offsets are not 1..{len(offsets)}"
    epochs = [event["epoch"] for event in evidence.events if event["type"] == "head-started"]
    if epochs != list(range(1, len(epochs) + 1)):
        yield f"the epochs are {epochs}"


def check_logs(evidence):
    for job, lines in evidence.logs.items():
        found = defaultdict(list)
        for line in lines:
            head, word, number, *_ = (line["text"] + " . . .").split(" ")
            if word == "line":
                found[head].append(int(number))
        for generation, workers in evidence.lives.get(job, {}).items():
            for worker in workers:
                numbers = found[f"{generation}.{worker.rank}"]
                said = f"{job}: the log of generation {generation} rank {worker.rank} on {worker.node}"
                twice = [number for number, count in Counter(numbers).items() if count > 1]
                if twice:
                    yield f"{said} has {len(twice)} lines twice, such as {twice[:3]}"
                elif numbers != list(range(len(numbers))):
                    yield f"{said} has gaps or another order: {len(numbers)} lines, the last is {max(numbers)}"
                elif len(numbers) < worker.printed:
                    yield f"{said} has {len(numbers)} of {worker.printed} lines"


def check_commands(evidence):
    for up in evidence.ups:
        struck = any(kill["target"] != "worker" and up["at"] - 1 <= kill["at"] <= up["until"]
                     for kill in evidence.kills)
        paused = any(pause["at"] <= up["until"] and pause["until"] >= up["at"] for pause in evidence.pauses)
        if up["code"] != 0 and not struck and not paused and not stalled(evidence, up["at"], up["until"]):
            yield f"`rubato up` at {evidence.name(up['at'])} s failed without a cause ({up['code']}): {up['words']}"


def check_heads(evidence):
    for death in evidence.deaths:
        yield f"no head came back after {evidence.name(death['at'])} s: state/rubato/clusters/trial/head/daemon.log"


CHECKS = (check_ends, check_successes, check_generations, check_overlaps, check_nodes, check_journal, check_logs,
          check_commands, check_heads)


def violations(evidence):
    return [f"{check.__name__.removeprefix('check_')}: {text}" for check in CHECKS for text in check(evidence)]


def ends_by_cause(evidence):
    """How generations ended: {cause: count}, for the report."""
    causes = Counter()
    for plan in evidence.plans:
        generations = evidence.lives.get(plan["job"], {})
        order = sorted(generations)
        for generation, following in zip(order, [*order[1:], None]):
            workers = generations[generation]
            if all(worker.broke() is None for worker in workers):
                causes["success"] += 1
            else:
                causes[cause_of_end(evidence, plan, generation, workers, following) or "NO CAUSE"] += 1
    return causes
