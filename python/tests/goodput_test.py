import random
import unittest
from unittest import mock

import testing
from rubato import goodput
from rubato.goodput import Batch, GradParams, PerfParams, Point


def measured(perf, noise, seed=1):
    draw = random.Random(seed)
    points = []
    for nodes, replicas in ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16)):
        for atomic in (8, 16, 32, 64, 128):
            grad, _, step = goodput.step_times(perf, nodes, replicas, atomic)
            points.append(Point(nodes, replicas, atomic, grad * draw.lognormvariate(0, noise),
                                step * draw.lognormvariate(0, noise)))
    return points


class Fit(unittest.TestCase):
    perf = PerfParams(0.05, 0.002, 0.08, 0.01, 0.02, 0.005, 2.0)

    def worst_error(self, fitted, points):
        errors = []
        for p in points:
            expected = goodput.step_times(self.perf, p.nodes, p.replicas, p.atomic_bsz)[2]
            errors.append(abs(goodput.step_times(fitted, p.nodes, p.replicas, p.atomic_bsz)[2] / expected - 1))
        return max(errors)

    def test_times_are_found_again_through_noise(self):
        for seed in range(10):
            points = measured(self.perf, 0.05, seed)
            self.assertLess(self.worst_error(goodput.fit(points), points), 0.15)

    def test_what_was_not_seen_is_taken_for_cheap(self):
        alone = [p for p in measured(self.perf, 0.0) if p.replicas == 1]
        fitted = goodput.fit(alone)
        grad, _, step = goodput.step_times(fitted, 4, 16, 32)
        self.assertAlmostEqual(step / grad, 1.0, places=3)
        one = goodput.fit(alone[:1])
        self.assertAlmostEqual(one.alpha_c, alone[0].grad_time / 2)

    def test_any_points_give_finite_positive_parameters(self):
        draw = random.Random(3)
        for _ in range(200):
            points = [Point(draw.choice((1, 1, 2, 4)), draw.choice((1, 2, 4, 8)), draw.choice((1, 16, 500)),
                            10 ** draw.uniform(-6, 2), 10 ** draw.uniform(-6, 2)) for _ in range(draw.randint(1, 8))]
            fitted = goodput.fit([p._replace(replicas=max(p.replicas, p.nodes)) for p in points])
            self.assertTrue(all(0 < value < 1e9 for value in fitted), fitted)
            self.assertTrue(1 <= fitted.gamma <= 10)

    def evaluations(self, call):
        """(how many points were evaluated, the result)."""
        count, real = 0, goodput._Fit.residuals

        def residuals(fit, x):
            nonlocal count
            count += len(fit.points)
            return real(fit, x)

        with mock.patch.object(goodput._Fit, "residuals", residuals):
            return call(), count

    def test_a_fit_of_many_points_costs_no_more_than_one_of_some(self):
        many = [p._replace(atomic_bsz=p.atomic_bsz + i) for i in range(8) for p in measured(self.perf, 0.02, i)]
        fitted, count = self.evaluations(lambda: goodput.fit(many))
        self.assertLess(self.worst_error(fitted, many), 0.15)
        self.assertLess(count, 16 * 8 * 100)  # of sixteen points; it was of two hundred
        self.assertEqual({(p.nodes, p.replicas) for p in goodput._thin(many)}, {(p.nodes, p.replicas) for p in many})
        sizes = [p.replicas for p in goodput._thin([Point(1, size, 8, 0.1, 0.1) for size in range(1, 65)])]
        self.assertEqual((len(sizes), sizes[0], sizes[-1]), (16, 1, 64))

    def test_nothing_measured_is_an_error(self):
        with self.assertRaises(ValueError):
            goodput.fit([])


class Profile(testing.LibraryTest):
    def test_what_was_measured_again_alike_is_not_fitted_again(self):
        from rubato.torch import profile

        job, real, fits = profile.current(), goodput.fit, []

        def fit(points):
            fits.append(len(points))
            return real(points)

        with mock.patch.object(goodput, "fit", fit):
            for atomic, seconds in ((8, 0.1), (8, 0.101), (8, 0.1), (16, 0.15), (16, 0.15)):
                job.add_times(atomic, seconds, seconds)
                job.perf_params()
            self.assertEqual(fits, [1, 2])  # at the first time, and for the new size
            for _ in range(40):
                job.add_times(16, 0.3, 0.3)
            job.perf_params()
            self.assertEqual(fits, [1, 2, 2])


class Best(unittest.TestCase):
    perf = PerfParams(0.05, 0.0005, 0.08, 0.01, 0.02, 0.005, 2.0)

    def test_noisy_gradients_make_large_batches_worth_it(self):
        noisy = goodput.Goodput(self.perf, GradParams(0.001, 1.0), 32).best(1, 4, 4096, (8, 1024))[1]
        clear = goodput.Goodput(self.perf, GradParams(1.0, 0.001), 32).best(1, 4, 4096, (8, 1024))[1]
        self.assertGreater(noisy.atomic_bsz, 4 * clear.atomic_bsz)

    def test_choices_keep_to_the_bounds(self):
        draw = random.Random(5)
        for _ in range(300):
            first = draw.randint(1, 64)
            low, high = draw.randint(1, 16), draw.randint(16, 256)
            largest = first * draw.randint(1, 40)
            for batch in goodput.batches(first, draw.randint(1, 12), largest, (low, high), draw.random() < 0.5):
                self.assertTrue(low <= batch.atomic_bsz <= high, batch)
                self.assertGreaterEqual(batch.accum_steps, 0)

    def test_without_a_larger_maximum_the_batch_stays(self):
        self.assertEqual(goodput.batches(32, 4), [Batch(8, 0)])

    def test_efficiency_is_one_at_the_first_batch_size_and_falls(self):
        model = goodput.Goodput(self.perf, GradParams(0.5, 1.0), 32)
        self.assertAlmostEqual(model.efficiency(32), 1.0)
        values = [model.efficiency(size) for size in (32, 64, 256, 2048)]
        self.assertEqual(values, sorted(values, reverse=True))


if __name__ == "__main__":
    unittest.main()
