"""`rubato.elastic` and `rubato.log`, by a script that nobody launched."""
import inspect
import json
import os
import sys
import unittest

import testing
import torch
import rubato
from rubato import _plain
from torch.utils.data import DataLoader

sys.path.append(os.path.join(testing.LIBRARY, "adaptdl"))


class Plain(testing.LibraryTest):
    def lines(self):
        _plain._lines.flush(30)
        with open(os.path.join(self.folder.name, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def setUp(self):
        super().setUp()
        os.environ["RUBATO_OUTPUT"] = self.folder.name

    def test_three_lines_make_a_loop_elastic(self):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader([torch.ones(2) * i for i in range(10)], batch_size=4, shuffle=True)
        seen = []
        with rubato.elastic(model, optimizer) as job:
            for _ in job.epochs(2):
                for batch in job.batches(loader):
                    optimizer.zero_grad()
                    loss = job.model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    seen += batch[:, 0].tolist()
                    rubato.log(loss=loss, **job.metrics())
        self.assertEqual(sorted(seen), sorted(2 * [float(i) for i in range(10)]))
        lines = self.lines()
        self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4, 5, 6])
        self.assertEqual([line["epoch"] for line in lines], [0, 0, 0, 1, 1, 1])
        self.assertEqual({line["batch_size"] for line in lines}, {4})
        self.assertIsInstance(lines[0]["loss"], float)

    def test_a_log_whose_disk_does_not_keep_up_drops_lines_and_says_so(self):
        lines = _plain._Lines(most=2)
        path = os.path.join(self.folder.name, "fifo")
        os.mkfifo(path)  # whoever writes to it waits until somebody reads
        for i in range(50):
            lines.put(path, json.dumps({"i": i}))
        with open(path, encoding="utf-8") as file:
            first = json.loads(file.readline())
        self.assertGreater(lines._dropped + first.get("dropped_lines", 0), 0)

    def test_only_rank_0_logs(self):
        self.be(1, 2)
        rubato.log(loss=1)
        self.assertFalse(os.path.exists(os.path.join(self.folder.name, "metrics.jsonl")))

    def test_samplers_of_ones_own_are_refused_with_what_to_use(self):
        job = _plain.Job(None)
        loader = DataLoader(list(range(4)), sampler=torch.utils.data.WeightedRandomSampler([1.0] * 4, 4))
        with self.assertRaisesRegex(ValueError, "AdaptiveDataLoader"):
            job.batches(loader)


class Alias(testing.LibraryTest):
    """AdaptDL's names and the arguments that its users give."""

    NAMES = {
        "adaptdl.torch": "Accumulator AdaptiveDataLoader AdaptiveDataParallel ElasticSampler current_dataloader "
                         "current_epoch finished_epochs init_process_group remaining_epochs_until",
        "adaptdl.torch.data": "AdaptiveDataLoader ElasticSampler current_dataloader",
        "adaptdl.torch.epoch": "current_epoch finished_epochs remaining_epochs_until",
        "adaptdl.torch.accumulator": "Accumulator",
        "adaptdl.torch.parallel": "AdaptiveDataParallel",
        "adaptdl.torch.scaling_rules": "ScalingRuleBase AdaScale AdamScale LinearScale SqrtScale LEGWScale",
        "adaptdl.checkpoint": "State load_state save_state save_all_states",
        "adaptdl.collective": "initialize teardown allreduce allreduce_async broadcast",
        "adaptdl.env": "checkpoint_path share_path job_id master_addr master_port replica_rank num_nodes num_replicas "
                       "num_restarts adaptdl_sched_version supervisor_url from_ray",
    }
    ARGUMENTS = {
        "init_process_group": "backend init_method world_size rank",
        "AdaptiveDataParallel": "model optimizer lr_scheduler mp_scaler scaling_rule name",
        "AdaptiveDataLoader": "dataset batch_size shuffle",
        "ElasticSampler": "dataset shuffle",
        "remaining_epochs_until": "epoch",
        "initialize": "master_addr master_port replica_rank num_replicas",
        "allreduce": "value reduce_fn", "allreduce_async": "value reduce_fn", "broadcast": "value",
        "save_state": "state fileobj sync", "load_state": "state", "LEGWScale": "base_warmup_epochs data_size",
    }

    def test_has_the_names_and_the_arguments_in_their_order(self):
        for module, names in self.NAMES.items():
            imported = __import__(module, fromlist=["x"])
            for name in names.split():
                found = getattr(imported, name)
                expected = self.ARGUMENTS.get(name, "").split()
                given = [one for one in inspect.signature(found).parameters if one not in ("self", "kwargs")]
                self.assertEqual(given[: len(expected)], expected, f"{module}.{name}")
        loader = rubato.torch.AdaptiveDataLoader
        for name in ("autoscale_batch_size", "current_local_bsz", "accumulation_steps", "current_batch_size", "training",
                     "to_tensorboard"):
            self.assertTrue(hasattr(loader, name), name)
        arguments = list(inspect.signature(loader.autoscale_batch_size).parameters)[1:]
        self.assertEqual(arguments, ["max_batch_size", "local_bsz_bounds", "gradient_accumulation"])

    def test_getters_know_adaptdls_variables(self):
        from adaptdl import env

        os.environ.update(ADAPTDL_REPLICA_RANK="1", ADAPTDL_NUM_REPLICAS="3", ADAPTDL_NUM_NODES="2")
        self.assertEqual((env.replica_rank(), env.num_replicas(), env.num_nodes()), (1, 3, 2))
        self.assertEqual((env.num_restarts(), env.master_port(), env.from_ray()), (0, 0, False))


if __name__ == "__main__":
    unittest.main()
