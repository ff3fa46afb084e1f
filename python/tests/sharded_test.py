"""Sharded models: what is saved by some workers is shared out among others."""
import os
import types
import unittest
from unittest import mock

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # they are about the CPU, also where there is a GPU

import testing
import torch
from group_test import GroupCase
from rubato import checkpoint
from rubato.torch import sharded

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


class Storage:
    """torch.distributed.checkpoint, as far as ShardedState asks: for one worker, that has all shards."""

    @staticmethod
    def save(state, checkpoint_id):
        os.makedirs(checkpoint_id, exist_ok=True)
        torch.save(state, os.path.join(checkpoint_id, "shards"))

    @staticmethod
    def load(state, checkpoint_id):
        state.update(torch.load(os.path.join(checkpoint_id, "shards")))

    @staticmethod
    def get_state_dict(model, optimizers):
        return model.state_dict(), optimizers[0].state_dict()

    @staticmethod
    def set_state_dict(model, optimizers, model_state_dict, optim_state_dict):
        model.load_state_dict(model_state_dict)
        optimizers[0].load_state_dict(optim_state_dict)


class Folders(testing.LibraryTest):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(sharded, "_distributed_checkpoint", lambda: (Storage, Storage, None))
        patch.start()
        self.addCleanup(patch.stop)

    def make(self):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        sharded.ShardedState(model, optimizer, scheduler)
        return model, optimizer, scheduler

    def shards(self):
        return sorted(name for name in os.listdir(os.environ["ADAPTDL_CHECKPOINT_PATH"]) if "sharded" in name)

    def test_a_later_life_has_what_was_saved(self):
        model, optimizer, scheduler = self.make()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        scheduler.step()
        checkpoint.save_all_states()
        with torch.no_grad():
            model.weight += 1  # after it
        self.be(0, 1, generation=1)
        other, other_optimizer, other_scheduler = self.make()
        self.assertTrue(torch.equal(other.weight + 1, model.weight))
        self.assertEqual(other_scheduler.last_epoch, 1)
        self.assertEqual(len(other_optimizer.state_dict()["state"]), 2)

    def test_each_checkpoint_has_its_own_shards_and_old_ones_go(self):
        model, _, _ = self.make()
        for number in range(6):
            with torch.no_grad():
                model.weight.fill_(number)
            checkpoint.save_all_states()
            newest = os.path.join(os.environ["ADAPTDL_CHECKPOINT_PATH"], self.shards()[-1])
            os.utime(newest, (number, number))  # files of one moment have an order, too
        self.assertEqual(self.shards(), [f"rubato-sharded.0.{i}" for i in (3, 4, 5, 6)])
        folders = checkpoint._numbered(os.environ["ADAPTDL_CHECKPOINT_PATH"])
        for (_, folder), value in zip(folders, (5, 4, 3)):  # the newest first; whichever is whole can be taken
            testing.forget()
            with mock.patch.object(checkpoint, "newest", lambda path, folder=folder: folder):
                other, _, _ = self.make()
            self.assertEqual(float(other.weight.detach().mean()), value)

    def test_shards_of_another_machine_are_named(self):
        self.make()
        checkpoint.save_all_states()
        path = os.environ["ADAPTDL_CHECKPOINT_PATH"]
        os.rename(os.path.join(path, self.shards()[0]), os.path.join(path, "elsewhere"))
        testing.forget()
        with self.assertRaisesRegex(RuntimeError, "a disk that all of them have"):
            self.make()

    def test_a_group_that_changes_in_place_is_refused(self):
        with mock.patch.object(sharded.group, "current", lambda: types.SimpleNamespace()):
            with self.assertRaisesRegex(RuntimeError, "ShardedModel"):
                self.make()


class Together(GroupCase):
    def run_folders(self, folder, generation, *arguments):
        processes = testing.start_group("folders.py", 2, folder, generation, arguments)
        return self.finish(processes), [testing.output(folder, generation, rank) for rank in range(2)]

    def test_a_folder_that_all_write_gets_its_name_when_it_is_whole(self):
        folder = self.fresh("shared")
        for generation, there in ((1, []), (2, ["parts.1.1"])):
            codes, said = self.run_folders(folder, generation, "--needs-all")
            self.assertEqual(codes, [0, 0], said)
            names = there + [f"parts.{generation}.{generation}"]
            self.assertIn(f"there {[[name, ['part-0', 'part-1']] for name in names]}", said[0])
        self.assertIn("read ['part-0', 'part-1']", said[1])

    def test_shards_without_a_common_disk_are_refused_at_once(self):
        codes, said = self.run_folders(self.fresh("apart"), 1, "--needs-all", "--apart")
        self.assertEqual(codes, [1, 1])
        for text in said:
            self.assertIn("on a disk that all nodes mount", text)

    def test_where_rank_0_has_everything_the_rest_is_left_out(self):
        codes, said = self.run_folders(self.fresh("apart"), 1, "--apart")
        self.assertEqual(codes, [0, 0], said)
        self.assertIn("there [['parts.1.1', ['part-0']]]", said[0])
        self.assertIn("there []", said[1])


