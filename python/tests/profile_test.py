"""What is measured of a job, and what is told of it."""
import io
import json
import unittest
import warnings
from unittest import mock

import testing
import torch
import torch.distributed as dist
from rubato import collective, goodput
from rubato.torch import (AdaptiveDataLoader, AdaptiveDataParallel, init_process_group, profile,
                          remaining_epochs_until)


class Hints(testing.LibraryTest):
    def setUp(self):
        super().setUp()
        init_process_group("gloo")
        self.addCleanup(dist.destroy_process_group)
        self.addCleanup(collective.teardown)
        self.sizes = []  # of batches, with the factor of the learning rate

    def train(self, epochs=3, stop_after=1, autoscale=None, bounds=None):
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        net = AdaptiveDataParallel(model, optimizer)
        loader = AdaptiveDataLoader(torch.arange(40.0).reshape(-1, 1), batch_size=4)
        if autoscale:
            loader.autoscale_batch_size(autoscale, local_bsz_bounds=bounds or (1, autoscale))
        for epoch in remaining_epochs_until(epochs):
            for x in loader:
                optimizer.zero_grad()
                net(x).sum().backward()
                optimizer.step()
                self.sizes.append((len(x), net.lr_factor))
            if epoch + 1 == stop_after:
                break
        return profile.current()._hints()

    def test_a_loop_of_a_fixed_batch_takes_the_room_there_is(self):
        told = self.train()
        self.assertIsNone(told["perfParams"])
        self.assertEqual(told["initBatchSize"], 4)
        self.assertIsNone(told["maxBatchSize"])

    def test_a_loop_that_adapts_is_profiled(self):
        told = self.train(autoscale=8)
        self.assertIsNotNone(told["perfParams"])
        self.assertEqual(told["maxProfiledReplicas"], 1)

    def test_a_worker_that_is_left_alone_takes_what_the_bounds_allow(self):
        """Of bounds that several workers made up for."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            self.train(stop_after=3, autoscale=16, bounds=(1, 2))
        self.assertEqual([size for size, _ in self.sizes], [2] * 60)
        self.assertLess(self.sizes[-1][1], 1.0)  # a smaller batch, smaller steps
        self.assertEqual(len([one for one in caught if "give a batch of 2, not of 4" in str(one.message)]), 1)

    def test_declared_epochs_and_progress_are_told(self):
        told = self.train(epochs=3, stop_after=1)
        self.assertEqual(told["progress"], {"done": 10.0, "total": 30.0})
        self.assertGreater(told["startSeconds"], 0)

    def test_the_bound_that_memory_allows_is_told(self):
        self.train(autoscale=8)
        profile.current().limit_memory(6)
        self.assertEqual(profile.current()._hints()["localBszBounds"], [1, 6])


class Devices(testing.LibraryTest):
    def measure(self, device, seconds, batches=(4, 8)):
        with mock.patch.object(profile, "_device_kind", return_value=device):
            job = profile.current()
            job._device_here = None
            for batch in batches:
                job.add_times(batch, seconds * batch, seconds * batch)
        return job

    def test_times_of_different_devices_are_not_mixed(self):
        self.measure("slow", 1.0)
        job = self.measure("fast", 0.001)
        job.init_batch_size = 4
        told = job._hints()
        self.assertEqual(told["deviceKind"], "fast")
        self.assertLess(told["perfParams"]["alpha_c"] + told["perfParams"]["beta_c"], 0.1)
        self.assertGreater(told["perfByDevice"]["slow"]["alpha_c"] + told["perfByDevice"]["slow"]["beta_c"], 0.1)
        self.measure("slow", 1.0)
        self.assertEqual(sorted(job.times), [(1, 1, 4), (1, 1, 8)])
        self.assertEqual(len(job.times[1, 1, 4].grad), 2, "they are found again")

    def test_the_next_life_knows_what_was_measured_where(self):
        self.measure("slow", 1.0)
        job = self.measure("fast", 0.001)
        file = io.BytesIO()
        job.save(file)
        file.seek(0)
        testing.forget()
        other = profile.Profile()
        other.load(file)
        self.assertEqual(other.device, "fast")
        self.assertEqual(list(other.elsewhere), ["slow"])
        self.assertIsInstance(other.elsewhere["slow"][1], goodput.PerfParams)

    def test_what_is_kept_is_bounded(self):
        for i in range(10):
            job = self.measure(f"device {i}", 0.1)
        self.assertLessEqual(len(job.elsewhere), 4)
        self.measure("device 9", 0.1, range(1, 400))
        self.assertLessEqual(len(job.times), 256)

    def test_a_profile_of_before_is_read(self):
        job = profile.Profile()
        job.load(io.BytesIO(b'{"times": [[1, 1, 4, [0.1], [0.2]]], "grad": null, "progress": 3.0, "steps": 3}'))
        self.assertIsNone(job.device)
        self.assertEqual(list(job.times), [(1, 1, 4)])

    def test_updates_are_kept_and_those_of_before_are_not_known(self):
        profile.current().steps, profile.current().updates = 3, 6
        profile.current().save(file := io.BytesIO())
        state = json.loads(file.getvalue())
        for saved, updates in ((state, 6), ({key: state[key] for key in state if key != "updates"}, 0)):
            testing.forget()
            profile.current().load(io.BytesIO(json.dumps(saved).encode()))
            self.assertEqual((profile.current().steps, profile.current().updates), (3, updates))

    def test_names_of_devices_are_short_and_plain(self):
        with mock.patch.object(profile, "_cpu_model", return_value="x\n\u20ac" * 100):
            self.assertEqual(profile._device_kind(), "x" * 64)


if __name__ == "__main__":
    unittest.main()
