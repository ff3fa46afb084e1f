"""Several models in one loop, and one whose optimizer is called in other ways."""
import contextlib
import inspect
import io
import json
import os
import unittest
import warnings
from unittest import mock

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # they are about the CPU, also where there is a GPU

import testing
import torch
import torch.distributed as dist
from group_test import GroupCase
from rubato import checkpoint, collective
from rubato.torch import (AdaptiveDataLoader, AdaptiveDataParallel, data, init_process_group, profile,
                          remaining_epochs_until)

LOAD_OPTIONS = inspect.signature(torch.load).parameters
EPOCHS, BATCHES = 4, 5  # of gan.py


class Models(GroupCase):
    def train(self, replicas, *arguments):
        folder = self.fresh("-".join((str(replicas), *arguments)))
        codes = self.finish(testing.start_group("gan.py", replicas, folder, 0, (str(EPOCHS), *arguments)))
        text = testing.output(folder, 0, 0)
        self.assertEqual(codes, [0] * replicas, text)
        return json.loads(text.split("result ")[1])

    def check(self, replicas, at_once, *arguments):
        result = self.train(replicas, *arguments)
        self.assert_close(result["weights"], self.train(1, "--plain", str(at_once), f"for-{replicas}")["weights"])
        self.assertEqual(result["steps"], EPOCHS * BATCHES)
        self.assertEqual(result["updates"], 2 * EPOCHS * BATCHES)
        self.assertAlmostEqual(result["progress"], EPOCHS * BATCHES, places=6)  # the batch size does not change
        self.assertEqual(result["known"], [True, True])
        self.assertEqual(result["weight"][0], result["weight"][1])  # as many samples of both
        # Counted with the first model's update: what the second one has found since is in the next step's.
        self.assertGreater(result["params"][0], result["sqr"][0])

    def test_a_step_counts_once_and_both_are_measured(self):
        self.check(1, 8)
        self.check(2, 8)

    def test_two_backwards_of_a_step_that_accumulates_weigh_the_same(self):
        self.check(1, 2, "--accumulate")
        self.check(2, 4, "--accumulate")


class Closures(GroupCase):
    """Called as often as the losses say: all workers must hear of the same ones."""

    def weights(self, replicas, *arguments):
        folder = self.fresh("-".join((str(replicas), *arguments)))
        codes = self.finish(testing.start_group("closures.py", replicas, folder, 0, ("3", *arguments)))
        self.assertEqual(codes, [0] * replicas, testing.output(folder, 0, 0))
        return json.loads(testing.output(folder, 0, 0).split("weights ")[1])

    def test_all_workers_call_them_equally_often(self):
        for search in ((), ("--wolfe",)):
            alone = self.weights(1, *search)
            for replicas in (2, 3):
                with self.subTest(search=search, replicas=replicas):
                    self.assert_close(alone, self.weights(replicas, *search))