class Sharded(GroupCase):
    @unittest.skipIf(VERSION >= (2, 4), "this PyTorch has what is needed")
    def test_an_older_pytorch_says_what_is_needed(self):
        with self.assertRaisesRegex(RuntimeError, "2.4"):
            sharded.ShardedState(torch.nn.Linear(1, 1))

    @unittest.skipUnless(VERSION >= (2, 4), "FSDP2 needs PyTorch 2.4")
    def test_is_shared_out_anew_among_other_workers(self):
        def run(replicas, generation, folder, *arguments):
            processes = testing.start_group("sharded.py", replicas, folder, generation, arguments)
            return self.finish(processes), testing.output(folder, generation, 0)

        plain = self.fresh("plain")
        codes, said = run(1, 0, plain, "6")
        self.assertEqual(codes, [0], said)
        expected = self.weights(plain, 0)
        folder = self.fresh("elastic")
        for generation, (replicas, save_at) in enumerate(((2, "2"), (3, "4"))):
            codes, said = run(replicas, generation, folder, "6", "--save-at", save_at)
            self.assertEqual(codes, [143] * replicas, said)
        codes, said = run(2, 2, folder, "6")
        self.assertEqual(codes, [0, 0], said)
        for one, other in zip(expected, self.weights(folder, 2)):
            self.assertAlmostEqual(one, other, places=4)


class FakeGroup:
    """A group that changes in place, of this worker alone."""

    control_group = staticmethod(lambda: None)

    def __init__(self):
        self.leave = self.meet = self.left = None
        self.steps = 0

    def on_leave(self, call):
        self.leave = call

    def on_meeting(self, call):
        self.meet = call

    def report_left(self, reason):
        self.left = reason

    def count_step(self):
        self.steps += 1


class ModelInPlace(testing.LibraryTest):
    """What ShardedModel does when its group is left and another one is met; `Storage` stands for the real writer."""

    def setUp(self):
        super().setUp()
        self.group = FakeGroup()
        patches = [mock.patch.object(sharded, "_distributed_checkpoint", lambda: (Storage, Storage, None)),
                   mock.patch.object(sharded.group, "current", lambda: self.group),
                   mock.patch.object(sharded.ShardedModel, "_mesh", lambda _: None),
                   mock.patch.object(sharded.dist, "all_reduce", lambda *args, **options: None)]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def make(self, _mesh):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def step(self, shards):
        shards.model(torch.ones(1, 2)).sum().backward()
        shards.optimizer.step()
        shards.lr_scheduler.step()
        shards.commit(True)

    def test_is_there_when_the_workers_have_met(self):
        shards = sharded.ShardedModel(self.make)
        with self.assertRaisesRegex(RuntimeError, "inside an epoch"):
            shards.model
        self.group.meet()
        self.assertIsInstance(shards.model, torch.nn.Linear)

    def test_another_group_has_what_the_last_one_wrote(self):
        shards = sharded.ShardedModel(self.make)
        self.group.meet()
        self.step(shards)
        weight, rate = shards.model.weight.detach().clone(), shards.optimizer.param_groups[0]["lr"]
        checkpoint.synchronize()
        self.group.leave()
        self.group.meet()
        self.assertTrue(torch.equal(shards.model.weight, weight))
        self.assertEqual(len(shards.optimizer.state_dict()["state"]), 2)
        self.assertEqual((shards.lr_scheduler.last_epoch, shards.optimizer.param_groups[0]["lr"]), (1, rate))
        self.assertEqual(self.group.steps, 1)

    def test_a_newcomer_learns_which_shards_are_meant(self):
        shards = sharded.ShardedModel(self.make)
        self.group.meet()
        self.step(shards)
        checkpoint.synchronize()
        values = checkpoint.snapshot()
        testing.forget()
        newcomer = sharded.ShardedModel(self.make)
        checkpoint.receive(values)
        self.group.meet()
        self.assertTrue(torch.equal(newcomer.model.weight, shards.model.weight))

    def test_shards_of_an_older_step_are_not_gone_on_with(self):
        shards = sharded.ShardedModel(self.make)
        self.group.meet()
        checkpoint.synchronize()
        self.step(shards)
        self.group.leave()  # a worker was lost: nobody could write
        with self.assertRaises(SystemExit) as ended, self.assertWarnsRegex(UserWarning, "newest checkpoint"):
            self.group.meet()
        self.assertEqual(ended.exception.code, 143)
        self.assertIn("not whole", self.group.left)


del GroupCase
if __name__ == "__main__":
    unittest.main()
