"""Over any sequence of lives with any number of workers and any deaths, each sample counts once in what survives.

The workers of a life run one after the other here, in one process, rank 0 last: a loop without autoscaling needs no
collective, and hundreds of schedules take seconds. `group_test.py` does it with real processes.
"""
import random
import unittest
from unittest import mock

import testing
import torch
from rubato import checkpoint
from rubato.torch import AdaptiveDataLoader, data, order, remaining_epochs_until
from torch.utils.data import Dataset, IterableDataset


class Indices(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


class LongStream(Stream):
    """One that can begin in the middle, and never has to be read from its beginning."""

    def iter_from(self, samples):
        return iter(range(samples, self.length))

    def __iter__(self):
        raise AssertionError("read from its beginning")


class Tally(checkpoint.State):
    """Stands for the model: the samples that have contributed to it, as (epoch, sample)."""

    def __init__(self):
        super().__init__("tally")
        self.seen = []

    def save(self, fileobj):
        torch.save(self.seen, fileobj)

    def load(self, fileobj):
        self.seen = torch.load(fileobj)


class Life:
    """One life of a group. It saves before the steps in `saves_at` and ends, without a word, before step `ends_at`."""

    def __init__(self, test, generation, replicas, ends_at, saves_at, make_loader, epochs):
        self.test, self.generation, self.replicas = test, generation, replicas
        self.ends_at, self.saves_at, self.make_loader, self.epochs = ends_at, saves_at, make_loader, epochs
        self.taken = {}  # step of this life -> the samples of all workers

    def run(self):
        """True when training came to its end, and was saved."""
        ended = [self._run_worker(rank) for rank in reversed(range(self.replicas))]
        self.test.assertEqual(len(set(ended)), 1, "all workers end at the same step")
        return ended[0]

    def _run_worker(self, rank):
        self.test.be(rank, self.replicas, self.generation)
        tally = Tally()
        checkpoint.load_state(tally)
        step, counted = 0, 0

        def save():
            nonlocal counted
            for done in range(counted + 1, step + 1):
                tally.seen += self.taken.get(done, [])
            counted = step
            checkpoint.save_all_states()

        def agree(_loop):
            nonlocal step
            if rank == 0 and step in self.saves_at:
                save()
            if step == self.ends_at:
                raise SystemExit(143)
            step += 1
            return False

        with mock.patch.object(data.Loop, "agree", agree):
            try:
                loader = self.make_loader()
                for epoch in remaining_epochs_until(self.epochs):
                    for batch in loader:
                        self.taken.setdefault(step, []).extend((epoch, sample) for sample in batch.tolist())
            except SystemExit:
                return False
        if rank == 0:
            save()
        return True


class Exactness(testing.LibraryTest):
    def play(self, seed, iterable):
        draw = random.Random(seed)
        length, batch_size, epochs = draw.randint(1, 60), draw.randint(1, 16), draw.randint(1, 3)
        shuffle = not iterable and draw.random() < 0.7

        def make_loader():
            stream = LongStream if seed % 2 else Stream
            dataset = stream(length) if iterable else Indices(length)
            return AdaptiveDataLoader(dataset, batch_size=batch_size, shuffle=shuffle)

        steps = epochs * -(-length // batch_size)
        for generation in range(50):
            # Lives get longer in the end, or a schedule of crashes would never come to its own.
            ends_at = draw.randint(0, steps) if generation < 6 else steps + 1
            saves_at = {draw.randint(0, max(ends_at, 1)) for _ in range(draw.randint(0, 3))}
            if Life(self, generation, draw.randint(1, 5), ends_at, saves_at, make_loader, epochs).run():
                break
        else:
            self.fail("training did not end")
        self.be(0, 1)
        tally = Tally()
        self.assertTrue(checkpoint.load_state(tally))
        expected = [(epoch, sample) for epoch in range(epochs) for sample in range(length)]
        self.assertEqual(sorted(map(tuple, tally.seen)), expected, f"seed {seed}")

    def play_all(self, seeds, iterable):
        for seed in seeds:
            with self.subTest(seed=seed):
                self.setUp()
                with mock.patch.object(order, "_DRAWN_WHOLE", 0 if seed % 2 else order._DRAWN_WHOLE):
                    self.play(seed, iterable)
                self.doCleanups()

    def test_each_sample_counts_once_over_random_schedules(self):
        self.play_all(range(300), iterable=False)

    def test_each_sample_of_a_stream_counts_once_over_random_schedules(self):
        self.play_all(range(100), iterable=True)


if __name__ == "__main__":
    unittest.main()
