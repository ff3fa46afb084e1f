"""`rubato.elastic` and `rubato.log`, by a script that nobody launched."""
import inspect
import json
import os
import sys
import tempfile
import unittest

import testing
import torch
import rubato
from rubato import _plain, checkpoint
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

    def test_the_order_of_the_plain_loader_stays(self):
        data = list(range(40))

        def read(**options):
            testing.forget()
            return torch.cat(list(_plain.Job(None).batches(DataLoader(data, batch_size=7, **options)))).tolist()

        self.assertEqual(read(), data)
        self.assertEqual(sorted(read(shuffle=True)), data)
        self.assertEqual(sorted(read(sampler=torch.utils.data.SubsetRandomSampler(range(5, 20)))), data[5:20])
        self.assertEqual(set(read(sampler=torch.utils.data.WeightedRandomSampler([1.0] * 3 + [0.0] * 37, 60))), {0, 1, 2})
        self.assertEqual(len(read(sampler=torch.utils.data.RandomSampler(data, replacement=True, num_samples=9))), 9)
        distributed = torch.utils.data.DistributedSampler(data, num_replicas=4, rank=1, shuffle=False)
        self.assertEqual(read(sampler=distributed), data)


class LoadersOfOneLoop(testing.LibraryTest):
    """`job.batches(DataLoader(…))`, as scripts write it that make their loaders where they need them."""

    def setUp(self):
        super().setUp()
        self.seen = []

    def run_script(self, until=None, epochs=3, own_epochs=False):
        """Two kinds of data in each epoch. True when it came to its end; saves and ends before the batch `until`."""
        testing.forget()
        job = _plain.Job(None)

        def loop(kind, epoch, data):
            for batch in job.batches(DataLoader([100 * kind + 10 * epoch + i for i in range(data)], batch_size=2)):
                if len(self.seen) == until:
                    checkpoint.save_all_states()
                    raise SystemExit(143)
                self.seen.append([epoch, *batch.tolist()])
                self.most = max(self.most, len(checkpoint.registered()))

        self.most = 0
        try:
            for epoch in range(epochs) if own_epochs else job.epochs(epochs):
                loop(1, epoch, 5)
                if epoch % 2 == 0:
                    loop(2, epoch, 3)
        except SystemExit:
            return False
        return True

    EXPECTED = [[0, 100, 101], [0, 102, 103], [0, 104], [0, 200, 201], [0, 202], [1, 110, 111], [1, 112, 113], [1, 114],
                [2, 120, 121], [2, 122, 123], [2, 124], [2, 220, 221], [2, 222]]

    def test_each_one_gives_its_own_data(self):
        for own_epochs in (False, True):
            self.seen = []
            self.run_script(own_epochs=own_epochs)
            self.assertEqual(self.seen, self.EXPECTED)

    def test_a_restart_goes_on_in_the_loop_that_was_left(self):
        for own_epochs in (False, True):
            for stops in ([1], [4], [8], [12], [2, 3, 4, 9, 11]):
                with self.subTest(own_epochs=own_epochs, stops=stops), tempfile.TemporaryDirectory() as path:
                    os.environ["ADAPTDL_CHECKPOINT_PATH"] = path
                    self.seen = []
                    for until in stops:
                        self.assertFalse(self.run_script(until, own_epochs=own_epochs))
                    self.assertTrue(self.run_script(own_epochs=own_epochs))
                    self.assertEqual(self.seen, self.EXPECTED)

    def test_leave_nothing_behind(self):
        for own_epochs in (False, True):
            self.seen = []
            self.run_script(epochs=50, own_epochs=own_epochs)
            self.assertLess(self.most, 6)

    def test_loaders_that_stay_are_found_in_whichever_order_they_are_asked_for(self):
        train, check = DataLoader(list(range(4)), batch_size=1), DataLoader(list(range(10, 14)), batch_size=1)

        def run(until=None):
            testing.forget()
            job = _plain.Job(None)
            for epoch in job.epochs(2):
                first, second = job.batches(train), job.batches(check)
                for batches in (second, first) if epoch == 1 else (first, second):
                    for batch in batches:
                        if len(seen) == until:
                            checkpoint.save_all_states()
                            return
                        seen.append(int(batch))

        seen = []
        run(14)
        run()
        self.assertEqual(seen, [0, 1, 2, 3, 10, 11, 12, 13, 10, 11, 12, 13, 0, 1, 2, 3])

    def test_a_loop_of_the_scripts_own_epochs_shuffles_each_of_them(self):
        loader = DataLoader(list(range(40)), batch_size=40, shuffle=True)
        job = _plain.Job(None)
        passes = [next(iter(list(job.batches(loader)))).tolist() for _ in range(3)]
        self.assertEqual([sorted(one) for one in passes], 3 * [list(range(40))])
        self.assertEqual(len({tuple(one) for one in passes}), 3)

    def test_the_one_that_trains_chooses_the_batch_size_in_each_epoch(self):
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with rubato.elastic(model, optimizer) as job:
            for _ in range(3):
                for batch in job.batches(DataLoader(torch.randn(12, 1), batch_size=4), max_batch_size=8):
                    self.assertTrue(rubato.torch.current_dataloader().training)
                    job.model(batch).mean().backward()
                    optimizer.step()
                for _ in job.batches(DataLoader(torch.randn(2, 1), batch_size=1)):
                    self.assertFalse(rubato.torch.current_dataloader().training)