class Steps(testing.LibraryTest):
    """One model, other ways to call its optimizer."""

    def setUp(self):
        super().setUp()
        init_process_group("gloo")
        self.addCleanup(dist.destroy_process_group)
        self.addCleanup(collective.teardown)
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.net = AdaptiveDataParallel(self.model, self.optimizer)
        self.loader = AdaptiveDataLoader(torch.randn(32, 2), batch_size=4)

    def backward(self, batch):
        self.optimizer.zero_grad()
        loss = self.net(batch).square().mean()
        loss.backward()
        return loss

    def test_the_backward_of_a_closure_counts_and_is_measured(self):
        before = self.model.weight.detach().clone()
        for _ in remaining_epochs_until(2):
            for batch in self.loader:
                self.optimizer.step(lambda batch=batch: self.backward(batch))
        self.assertEqual((profile.current().steps, profile.current().updates), (16, 16))
        self.assertFalse(torch.equal(before, self.model.weight))
        self.assertTrue(self.net.statistics.averages.known())

    def test_a_closure_does_not_go_with_a_loop_that_may_accumulate(self):
        self.loader.autoscale_batch_size(8, local_bsz_bounds=(1, 4), gradient_accumulation=True)
        with self.assertRaisesRegex(ValueError, "does not go with gradient_accumulation"):
            for batch in self.loader:
                self.optimizer.step(lambda batch=batch: self.backward(batch))

    def test_a_copy_is_the_model_without_its_optimizer(self):
        """In memory, as an average of the weights, and in a file."""
        average = torch.optim.swa_utils.AveragedModel(self.net, avg_fn=lambda old, new, _: 0.5 * (old + new))
        before = {name: value.clone() for name, value in self.net.state_dict().items()}
        for batch in self.loader:
            self.backward(batch)
            self.optimizer.step()
            average.update_parameters(self.net)
        file = io.BytesIO()
        torch.save(self.net, file)
        file.seek(0)
        # As PyTorch 2.6 wants to be told; older versions take it, too.
        loaded = torch.load(file, **({"weights_only": False} if "weights_only" in LOAD_OPTIONS else {}))
        self.assertEqual(list(loaded.state_dict()), list(before))
        self.assertTrue(torch.equal(loaded(batch), self.net(batch)))
        self.assertEqual(list(average.module.state_dict()), list(before))
        self.assertFalse(torch.equal(average.module.module.weight, self.model.weight))
        self.assertFalse(torch.equal(average.module.module.weight, before["module.weight"]))
        self.assertEqual(list(data.Loop.models), [self.net])

    def test_gradients_of_a_script_that_accumulates_by_itself(self):
        gradients = []
        for i, batch in enumerate(self.loader):
            self.assertTrue(self.net.require_backward_grad_sync)
            with self.net.no_sync() if i % 2 == 0 else contextlib.nullcontext():
                self.net(batch).square().mean().backward()
            if i % 2:
                gradients.append(self.model.weight.grad.clone())
                self.optimizer.step()
                self.optimizer.zero_grad()
        self.assertEqual((profile.current().updates, len(gradients)), (4, 4))

    def test_scripts_may_say_when_gradients_are_exchanged(self):
        """As to DistributedDataParallel; they are exchanged with each batch."""
        for i, batch in enumerate(self.loader):
            self.net.require_backward_grad_sync = i % 2 == 1
            self.backward(batch)
            self.assertTrue(self.net.require_backward_grad_sync)

    def test_a_second_step_of_a_batch_that_is_accumulated_is_warned_of_once(self):
        self.loader.autoscale_batch_size(4, local_bsz_bounds=(1, 2), gradient_accumulation=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            for batch in self.loader:
                for _ in range(2):
                    self.backward(batch)
                    self.optimizer.step()
        self.assertEqual(len([one for one in caught if "more than once" in str(one.message)]), 1)

    def test_what_was_noted_in_a_step_that_one_model_has_counted_stays(self):
        listener, loop = mock.Mock(), data.Loop(4)
        with mock.patch.object(data, "step_listeners", [listener]):
            for counted in (False, True):
                loop.dropped, loop.counted = True, counted
                self.assertTrue(loop.end_step())
        self.assertEqual(listener.commit.call_args_list, [mock.call(False), mock.call(True)])

    def test_who_begins_in_a_loop_that_evaluates_knows_which_one_trains(self):
        """Or it would wait there for the others' gradients, who know."""

        def life(stop):
            check = AdaptiveDataLoader(torch.randn(8, 2), batch_size=4)
            for _ in remaining_epochs_until(2):
                for batch in self.loader:
                    self.backward(batch)
                    self.optimizer.step()
                for batch in check:
                    if stop:
                        checkpoint.save_all_states()
                    return check._elastic.may_learn()

        self.assertFalse(life(stop=True))
        testing.forget()
        self.loader = AdaptiveDataLoader(torch.randn(32, 2), batch_size=4)
        self.net = AdaptiveDataParallel(self.model, self.optimizer)
        before = profile.current().steps
        self.assertFalse(life(stop=False))
        self.assertEqual(profile.current().steps, before)  # the loop that trains is passed over

    def test_only_the_loop_that_trains_is_timed(self):
        self.loader.autoscale_batch_size(4, local_bsz_bounds=(4, 4))  # one that may adapt, and has no choice
        other = AdaptiveDataLoader(torch.randn(32, 2), batch_size=8)
        for _ in remaining_epochs_until(1):
            for loader in (self.loader, other):
                for batch in loader:
                    self.backward(batch)
                    self.optimizer.step()
        self.assertEqual({atomic for _, _, atomic in profile.current().times}, {4})


del GroupCase
if __name__ == "__main__":
    unittest.main()
