#!/usr/bin/env python3
"""Checkpoints that travel: what a script has finished in $RUBATO_CHECKPOINT outlives its node, and is there before
workers start elsewhere. The script is plain Python: no library, no torch."""
import os
import shutil
import signal
import subprocess

import cluster_harness
from cluster_harness import alive, cluster_text
from harness import kill_if_there, main, read_lines, wait_until

# Saves a checkpoint for each step, by rename, up to the number in the file that it is given; then waits for a higher
# one; ends at 100. Keeps two.
TRAINING = """
import json, os, pathlib, shutil, sys, time
folder, control = pathlib.Path(os.environ["RUBATO_CHECKPOINT"]), pathlib.Path(sys.argv[1])
def saved():
    return sorted((path for path in folder.glob("step-*")), key=lambda path: int(path.name.split("-")[1]))
here = saved()
step = json.loads((here[-1] / "state.json").read_text())["step"] if here else 0
print("starts after", step, "on", os.environ["RUBATO_NODE"], "with", [path.name for path in here], flush=True)
while step < 100:
    if step >= int(control.read_text()):
        time.sleep(0.05)
        continue
    step += 1
    draft = folder / ".draft"
    shutil.rmtree(draft, ignore_errors=True)  # of one that was ended in the midst of it
    draft.mkdir()
    (draft / "state.json").write_text(json.dumps({"step": step}))
    (draft / "weights").write_bytes(os.urandom(200_000))
    (draft / "same").symlink_to("weights")
    os.rename(draft, folder / f"step-{step}")
    (folder / "latest.tmp").write_text(f"step-{step}")
    os.replace(folder / "latest.tmp", folder / "latest")
    for old in saved()[:-2]:
        for path in old.iterdir():
            path.unlink()
        old.rmdir()
"""

IN_PLACE = """
import os, pathlib
folder = pathlib.Path(os.environ["RUBATO_CHECKPOINT"])
for _ in range(3):
    (folder / "model.pt").write_bytes(b"x" * 1000)
os.symlink("/etc/passwd", folder / "outside")
(folder / "good.tmp").write_text("good")
os.replace(folder / "good.tmp", folder / "good")
adaptdl = pathlib.Path(os.environ["ADAPTDL_CHECKPOINT_PATH"])
(adaptdl / "_checkpoint").mkdir()
(adaptdl / "_checkpoint" / "state").write_text("7")
os.rename(adaptdl / "_checkpoint", adaptdl / "checkpoint-0")
print("saved", flush=True)
"""

# Saves one checkpoint for each rank when it is told to, and waits.
OF_EACH = """
import os, pathlib, sys, time
folder, go = pathlib.Path(os.environ["RUBATO_CHECKPOINT"]), pathlib.Path(sys.argv[1])
while not go.exists():
    time.sleep(0.05)
name = "of-" + os.environ["RANK"]
(folder / (name + ".tmp")).write_text(name)
os.replace(folder / (name + ".tmp"), folder / name)
while True:
    time.sleep(1)
"""


# With the library: changes in place, and saves often. Notes each step.
ELASTIC = """
import json, os, sys, time
import torch
import rubato
from rubato import env
from rubato.torch import data, profile
data.CHECKPOINT_EVERY_S = 1
torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn(4000, 2), batch_size=4)
begun = False
with rubato.elastic(model, optimizer) as job:
    for epoch in job.epochs(1000):
        for batch in job.batches(loader):
            if not begun:
                print("starts after", profile.current().steps, flush=True)
                begun = True
            optimizer.zero_grad()
            job.model(batch).mean().backward()
            optimizer.step()
            line = {"step": profile.current().steps, "rank": env.rank(), "generation": env.generation(),
                    "pid": os.getpid(), "node": os.environ["RUBATO_NODE"]}
            with open(sys.argv[1], "a") as file:
                file.write(json.dumps(line) + "\\n")
            time.sleep(0.02)
"""


