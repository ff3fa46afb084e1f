import contextlib
import io
import unittest
from unittest import mock

import testing
import torch
from rubato import checkpoint, collective
from rubato.torch import Accumulator, AdaptiveDataLoader, remaining_epochs_until


class Accumulating(testing.LibraryTest):
    def test_keys_are_added_to_outside_and_read_inside(self):
        stats = Accumulator()
        stats["loss"] += 2.0
        stats["loss"] -= 0.5
        stats["loss"] = stats["loss"] + 1
        stats.update({"count": 3})
        stats.subtract({"count": 1})
        stats += {"count": 4}
        stats -= {"count": 2}
        with self.assertRaisesRegex(TypeError, "synchronized"):
            float(stats["loss"])
        with self.assertRaisesRegex(TypeError, "synchronized"):
            stats["loss"] += stats["count"]
        with self.assertRaises(TypeError):
            stats["loss"] = 1
        with self.assertRaises(ValueError):
            stats["loss"] = Accumulator()["loss"] + 1
        with self.assertRaises(KeyError):
            del stats["loss"]
        self.assertEqual((len(stats), list(stats), "loss" in stats, str(stats)), (0, [], False, "{}"))
        with stats.synchronized():
            self.assertEqual(dict(stats), {"loss": 2.5, "count": 4})
            self.assertIn("loss", stats)

    def test_inside_it_is_a_dict(self):
        stats = Accumulator(start=1)
        stats["loss"] += 6
        stats["count"] += 2
        with stats.synchronized():
            stats["mean"] = stats["loss"] / stats["count"]
            with stats.synchronized():  # inside itself
                self.assertEqual(str(stats), "{'start': 1, 'loss': 6, 'count': 2, 'mean': 3.0}")
            del stats["start"]
        stats["loss"] += 1
        with stats.synchronized():
            self.assertEqual(dict(stats), {"loss": 7, "count": 2, "mean": 3.0})
            stats.clear()
        stats["loss"] += 1
        with stats.synchronized():
            self.assertEqual(dict(stats), {"loss": 1})

    def test_a_sum_goes_on_after_a_restart(self):
        stats = Accumulator()
        for epoch in remaining_epochs_until(5):
            stats["count"] += 10
            with stats.synchronized():
                self.assertEqual(stats["count"], 10 * (epoch + 1))
            if epoch == 2:
                stats["count"] += 1
                checkpoint.save_all_states()
                break
        testing.forget()
        stats = Accumulator()
        epochs = remaining_epochs_until(5)
        self.assertEqual(next(epochs), 2)
        stats["count"] += 10  # again, as after each restart in this epoch: this synchronized() gives what it gave
        with stats.synchronized():
            self.assertEqual(stats["count"], 30)
            stats["count"] = 0  # so this changes nothing
        with stats.synchronized():
            self.assertEqual(stats["count"], 31)

    def test_one_of_each_epoch_is_found_again(self):
        for epoch in remaining_epochs_until(5):
            stats = Accumulator()
            stats["count"] += epoch
            if epoch == 2:
                checkpoint.save_all_states()
                break
        testing.forget()
        for epoch in remaining_epochs_until(5):
            stats = Accumulator()
            with stats.synchronized():
                self.assertEqual(dict(stats), {"count": 2} if epoch == 2 else {})
            self.assertEqual([state.name for state in checkpoint.registered() if "accumulator" in state.name],
                             [f"adaptdl-accumulator-epoch{epoch}-0"])

    def test_sums_inside_a_loop_are_not_those_between_loops(self):
        stats = Accumulator()
        loader = AdaptiveDataLoader(torch.arange(4), batch_size=1)
        for epoch in remaining_epochs_until(1):
            for i, _ in enumerate(loader):
                stats["count"] += 1
                with stats.synchronized():
                    self.assertEqual(stats["count"], i + 1)
                with self.assertRaisesRegex(RuntimeError, "before the loop"):
                    Accumulator()
                if i == 2:
                    checkpoint.save_all_states()
                    break
        testing.forget()
        stats = Accumulator()
        loader = AdaptiveDataLoader(torch.arange(4), batch_size=1)
        for epoch in remaining_epochs_until(1):
            for _ in loader:  # the third one, whose sum was in the checkpoint, and the fourth
                stats["count"] += 10
            with stats.synchronized():
                self.assertEqual(stats["count"], 23)


class Beside(testing.LibraryTest):
    """The thread in which collectives run beside the training."""

    def setUp(self):
        super().setUp()
        collective.initialize()
        self.addCleanup(collective.teardown)

    def test_an_error_of_any_kind_is_that_of_its_collective_alone(self):
        with mock.patch.object(collective, "_gather", side_effect=ValueError("no such group")):
            failed = collective.allreduce_async(1)
            with self.assertRaisesRegex(ValueError, "no such group"):
                failed.result(timeout=60)
        self.assertEqual(collective.allreduce_async(2).result(timeout=60), 2)

    def test_goes_on_where_not_even_the_error_can_be_reported(self):
        """As where the disk is full that the agent reads reports from."""
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            beside = collective._Beside()
            beside.submit(mock.Mock(side_effect=OSError("no space left")))
            beside.submit(after := mock.Mock(), "given")
            beside.end()
        after.assert_called_once_with("given")
        self.assertIn("no space left", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
