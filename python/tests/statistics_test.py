import random
import unittest

import testing  # noqa: F401  puts the library on the path
import torch
from rubato.torch.statistics import Averages, GradientStatistics


class Bucket:
    """A bucket of DistributedDataParallel, as far as the statistics ask."""

    def __init__(self, parameters, flat, index=0):
        self._parameters, self._flat, self._index = parameters, flat, index

    def buffer(self):
        return self._flat

    def parameters(self):
        return self._parameters

    def index(self):
        return self._index


class Statistics(unittest.TestCase):
    """Gradients are drawn around a known mean with a known variance: both must be found again."""

    size, mean, variance = 400, 0.3, 4.0  # of one sample

    def draw(self, samples, generator):
        noise = torch.randn(self.size, generator=generator, dtype=torch.float64)
        return self.mean + noise * (self.variance / samples) ** 0.5

    def check(self, averages, first_batch):
        sqr, var = sum(averages.sqr()), sum(averages.var())
        self.assertAlmostEqual(sqr / (self.size * self.mean**2), 1.0, delta=0.1)
        self.assertAlmostEqual(var / (self.size * self.variance / first_batch), 1.0, delta=0.1)

    def feed(self, replicas, local, first_batch, steps=600):
        parameter = torch.nn.Parameter(torch.zeros(self.size, dtype=torch.float64))
        statistics = GradientStatistics(torch.optim.SGD([parameter], lr=0.1))
        generator = torch.Generator().manual_seed(replicas * 100 + local)
        for _ in range(steps):
            gradients = [self.draw(local, generator) for _ in range(replicas)]
            mean = sum(gradients) / replicas
            scale = replicas * local / first_batch
            if replicas == 1:
                bucket = Bucket([parameter], gradients[0])
                statistics.add_alone(bucket)
                statistics.keep(bucket, gradients[0])
            else:  # what all ranks' sums add up to is given to one of them: nobody is there to exchange them with
                for gradient in gradients:
                    statistics.add_local(Bucket([parameter], gradient))
                statistics.add_total(Bucket([parameter], mean), mean)
            self.end(statistics, replicas, scale)
        return statistics.averages

    def end(self, statistics, replicas, scale):
        real, torch.distributed.all_reduce = torch.distributed.all_reduce, lambda *a, **k: None
        try:
            statistics.step_ended(replicas, scale)
        finally:
            torch.distributed.all_reduce = real

    def test_several_replicas_find_mean_and_variance(self):
        for replicas, local in ((2, 16), (4, 8), (8, 64)):
            self.check(self.feed(replicas, local, first_batch=32), first_batch=32)

    def test_a_replica_alone_finds_them_from_pairs_of_steps(self):
        self.check(self.feed(1, 32, first_batch=32), first_batch=32)

    def test_gain_lies_between_one_and_the_scale(self):
        draw = random.Random(1)
        for _ in range(200):
            averages = Averages(1)
            averages.add([10 ** draw.uniform(-6, 3)], [10 ** draw.uniform(-6, 3)], 1.0)
            scale = draw.uniform(1, 64)
            self.assertTrue(1 - 1e-9 <= averages.gain(scale) <= scale + 1e-9)

    def test_steps_that_mixed_precision_skips_do_not_count(self):
        parameter = torch.nn.Parameter(torch.zeros(4))
        statistics = GradientStatistics(torch.optim.SGD([parameter], lr=0.1))
        for value in (1.0, float("inf"), 1.0):
            bucket = Bucket([parameter], torch.full((4,), value))
            statistics.add_alone(bucket)
            statistics.keep(bucket, bucket.buffer())
            statistics.step_ended(1, 1.0)
        statistics._take_pending()
        self.assertFalse(statistics.averages.known())

    def test_what_was_saved_is_restored(self):
        averages = Averages(2)
        averages.add([1.0, 2.0], [3.0, 4.0], 2.0)
        other = Averages(2)
        other.load_state_dict(averages.state_dict())
        self.assertEqual((other.sqr(), other.var()), (averages.sqr(), averages.var()))


if __name__ == "__main__":
    unittest.main()