class Checkpoints(cluster_harness.ClusterCase):
    turn_limit_ms = 200

    def control(self, step):
        draft = self.folder / "control.draft"
        draft.write_text(str(step))
        os.replace(draft, self.folder / "control")

    def submit_training(self, *flags):
        script = self.script(TRAINING)
        return self.submit(*flags, "-d", script.parent, "job.py", self.folder / "control")

    def kept(self, job):
        """{name: checkpoint}"""
        return {one["name"]: one for one in self.job(job)["checkpoints"]}

    def wait_for_kept(self, job, name, **conditions):
        def found():
            one = self.kept(job).get(name)
            return one if one and all(test(one[key]) for key, test in conditions.items()) else None

        return wait_until(found, lambda: f"{name} with {list(conditions)} of {self.job(job)['checkpoints']}")

    def starts(self, job):
        return [text for text in self.log_texts(job) if text.startswith("starts after")]

    def wait_for_start(self, job, begin):
        """Waits for a start that begins with these words: lines come on a way of their own, perhaps after the rest."""
        wait_until(lambda: any(line.startswith(begin) for line in self.starts(job)),
                   lambda: f"'{begin}' in {self.starts(job)}")

    def lose(self, node):
        """The machine is gone with its disk."""
        pid = self.node_pids()[node]
        os.kill(pid, signal.SIGSTOP)  # it would write its folder anew
        for name in ("checkpoints", "copies"):
            folder = self.place / "nodes" / node / name
            # Its worker lives, and may be about to remove an old one.
            wait_until(lambda: shutil.rmtree(folder, ignore_errors=True) or not folder.exists(), f"the end of {folder}")
        self.kill(pid)

    def test_a_lost_node_loses_nothing_that_was_kept(self):
        self.up(cluster_text(small=(1, 2, 2)))
        self.wait_for_nodes(2)
        self.control(7)
        job = self.submit_training("--workers", "1", "--max-restarts", "0")
        newest = self.wait_for_kept(job, "step-7")
        self.wait_for_kept(job, "latest", saved=lambda saved: saved >= newest["saved"])
        first = newest["node"]
        names = [one["name"] for one in self.job(job)["checkpoints"]]
        # Of those that were there long enough to be sent: on a busy machine not each one was.
        self.assertLessEqual(sum(name.startswith("step-") for name in names), 3, f"the newest three of {names}")
        self.assertIn("latest", names)
        self.assertEqual(newest["files"], 2)
        self.assertEqual(newest["copies"][0], "head")
        self.assertGreater(newest["bytes"], 200_000)
        self.assertRegex(self.rubato("job", "show", job).stdout, r"step-7 +195\S* \S+ +\S+ +%s +head" % first)

        self.lose(first)
        self.control(9)
        last = self.wait_for_kept(job, "step-9", generation=lambda number: number > newest["generation"])
        second = last["node"]
        self.assertNotEqual(second, first)
        self.wait_for_start(job, f"starts after 7 on {second} ")
        folder = self.place / "nodes" / second / "checkpoints" / job
        self.assertEqual(os.readlink(folder / "step-9" / "same"), "weights")
        self.rubato("stop", job, "--wait")
        wait_until(lambda: not folder.exists(), "its folder to go")
        self.assertIn("step-9", self.kept(job))

    def test_workers_on_all_nodes_start_from_the_same(self):
        self.up(cluster_text(small=(1, 2, 2)))
        self.wait_for_nodes(2)
        self.control(3)
        job = self.submit_training("--workers", "1:2", "--max-restarts", "3")
        # Only rank 0's node has the newest when the workers of both are stopped and started anew.
        self.wait_for_workers_of(job, 2)
        one = self.wait_for_kept(job, "step-3")
        before = self.job(job)["generation"]
        workers = wait_until(lambda: (lambda pids: pids if len(pids) == 2 else None)(self.worker_pids()), "two workers")
        os.kill(workers[0], signal.SIGKILL)

        def begun():
            return [line["text"] for line in self.json_lines("logs", job) if line["generation"] > before
                    and line["text"].startswith("starts after")]

        wait_until(lambda: len(begun()) >= 2, lambda: f"the next generation in {self.starts(job)}")
        for line in begun():
            self.assertTrue(line.startswith("starts after 3 "), line)
        self.assertGreaterEqual(one["files"], 2)

    def test_what_is_saved_after_rank_0_has_moved_in_place_is_the_newest(self):
        self.up(cluster_text(small=(1, 2, 2)))
        self.wait_for_nodes(2)
        script, path = self.script(ELASTIC), self.folder / "steps"
        job = self.submit("--workers", "1:2", "--max-restarts", "3", "--prewarm", "torch", "-d", script.parent,
                          "job.py", path)
        self.wait_for_workers_of(job, 2)
        first = self.job(job)["members"][0]["node"]
        wait_until(lambda: len(self.numbers_kept_by(job, first)) >= 3,
                   lambda: f"three checkpoints of {first}: {self.kept(job)}")
        self.rubato("drain", first, "--deadline", "10m")

        def elsewhere():
            return next((line for line in read_lines(path) if line["rank"] == 0 and line["node"] != first), None)

        moved = wait_until(elsewhere, lambda: f"rank 0 elsewhere than on {first}: {read_lines(path)[-3:]}")
        second = moved["node"]
        wait_until(lambda: self.numbers_kept_by(job, second), lambda: f"a checkpoint of {second}: {self.kept(job)}")
        # Nobody is left who has the state: the next ones begin with the newest checkpoint.
        wait_until(lambda: self.job(job)["phase"] == "running", "nothing under way")
        newest = max(line["generation"] for line in read_lines(path))
        last = {line["pid"] for line in read_lines(path) if line["generation"] == newest and alive(line["pid"])}
        for pid in last:
            kill_if_there(pid)  # who loses its peer may have ended before its turn comes
        for pid in last:
            self.assert_gone(pid)
        again = wait_until(lambda: next((line for line in read_lines(path) if line["generation"] > newest), None),
                           lambda: f"a generation after {newest}\n{self.stories()}")
        self.assertGreater(again["step"], moved["step"], f"it began before what {second} had saved")

    def numbers_kept_by(self, job, node):
        return [name for name, one in self.kept(job).items() if one["node"] == node and "checkpoint-" in name]

    def worker_pids(self):
        found = subprocess.run(["pgrep", "-f", f"job.py {self.folder}/control"], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split() if self.is_python(int(pid))]

    @staticmethod
    def is_python(pid):
        try:
            return "python" in os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return False

    def test_what_is_written_in_place_is_named_and_not_copied(self):
        self.up(cluster_text(small=(1, 1, 1)))
        job = self.submit("--wait", self.script(IN_PLACE))
        self.wait_for_kept(job, "good")
        one = self.wait_for_kept(job, "adaptdl/checkpoint-0")
        self.assertEqual((one["bytes"], one["files"]), (1, 1))
        self.assertEqual(set(self.kept(job)), {"good", "adaptdl/checkpoint-0"})
        def warnings():
            lines = [text for text in self.log_texts(job) if text.startswith("rubato:")]
            return lines if all(any(word in line for line in lines) for word in ("'outside'", "'model.pt'")) else None

        texts = wait_until(warnings, lambda: f"both warnings in {self.log_texts(job)}")
        named = [text for text in texts if "'model.pt' was written in place" in text]
        self.assertEqual(len(named), 1, texts)
        self.assertIn('os.replace("model.pt.tmp", "model.pt")', named[0])
        self.assertTrue(any("'outside' is not copied" in text for text in texts), texts)

    def test_what_a_full_head_refused_stays_until_it_has_room(self):
        self.up(cluster_text(small=(1, 2, 2)))
        self.wait_for_nodes(2)
        script = self.script(OF_EACH)
        job = self.submit("--workers", "1:2", "-d", script.parent, "job.py", self.folder / "go")
        self.wait_for_workers_of(job, 2)
        # As with a full disk, whoever runs the tests: nothing can be written there.
        place = self.place / "jobs" / job / "checkpoints"
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the head makes it when it needs it
        shutil.rmtree(place, ignore_errors=True)
        place.write_text("")
        (self.folder / "go").touch()
        wait_until(lambda: sum("is not copied" in text for text in self.log_texts(job)) == 2, "both refusals")
        other = self.submit_steps("--workers", 1, where=self.script("", folder="other").parent)
        self.wait_for_job(other, "running")  # the second worker has left its node
        place.unlink()
        self.assertNotEqual(self.wait_for_kept(job, "of-1")["node"], self.wait_for_kept(job, "of-0")["node"])
        # Its folder is of no use any more.
        left = self.place / "nodes" / self.kept(job)["of-1"]["node"] / "checkpoints" / job
        wait_until(lambda: not left.exists(), lambda: f"{left} is left")

    def test_a_head_without_its_copies_gets_them_from_a_peer(self):
        self.up(cluster_text(small=(1, 2, 2)))
        self.wait_for_nodes(2)
        self.control(3)
        job = self.submit_training("--workers", "1", "--max-restarts", "0")
        newest = self.wait_for_kept(job, "step-3", copies=lambda copies: len(copies) == 3)
        writer = newest["node"]
        # The head's disk and the node that wrote it are gone; the journal is elsewhere, as with etcd.
        self.kill_head()
        self.lose(writer)
        shutil.rmtree(self.place / "jobs" / job / "checkpoints")
        self.control(5)
        self.up()
        self.wait_for_kept(job, "step-5", generation=lambda number: number > newest["generation"])
        self.wait_for_start(job, "starts after 3 on ")
        self.assertEqual(self.kept(job)["step-3"]["hash"], newest["hash"])


if __name__ == "__main__":
    main()
