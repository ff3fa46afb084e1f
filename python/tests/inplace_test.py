"""Groups of real processes that change while they train: they grow, shrink, lose members, without a restart."""
import json
import os
import random
import signal
import sys
import tempfile
import time
import unittest

import agent as agents
import testing
import torch
import rubato.torch  # noqa: F401  imported before workers are forked

sys.path.append(os.path.join(testing.LIBRARY, "adaptdl"))

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


class InPlaceCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        cls.addClassCleanup(cls.folder.cleanup)

    def agent(self, script, *arguments):
        path = tempfile.mkdtemp(dir=self.folder.name)
        store = agents.Store(path)
        self.addCleanup(store.close)
        made = agents.Agent(path, store, script, arguments)
        self.addCleanup(made.close)
        return made

    def start_members(self, agent, count):
        names = [agent.start() for _ in range(count)]
        agent.publish(names)
        for name in names:
            agent.wait_for_state(name, "training", 1)
        return names

    def grow(self, agent):
        """Started while the others train; planned when it is ready."""
        name = agent.start()
        agent.wait_for_state(name, "ready")
        agent.publish(agent.members + [name])
        agent.wait_for_state(name, "training", agent.generation)
        return name

    def result(self, agent, name):
        self.assertEqual(agent.wait_for_end(name), 0, agent.story())
        line = next(line for line in agent.workers[name].text().splitlines() if line.startswith("result "))
        return json.loads(line.split(" ", 1)[1])

    def check(self, agent, epochs, length, batch):
        for name in agent.members:
            result = self.result(agent, name)
            self.assertEqual(result["counts"], [float(epochs)] * length, agent.story())
            self.assertEqual(result["scheduled"], epochs * length // batch)
        return result


class InPlace(InPlaceCase):
    def test_grows_and_shrinks_between_two_steps(self):
        agent = self.agent("count.py", 4, 60, 6, "--slow", 0.01, "--evaluate")
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 3)
        third = self.grow(agent)
        agent.wait_for_step(third, agent.step(third)[1] + 2)
        agent.publish([second, third])  # rank 0 goes
        self.assertEqual(agent.wait_for_end(first), 143, agent.story())
        result = self.check(agent, 4, 60, 6)
        self.assertEqual(round(result["totals"]["steps"], 6), 40.0)
        self.assertEqual(result["totals"]["checked"], 4 * 7)

    def test_loaders_that_are_made_for_one_loop_are_found_again(self):
        """In a group that grows and loses a member, and in another life."""
        for own_epochs in ([], ["--own-epochs"]):
            agent = self.agent("count.py", 4, 60, 6, "--slow", 0.01, "--evaluate", "--inline", *own_epochs)
            first, second = self.start_members(agent, 2)
            agent.wait_for_step(first, 13)  # in the second epoch
            third = self.grow(agent)
            agent.wait_for_step(third, agent.step(third)[1] + 2)
            agent.workers[first].send_signal(signal.SIGKILL)
            agent.wait_for_state(second, "training", 3)
            agent.wait_for_step(second, 22)
            agent.workers[second].send_signal(signal.SIGTERM)
            self.assertEqual([agent.wait_for_end(name) for name in (second, third)], [143, 143], agent.story())
            agent.publish([agent.start() for _ in range(2)], lost=agent.members)
            result = self.check(agent, 4, 60, 6)
            if not own_epochs:  # or the sums are those of all epochs
                self.assertEqual(result["totals"]["checked"], 4 * 7)
            self.doCleanups()

    def test_goes_on_when_a_member_is_killed(self):
        agent = self.agent("count.py", 4, 60, 6, "--slow", 0.01)
        names = self.start_members(agent, 3)
        agent.wait_for_step(names[1], 5)
        agent.workers[names[0]].send_signal(signal.SIGKILL)
        self.check_survivors(agent, names[0], names[1:])

    def check_survivors(self, agent, lost, survivors):
        agent.wait_for_state(survivors[0], "training", 2)
        self.assertEqual(agent.members, survivors)
        self.check(agent, 4, 60, 6)

    def test_goes_on_without_a_silent_member_which_leaves_when_it_wakes(self):
        agent = self.agent("count.py", 4, 60, 6, "--slow", 0.01)
        names = self.start_members(agent, 3)
        agent.wait_for_step(names[0], 5)
        agent.workers[names[2]].send_signal(signal.SIGSTOP)
        agent.publish(names[:2], lost=[names[2]])  # its agent has heard nothing from it
        agent.wait_for_step(names[0], agent.step(names[0])[1] + 2)
        agent.workers[names[2]].send_signal(signal.SIGCONT)
        self.assertEqual(agent.wait_for_end(names[2]), 143, agent.story())
        self.check(agent, 4, 60, 6)

    def test_a_spare_waits_for_its_plan_and_leaves_when_asked(self):
        agent = self.agent("count.py", 2, 60, 6, "--slow", 0.01)
        names = self.start_members(agent, 1)
        spare, other = agent.start(), agent.start()
        for name in (spare, other):
            agent.wait_for_state(name, "ready")
        agent.publish(names + [spare])
        agent.wait_for_state(spare, "training", 2)
        agent.workers[other].send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait_for_end(other), 143, agent.story())
        self.check(agent, 2, 60, 6)

    def test_a_member_that_dies_while_the_group_is_formed_is_left_out(self):
        agent = self.agent("count.py", 4, 60, 6, "--slow", 0.01)
        names = self.start_members(agent, 2)
        agent.wait_for_step(names[0], 3)
        late = agent.start()
        agent.wait_for_state(late, "ready")
        agent.workers[late].send_signal(signal.SIGSTOP)
        agent.publish(names + [late])  # it never comes
        agent.wait_for_step(names[0], agent.step(names[0])[1])
        agent.workers[late].send_signal(signal.SIGKILL)
        agent.wait_for_state(names[0], "training", agent.generation + 1)
        self.check(agent, 4, 60, 6)

    def test_nobody_waits_for_a_member_that_dies_between_address_and_connection(self):
        """Which of two members of gloo waits for the other is decided by their ports: several try."""
        os.environ["DIES"] = " ".join(f"w{i}" for i in range(1, 9))
        self.addCleanup(os.environ.pop, "DIES")
        agent = self.agent("dies_forming.py", 4, 60, 6, "--slow", 0.1)
        (first,) = self.start_members(agent, 1)
        for _ in range(8):
            late = agent.start()
            agent.wait_for_state(late, "ready")
            agent.publish([first, late])
            agents.wait_until(lambda late=late: agent.pace() or agent.workers[late].poll() is not None, agent.story)
            agent.publish([first], lost=[late])
            agents.wait_until(lambda: agent.tend() or agent.workers[first].poll() is not None
                              or agent.report(first)["generation"] == agent.generation, agent.story)
        self.check(agent, 4, 60, 6)

    def test_asked_to_stop_all_save_and_leave_and_another_life_goes_on(self):
        agent = self.agent("count.py", 4, 60, 6, "--slow", 0.01)
        names = self.start_members(agent, 2)
        agent.wait_for_step(names[0], 5)
        agent.workers[names[1]].send_signal(signal.SIGTERM)
        self.assertEqual([agent.wait_for_end(name) for name in names], [143, 143], agent.story())
        again = [agent.start() for _ in range(3)]
        agent.publish(again)
        self.check(agent, 4, 60, 6)


