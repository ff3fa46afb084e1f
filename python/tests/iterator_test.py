"""The BPTT iterator: each token is predicted once, whatever the workers and the batch sizes; a script that uses it."""
import json
import os
import random
import signal
import sys
import types
import unittest

import stand_ins
import testing
import torch
from inplace_test import InPlaceCase
from rubato import goodput
from rubato.torch import AdaptiveBPTTIterator
from rubato.torch.steps import MapSteps

sys.path.append(os.path.join(testing.LIBRARY, "adaptdl"))
stand_ins.install()


class Columns(testing.LibraryTest):
    def expected(self, length, columns):
        """Targets: all tokens but the first of each column, and the padding of the last ones."""
        rows = -(-length // columns)
        targets = [token for token in range(1, length + 1) if (token - 1) % rows]
        padding = [0] * sum(1 for place in range(length, rows * columns) if place % rows)
        return sorted(targets + padding)

    def play(self, seed):
        draw = random.Random(seed)
        length, columns, bptt = draw.randint(1, 400), draw.randint(1, 9), draw.randint(1, 8)
        tokens = torch.arange(1, length + 1)
        self.be(0, 1)
        iterator = AdaptiveBPTTIterator(tokens, columns, bptt)
        loop, seen = iterator._elastic, []
        while loop.state.cursor < len(iterator.dataset):
            replicas = draw.randint(1, 5)
            loop.batch = draw.choice((None, goodput.Batch(draw.randint(1, 7), draw.randint(0, 2))))
            wanted, taken = draw.randint(1, 6), 0
            for rank in range(replicas):
                os.environ.update(RANK=str(rank), WORLD_SIZE=str(replicas))
                for _, step in zip(range(wanted), MapSteps(iterator)):
                    taken += sum(micro.total for micro in step.step) if rank == 0 else 0
                    for own, batch in step.micros:
                        if own:
                            self.assertEqual(batch.text.shape, batch.target.shape)
                            self.assertEqual(batch.text.shape[1], own)
                            unpadded = batch.target > 0
                            self.assertTrue(torch.equal(batch.text[unpadded] + 1, batch.target[unpadded]))
                            seen += batch.target.flatten().tolist()
            loop.state.cursor += taken
        self.assertEqual(sorted(seen), self.expected(length, columns))

    def test_each_token_is_predicted_once_over_random_schedules(self):
        for seed in range(200):
            with self.subTest(seed=seed):
                self.play(seed)

    def test_a_worker_reads_on_in_its_columns(self):
        self.be(1, 2)
        iterator = AdaptiveBPTTIterator(torch.arange(100), 4, 6)
        batches = [batch for step in MapSteps(iterator) for _, batch in step.micros]
        self.assertEqual(len(iterator), len(batches))
        for column in range(2):
            read = torch.cat([batch.text[:, column] for batch in batches]).tolist()
            self.assertEqual(read, list(range(50 + 25 * column, 74 + 25 * column)))

    def test_a_field_that_wants_the_batch_first(self):
        field = stand_ins.Field(batch_first=True)
        dataset = stand_ins.Dataset([types.SimpleNamespace(text=["a", "b"] * 10 + ["c"])], [("text", field)])
        iterator = AdaptiveBPTTIterator(dataset, batch_size=2, bptt_len=4, train=True, device="cpu")
        field.build_vocab(dataset)
        batches = list(iterator)
        self.assertEqual([tuple(batch.text.shape) for batch in batches], [(2, 4), (2, 4), (2, 2)])
        self.assertEqual(field.vocab.itos[batches[-1].target[1, -1]], "<pad>")
        self.assertEqual(len(batches[0]), 2)

    def test_what_has_no_end_is_refused(self):
        with self.assertRaisesRegex(ValueError, "remaining_epochs_until"):
            AdaptiveBPTTIterator(torch.arange(9), 1, 2, repeat=True)


class LanguageModel(InPlaceCase):
    """The script knows nothing of changes; its result is that of one worker."""

    def start(self, agent, count):
        variables = {"ADAPTDL_TENSORBOARD_LOGDIR": agent.folder, "ADAPTDL_JOB_ID": "rubato/job"}
        start = agent.start
        agent.start = lambda: start(variables)
        return self.start_members(agent, count)

    def loss(self, agent, name):
        self.assertEqual(agent.wait_for_end(name), 0, agent.story())
        lines = [line for line in agent.workers[name].text().splitlines() if line.startswith("test loss")]
        return float(lines[0].split()[-1])

    def scalars(self, agent):
        folder, lines = os.path.join(agent.folder, "rubato/job"), []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines += [json.loads(line) for line in file if line.endswith("\n")]
        return lines

    def disturbed(self, *arguments):
        agent = self.agent("transformer.py", *arguments, "--slow", 0.01)
        first, second = self.start(agent, 2)
        agent.wait_for_step(first, 3)
        third = self.grow(agent)
        agent.wait_for_step(first, agent.step(first)[1] + 3)
        agent.workers[second].send_signal(signal.SIGKILL)
        agent.wait_for_state(first, "training", 3)
        agent.wait_for_step(third, agent.step(third)[1] + 2)
        agent.publish([third])
        self.assertEqual(agent.wait_for_end(first), 143, agent.story())
        return agent, self.loss(agent, third)

    def test_gives_what_one_worker_gives(self):
        alone = self.agent("transformer.py", 4)
        expected = self.loss(alone, self.start(alone, 1)[0])
        self.assertLess(expected, 3.0)  # of 33 words at random: 3.5
        agent, found = self.disturbed(4)
        self.assertAlmostEqual(found, expected, places=4)
        if getattr(sys.modules.get("torch.utils.tensorboard"), "SummaryWriter", None) is stand_ins.SummaryWriter:
            tags = {tag for tag, _, _ in self.scalars(agent)}
            self.assertLessEqual({"Data/Total_Batch_Size", "Data/Local_Batch_Size", "Data/Accumulation_Steps",
                                  "Model/Gain", "Model/Gradient_Norm_Sqr", "Model/Learning_Rate_Factor"}, tags)

    def test_with_a_batch_size_that_grows(self):
        _, loss = self.disturbed(4, "--autoscale-bsz")
        self.assertLess(loss, 3.4)


del InPlaceCase
if __name__ == "__main__":
    unittest.main()
