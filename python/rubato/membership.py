"""What a worker and its agent tell each other, in a folder: who is in the group, and how far each one is.

    $RUBATO_PLAN_DIR/plan.json        the newest plan; the agent renames it into place
    $RUBATO_PLAN_DIR/generation       8 bytes, little-endian: its generation; the agent writes them after the rename
    $RUBATO_PLAN_DIR/worker-ID.json   the newest report of the worker $RUBATO_WORKER_ID, renamed into place by it
    $RUBATO_PLAN_DIR/worker-ID.step   16 bytes, little-endian: generation and step; written by it at each step

docs/training.md says what each side promises.
"""
import collections
import json
import mmap
import os
import struct
import threading

from rubato import env

Member = collections.namedtuple("Member", "id rank local_rank node")
Header = collections.namedtuple("Header", "rank veteran step operations updates added", defaults=(0, 0))
Choice = collections.namedtuple("Choice", "source needy behind")

PLAN_BYTES_MAX = 16 << 20


class Plan(collections.namedtuple("Plan", "generation members lost store token")):
    """`members` by rank; `lost`: members of earlier generations that are dead or silent: nobody waits for them."""

    @staticmethod
    def parse(text):
        """Throws ValueError, with what is wrong."""
        try:
            document = json.loads(text)
            members = [Member(str(one["id"]), int(one["rank"]), int(one.get("local_rank", 0)), int(one.get("node", 0)))
                       for one in document["members"]]
            members.sort(key=lambda one: one.rank)
            if [one.rank for one in members] != list(range(len(members))) or not members:
                raise ValueError("the members' ranks are not 0, 1, 2, …")
            if len({one.id for one in members}) != len(members):
                raise ValueError("two members have the same id")
            store = document["store"]
            return Plan(int(document["generation"]), tuple(members), frozenset(map(str, document.get("lost", ()))),
                        str(store["address"]), str(store.get("token", "")))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the plan lacks something, or has another form: {error!r}") from error

    def member(self, worker):
        return next((one for one in self.members if one.id == worker), None)

    def variables(self, worker):
        """The launcher's variables as they are for this member."""
        me = self.member(worker)
        beside = [one for one in self.members if one.node == me.node]
        nodes = sorted({one.node for one in self.members})
        values = {"RANK": me.rank, "WORLD_SIZE": len(self.members), "LOCAL_RANK": me.local_rank,
                  "LOCAL_WORLD_SIZE": len(beside), "GROUP_RANK": nodes.index(me.node), "GROUP_WORLD_SIZE": len(nodes),
                  "RUBATO_GENERATION": self.generation, "ADAPTDL_REPLICA_RANK": me.rank,
                  "ADAPTDL_NUM_REPLICAS": len(self.members), "ADAPTDL_NUM_NODES": len(nodes)}
        return {name: str(value) for name, value in values.items()}


def choose(headers):
    """Who gives its state to whom when members meet; pure, the same on all of them.

    A veteran has been in a group, its state is the job's; somebody else's is what it read from a checkpoint, and
    counts only where there is no veteran. Steps of veterans differ by one at most: a step ends when all have given
    their gradients to it; of several models, each has an update of its own; where a script adds gradients up, `added` are
    the batches since the last one. The most advanced one is the source, the lowest rank among equals; `needy` get its state.
    `behind`: those that have missed the last small collective, but no step: they get its result alone.
    """
    veterans = [one for one in headers if one.veteran]
    candidates = veterans or headers
    best = max(_progress(one) for one in candidates)
    source = min(one.rank for one in candidates if _progress(one) == best)
    if not veterans and best[0] == 0:
        return Choice(source, (), ())  # nothing was trained yet
    needy = tuple(one.rank for one in headers if (one.step, one.updates) < best[:2] or (veterans and not one.veteran)
                  or (one.operations == best[2] and one.added < best[3]))
    behind = tuple(one.rank for one in veterans if one.rank not in needy and one.operations < best[2])
    return Choice(source, needy, behind)


def _progress(header):
    return header.step, header.updates, header.operations, header.added


class Folder:
    """The worker's end."""

    def __init__(self, path, worker):
        self.path, self.worker = path, worker
        self._word = self._map(os.path.join(path, "generation"), 8, mmap.ACCESS_READ)
        self._steps = None

    @staticmethod
    def _map(path, size, access):
        flags = os.O_RDONLY if access == mmap.ACCESS_READ else os.O_RDWR | os.O_CREAT
        descriptor = os.open(path, flags, 0o600)
        try:
            if access != mmap.ACCESS_READ:
                os.ftruncate(descriptor, size)
            return mmap.mmap(descriptor, size, access=access)
        finally:
            os.close(descriptor)

    def generation(self):
        """Of the newest plan; some hundred nanoseconds."""
        return int.from_bytes(self._word[:8], "little")

    def plan(self):
        """The newest one, or None before the first."""
        try:
            with open(os.path.join(self.path, "plan.json"), "rb") as file:
                text = file.read(PLAN_BYTES_MAX)
        except FileNotFoundError:
            return None
        try:
            return Plan.parse(text)
        except ValueError as error:
            raise ValueError(f"{self.path}/plan.json cannot be used: {error}") from error

    def report(self, state, generation, step, reason=""):
        path = os.path.join(self.path, f"worker-{self.worker}.json")
        document = {"state": state, "generation": generation, "step": step, "pid": os.getpid()}
        if reason:
            document["reason"] = reason[:2000]
        new = f"{path}.{threading.get_ident()}.new"  # two threads may report at once
        with open(new, "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.rename(new, path)

    def count_step(self, generation, step):
        if self._steps is None:
            self._steps = self._map(os.path.join(self.path, f"worker-{self.worker}.step"), 16, mmap.ACCESS_WRITE)
        struct.pack_into("<QQ", self._steps, 0, generation, step)


def folder():
    """This worker's, or None where no agent plans its group."""
    path, worker = env.plan_folder(), env.worker_id()
    if path is None:
        return None
    if worker is None:
        raise ValueError("RUBATO_PLAN_DIR is set, but RUBATO_WORKER_ID is not: the agent must give both")
    return Folder(path, worker)