class Leaks(InPlaceCase):
    """RUBATO_CHANGES=200 makes more of them."""

    def counts(self, agent, names):
        folders = [f"/proc/{agent.workers[name].pid}/{kind}" for name in names for kind in ("fd", "task")]
        return [len(os.listdir(folder)) for folder in folders]

    def test_many_changes_leave_no_descriptors_and_threads_behind(self):
        agent = self.agent("count.py", 100_000, 60, 6)
        names = self.start_members(agent, 2)

        def change(times):
            for _ in range(times):
                agent.publish(names)
                for name in names:
                    agent.wait_for_state(name, "training", agent.generation)
            agent.wait_for_step(names[0], agent.step(names[0])[1] + 3)
            return self.counts(agent, names)

        before = change(5)
        after = change(int(os.environ.get("RUBATO_CHANGES", "15")))

        def no_more():
            """What the last change has left ends soon; a leak stays."""
            agent.pace()
            after[:] = self.counts(agent, names)
            return all(other <= one + 4 for one, other in zip(before, after))

        agents.wait_until(no_more, lambda: f"{before} -> {after}")


class AdaptdlScript(InPlaceCase):
    def test_changes_in_place_as_it_is(self):
        agent = self.agent("adaptdl_train.py", 5)
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 10)
        third = self.grow(agent)
        agent.wait_for_step(third, agent.step(third)[1] + 10)
        agent.workers[first].kill()
        for name in (second, third):
            self.assertEqual(agent.wait_for_end(name), 0, agent.story())
        ends = {agent.workers[name].text().splitlines()[-1] for name in (second, third)}
        self.assertEqual(len(ends), 1, agent.story())
        self.assertTrue(ends.pop().endswith(" 5"))


