"""Groups of real processes that change while they train: they grow, shrink, lose members, without a restart."""
import json
import os
import random
import signal
import sys
import tempfile
import unittest

import agent as agents
import testing
import rubato.torch  # noqa: F401  imported before workers are forked

sys.path.append(os.path.join(testing.LIBRARY, "adaptdl"))


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
        """Started while the others train on; planned when it is ready."""
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
        for one, other in zip(before, after):
            self.assertLessEqual(other, one + 4, f"{before} -> {after}")


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


class Alone(InPlaceCase):
    def test_a_survivor_that_is_asked_to_stop_before_a_plan_comes_saves(self):
        agent = self.agent("count.py", 4, 60, 6, "--slow", 0.01)
        first, second = self.start_members(agent, 2)
        agent.wait_for_step(first, 5)
        agent.workers[second].kill()
        agents.wait_until(lambda: agent.report(first)["state"] == "broken", agent.story)
        agent.workers[first].send_signal(signal.SIGTERM)
        agents.wait_until(lambda: agent.workers[first].poll() is not None, agent.story)
        self.assertEqual(agent.workers[first].code, 143, agent.story())
        again = agent.start()
        agent.publish([again], lost=[first, second])
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


class SameResult(InPlaceCase):
    """Adam, momentum, learning rates, accumulated gradients: the weights are those of a training by one worker."""

    def weights(self, agent, name):
        self.assertEqual(agent.wait_for_end(name), 0, agent.story())
        lines = [line for line in agent.workers[name].text().splitlines() if line.startswith("weights ")]
        return json.loads(lines[0].split(" ", 1)[1]) if lines else None

    def undisturbed(self, *arguments):
        agent = self.agent("train.py", *arguments)
        return self.weights(agent, self.start_members(agent, 1)[0])

    def disturbed(self, *arguments):
        agent = self.agent("train.py", *arguments, "--slow", 0.01)
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
        expected, found = self.undisturbed(*arguments), self.disturbed(*arguments)
        self.assertEqual(len(expected), len(found))
        for one, other in zip(expected, found):
            self.assertAlmostEqual(one, other, places=6)

    def test_of_sgd(self):
        self.compare(6)

    def test_of_adam(self):
        self.compare(6, "--adam")

    def test_of_gradients_in_small_steps(self):
        self.compare(6, "--accumulate")


class RandomSchedules(InPlaceCase):
    """Whatever happens when, each sample counts once in the state that survives."""

    schedules = int(os.environ.get("RUBATO_SCHEDULES", "16"))

    def play(self, seed):
        draw = random.Random(seed)
        epochs, batch, stream = draw.randint(1, 3), draw.choice((3, 6)), draw.random() < 0.3
        arguments = [epochs, 48, batch, "--slow", 0.004] + ["--stream"] * stream + ["--evaluate"] * (draw.random() < 0.3)
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
        self.check(agent, epochs, 48, batch)
        for name in stopped:
            self.assertIn(agent.wait_for_end(name), (143, 0), agent.story())

    def strike(self, agent, draw, stopped):
        kind = draw.choice(("grow", "grow", "shrink", "kill", "kill", "stop", "swap"))
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
