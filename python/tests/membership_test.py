import json
import os
import random
import struct
import tempfile
import unittest

import testing  # noqa: F401  puts the library on the path
from rubato import membership
from rubato.membership import Header


def document(**changes):
    plan = {"version": 1, "generation": 3, "lost": ["x"], "store": {"address": "127.0.0.1:1", "token": "t"},
            "members": [{"id": "b", "rank": 1, "local_rank": 0, "node": 4}, {"id": "a", "rank": 0, "node": 2},
                        {"id": "c", "rank": 2, "local_rank": 1, "node": 4}]}
    return json.dumps({**plan, **changes})


class Plans(unittest.TestCase):
    def test_a_member_finds_its_variables(self):
        plan = membership.Plan.parse(document())
        self.assertEqual([one.id for one in plan.members], ["a", "b", "c"])
        self.assertIsNone(plan.member("x"))
        values = plan.variables("c")
        expected = {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
                    "GROUP_WORLD_SIZE": "2", "RUBATO_GENERATION": "3"}
        self.assertEqual({name: values[name] for name in expected}, expected)

    def test_what_is_no_plan_is_refused_with_the_reason(self):
        for text, reason in (("{", "."), ("[]", "form"), (document(members=[]), "ranks"),
                             (document(members=[{"id": "a", "rank": 1}]), "ranks"), (document(store=None), "form"),
                             (document(members=[{"id": "a", "rank": 0}, {"id": "a", "rank": 1}]), "same id")):
            with self.assertRaisesRegex(ValueError, reason):
                membership.Plan.parse(text)

    def test_the_folder_tells_both_sides(self):
        with tempfile.TemporaryDirectory() as path:
            with open(os.path.join(path, "generation"), "wb") as file:
                file.write(struct.pack("<Q", 0))
            folder = membership.Folder(path, "a")
            self.assertEqual((folder.generation(), folder.plan()), (0, None))
            with open(os.path.join(path, "plan.json"), "w", encoding="utf-8") as file:
                file.write(document())
            with open(os.path.join(path, "generation"), "r+b") as file:
                file.write(struct.pack("<Q", 3))
            self.assertEqual((folder.generation(), folder.plan().generation), (3, 3))
            folder.report("broken", 3, 17, "a reason")
            folder.count_step(3, 18)
            with open(os.path.join(path, "worker-a.json"), encoding="utf-8") as file:
                self.assertEqual(json.load(file), {"state": "broken", "generation": 3, "step": 17, "pid": os.getpid(),
                                                   "reason": "a reason"})
            with open(os.path.join(path, "worker-a.step"), "rb") as file:
                self.assertEqual(struct.unpack("<QQ", file.read()), (3, 18))


class Choice(unittest.TestCase):
    def test_nothing_is_sent_where_nothing_was_trained_or_all_have_it(self):
        self.assertEqual(membership.choose([Header(0, False, 0, 0), Header(1, False, 0, 0)]).needy, ())
        self.assertEqual(membership.choose([Header(0, True, 7, 2), Header(1, True, 7, 2)]), (0, (), ()))

    def test_a_newcomer_gets_the_state_even_if_its_checkpoint_looks_as_new(self):
        self.assertEqual(membership.choose([Header(0, False, 9, 0), Header(1, True, 7, 2)]), (1, (0,), ()))
        self.assertEqual(membership.choose([Header(0, True, 7, 2), Header(1, False, 7, 0)]), (0, (1,), ()))

    def test_without_a_veteran_the_newest_checkpoint_counts(self):
        self.assertEqual(membership.choose([Header(0, False, 5, 0), Header(1, False, 9, 0)]), (1, (0,), ()))

    def test_a_veteran_that_missed_only_a_small_collective_keeps_its_state(self):
        headers = [Header(0, True, 7, 2), Header(1, True, 7, 3), Header(2, False, 0, 0)]
        self.assertEqual(membership.choose(headers), (1, (2,), (0,)))

    def test_a_veteran_that_missed_the_update_of_a_second_model_gets_the_state(self):
        headers = [Header(0, True, 7, 2, 13), Header(1, True, 7, 2, 14), Header(2, True, 7, 2, 14)]
        self.assertEqual(membership.choose(headers), (1, (0,), ()))

    def test_a_veteran_that_missed_a_batch_of_several_for_one_update_gets_the_state(self):
        headers = [Header(0, True, 7, 2, 7, 1), Header(1, True, 7, 2, 7, 2), Header(2, True, 7, 2, 7, 2)]
        self.assertEqual(membership.choose(headers), (1, (0,), ()))
        headers[0] = Header(0, True, 7, 1, 7, 1)  # in a collective that the others have seen the end of, and go on from
        self.assertEqual(membership.choose(headers), (1, (), (0,)))

    def test_everybody_ends_with_the_most_advanced_state(self):
        draw = random.Random(4)
        for _ in range(500):
            headers = [Header(i, draw.random() < 0.6, draw.randint(4, 5), draw.randint(0, 1))
                       for i in range(draw.randint(1, 6))]
            choice = membership.choose(headers)
            pool = [one for one in headers if one.veteran] or headers
            best = max(one.step for one in pool)
            source = headers[choice.source]
            self.assertIn(source, pool)
            self.assertEqual(source.step, best)
            for one in headers:
                has = one.step == best and (one.veteran or not any(other.veteran for other in headers))
                self.assertEqual(one.rank in choice.needy, not has)
            self.assertFalse(set(choice.needy) & set(choice.behind))


if __name__ == "__main__":
    unittest.main()
