import bisect
import random
import unittest

import testing  # noqa: F401  puts the library on the path
from rubato.torch import plan


class Plan(unittest.TestCase):
    def test_every_sample_of_the_pass_is_in_one_share(self):
        draw = random.Random(1)
        for _ in range(500):
            length, replicas = draw.randint(0, 200), draw.randint(1, 9)
            cursor, taken = draw.randint(0, length), []
            sections = sorted(draw.sample(range(length), min(length, draw.randint(0, 3)))) + [length]
            for step in plan.steps(sections, cursor, draw.randint(1, 40), draw.randint(1, 4)):
                ends = {bisect.bisect_right(sections, position) for micro in step
                        for position in (micro.start, micro.start + micro.total - 1)}
                self.assertEqual(len(ends), 1, "no step crosses the end of a section")
                for micro in step:
                    for rank in range(replicas):
                        first, own = plan.share(micro, rank, replicas)
                        taken += range(first, first + own)
            self.assertEqual(taken, list(range(cursor, length)))

    def test_the_weights_give_the_mean_over_samples(self):
        draw = random.Random(2)
        for _ in range(300):
            length, replicas = draw.randint(1, 120), draw.randint(1, 7)
            value = [draw.random() for _ in range(length)]
            for step in plan.steps((length,), 0, draw.randint(1, 30), draw.randint(1, 3)):
                total = 0.0
                for rank in range(replicas):
                    accumulated = 0.0
                    for micro in step:
                        first, own = plan.share(micro, rank, replicas)
                        if own:
                            accumulated += sum(value[first:first + own]) / own
                    own = plan.share(step[0], rank, replicas)[1]
                    total += plan.weight(step, own, replicas) * accumulated / replicas
                samples = [value[i] for micro in step for i in range(micro.start, micro.start + micro.total)]
                self.assertAlmostEqual(total, sum(samples) / len(samples))

    def test_drop_last_leaves_out_only_what_fills_no_micro_step(self):
        steps = list(plan.steps((25,), 0, 4, 2, drop_last=True))
        self.assertEqual([micro.start for step in steps for micro in step], [0, 4, 8, 12, 16, 20])
        self.assertEqual(list(plan.steps((3,), 0, 4, 2, drop_last=True)), [])


if __name__ == "__main__":
    unittest.main()
