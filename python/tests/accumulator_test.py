import unittest

import testing
from rubato import checkpoint
from rubato.torch import Accumulator, remaining_epochs_until


class Accumulating(testing.LibraryTest):
    def test_keys_are_added_to_outside_and_read_inside(self):
        stats = Accumulator()
        stats["loss"] += 2.0
        stats["loss"] -= 0.5
        stats.update({"count": 3})
        stats.subtract({"count": 1})
        with self.assertRaisesRegex(TypeError, "synchronized"):
            float(stats["loss"])
        with self.assertRaises(TypeError):
            stats["loss"] = 1
        with self.assertRaises(TypeError):
            len(stats)
        with stats.synchronized():
            self.assertEqual(dict(stats), {"loss": 1.5, "count": 2})
            self.assertIn("loss", stats)
            with self.assertRaises(TypeError):
                stats["loss"] = 1

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
        stats["count"] += 0  # the loop of this epoch is over: its synchronized() gives what it gave
        with stats.synchronized():
            self.assertEqual(stats["count"], 30)
        with stats.synchronized():
            self.assertEqual(stats["count"], 31)


if __name__ == "__main__":
    unittest.main()
