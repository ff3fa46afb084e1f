"""Over any sequence of changes in place, each sample counts once in the state that survives: hundreds of schedules.

The workers of a group are simulated in one process, in lockstep: each one's part of the library (its globals) is put in
place while it runs. Loops, cursors, states and the choice of the source are the real ones; the group itself is a model
of group.py. `inplace_test.py` does it with real processes.
"""
import collections
import contextlib
import copy
import os
import random
import unittest
from unittest import mock

import testing
import torch
from rubato import checkpoint, collective, group, membership
from rubato.torch import AdaptiveDataLoader, data, epoch, order, profile, remaining_epochs_until
from torch.utils.data import IterableDataset

GLOBALS = [(checkpoint, "_states"), (checkpoint, "_received"), (checkpoint, "_loading_from"), (checkpoint, "_begun"),
           (checkpoint, "_unclaimed"), (epoch, "_made"),
           (data, "_flags"), (data.Loop, "current"), (data.Loop, "_training"), (data.Loop, "_positions"),
           (epoch, "_state"), (profile, "_profile"), (group, "_current")]


class Stream(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


class Tally(checkpoint.State):
    """Stands for the model: the samples that have contributed to it, as [epoch, sample]."""

    def __init__(self):
        super().__init__("tally")
        self.seen = []

    def snapshot(self):
        return list(self.seen)

    def restore(self, value):
        self.seen = list(value)


class Worker:
    """A process: its globals, its end of the group, and its script as a generator."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.generation = self.changes = 0
        self.veteran = False
        self._globals = None
        with self.active():
            self.script = self._script()

    @contextlib.contextmanager
    def active(self):
        if group.current() is self:
            yield
            return
        kept = [(owner, name, getattr(owner, name)) for owner, name in GLOBALS]
        if self._globals is None:
            fresh = [{}, {}, (None, None), False, {}, collections.Counter(), None, None, None, collections.Counter(), None, None, self]
            self._globals = [(owner, name, value) for (owner, name), value in zip(GLOBALS, fresh)]
        for owner, name, value in self._globals:
            setattr(owner, name, value)
        if self.changes:
            os.environ.update(self._variables)
        try:
            yield
        finally:
            self._globals = [(owner, name, getattr(owner, name)) for owner, name in GLOBALS]
            for owner, name, value in kept:
                setattr(owner, name, value)

    def _script(self):
        self.tally = Tally()
        loader = self.world.make_loader()
        for number in remaining_epochs_until(self.world.epochs):
            for batch in loader:
                yield [[number, sample] for sample in batch.tolist()]

    def next(self):
        """The samples of its next step, or None when it has ended."""
        with self.active():
            try:
                return next(self.script)
            except (StopIteration, SystemExit):
                return None

    def finish_step(self, samples):
        """`samples` of all workers have been averaged; None: a worker was lost before its gradients were complete."""
        with self.active():
            loop = data.current_dataloader()
            if samples is None:
                loop.dropped = True
                return
            self.tally.seen += samples
            profile.current().step_done(1.0)
            loop.count_samples()

    def steps(self):
        with self.active():
            return profile.current().steps

    def has_own_samples(self):
        """Else it repeats others', with the weight 0."""
        with self.active():
            return data.current_dataloader().weight > 0

    # What the library asks of a group ----------------------------------------------------------------------------------

    def broken(self):
        return self.changes > 0 and self.world.broken == self.generation

    def newest(self):
        return self.world.plan.generation

    def join(self):
        if self.changes == 0:
            self.meet()

    def fail(self, error):
        raise AssertionError(error)

    def meet(self):
        plan = self.world.plan
        assert plan.generation > self.generation, "a worker meets without a newer plan"
        if plan.member(self.name) is None:
            raise SystemExit(143)
        works = data.forget_group()
        assert not works
        self.generation, self.changes = plan.generation, self.changes + 1
        self._variables = plan.variables(self.name)
        self.world.settle(self)
        os.environ.update(self._variables)
        self.veteran = True


class World:
    """Workers, the plan, and what happens to them."""

    def __init__(self, draw, epochs, make_loader):
        self.draw, self.epochs, self.make_loader = draw, epochs, make_loader
        self.all, self.plan, self.broken = [], None, None
        self.workers = [self._new() for _ in range(draw.randint(1, 4))]
        self._publish(self.workers)

    def _new(self):
        self.all.append(Worker(self, f"w{len(self.all)}"))
        return self.all[-1]

    def close(self):
        """A generator that goes by itself would end its loop in the midst of another worker."""
        for one in self.all:
            with one.active():
                one.script.close()

    def _publish(self, workers):
        members = tuple(membership.Member(one.name, i, i, 0) for i, one in enumerate(workers))
        self.plan = membership.Plan(self.plan.generation + 1 if self.plan else 1, members, frozenset(), "", "")
        self._members = list(workers)
        self._snapshot = None

    def settle(self, worker):
        """The source comes first: workers are run in that order."""
        headers = [membership.Header(i, one.veteran, one.steps(), 0) for i, one in enumerate(self._members)]
        if self._snapshot is None:
            self._choice = membership.choose(headers)
            assert self._members[self._choice.source] is worker, "the source must come first"
            self._snapshot = copy.deepcopy(checkpoint.snapshot())
        elif self._members.index(worker) in self._choice.needy:
            checkpoint.receive(copy.deepcopy(self._snapshot))

    def step(self):
        """One step of everybody. False when the training has come to its end."""
        known = [one for one in self._members if one in self.workers]
        order = sorted(known + [one for one in self.workers if one not in known],
                       key=lambda one: (-one.veteran, -one.steps()))  # the source first
        batches = {one: one.next() for one in order}
        if any(one.generation == self.plan.generation for one in self.workers):  # those that stay have met
            self.workers = list(self._members)
        newcomers = [one for one in self.workers if one not in batches]
        batches.update({one: one.next() for one in newcomers})
        ended = [one for one in self.workers if batches[one] is None]
        if ended:
            assert len(ended) == len(self.workers), "all end together"
            return False
        generations = {one.generation for one in self.workers}
        assert len(generations) == 1, generations
        self._end_step([pair for one in self.workers if one.has_own_samples() for pair in batches[one]])
        return True

    def _end_step(self, samples):
        lost = self.draw.choice(self.workers) if len(self.workers) > 1 and self.draw.random() < 0.15 else None
        if lost is None:
            for one in self.workers:
                one.finish_step(samples)
            self._maybe_change()
            return
        rest = [one for one in self.workers if one is not lost]
        # None of them, some, or all have got the whole average before it died.
        ahead = self.draw.choice(([], rest, self.draw.sample(rest, self.draw.randint(0, len(rest)))))
        for one in rest:
            one.finish_step(samples if one in ahead else None)
        self.broken = rest[0].generation  # the plan may be ahead of it
        self.workers = rest
        self._publish(rest + ([self._new()] if self.draw.random() < 0.3 else []))

    def _maybe_change(self):
        if self.plan.generation != self.workers[0].generation or self.draw.random() > 0.15:
            return  # the last change is not through yet
        kept = self.draw.sample(self.workers, self.draw.randint(1, len(self.workers)))
        self._publish(kept + [self._new() for _ in range(self.draw.randint(0, 2))])


class Exactness(testing.LibraryTest):
    def play(self, seed):
        draw = random.Random(seed)
        length, batch_size, epochs = draw.randint(1, 50), draw.randint(1, 12), draw.randint(1, 3)
        iterable, shuffle = draw.random() < 0.3, draw.random() < 0.7

        def make_loader():
            if iterable:
                return AdaptiveDataLoader(Stream(length), batch_size=batch_size)
            return AdaptiveDataLoader(torch.arange(length), batch_size=batch_size, shuffle=shuffle)

        def allreduce(value, _function=None):
            while group.current().broken():
                group.current().meet()
            return value

        with mock.patch.object(collective, "allreduce", allreduce), \
                mock.patch.object(data.Loop, "may_train", lambda loop: True), \
                mock.patch.object(order, "_DRAWN_WHOLE", 0 if seed % 2 else order._DRAWN_WHOLE):
            world = World(draw, epochs, make_loader)
            self.assertTrue(any(not world.step() for _ in range(2000)), "training does not end")
            world.close()
        expected = [[number, sample] for number in range(epochs) for sample in range(length)]
        for worker in world.workers:
            self.assertEqual(sorted(worker.tally.seen), expected, worker.name)
        return world.plan.generation

    def test_each_sample_counts_once_over_random_schedules(self):
        changes = 0
        for seed in range(300):
            with self.subTest(seed=seed):
                changes += self.play(seed) - 1
        self.assertGreater(changes, 300, "the schedules change their groups")


if __name__ == "__main__":
    unittest.main()