class Storms(InPlaceCase):
    """Plans that overtake each other, saves under way, and deaths at any moment: in a step, while a group is formed, while
    states are on their way; and all are told to stop at once, and others go on from what they saved. RUBATO_STORMS=50 plays more of them, RUBATO_STORM=7 the one with that seed."""

    EPOCHS, LENGTH, BATCH = 6, 48, 6

    def play(self, seed):
        draw = random.Random(seed)
        agent = self.agent("count.py", self.EPOCHS, self.LENGTH, self.BATCH, "--slow", 0.005, "--ballast", 24,
                           *(("--saves", 0.03) if seed % 2 else ()))
        self.start_members(agent, draw.randint(1, 3))
        spares, killed, done = [], set(), 0
        for _ in range(10):
            agent.tend()
            alive = [name for name in agent.members if agent.workers[name].poll() is None and name not in killed]
            if any(worker.poll() == 0 for worker in agent.workers.values()) or not alive:
                break
            veterans = [name for name in alive if agent.report(name)["state"] == "training"]
            event = draw.choice(("start", "grow", "grow", "shrink", "again", "kill", "kill", "kill a spare", "stop"))
            done += self.happen(draw, agent, event, alive, veterans, spares, killed)
            time.sleep(draw.choice((0, 0.001, 0.01, 0.05)))  # at any moment: what comes must be right after each of them
        for name in spares:  # in no plan: they would wait for one. A member that was dropped just now would stop them all
            if name not in agent.members and agent.report(name)["state"] != "training":
                agent.workers[name].send_signal(signal.SIGTERM)
        survivors = [name for name in agent.members if name not in killed]
        self.assertTrue(survivors, agent.story())
        for name in survivors:
            result = self.result(agent, name)
            self.assertEqual(result["counts"], [float(self.EPOCHS)] * self.LENGTH, agent.story())
            self.assertEqual(result["scheduled"], self.EPOCHS * self.LENGTH // self.BATCH, agent.story())
        return done

    @staticmethod
    def happen(draw, agent, event, alive, veterans, spares, killed):
        """True when it could."""
        ready = [name for name in spares if name not in alive and name not in killed
                 and agent.workers[name].poll() is None and agent.report(name)["state"] == "ready"]
        if event == "start" and len(ready) < 2:
            spares.append(agent.start())
        elif event == "grow":
            if not ready:
                spares.append(agent.start())
                agent.wait_for_state(spares[-1], "ready")
                ready = [spares[-1]]
                alive = [name for name in agent.members if agent.workers[name].poll() is None and name not in killed]
            agent.publish(alive + ready[:1], lost=[name for name in agent.members if name not in alive])
        elif event == "shrink" and veterans and len(alive) > 1:
            stays = draw.choice(veterans)
            agent.publish([stays] + [one for one in alive if one != stays and draw.random() < 0.5])
        elif event == "again":
            agent.publish(alive)
        elif event == "kill" and len(veterans) > 1:
            victim = draw.choice(veterans)
            killed.add(victim)
            agent.workers[victim].kill()
        elif event == "kill a spare" and spares and set(veterans) - {spares[-1]}:
            killed.add(spares[-1])
            agent.workers[spares[-1]].kill()
        elif event == "stop" and len(veterans) == len(alive):
            for name in alive:
                agent.workers[name].send_signal(signal.SIGTERM)
            for name in alive:
                agent.wait_for_end(name)
            killed.update(alive)
            agent.publish([agent.start() for _ in range(draw.randint(1, 2))], lost=agent.members)
        else:
            return False
        return True

    def test_each_sample_counts_once(self):
        one = os.environ.get("RUBATO_STORM")
        happened = 0
        for seed in [int(one)] if one else range(int(os.environ.get("RUBATO_STORMS", "3"))):
            with self.subTest(seed=seed):
                happened += self.play(seed)
        self.assertGreater(happened, 0)


@unittest.skipUnless(VERSION >= (2, 4), "FSDP2 needs PyTorch 2.4")
class Sharded(InPlaceCase):
    """A model that is spread over the workers (FSDP2) is shared out anew when the group changes."""

    ARGUMENTS = (4, 60, 6)

    def alone(self):
        agent = self.agent("sharded_in_place.py", *self.ARGUMENTS)
        return self.result(agent, self.start_members(agent, 1)[0])

    def check_sums(self, agent, names):
        expected = self.alone()
        for name in names:
            result = self.result(agent, name)
            self.assertEqual(result["scheduled"], expected["scheduled"], agent.story())
            for one, other in zip(result["sums"], expected["sums"]):
                self.assertAlmostEqual(one, other, places=4)

    def test_grows_and_shrinks_between_two_steps(self):
        agent = self.agent("sharded_in_place.py", *self.ARGUMENTS, "--slow", 0.01)
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 3)
        third = self.grow(agent)
        agent.wait_for_step(third, agent.step(third)[1] + 2)
        agent.publish([second, third])  # rank 0 goes
        self.assertEqual(agent.wait_for_end(first), 143, agent.story())
        self.check_sums(agent, [second, third])

    def test_goes_on_from_the_newest_checkpoint_when_a_member_is_killed(self):
        agent = self.agent("sharded_in_place.py", *self.ARGUMENTS, "--slow", 0.01)
        names = self.start_members(agent, 2)
        agent.wait_for_step(names[0], 5)
        agent.workers[names[1]].send_signal(signal.SIGKILL)
        self.assertNotEqual(agent.wait_for_end(names[0]), 0, "half of the model is gone")
        agent.members, agent.lost = [], [*agent.lost, *names]
        self.check_sums(agent, self.start_members_again(agent, 2))

    def start_members_again(self, agent, count):
        names = [agent.start() for _ in range(count)]
        agent.publish(names, lost=agent.lost)
        return names


