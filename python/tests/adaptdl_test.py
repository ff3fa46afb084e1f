"""The module `adaptdl` is what AdaptDL's users expect of it. `scripts/adaptdl_train.py` is trained with it elsewhere."""
import math
import os
import sys
import tempfile
import textwrap
import types
import unittest
import unittest.mock

import testing
import torch
import rubato.torch  # noqa: F401  before processes are forked
from rubato import checkpoint
from torch.utils.data import DataLoader

ALIAS = os.path.join(testing.LIBRARY, "adaptdl")
LIMIT_S = 150  # only a broken library reaches it
# Tests of this process may have imported it.
_FRESH = "import sys\nfor name in [name for name in sys.modules if name.split('.')[0] == 'adaptdl']: del sys.modules[name]\n"


class AdaptdlTest(testing.LibraryTest):
    def setUp(self):
        super().setUp()
        sys.path.append(ALIAS)
        self.addCleanup(sys.path.remove, ALIAS)
        for name in ("ADAPTDL_JOB_ID", "ADAPTDL_NUM_RESTARTS", "ADAPTDL_SHARE_PATH", "ADAPTDL_MASTER_PORT"):
            self.addCleanup(self._restore_one, name, os.environ.pop(name, None))

    def _restore_one(self, name, value):
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value

    def run_text(self, text, replicas=1, **variables):
        """What each of a group of processes printed; none of them has imported `adaptdl` before."""
        path = os.path.join(self.folder.name, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_FRESH + textwrap.dedent(text))
        shared = {"ADAPTDL_NUM_REPLICAS": str(replicas), "ADAPTDL_MASTER_PORT": str(testing.free_port()),
                  "ADAPTDL_CHECKPOINT_PATH": os.path.join(self.folder.name, "checkpoint"), **variables}
        processes = [testing.Forked([path], {**shared, "ADAPTDL_REPLICA_RANK": str(rank)},
                                    os.path.join(self.folder.name, f"out-{rank}")) for rank in range(replicas)]
        try:
            for process in processes:
                self.assertEqual(process.wait(LIMIT_S), 0, process.text())
        finally:
            for process in processes:
                process.kill()
        return [process.text() for process in processes]


class Names(AdaptdlTest):
    def test_two_imports_give_all_modules(self):
        self.run_text("""
            import adaptdl
            import adaptdl.torch
            adaptdl.env.job_id, adaptdl.collective.allreduce, adaptdl.checkpoint.State
            adaptdl.torch.data.AdaptiveDataLoader, adaptdl.torch.parallel.AdaptiveDataParallel
            adaptdl.torch.scaling_rules.AdaScale, adaptdl.torch.epoch.current_epoch
            adaptdl.torch.accumulator.Accumulator
            import adaptdl.utils

            @adaptdl.utils.print_exc
            def one(value):
                return 1 / value

            assert one(1) == 1 and one.__name__ == "one"
            """)

    def test_the_original_is_not_hidden(self):
        """Wherever it stands on the path: an environment's own packages come behind PYTHONPATH."""
        original = tempfile.mkdtemp(dir=self.folder.name)
        os.makedirs(os.path.join(original, "adaptdl/torch"))
        for name, text in (("__init__.py", "ORIGINAL = True\n"), ("torch/__init__.py", "ALSO = True\n")):
            with open(os.path.join(original, "adaptdl", name), "w", encoding="utf-8") as file:
                file.write(text)
        path = f"sys.path.append({original!r})"
        editable = f"""
            import importlib.machinery
            class Editable:
                @staticmethod
                def find_spec(name, path=None, target=None):
                    return importlib.machinery.PathFinder.find_spec(name, [{original!r}]) if name == "adaptdl" else None
            sys.meta_path.append(Editable)
            """
        for way in (path, editable):
            text = textwrap.dedent(way) + textwrap.dedent("""
                import adaptdl
                import adaptdl.torch
                print(hasattr(adaptdl, "ORIGINAL"), hasattr(adaptdl.torch, "ALSO"), hasattr(adaptdl.torch, "Accumulator"))
                """)
            self.assertEqual(self.run_text(text), ["True True False\n"])
            self.assertEqual(self.run_text(text, RUBATO_ADAPTDL="rubato"), ["False False True\n"])


