"""The page of `rubato simulate --html`, in a real browser."""
import itertools
import json
import os
import subprocess

import html5lib
from browser import Browser

import harness
from harness import RUBATO, ROOT, wait_until

SCENARIOS = ROOT / "examples/scenarios"
HOSTILE = "<script>window.struck=1</script><img src=//example.com/x.png onerror='window.struck=1'>\"&amp;"
ZONE = "\"'</td><img src=//example.com/y.png onerror=window.struck=1 x="  # <script> is refused: a file's placeholder
LOOKS = [dict(width=1400), dict(width=1400, dark=True), dict(width=390, height=844),
         dict(width=390, height=844, dark=True)]

# Everything about a page that does not fit, is empty or has no contrast. Text in tables that scroll is no overflow.
SURVEY = """
const wide = document.documentElement.scrollWidth - innerWidth;
const shown = [...document.querySelectorAll('figure svg')].filter(svg => svg.getClientRects().length);
const outside = shown.flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
  }).map(text => text.textContent);
});
const small = shown.flatMap(svg => [...svg.querySelectorAll('text')]).filter(
  text => text.getBoundingClientRect().height < 11).map(text => text.textContent);
return {
  wide, outside, small, struck: window.struck === undefined ? null : window.struck, title: document.title,
  heading: document.querySelector('h1').firstChild.textContent.trim(),
  plots: shown.map(svg => ({
    of: svg.closest('figure').dataset.plot,
    drawn: [...svg.querySelectorAll('path[class^=f], path.p-line')].filter(path => path.getBBox().width > 100).length,
    high: [...svg.querySelectorAll('path[class^=f], path.p-line')].some(path => path.getBBox().height > 5),
    ticks: svg.querySelectorAll('text.p-dim').length,
  })),
  rows: document.querySelectorAll('tr').length, images: document.images.length,
  back: getComputedStyle(document.body).backgroundColor,
};
"""


