"""How the learning rate follows, step by step, also over restarts."""
import math
import unittest

import testing
import torch
import torch.distributed as dist
from rubato import checkpoint, collective, goodput
from rubato.torch import AdaptiveDataLoader, AdaptiveDataParallel, init_process_group, profile, remaining_epochs_until
from rubato.torch.scaling_rules import AdamScale, AdaScale, LEGWScale, LinearScale, SqrtScale


class Rules(testing.LibraryTest):
    def setUp(self):
        super().setUp()
        init_process_group("gloo")
        self.addCleanup(dist.destroy_process_group)
        self.addCleanup(collective.teardown)
        # Gradients are all noise: the largest batch is always the best.
        eager = goodput.Goodput(goodput.PerfParams(1, 1e-6, 1, 1, 1, 1, 1.0), goodput.GradParams(0.0, 1.0), 4)
        real = profile.Profile.goodput
        profile.Profile.goodput = lambda job: eager
        self.addCleanup(setattr, profile.Profile, "goodput", real)

    def train(self, rule, batch_size_max, until=None, optimizer=torch.optim.SGD):
        """The factors of the learning rate, by step, of two epochs with 10 first batches each."""
        model = torch.nn.Linear(1, 1)
        optimizer = optimizer(model.parameters(), lr=1e-6)
        net = AdaptiveDataParallel(model, optimizer, scaling_rule=rule)
        loader = AdaptiveDataLoader(torch.randn(40, 1), batch_size=4, shuffle=True)
        loader.autoscale_batch_size(batch_size_max, local_bsz_bounds=(1, 64))
        factors = []
        for _ in remaining_epochs_until(2):
            for batch in loader:
                if len(factors) == until:
                    checkpoint.save_all_states()
                    return factors
                optimizer.zero_grad()
                net(batch).square().mean().backward()
                optimizer.step()
                factors.append(net.lr_factor)
                self.assertEqual(optimizer.param_groups[0]["lr"], 1e-6, "the script's own rate stays")
        return factors

    def test_powers_of_the_batch_size(self):
        self.assertEqual(set(self.train(LinearScale(), 16)), {4.0})
        testing.forget()
        self.assertEqual(set(self.train(SqrtScale(), 16)), {2.0})

    def test_gains_lie_between_one_and_the_scale(self):
        for rule, optimizer, most in ((AdaScale(), torch.optim.SGD, 4.0), (AdamScale(), torch.optim.Adam, 2.0)):
            testing.forget()
            factors = self.train(rule, 16, optimizer=optimizer)
            self.assertTrue(all(1.0 <= factor <= most for factor in factors), factors)
            self.assertGreater(max(factors), 1.0)

    def test_warm_up_at_the_first_batch_size(self):
        factors = self.train(LEGWScale(base_warmup_epochs=1, data_size=40), 4)
        self.assertEqual([round(factor, 9) for factor in factors], [i / 10 for i in range(10)] + [1.0] * 10)

    def test_warm_up_is_longer_with_a_larger_batch_and_goes_on_after_a_restart(self):
        first = self.train(LEGWScale(1, 40), 16, until=3)
        progress = profile.current().progress
        testing.forget()
        factors = first + self.train(LEGWScale(1, 40), 16)
        self.assertEqual(len(factors), 6)  # two epochs: batches of 16, 16 and 8
        self.assertAlmostEqual(factors[3], 2 * min(1.0, progress / 40))  # not from the beginning
        self.assertGreater(progress, 0)
        self.assertEqual(factors, sorted(factors))
        self.assertTrue(all(factor <= math.sqrt(4) for factor in factors))


if __name__ == "__main__":
    unittest.main()