class Alias(testing.LibraryTest):
    """AdaptDL's names and the arguments that its users give."""

    NAMES = {
        "adaptdl.torch": "Accumulator AdaptiveDataLoader AdaptiveDataParallel ElasticSampler current_dataloader "
                         "current_epoch finished_epochs init_process_group remaining_epochs_until",
        "adaptdl.torch.data": "AdaptiveDataLoader AdaptiveDataLoaderHelper AdaptiveDataLoaderMixin ElasticSampler "
                              "current_dataloader",
        "adaptdl.torch.iterator": "AdaptiveBPTTIterator",
        "adaptdl.torch.gradient_noise_scale": "AdamGradientNoiseScale GradientNoiseScale",
        "adaptdl.torch.epoch": "current_epoch finished_epochs remaining_epochs_until",
        "adaptdl.torch.accumulator": "Accumulator",
        "adaptdl.torch.parallel": "AdaptiveDataParallel",
        "adaptdl.torch.scaling_rules": "ScalingRuleBase AdaScale AdamScale LinearScale SqrtScale LEGWScale",
        "adaptdl.checkpoint": "State load_state save_state save_all_states",
        "adaptdl.collective": "initialize teardown allreduce allreduce_async broadcast",
        "adaptdl.env": "checkpoint_path share_path job_id master_addr master_port replica_rank num_nodes num_replicas "
                       "num_restarts adaptdl_sched_version supervisor_url from_ray",
        "adaptdl.goodput": "GoodputFunction GradParams PerfParams fit_perf_params",
        "adaptdl.sched_hints": "post_sched_hints",
        "adaptdl._signal": "get_exit_flag",
    }
    ARGUMENTS = {
        "init_process_group": "backend init_method world_size rank",
        "AdaptiveDataParallel": "model optimizer lr_scheduler mp_scaler scaling_rule name",
        "AdaptiveDataLoader": "dataset batch_size shuffle",
        "AdaptiveDataLoaderHelper": "batch_size", "AdaptiveDataLoaderMixin": "batch_size",
        "AdaptiveBPTTIterator": "dataset batch_size bptt_len",
        "GradientNoiseScale": "adp optimizer mp_scaler num_replicas accum_scale",
        "ElasticSampler": "dataset shuffle",
        "remaining_epochs_until": "epoch",
        "initialize": "master_addr master_port replica_rank num_replicas",
        "GoodputFunction": "perf_params grad_params init_batch_size",
        "fit_perf_params": "num_nodes num_replicas atomic_bsz accum_step_time optim_step_time",
        "post_sched_hints": "sched_hints job_key",
        "allreduce": "value reduce_fn", "allreduce_async": "value reduce_fn", "broadcast": "value",
        "save_state": "state checkpoint_dir sync", "load_state": "state", "LEGWScale": "base_warmup_epochs data_size",
    }

    def test_has_the_names_and_the_arguments_in_their_order(self):
        for module, names in self.NAMES.items():
            imported = __import__(module, fromlist=["x"])
            for name in names.split():
                found = getattr(imported, name)
                expected = self.ARGUMENTS.get(name, "").split()
                given = [one for one in inspect.signature(found).parameters if one not in ("self", "kwargs")]
                self.assertEqual(given[: len(expected)], expected, f"{module}.{name}")
        helper = rubato.torch.AdaptiveDataLoaderHelper
        for name in ("context", "profile", "skipdone", "train", "autoscale_batch_size", "current_index", "end_index",
                     "local_bsz_bounds", "current_local_bsz", "accumulation_steps", "training",
                     "current_batch_size", "is_accum_step", "is_optim_step", "to_tensorboard", "_sync_local_bsz"):
            self.assertTrue(hasattr(helper, name), name)
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