class Environment(AdaptdlTest):
    def test_what_a_cluster_sets(self):
        from adaptdl import env

        os.environ.update(ADAPTDL_JOB_ID="rubato/train", RUBATO_JOB_ID="train", RUBATO_GENERATION="1",
                          ADAPTDL_NUM_RESTARTS="0", ADAPTDL_SHARE_PATH="/shared")
        self.assertEqual((env.job_id(), env.num_restarts(), env.share_path()), ("rubato/train", 0, "/shared"))

    def test_what_run_sets(self):
        from adaptdl import env

        os.environ.update(RUBATO_GENERATION="1", RUBATO_JOB_ID="train", RUBATO_OUTPUT="/output")
        self.assertEqual((env.job_id(), env.num_restarts(), env.share_path()), ("train", 0, "/output"))
        os.environ["RUBATO_GENERATION"] = "3"
        self.assertEqual(env.num_restarts(), 2)

    def test_a_script_run_by_hand(self):
        from adaptdl import env

        self.assertEqual((env.job_id(), env.num_restarts(), env.share_path(), env.replica_rank(), env.num_replicas(),
                          env.num_nodes(), env.from_ray()), (None, 0, None, 0, 1, 1, False))


class Collectives(AdaptdlTest):
    def test_without_a_process_group(self):
        outputs = self.run_text("""
            import adaptdl.collective
            import adaptdl.env
            try:
                adaptdl.collective.allreduce(1)
            except RuntimeError as error:
                print(error)
            adaptdl.collective.initialize("0.0.0.0")
            rank = adaptdl.env.replica_rank()
            first, second = adaptdl.collective.allreduce_async([rank]), adaptdl.collective.allreduce_async({rank}, set.union)
            print(second.result(), first.result(), adaptdl.collective.broadcast(rank + 5))
            """, replicas=3)
        for output in outputs:
            self.assertIn("has not been initialized", output)
            self.assertTrue(output.endswith("{0, 1, 2} [0, 1, 2] 5\n"), output)


