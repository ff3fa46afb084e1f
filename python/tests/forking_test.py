"""A process of a DataLoader is forked when the threads of gloo have come to rest."""
import os
import unittest
from unittest import mock

import testing  # noqa: F401  puts the library on the path
from rubato.torch import forking


class Forking(unittest.TestCase):
    def waits(self, *took):
        """How often it has waited before a fork, where waits take so long."""
        clock, slept = [0.0], []

        def sleep(seconds):
            slept.append(seconds)
            clock[0] += took[min(len(slept), len(took)) - 1]

        with mock.patch.object(forking.time, "sleep", sleep), \
                mock.patch.object(forking.time, "perf_counter", lambda: clock[0]), \
                mock.patch.object(forking.dist, "is_initialized", lambda: self.in_group):
            forking._rest()
        return len(slept)

    def test_a_busy_machine_gets_more_time_but_not_without_end(self):
        self.in_group = True
        self.assertEqual(self.waits(0.001), 1)
        self.assertEqual(self.waits(0.05, 0.05, 0.001), 3)
        self.assertEqual(self.waits(0.05), forking._TRIES_MAX)

    def test_without_a_group_nothing_is_waited_for(self):
        self.in_group = False
        self.assertEqual(self.waits(0.001), 0)

    def test_each_fork_waits_once(self):
        with mock.patch.object(forking, "_registered", False), mock.patch.object(os, "register_at_fork") as register:
            forking.rest_before_forks()
            forking.rest_before_forks()
        register.assert_called_once_with(before=forking._rest)


if __name__ == "__main__":
    unittest.main()
