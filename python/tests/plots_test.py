"""The plots of docs/goodput.md are those of the model."""
import os
import re
import sys
import unittest

import testing

sys.path.insert(0, os.path.join(os.path.dirname(testing.LIBRARY), "tools"))
import goodput_plots  # noqa: E402

NUMBER = re.compile(r"-?[0-9]+\.[0-9]+")


class Plots(unittest.TestCase):
    def test_are_what_the_script_draws(self):
        for name, draw in goodput_plots.PLOTS.items():
            path = os.path.join(goodput_plots.ROOT, "docs", "images", "goodput", f"{name}.svg")
            with open(path, encoding="utf-8") as file:
                committed = file.read()
            drawn = draw().svg()
            self.assertEqual(NUMBER.sub("N", drawn), NUMBER.sub("N", committed), f"run tools/goodput_plots.py: {path}")
            for one, other in zip(NUMBER.findall(drawn), NUMBER.findall(committed)):
                self.assertAlmostEqual(float(one), float(other), delta=0.15, msg=f"run tools/goodput_plots.py: {path}")

    def test_stay_within_their_axes(self):
        for name, draw in goodput_plots.PLOTS.items():
            plot = draw()
            for line, points in plot.lines:
                self.assertTrue(all(0 <= y <= plot.y_top for _, y in points), f"{name}: {line}")


if __name__ == "__main__":
    unittest.main()