class Log(InPlaceCase):
    def test_has_each_step_once_over_changes(self):
        agent = self.agent("train.py", 6, "--log", "--slow", 0.01)
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 3)
        third = self.grow(agent)
        agent.wait_for_step(third, agent.step(third)[1] + 2)
        agent.publish([third])  # rank 0 goes, and the one after it
        for name, code in ((first, 143), (second, 143), (third, 0)):
            self.assertEqual(agent.wait_for_end(name), code, agent.story())
        with open(os.path.join(agent.folder, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(sorted(line["step"] for line in lines), list(range(1, 55)))  # 6 epochs, 100 samples by 12
        self.assertEqual({line["workers"] for line in lines}, {2, 3, 1})
        self.assertEqual({line["generation"] for line in lines}, {1, 2, 3})


class OwnLoader(InPlaceCase):
    """A loader of the script's own, on AdaptDL's helper: it begins its loop anew where the group changes."""

    def play(self, *arguments):
        agent = self.agent("count.py", 3, 120, 12, "--own-loader", "--slow", 0.01, *arguments)
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 3)
        third = self.grow(agent)
        agent.wait_for_step(third, agent.step(third)[1] + 2)
        agent.workers[first].send_signal(signal.SIGKILL)  # in the midst of a step
        agent.wait_for_state(second, "training", 3)
        agent.wait_for_step(third, agent.step(third)[1] + 2)
        agent.publish([third])
        self.assertEqual(agent.wait_for_end(second), 143, agent.story())
        self.check(agent, 3, 120, 12)

    def test_goes_on_from_its_index(self):
        self.play("--evaluate")

    def test_goes_on_with_gradients_in_small_steps(self):
        self.play("--accumulate")


class Alone(InPlaceCase):
    def test_a_survivor_that_is_asked_to_stop_before_a_plan_comes_saves(self):
        agent = self.agent("count.py", 4, 60, 6, "--slow", 0.01)
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 5)
        agent.workers[second].kill()
        agents.wait_until(lambda: agent.pace() or agent.report(first)["state"] == "broken", agent.story)
        agent.workers[first].send_signal(signal.SIGTERM)
        agents.wait_until(lambda: agent.pace() or agent.workers[first].poll() is not None, agent.story)
        self.assertEqual(agent.workers[first].code, 143, agent.story())
        again = agent.start()
        agent.publish([again], lost=[first, second])
        agent.wait_for_state(again, "training", agent.generation)
        self.assertGreaterEqual(agent.report(again)["step"], 5)
        self.check(agent, 4, 60, 6)

    def test_a_survivor_that_is_asked_to_stop_while_a_group_is_formed_saves(self):
        agent = self.agent("patient.py", 4, 60, 6, "--slow", 0.01)
        (first,) = self.start_members(agent, 1)
        agent.wait_for_step(first, 5)
        late = agent.start()
        agent.wait_for_state(late, "ready")
        agent.workers[late].send_signal(signal.SIGSTOP)
        agent.publish([first, late])  # it never comes
        steps = []

        def stands():
            agent.pace()
            steps.append(agent.step(first))
            time.sleep(0.05)
            return len(steps) > 20 and len(set(steps[-20:])) == 1

        agents.wait_until(stands, agent.story)
        agent.workers[first].send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait_for_end(first), 143, agent.story())
        agent.workers[late].kill()
        again = agent.start()
        agent.publish([again], lost=[first, late])
        agent.wait_for_state(again, "training", agent.generation)
        self.assertGreaterEqual(agent.report(again)["step"], 5)
        self.check(agent, 4, 60, 6)


