"""The order of a pass: a permutation of which each worker works out only what it reads."""
import collections
import itertools
import math
import os
import random
import unittest
from unittest import mock

import testing
import torch
from rubato.torch import AdaptiveDataLoader, ElasticSampler, order
from rubato.torch.order import Order
from rubato.torch.steps import MapSteps
from torch.utils.data import DistributedSampler, WeightedRandomSampler


class Numbers:
    """A dataset that takes no room."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index


def keyed():
    """Orders of any length are worked out, none is drawn whole."""
    return mock.patch.object(order, "_DRAWN_WHOLE", 0)


def whole(made):
    return made.at(torch.arange(len(made))).tolist()


class Permutation(unittest.TestCase):
    def test_each_sample_has_one_position(self):
        with keyed():
            for length in [*range(1, 140), 1000, 1023, 1024, 1025, 16385, 70001]:
                self.assertEqual(sorted(whole(Order(length, True, seed=length))), list(range(length)))

    def test_passes_differ_in_their_order_and_lives_do_not(self):
        for length in (50, 20000):
            orders = [Order(length, True, 0, epoch, number) for epoch in range(4) for number in range(4)]
            self.assertEqual(len({tuple(whole(one)) for one in orders}), 16)
            self.assertEqual(whole(Order(length, True, 0, 3, 1)), whole(Order(length, True, 0, 3, 1)))
        self.assertEqual(whole(Order(20000, False)), list(range(20000)))

    def test_the_order_is_the_same_in_every_version(self):
        """Or a pass that one version began could not be ended by another."""
        self.assertEqual([Order(10**9, True, 1, 2, 3)[i] for i in (0, 1, 10**9 - 1)], [688702121, 747032331, 643060969])
        self.assertEqual([Order(40, True, 1, 2, 3)[i] for i in (0, 1, 2)], [28, 31, 2])

    def test_any_sample_may_come_anywhere(self):
        length, draws = 60, 6000
        with keyed():
            for position in (0, 31, 59):
                counts = collections.Counter(Order(length, True, seed)[position] for seed in range(draws))
                expected = draws / length
                chi_squared = sum((counts[i] - expected) ** 2 / expected for i in range(length))
                self.assertLess(chi_squared, 98.3, f"position {position}")  # one of 1000 random ones has more

    def test_neighbours_have_nothing_to_do_with_each_other(self):
        length = 1 << 18
        drawn = Order(length, True, 9).at(torch.arange(length)).double()
        apart = drawn - drawn.mean()
        for distance in (1, 2, 16, 256, 1024):
            correlation = float((apart[:-distance] * apart[distance:]).mean() / apart.var())
            self.assertLess(abs(correlation), 4 / math.sqrt(length), distance)
        differences = (drawn[1:] - drawn[:-1]).unique(return_counts=True)[1]
        self.assertLess(int(differences.max()), 20)

    def test_parts_are_parts_of_the_whole(self):
        draw = random.Random(4)
        for length in (300, 40000):
            made = Order(length, True, 5)
            expected = whole(made)
            for _ in range(20):
                ranges, at = [], draw.randint(0, length // 2)
                while at < length and len(ranges) < 3000:
                    ranges.append((at, min(draw.randint(1, 9), length - at)))
                    at += draw.randint(9, 30)
                self.assertEqual(list(made.lists(ranges)), [expected[first : first + count] for first, count in ranges])
                first, stride = draw.randint(0, length - 1), draw.randint(1, 9)
                self.assertEqual(list(made.strided(first, stride)), expected[first::stride])


class Cost(testing.LibraryTest):
    """Counted, not timed: how many positions are worked out until a worker has its next batches."""

    def setUp(self):
        super().setUp()
        self.counted = 0
        real = Order._encrypt

        def counting(order, values):
            self.counted += values.numel()
            return real(order, values)

        patch = mock.patch.object(Order, "_encrypt", counting)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_change_costs_the_next_batches_and_not_the_pass(self):
        self.be(1, 4)
        loader = AdaptiveDataLoader(Numbers(10**12), batch_size=64, shuffle=True)
        for _ in range(20):  # changes
            loader._elastic.state.cursor += 5 * 10**9 + 7
            for step in itertools.islice(MapSteps(loader), 3):
                (own, batch), = step.micros
                self.assertEqual((own, len(batch)), (16, 16))
        self.assertLess(self.counted, 20 * 8 * order._FIRST_BLOCK)

    def test_what_is_worked_out_is_read(self):
        loader = AdaptiveDataLoader(Numbers(100_000), batch_size=64, shuffle=True)
        seen = torch.cat([batch for step in MapSteps(loader) for _, batch in step.micros])
        self.assertEqual(len(set(seen.tolist())), 100_000)
        self.assertLess(self.counted, 2 * 100_000)  # 2**17 hold it: 1.3 times on average

    def test_a_sampler_too(self):
        sampler = ElasticSampler(Numbers(10**12))
        sampler.num_replicas, sampler.rank = 8, 3
        sampler.set_epoch(2, index=10**11 + 5)
        self.assertEqual(len(set(itertools.islice(sampler, 1000))), 1000)
        self.assertLess(self.counted, 4 * order._BLOCK)


class OwnSampler(testing.LibraryTest):
    """A sampler of the script's is that of the whole group."""

    def read(self, loader, rank, replicas):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(replicas))
        return [sample for step in MapSteps(loader) for own, batch in step.micros if own for sample in batch.tolist()]

    def test_all_workers_draw_the_same_and_share_it_out(self):
        weights, generator = [i % 7 for i in range(50)], torch.Generator()
        for sampler in (WeightedRandomSampler(weights, 80), WeightedRandomSampler(weights, 80, generator=generator)):
            self.be(0, 1)
            loader = AdaptiveDataLoader(Numbers(50), batch_size=8, sampler=sampler)
            self.assertEqual(len(loader), 10)
            alone = self.read(loader, 0, 1)
            self.assertEqual(len(alone), 80)
            shares = []
            for rank in range(3):
                torch.rand(rank)  # workers are not at the same place in their own numbers
                random.random()
                shares += self.read(AdaptiveDataLoader(Numbers(50), batch_size=8, sampler=sampler), rank, 3)
            self.assertEqual(sorted(shares), sorted(alone))
            loader._elastic.state.cursor = 40  # a change in the middle: the rest, and no more
            self.assertEqual(self.read(loader, 0, 1), alone[40:])
            loader._elastic.state.cursor = 80  # another pass has another order
            self.assertNotEqual(self.read(loader, 0, 1), alone)

    def test_the_trainings_own_numbers_go_on(self):
        torch.manual_seed(1)
        random.seed(1)
        expected = float(torch.rand(())), random.random()
        torch.manual_seed(1)
        random.seed(1)
        AdaptiveDataLoader(Numbers(50), batch_size=8, sampler=WeightedRandomSampler([1.0] * 50, 20))._order(0)
        self.assertEqual((float(torch.rand(())), random.random()), expected)

    def test_a_group_that_changes_draws_it_once(self):
        class Counting(WeightedRandomSampler):
            drawn = 0

            def __iter__(self):
                self.drawn += 1
                return super().__iter__()

        sampler = Counting([1.0] * 50, 50)
        loader = AdaptiveDataLoader(Numbers(50), batch_size=8, sampler=sampler)
        for replicas in (1, 2, 3):
            self.read(loader, 0, replicas)
        self.assertEqual(sampler.drawn, 1)

    def test_what_cannot_be_shared_out_is_refused(self):
        for sampler, shuffle, why in ((DistributedSampler(Numbers(8), 2, 0), False, "leave it out"),
                                      (WeightedRandomSampler([1.0], 1), True, "shuffle"), (iter(()), False, "length")):
            with self.assertRaisesRegex(ValueError, why):
                AdaptiveDataLoader(Numbers(8), sampler=sampler, shuffle=shuffle)
        with self.assertRaisesRegex(ValueError, "batch_sampler"):
            AdaptiveDataLoader(Numbers(8), batch_sampler=[[1]])


class Sampler(testing.LibraryTest):
    def test_every_replica_has_as_many_and_all_are_there(self):
        for length, replicas, index in ((9, 3, 0), (25, 4, 7), (5, 8, 2), (20000, 3, 20001), (0, 2, 0)):
            drawn = []
            for rank in range(replicas):
                self.be(rank, replicas)
                sampler = ElasticSampler(Numbers(length))
                sampler.set_epoch(1, index)
                drawn.append(list(sampler))
                self.assertEqual(len(drawn[-1]), len(sampler))
            self.assertEqual(len({len(own) for own in drawn}), 1)
            rest = whole(Order(length, True, 0, 1, index // length))[index % length :] if length else []
            self.assertLessEqual(set(rest), {sample for own in drawn for sample in own})

    def test_follows_the_group(self):
        sampler = ElasticSampler(Numbers(100), shuffle=False)
        self.be(0, 1)
        self.assertEqual(len(sampler), 100)
        self.be(2, 4)  # the same process, after a change in place
        sampler.set_epoch(0, index=20)
        self.assertEqual(list(sampler), list(range(22, 100, 4)))


if __name__ == "__main__":
    unittest.main()
