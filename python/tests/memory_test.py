"""Out of memory with a larger batch."""
import collections
import json
import os
import unittest
import warnings

import testing
import torch
import torch.distributed as dist
from rubato import collective, env, goodput
from rubato.torch import AdaptiveDataLoader, AdaptiveDataParallel, current_dataloader, init_process_group, memory, profile

FITS = 10


class Exhausted(torch.autograd.Function):
    @staticmethod
    def forward(_context, x):
        return x

    @staticmethod
    def backward(_context, gradient):
        if len(gradient) > FITS:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return gradient


class Model(torch.nn.Module):
    def __init__(self, where):
        super().__init__()
        self.layer, self.where = torch.nn.Linear(1, 1), where

    def forward(self, x):
        if len(x) > FITS and (self.where == "everywhere" or (self.where == "forward" and torch.is_grad_enabled())):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
        return Exhausted.apply(self.layer(x)) if self.where == "backward" else self.layer(x)


class Memory(testing.LibraryTest):
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

    def train(self, where, sizes):
        model = Model(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        net = AdaptiveDataParallel(model, optimizer)
        loader = AdaptiveDataLoader(torch.arange(200.0).reshape(-1, 1), batch_size=4, shuffle=True)
        loader.autoscale_batch_size(64, local_bsz_bounds=(1, 64))
        seen = []
        for x in loader:
            sizes.append(len(x))
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            if not current_dataloader().dropped:
                seen += x.flatten().tolist()
        self.assertEqual(sorted(seen), [float(i) for i in range(200)])

    def check(self, where):
        sizes = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.train(where, sizes)
        self.assertGreater(sizes[0], FITS)
        self.assertLessEqual(sizes[-2], FITS)
        self.assertTrue(any("did not fit into memory" in str(one.message) for one in caught))
        limit = profile.current().memory_limit
        self.assertLessEqual(limit, FITS)
        testing.forget()
        self.assertEqual(profile.current().memory_limit, limit, "the next life knows")

    def test_in_forward_the_step_is_taken_again_with_less(self):
        self.check("forward")

    def test_where_not_even_its_outputs_fit(self):
        self.check("everywhere")

    def test_a_stand_in_has_the_shape_of_all_samples(self):
        Outputs = collections.namedtuple("Outputs", "loss logits")

        def module(x, scale, mask=None):
            if len(x) > FITS:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            assert mask is None or len(mask) == len(x)
            return {"out": Outputs(x.sum(), [x * scale, (x[:, :1],)]), "size": len(x)}

        x, scale = torch.ones(64, 3, requires_grad=True), torch.ones(3)
        for mask in (None, torch.ones(64, dtype=torch.bool)):
            given = memory.stand_in(module, (x, scale), {"mask": mask})
            logits, (first,) = given["out"].logits
            self.assertEqual((logits.shape, first.shape, given["out"].loss.shape), ((64, 3), (64, 1), ()))
            self.assertFalse(logits.requires_grad)
        self.assertEqual(memory.stand_in(module, (x[:4], scale), {})["size"], 4)
        with self.assertRaisesRegex(RuntimeError, "out of memory"):
            memory.stand_in(lambda value: module(torch.ones(64, 3), scale), (torch.ones(64),), {})

    def test_in_backward_the_step_is_taken_again_with_less(self):
        self.check("backward")

    def test_without_autoscaling_it_is_thrown(self):
        model = Model("forward")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        net = AdaptiveDataParallel(model, optimizer)
        for x in AdaptiveDataLoader(torch.arange(40.0).reshape(-1, 1), batch_size=20):
            with self.assertRaisesRegex(RuntimeError, "allocate memory"):
                net(x)
            break

    def test_a_damaged_note_of_the_limit_is_no_limit(self):
        os.makedirs(env.checkpoint_path())
        for text in ("", "[]", json.dumps({"atomic_bsz": None})):
            with open(os.path.join(env.checkpoint_path(), "memory-limit.json"), "w", encoding="utf-8") as file:
                file.write(text)
            testing.forget()
            self.assertIsNone(profile.current().memory_limit)


if __name__ == "__main__":
    unittest.main()