class OutOfMemory(InPlaceCase):
    def test_of_one_member_lowers_the_bound_of_all(self):
        agent = self.agent("memory.py", 200)
        for name in self.start_members(agent, 2):
            result = self.result(agent, name)
            self.assertLessEqual(result["limit"], 10)
            # What a worker without samples of its own repeats has no weight, but is seen here: there is none.
            self.assertEqual(result["sum"], 2 * sum(range(200)), agent.story())


class OwnAccumulation(InPlaceCase):
    def test_the_group_changes_between_two_updates_of_the_script(self):
        agent = self.agent("own_accumulation.py", 4, 60, 6, "--slow", 0.01)
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 1)
        third = self.grow(agent)
        agent.wait_for_step(third, agent.step(third)[1] + 1)
        agent.publish([second, third])
        self.assertEqual(agent.wait_for_end(first), 143, agent.story())
        for name in agent.members:
            self.assertEqual(self.result(agent, name)["counts"], [4.0] * 60, agent.story())

    def test_a_worker_joins_while_another_loop_evaluates(self):
        """Two batches of the epoch are added up by then: it joins after the update that they are in."""
        agent = self.agent("own_accumulation.py", 4, 60, 6, "--across", 4)
        self.start_members(agent, 2)
        self.grow(agent)
        for name in agent.members:
            self.assertEqual(self.result(agent, name)["counts"], [4.0] * 60, agent.story())

    def test_a_worker_is_killed_when_one_is_a_batch_ahead(self):
        """What had been added up is given up; from there on the survivors train the same batches."""
        agent = self.agent("own_accumulation.py", 4, 60, 6, "--kill-at", 4)
        first, second, _ = self.start_members(agent, 3)
        for name in (first, second):
            self.assertEqual(sorted(self.result(agent, name)["counts"]), [3.0] * 6 + [4.0] * 54, agent.story())