class Checkpoints(AdaptdlTest):
    def test_states(self):
        from adaptdl.checkpoint import State, load_state, save_all_states, save_state

        class Number(State):
            def save(self, fileobj):
                fileobj.write(str(self.value).encode())

            def load(self, fileobj):
                self.value = int(fileobj.read())

        state = Number(".hidden")
        self.assertFalse(load_state(state))
        for value in (1, 2):
            state.value = value
            self.assertEqual(save_all_states(), os.environ["ADAPTDL_CHECKPOINT_PATH"])
            state.value = 0
            self.assertTrue(load_state(state))
            self.assertEqual(state.value, value)
        save_state(state, self.folder.name)
        with open(os.path.join(self.folder.name, "_checkpoint/.hidden"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "2")
        with self.assertRaises(ValueError):
            Number(".hidden")


    def test_what_the_original_has_saved_is_refused_with_the_way_out(self):
        import pickle

        from adaptdl.torch import finished_epochs

        folder = os.path.join(os.environ["ADAPTDL_CHECKPOINT_PATH"], "checkpoint-0")
        os.makedirs(folder)
        with open(os.path.join(folder, "adaptdl-epoch"), "wb") as file:
            pickle.dump(2, file)
        with self.assertRaisesRegex(RuntimeError, "AdaptDL's own package.*another ADAPTDL_CHECKPOINT_PATH"):
            finished_epochs()


class Loops(AdaptdlTest):
    def test_a_loader_is_a_dataloader(self):
        from adaptdl.torch import AdaptiveDataLoader

        loader = AdaptiveDataLoader(torch.arange(10), 4, shuffle=True, drop_last=True, num_workers=0)
        self.assertIsInstance(loader, DataLoader)
        self.assertEqual((loader.batch_size, loader.num_workers, loader.drop_last, len(loader)), (4, 0, True, 2))
        loader.sampler.set_epoch(3)
        for _ in loader:
            self.assertTrue(loader._elastic.is_optim_step() and not loader._elastic.is_accum_step())
            with self.assertRaisesRegex(RuntimeError, "before the loop"):
                AdaptiveDataLoader(torch.arange(10))

    def test_a_batch_is_rounded_up_to_equal_parts(self):
        """20 samples by one worker, 60 by four, who take three each, and 20 by two: each one once."""
        text = """
            import sys
            import torch
            import adaptdl.checkpoint
            import adaptdl.collective
            from adaptdl.env import num_replicas
            from adaptdl.torch import AdaptiveDataLoader, current_dataloader
            adaptdl.collective.initialize("0.0.0.0")
            loader = AdaptiveDataLoader(torch.arange(100), batch_size=10)
            for index, batch in enumerate(loader):
                if index == {steps}:
                    adaptdl.checkpoint.save_all_states()
                    break
                assert current_dataloader() is loader._elastic
                assert loader.current_local_bsz == len(batch) == {local}, (loader.current_local_bsz, len(batch))
                assert loader.current_batch_size == {local} * num_replicas()
                print(*batch.tolist(), end=" ")
            """
        seen = []
        for restarts, (replicas, steps, local) in enumerate(((1, 2, 10), (4, 5, 3), (2, -1, 5))):
            said = self.run_text(text.format(steps=steps, local=local), replicas, ADAPTDL_NUM_RESTARTS=str(restarts))
            seen += [int(number) for one in said for number in one.split()]
        self.assertEqual(sorted(seen), list(range(100)))

    def test_bounds_that_are_not_whole_numbers(self):
        """As those of AdaptDL's example of BERT may be: `batch_size / 4`."""
        from adaptdl.torch import AdaptiveDataLoader

        loader = AdaptiveDataLoader(torch.arange(100), batch_size=10)
        loader.autoscale_batch_size(40, local_bsz_bounds=(10 / 4, 25 / 2))
        self.assertEqual(loader._elastic.local_bsz_bounds, (3, 12))
        loader.autoscale_batch_size(40, local_bsz_bounds=(None, 12.0))
        self.assertEqual(loader._elastic.local_bsz_bounds, (None, 12))
        for bounds in ((9, 8), (float("nan"), 12), (2, 0.5)):
            with self.assertRaises(ValueError):
                loader.autoscale_batch_size(40, local_bsz_bounds=bounds)

    def test_an_epoch_that_is_left_is_finished(self):
        from adaptdl.torch import current_epoch, finished_epochs, remaining_epochs_until

        for epoch in remaining_epochs_until(10):
            if epoch == 3:
                break
        self.assertEqual((finished_epochs(), current_epoch()), (4, None))
        self.assertEqual(list(remaining_epochs_until(6)), [4, 5])

    def test_a_loader_of_each_epoch_is_found_again(self):
        from adaptdl.torch import AdaptiveDataLoader, remaining_epochs_until

        seen = []
        for epoch in remaining_epochs_until(3):
            for batch in AdaptiveDataLoader(torch.arange(4) + 10 * epoch, batch_size=1):
                if int(batch) == 12:
                    checkpoint.save_all_states()
                    break
                seen += batch.tolist()
            if epoch == 1:
                break
        testing.forget()
        for epoch in remaining_epochs_until(3):
            for batch in AdaptiveDataLoader(torch.arange(4) + 10 * epoch, batch_size=1):
                seen += batch.tolist()
        self.assertEqual(seen, [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23])


    def test_what_is_made_in_the_first_epoch_and_used_in_all_is_found_again(self):
        from adaptdl.torch import Accumulator, AdaptiveDataLoader, remaining_epochs_until

        def train(until):
            loader = stats = None
            for epoch in remaining_epochs_until(3):
                if loader is None:
                    loader, stats = AdaptiveDataLoader(torch.arange(4), batch_size=1), Accumulator()
                for batch in loader:
                    if (epoch, int(batch)) == until:
                        return checkpoint.save_all_states()
                    stats["seen"] += 1
                    seen.append((epoch, int(batch)))
                with stats.synchronized():
                    found = stats["seen"]
            return found

        seen = []
        train(until=(1, 2))
        testing.forget()
        self.assertEqual(train(until=None), 12)
        self.assertEqual(seen, [(epoch, sample) for epoch in range(3) for sample in range(4)])


class Augmented(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        import random

        import numpy

        return torch.tensor([torch.rand(()).item(), random.random(), numpy.random.rand()])


class Seeds(AdaptdlTest):
    def test_workers_of_two_replicas_draw_other_numbers(self):
        from rubato.torch import AdaptiveDataLoader

        drawn = []
        for rank in range(2):
            self.be(rank, 2)
            torch.manual_seed(1)
            started = []
            loader = AdaptiveDataLoader(Augmented(), batch_size=2, num_workers=1, worker_init_fn=started.append)
            with unittest.mock.patch("rubato.collective.MaxFlags.exchange", return_value=[0.0] * 4):
                drawn += [number for batch in loader for number in batch.flatten().tolist()]
        self.assertEqual(len(set(drawn)), 6)


class Rules(AdaptdlTest):
    def test_a_rule_of_ones_own(self):
        self.run_text("""
            import torch
            import adaptdl.torch
            from adaptdl.torch.gradient_noise_scale import GradientNoiseScale
            from adaptdl.torch.scaling_rules import AdamScale, ScalingRuleBase

            class Own(ScalingRuleBase):
                def scale_lr(self, scale):
                    gns = self.adp.gns
                    assert gns.raw_sqr_avg.shape == gns.raw_var_avg.shape == (2,)
                    assert gns.sqr_avg() >= 0 and gns.var_avg() > 0 and gns.get_progress() >= 0
                    assert 1 <= gns.gain(scale) <= scale
                    assert isinstance(gns, GradientNoiseScale)
                    assert gns.accum_scale == 1.0 and gns.accum_count == loader.accumulation_steps
                    other = GradientNoiseScale(self.adp, optimizer)
                    assert other.var_avg() == gns.var_avg()
                    asked.append(scale)
                    return scale

            from rubato import goodput
            from rubato.torch import profile
            # Gradients are all noise: the largest batch is always the best.
            eager = goodput.Goodput(goodput.PerfParams(1, 1e-6, 1, 1, 1, 1, 1.0), goodput.GradParams(0.0, 1.0), 4)
            profile.Profile.goodput = lambda job: eager
            asked = []
            try:
                Own().step()
                raise SystemExit("a rule without a model made a step")
            except ValueError:
                pass
            adaptdl.torch.init_process_group("gloo")
            torch.manual_seed(0)
            model = torch.nn.Linear(3, 1)
            optimizer = torch.optim.SGD([{"params": [one]} for one in model.parameters()], lr=0.01)
            rule = Own()
            model = adaptdl.torch.AdaptiveDataParallel(model, optimizer, scaling_rule=rule)
            loader = adaptdl.torch.AdaptiveDataLoader(torch.randn(64, 3), batch_size=4)
            loader.autoscale_batch_size(16, local_bsz_bounds=(4, 4), gradient_accumulation=True)
            for epoch in adaptdl.torch.remaining_epochs_until(20):
                for batch in loader:
                    model.zero_grad()  # in the middle of an accumulation it must not lose what there is
                    before = model.module.weight.grad
                    before = None if before is None else before.clone()
                    model(batch).square().mean().backward()
                    if loader._elastic.is_accum_step() and before is not None and before.abs().sum() > 0:
                        assert not torch.equal(before, model.module.weight.grad)
                    assert model.gns.should_zero_grad == (model.gns.accum_count == 0)
                    rule.step()
            assert isinstance(model.gain, float) and set(asked) == {4.0}, set(asked)
            model.gns.set_progress(7.0)
            assert model.gns.get_progress() == 7.0
            """)

    def test_a_rule_where_older_versions_had_it(self):
        self.run_text("""
            import torch
            import adaptdl.torch
            from adaptdl.torch.scaling_rules import LinearScale

            adaptdl.torch.init_process_group("gloo")
            model = torch.nn.Linear(3, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            network = adaptdl.torch.AdaptiveDataParallel(model, optimizer, scheduler, LinearScale())
            assert isinstance(network.scaling_rule, LinearScale)
            """)

    def test_powers_of_adam(self):
        from adaptdl.torch.scaling_rules import AdamScale

        rule = AdamScale()
        rule.adp = self.model([1.0], [0.0])
        self.assertEqual((rule.scale_lr(4).tolist(), rule.scale_lr(4, power=1).tolist()), ([2.0], [4.0]))

    def model(self, var, sqr):
        """What rules ask, and no more."""
        import numpy as np

        gns = types.SimpleNamespace(raw_var_avg=np.array(var), raw_sqr_avg=np.array(sqr), get_progress=lambda: 5)
        return types.SimpleNamespace(gns=gns)

    def test_rules_ask_the_models_noise_by_adaptdls_names(self):
        from adaptdl.torch import scaling_rules

        rule = scaling_rules.AdaScale()
        rule.adp = self.model([1, 0, 0, 2], [-1, 0, -1, 1])
        self.assertEqual([round(one, 9) for one in rule.scale_lr(4)], [4.0, 4.0, 4.0, 2.0])
        loader = types.SimpleNamespace(batch_size=100)
        with unittest.mock.patch("adaptdl.torch.scaling_rules.current_dataloader", lambda: loader):
            rule = scaling_rules.LEGWScale(10, 1000)
            rule.adp = self.model([1], [1])
            self.assertEqual([rule.scale_lr(scale) for scale in (1, 4, 25)], [1 / 20, 1 / 40, 1 / 100])
            rule.adp.gns.get_progress = lambda: 10_000
            self.assertEqual(rule.scale_lr(25), 5.0)


class Examples(AdaptdlTest):
    def test_private_names_that_adaptdls_own_examples_use(self):
        said, = self.run_text("""
            import io, os
            import torch
            import adaptdl
            import adaptdl.torch as adl
            import adaptdl.torch._metrics as metrics
            print(os.environ["ADAPTDL_TENSORBOARD_LOGDIR"])
            assert metrics.get_goodput_fn() is None and len(metrics._metrics_state().grad_params) == 2
            adl.init_process_group("gloo")
            model = torch.nn.Linear(3, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            network = adl.AdaptiveDataParallel(model, optimizer)
            loader = adl.AdaptiveDataLoader(torch.randn(64, 3), batch_size=4)
            loader.autoscale_batch_size(8, local_bsz_bounds=(2, 2), gradient_accumulation=True)
            accumulated = []
            for epoch in adl.remaining_epochs_until(2):
                for batch in loader:
                    accumulated.append(network.adascale.is_accumulation_step())
                    optimizer.zero_grad()
                    network(batch).square().mean().backward()
                    optimizer.step()
            assert not network.adascale.is_accumulation_step() and set(accumulated) == {True, False}
            state = metrics._metrics_state()
            assert state.progress == metrics.get_progress() >= 32 and state.max_batch_size == 8, state.progress
            assert state.grad_params[0] > 0 and state.grad_params[1] > 0
            assert metrics.get_goodput_fn().efficiency(4) == 1.0
            torch.save(network._state.model, file := io.BytesIO())
            assert torch.equal(torch.load(io.BytesIO(file.getvalue()), weights_only=False).weight, model.weight)
            """, RUBATO_OUTPUT="/output")
        self.assertEqual(said, "/output/tensorboard\n")


class Goodput(AdaptdlTest):
    def test_arrays_and_numbers_agree_with_the_librarys_model(self):
        import numpy as np
        from adaptdl.goodput import GoodputFunction, GradParams, PerfParams
        from rubato import goodput

        perf, grad = PerfParams(0.1, 0.01, 0.3, 0.02, 0.2, 0.01, 2.0), GradParams(0.01, 2.0)
        function, model = GoodputFunction(perf, grad, 32), goodput.Goodput(perf, grad, 32)
        nodes, replicas = np.array([1, 1, 2, 4]), np.array([1, 4, 4, 8])
        for accumulation, bounds in ((False, (8, 512)), (True, (8, 64))):
            best, atomic, steps = function.optimize(nodes, replicas, 512, bounds, accumulation)
            for i, (n, r) in enumerate(zip(nodes.tolist(), replicas.tolist())):
                expected, batch = model.best(n, r, 512, bounds, accumulation)
                self.assertTrue(math.isclose(best[i], expected, rel_tol=1e-9), (accumulation, n, r))
                self.assertEqual((atomic[i], steps[i]), tuple(batch))
                self.assertEqual(function.optimize(n, r, 512, bounds, accumulation), (best[i], atomic[i], steps[i]))
                self.assertAlmostEqual(function(n, r, int(atomic[i]), int(steps[i])), best[i])
        self.assertEqual(function.optimize(1, 3), function.optimize(1, 3, max_batch_size=32))
        with self.assertRaises(AssertionError):
            function(1, 1, 8, 0)  # below the first batch size

    def test_a_fit_explains_what_was_measured(self):
        import numpy as np
        from adaptdl.goodput import fit_perf_params

        atomic = np.array([8, 16, 32, 64, 8, 32])
        nodes, replicas = np.array([1, 1, 1, 1, 2, 2]), np.array([1, 1, 1, 1, 2, 2])
        grad = 0.05 + 0.002 * atomic
        step = np.where(replicas > 1, grad + 0.1, grad)
        fitted = fit_perf_params(nodes, replicas, atomic, grad, step)
        self.assertAlmostEqual(fitted.alpha_c, 0.05, delta=0.01)
        self.assertAlmostEqual(fitted.beta_c, 0.002, delta=0.0004)
        self.assertGreater(fitted.alpha_n, 0.02)


class Hints(AdaptdlTest):
    def test_nobody_listens(self):
        from adaptdl.sched_hints import PERF_PARAMS, SCHED_HINTS, post_sched_hints

        self.assertEqual(len(PERF_PARAMS), 7)
        post_sched_hints(dict(SCHED_HINTS), "ns/name")
        os.environ["ADAPTDL_SUPERVISOR_URL"] = f"http://127.0.0.1:{testing.free_port()}/x"
        with self.assertLogs("adaptdl.sched_hints", "WARNING"):
            post_sched_hints(dict(SCHED_HINTS), "ns/name")
        with self.assertLogs("adaptdl.sched_hints", "WARNING"):
            post_sched_hints({"other": 1}, "ns/name")


if __name__ == "__main__":
    unittest.main()
