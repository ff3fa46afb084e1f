"""The checks of a trial find what they are there for: small made-up evidence, with and without a violation."""
import unittest

import checks
from checks import Evidence, Worker


def worker(rank=0, world=1, node="n1", start=10.0, end=12.0, code=0, term=None, printed=0):
    return Worker(rank, world, node, 100 + rank, start, end, term, code, None if code is None else end, printed)


def plan(**changes):
    return {"name": "t", "job": "j", "kind": "run", "expected": "succeeded", "elastic": False, "timeout_s": 0,
            "stop_after_s": 0, "asked": [[9.0, 0, ""]]} | changes


def journal(*events, result="succeeded", reason=""):
    """The events of one job between its beginning and its end, with offsets."""
    all_of_it = [{"type": "head-started", "epoch": 1}, {"type": "job-submitted", "job": "j", "spec": {"name": "t"}},
                 *events, {"type": "job-ended", "job": "j", "result": result, "reason": reason}]
    return [{"offset": n, "mono": 11.0} | event for n, event in enumerate(all_of_it, 1)]


def evidence(generations, events=None, the_plan=None, **more):
    return Evidence([the_plan or plan()], events or journal(), {"j": generations}, **more)


def kill(target, name, at):
    return {"target": target, "name": name, "at": at, "pid": 1}


def pause(name, at, until, target="agent"):
    return {"target": target, "name": name, "at": at, "until": until, "pid": 7}


LOST = {"type": "node-lost", "node": "n1", "reason": "its agent is gone"}


