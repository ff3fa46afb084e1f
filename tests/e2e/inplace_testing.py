"""What the tests of groups that change in place share: a training whose parameters count each sample."""
import contextlib
import json

from harness import SCRIPTS, wait_until

TRAIN = SCRIPTS / "inplace_train.py"
PACE = 0.02


class Trainings:
    """For a harness.Case whose folder is that of inplace_train.py."""

    def training(self, world, more=3, without=(), since=None):
        """Waits until `world` workers, none of them of `without`, have done some more steps together; their pids.
        `since`: so many lines of steps are old; all that are there when it is not given."""
        seen = len(self.steps()) if since is None else since

        def found():
            lines = [line for line in self.steps()[seen:] if line["world"] == world and line["pid"] not in without]
            if not lines:
                return None
            newest = max(line["generation"] for line in lines)
            pids = [line["pid"] for line in lines if line["generation"] == newest]
            steps = {pid: pids.count(pid) for pid in pids}
            return set(steps) if len(steps) == world and min(steps.values()) >= more else None

        return wait_until(found, lambda: f"{world} workers that train, have {self.steps()[-5:]}\n{self.stories()}")

    @contextlib.contextmanager
    def newcomers_held(self):
        """Whoever is started meanwhile begins afterwards: on a busy machine it could be there before those who train
        have noticed anything."""
        hold = self.folder / "hold"
        hold.touch()
        yield
        hold.unlink()

    def assert_counts(self):
        """Each sample has contributed once in each pass to the state that survived."""
        result = json.loads((self.folder / "result.json").read_text())
        self.assertEqual(result["counts"], [float(result["passes"])] * len(result["counts"]), self.stories())