class ResultCase(InPlaceCase):
    """The weights are those of a training by one worker."""

    script = "train.py"

    def weights(self, agent, name):
        self.assertEqual(agent.wait_for_end(name), 0, agent.story())
        lines = [line for line in agent.workers[name].text().splitlines() if line.startswith("weights ")]
        return json.loads(lines[0].split(" ", 1)[1]) if lines else None

    def undisturbed(self, *arguments):
        agent = self.agent(self.script, *arguments)
        return self.weights(agent, self.start_members(agent, 1)[0])

    def disturbed(self, *arguments, slow=0.01):
        agent = self.agent(self.script, *arguments, "--slow", slow)
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 3)
        third = self.grow(agent)
        agent.wait_for_step(first, agent.step(first)[1] + 2)
        agent.workers[second].send_signal(signal.SIGKILL)
        agent.wait_for_state(first, "training", 3)
        agent.wait_for_step(third, agent.step(third)[1] + 2)
        agent.publish([third])  # only a newcomer is left
        self.assertEqual(agent.wait_for_end(first), 143, agent.story())
        return self.weights(agent, third)

    def compare(self, *arguments):
        self.assert_close(self.undisturbed(*arguments), self.disturbed(*arguments))

    def assert_close(self, expected, found):
        self.assertEqual(len(expected), len(found))
        for one, other in zip(expected, found):
            self.assertAlmostEqual(one, other, places=6)


class SameResult(ResultCase):
    """Adam, momentum, learning rates, accumulated gradients."""

    def test_of_sgd(self):
        self.compare(6)

    def test_of_adam(self):
        self.compare(6, "--adam")

    def test_of_gradients_in_small_steps(self):
        self.compare(6, "--accumulate")

    def test_of_clipped_gradients(self):
        """Whether or not they come in small steps: half a gradient is never clipped."""
        expected = self.undisturbed(6, "--clip")
        self.assert_close(expected, self.disturbed(6, "--clip"))
        self.assert_close(expected, self.disturbed(6, "--clip", "--accumulate"))

    def test_of_mixed_precision_that_skips_a_step(self):
        expected = self.undisturbed(6, "--scaler", "--overflow")
        self.assert_close(expected, self.disturbed(6, "--scaler", "--overflow"))
        self.assert_close(expected, self.undisturbed(6, "--scaler", "--overflow", "--accumulate"))
        self.assert_close(expected, self.disturbed(6, "--scaler", "--overflow", "--accumulate"))

    def test_of_mixed_precision_and_clipped_gradients(self):
        expected = self.undisturbed(6, "--clip")
        self.assert_close(expected, self.disturbed(6, "--clip", "--scaler"))
        self.assert_close(expected, self.disturbed(6, "--clip", "--scaler", "--accumulate"))

    @unittest.skipUnless(hasattr(torch, "compile"), "torch.compile needs PyTorch 2")
    def test_of_a_compiled_model(self):
        self.assert_close(self.undisturbed(6), self.disturbed(6, "--compile"))