class Report(harness.Case):
    def page(self, *words, code=0):
        """Plays a scenario; the path of its page."""
        path = self.folder / "report.html"
        done = subprocess.run([RUBATO, "simulate", *map(str, words), "--html", path], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=harness.WAIT)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        parser = html5lib.HTMLParser()
        parser.parse(path.read_text())
        self.assertEqual(parser.errors, [], "valid HTML")
        return path

    def scenario(self, text):
        path = self.folder / "scenario.yaml"
        path.write_text(text)
        return path

    def seen(self, browser, path, **look):
        """Opens the page; it must be quiet, fetch nothing, and fit. What the survey found."""
        browser.look(**look)
        browser.open(path)
        found = browser.run(SURVEY)
        self.assertEqual(browser.console(), [], look)
        self.assertEqual([url for url in browser.requests() if url not in (f"file://{path}", "data:,")], [], look)
        self.assertLessEqual(found["wide"], 0, f"scrolls sideways: {look}")
        self.assertEqual(found["outside"], [], look)
        self.assertEqual(found["small"], [], look)
        self.assertIsNone(found["struck"], look)
        self.assertEqual(found["images"], 0, look)
        return found

    def test_pages_of_the_shipped_scenarios(self):
        with Browser() as browser:
            for name, plots in (("steady", 6), ("spot", 7), ("chaos", 7)):
                path = self.page(SCENARIOS / f"{name}.yaml", "--seed", 1)
                backs = set()
                for look in LOOKS:
                    found = self.seen(browser, path, **look)
                    backs.add(found["back"])
                    self.assertEqual(len(found["plots"]), plots, name)
                    for plot in found["plots"]:
                        self.assertTrue(plot["drawn"] and plot["high"], f"{name}, {look}: an empty plot: {plot}")
                        self.assertGreater(plot["ticks"], 5, plot)
                self.assertEqual(len(backs), 2, "light and dark")
            self.assertEqual(oct(path.stat().st_mode & 0o777), oct(0o666 & ~umask()), "readable as usual")

    def told_when_asked_by(self, browser, kind):
        """What the tip says. Asked as a hand does it, more than once: a browser whose window is not active yet takes no
        keys, and a busy one may drop a single move."""
        place = browser.run("const box = document.querySelector('figure svg.wide').getBoundingClientRect();"
                            "return [box.left + box.width * .3, box.top + box.height / 2]")
        moves = itertools.count()

        def ask():
            if kind == "mouse":
                browser.move_to(place[0] + next(moves) % 3, place[1])
            else:
                browser.run("document.querySelector('figure').focus()")
                browser.press("\ue014")  # right arrow
            return browser.run("const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.innerText")

        return wait_until(ask, lambda: f"the tip, asked by {kind} {next(moves)} times at {place}: " + str(browser.run(
            "return [document.hasFocus(), document.visibilityState, innerWidth, innerHeight, scrollY]")))

    def test_values_under_the_pointer(self):
        path = self.page(SCENARIOS / "spot.yaml", "--seed", 1)
        with Browser() as browser:
            self.seen(browser, path, width=1400, height=1000)
            for kind in ("mouse", "keys"):
                browser.run("document.querySelector('figure').scrollIntoView(); document.activeElement.blur();")
                moves = itertools.count(2)
                wait_until(lambda moves=moves: browser.move_to(next(moves) % 4, 2) or
                           browser.run("return document.getElementById('tip').hidden"), "no tip")
                told = self.told_when_asked_by(browser, kind)
                self.assertRegex(told, r"^0:\d\d:\d\d\s", kind)
                for word in ("cpu", "gpu", "all"):
                    self.assertIn(word, told, kind)
                crosses = browser.run("return [...document.querySelectorAll('svg.wide .p-cross')].map("
                                      "cross => cross.getAttribute('visibility') + cross.getAttribute('transform'))")
                self.assertEqual(len(set(crosses)), 1, "all plots show the same moment")
                self.assertIn("visible", crosses[0])
            self.assertEqual(browser.console(), [])
            # One kind of events can be left out.
            count = "return [...document.querySelectorAll('tr[data-kind=node]')].filter(row => !row.hidden).length"
            self.assertGreater(browser.run(count), 0)
            browser.run("document.querySelector('.kinds input[value=node]').click()")
            self.assertEqual(browser.run(count), 0)

    def test_hostile_and_long_names_are_text(self):
        # Names of types and jobs are checked when they are read; those of scenarios and zones may be anything.
        types = "\n".join(f"    type-{n}-{'w' * 42}: {{resources: {{CPU: 2}}, max_workers: 3, spot: true, "
                          f"price_per_hour: {n}}}" for n in range(1, 10))
        path = self.page(self.scenario(f"""
name: {json.dumps(HOSTILE)}
duration: 20min
cluster:
  cluster_name: c
  provider: {{type: external, command: [cloud], availability_zone: {json.dumps(ZONE)}}}
  autoscaling: {{max_workers: 40, idle_timeout: 1min}}
  head_type: type-1-{'w' * 42}
  node_types:
{types}
workload:
  - {{bursts: [{{at: 1min, jobs: 60}}], resources: {{CPU: 2}}, work: 3min,
     crashes_per_worker_hour: 60, max_restarts: 0}}
"""))
        text = path.read_text()
        self.assertNotIn("<img", text)
        with Browser() as browser:
            for look in LOOKS:
                found = self.seen(browser, path, **look)
                self.assertTrue(found["heading"].startswith("<script>window.struck=1</script>"), found["heading"])
                self.assertIn("<script>", found["title"])
                self.assertIn(ZONE, browser.run("return document.querySelector('.scroll').textContent"))

    def test_nothing_happens(self):
        cluster = "cluster: {cluster_name: c, provider: {type: local}, max_workers: 1, available_node_types: {one: " \
                  "{resources: {CPU: 1}, min_workers: %d, max_workers: 1}}}\n"
        with Browser() as browser:
            for least, duration in itertools.product((0, 1), ("1s", "1h")):
                path = self.page(self.scenario(f"duration: {duration}\nsettle: no\n" + cluster % least))
                for look in LOOKS:
                    found = self.seen(browser, path, **look)
                    self.assertEqual(len(found["plots"]), 4)
                self.assertNotRegex(path.read_text(), r"(?i)\bnan\b|\binf\b")


def umask():
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


if __name__ == "__main__":
    harness.main()