class Checks(unittest.TestCase):
    def found(self, *args, **more):
        return checks.violations(evidence(*args, **more))

    def assert_found(self, words, *args, **more):
        found = self.found(*args, **more)
        self.assertEqual([words in text for text in found], [True], found)

    def test_a_quiet_life_is_fine(self):
        self.assertEqual(self.found({1: [worker(0, 2), worker(1, 2)]}), [])

    def test_a_success_that_ran_again(self):
        twice = {1: [worker()], 2: [worker(start=13, end=15)]}
        self.assert_found("generation 1 succeeded", twice)
        self.assertEqual(self.found(twice, kills=[kill("agent", "n1", 12.1)]), [], "nobody else knew of it")
        self.assert_found("generation 1 succeeded", twice, kills=[kill("head", None, 11.5)])
        self.assert_found("generation 1 succeeded", twice, pauses=[pause("n1", 11.9, 12.9)])

    def test_an_agent_may_be_killed_before_its_worker_has_written_anything(self):
        seats = [{"node": "n1"}, {"node": "n2"}]
        placed = {"type": "job-placed", "job": "j", "generation": 1, "seats": seats, "cause": ""}
        lives = {1: [worker(0, 2, term=11.0)], 2: [worker(0, 2, start=13), worker(1, 2, start=13)]}
        self.assert_found("without a cause", lives, events=journal(placed))
        self.assertEqual(self.found(lives, events=journal(placed), kills=[kill("agent", "n2", 10.9)]), [])

    def test_a_head_comes_back_whoever_was_killed_with_it(self):
        quiet = {1: [worker()]}
        deaths = [{"what": "died", "at": 11.5}]
        kills = [kill("supervisor", None, 10.5)]
        self.assert_found("no head came back", quiet, deaths=deaths)
        self.assert_found("no head came back", quiet, deaths=deaths, kills=kills, pauses=[pause(None, 10, 20, "head")])

    def test_a_success_that_the_journal_has_is_final_whoever_dies(self):
        placed = [{"type": "job-placed", "job": "j", "generation": generation, "seats": [{"node": "n1"}], "cause": ""}
                  for generation in (1, 2)]
        events = journal(placed[0], {"type": "seat-done", "job": "j", "node": "n1", "generation": 1}, placed[1])
        self.assert_found("all seats were done", {1: [worker()]}, events=events, kills=[kill("agent", "n1", 12.1)])

    def test_a_generation_that_ended_without_a_cause(self):
        ended = {1: [worker(term=11.5, code=None)], 2: [worker(start=13, end=15)]}
        self.assert_found("generation 1 ended without a cause", ended)
        self.assertEqual(self.found(ended, kills=[kill("agent", "n1", 11.3)]), [])
        self.assertEqual(self.found(ended, kills=[kill("worker", "j.1.0", 11.3)]), [])
        self.assertEqual(self.found(ended, pauses=[pause("n1", 5, 11)]), [])
        self.assertEqual(self.found(ended, stalls=[{"at": 8, "until": 11}]), [])
        self.assert_found("without a cause", ended, pauses=[pause("n1", 9.9, 11)])
        self.assert_found("without a cause", ended, pauses=[pause("n2", 5, 11)])
        self.assert_found("without a cause", ended, pauses=[pause(None, 5, 11, "head")])

    def test_other_sizes_are_for_elastic_jobs(self):
        ended = {1: [worker(term=11.5, code=None)], 2: [worker(0, 2, start=13, end=15), worker(1, 2, "n2", 13, 15)]}
        grows = [{"type": "job-placed", "job": "j", "generation": 2, "seats": [], "cause": "grows from 1 to 2 workers"}]
        self.assertEqual(self.found(ended, journal(*grows), plan(elastic=True)), [])
        self.assert_found("without a cause", ended, journal(*grows))
        grows[0]["cause"] = "node n1 was lost"
        self.assert_found("without a cause", ended, journal(*grows), plan(elastic=True))

    def test_a_node_that_was_lost_without_a_cause(self):
        once = {1: [worker()]}
        self.assert_found("node n1 lost", once, journal(LOST))
        self.assertEqual(self.found(once, journal(LOST), kills=[kill("agent", "n1", 10.9)]), [])
        self.assertEqual(self.found(once, journal(LOST), pauses=[pause("n1", 7, 10.5)]), [])
        self.assert_found("node n1 lost", once, journal(LOST), pauses=[pause("n1", 9.5, 10.5)])
        old = [pause("n1", -30, -20)]
        self.assert_found("node n1 lost", once, journal(LOST), pauses=old)
        away = [kill("head", None, -22)]
        back = [{"at": -3, "until": -2, "code": 0, "words": ""}]
        self.assertEqual(self.found(once, journal(LOST), pauses=old, kills=away, ups=back), [], "it was heard late")

    def test_ends(self):
        self.assert_found("ended 0 times", {1: [worker()]}, [{"offset": n, **event} for n, event in enumerate([
            {"type": "head-started", "epoch": 1}, {"type": "job-submitted", "job": "j", "spec": {"name": "t"}}], 1)])
        failed = journal(result="failed", reason="timeout of 25s")
        self.assert_found("must be succeeded", {1: [worker()]}, failed, plan(timeout_s=25))
        late = {1: [worker(term=11, code=None)], 2: [worker(start=40, end=41)]}
        self.assertEqual(self.found(late, failed, plan(timeout_s=25), kills=[kill("agent", "n1", 10.5)]), [])

    def test_two_generations_at_once(self):
        both = {1: [worker(end=14.0, code=None)], 2: [worker(node="n2", start=13, end=15)]}
        killed = [kill("agent", "n1", 11)]
        self.assert_found("lived until", both, kills=killed)
        self.assertEqual(self.found(both, kills=killed, pauses=[pause("n1", 10, 13.5)]), [])

    def test_log_lines(self):
        printed = {1: [worker(printed=3)]}
        lines = [{"text": f"1.0 line {n} xxx"} for n in range(3)]
        self.assertEqual(self.found(printed, logs={"j": lines}), [])
        self.assert_found("has 2 of 3 lines", printed, logs={"j": lines[:2]})
        self.assert_found("lines twice", printed, logs={"j": [*lines, lines[0]]})
        self.assert_found("gaps", printed, logs={"j": [lines[0], lines[2]]})

    def test_an_up_that_fails_for_nothing(self):
        failed = {"at": 5, "until": 6, "code": 1, "words": "no"}
        self.assert_found("`rubato up`", {1: [worker()]}, ups=[failed])
        self.assertEqual(self.found({1: [worker()]}, ups=[failed], kills=[kill("head", None, 5.5)]), [])


if __name__ == "__main__":
    unittest.main()