class WithClosures(ResultCase):
    """A worker is lost while the optimizer calls its closure: what it has moved by then is moved back."""

    script = "closures.py"

    def test_that_are_called_once(self):
        self.compare(12, "--sgd")

    def test_that_are_called_as_often_as_the_losses_say(self):
        self.compare(6, "--wolfe")


class InEvaluationMode(ResultCase):
    script = "eval_mode.py"

    def test_a_model_is_trained_by_all_workers_together(self):
        for kind in ("frozen", "forgotten", "past"):
            with self.subTest(kind):
                self.compare(kind)


class RandomSchedules(InPlaceCase):
    """Whatever happens when, each sample counts once in the state that survives."""

    schedules = int(os.environ.get("RUBATO_SCHEDULES", "16"))

    def play(self, seed):
        draw = random.Random(seed)
        epochs, batch, stream = draw.randint(1, 3), draw.choice((3, 6)), draw.random() < 0.3
        arguments = [epochs, 48, batch, "--slow", 0.004] + ["--stream"] * stream + ["--evaluate"] * (draw.random() < 0.3)
        arguments += draw.choice(([], [], ["--inline"], ["--inline", "--own-epochs"]))
        agent = self.agent("count.py", *arguments)
        self.start_members(agent, draw.randint(1, 3))
        stopped = []
        for _ in range(draw.randint(1, 4)):
            first = agent.members[0]
            agent.wait_for_step(first, agent.step(first)[1] + draw.randint(0, 5))
            if any(agent.workers[name].poll() == 0 for name in agent.members):
                break  # it was through before
            self.strike(agent, draw, stopped)
        for name in stopped:
            agent.workers[name].send_signal(signal.SIGCONT)
        for name in list(agent.members):
            if name in agent.members:
                agent.wait_for_end(name)
        # Whoever was killed when the others had ended is in the last plan still.
        agent.members = [name for name in agent.members if agent.workers[name].poll() != -signal.SIGKILL]
        self.check(agent, epochs, 48, batch)
        for name in stopped:
            self.assertIn(agent.wait_for_end(name), (143, 0), agent.story())

    def strike(self, agent, draw, stopped):
        kind = draw.choice(("grow", "grow", "shrink", "kill", "kill", "stop", "swap", "early", "early"))
        agent.tend()  # whoever was killed before is no member any more
        members = list(agent.members)
        victim = draw.choice(members)
        others = [name for name in members if name != victim]
        if kind in ("grow", "swap") and len(members) < 4:
            name = agent.start()
            agent.wait_for_state(name, "ready")
            agent.tend()
            keep = others if kind == "swap" and others else members
            agent.publish([one for one in keep if one in agent.members] + [name])
        elif kind == "early" and len(members) < 4:  # while the group is formed
            name = agent.start()
            agent.wait_for_state(name, "ready")
            agent.tend()
            agent.publish(agent.members + [name])
            time.sleep(draw.choice((0, 0.003, 0.01, 0.03, 0.06)))
            killed = draw.choice((name, victim))
            agent.workers[killed].kill()
            agents.wait_until(lambda: agent.workers[killed].poll() is not None, "the end of a killed worker")
        elif kind == "shrink" and others:
            draw.shuffle(others)
            agent.publish(others)
        elif kind == "kill" and others:
            agent.workers[victim].kill()
            agents.wait_until(lambda: agent.workers[victim].poll() is not None, "the end of a killed worker")
            if draw.random() < 0.5:
                agent.publish(others, lost=[victim])  # before the survivors have noticed
        elif kind == "stop" and others:
            agent.workers[victim].send_signal(signal.SIGSTOP)
            stopped.append(victim)
            agent.publish(others, lost=[victim])

    def test_each_sample_counts_once(self):
        for seed in range(self.schedules):
            with self.subTest(seed=seed):
                self.play(seed)
                self.doCleanups()


if __name__ == "__main__":
    unittest.main()
