"""A training whose batch size changes all the time, and whose parameters count how often each sample has contributed.

    vary.py EPOCHS LENGTH BATCH SEED [--slow SECONDS] [--saves SECONDS] [--stream] [--accumulate] [--processes COUNT]

--processes: the loader has so many of its own. Ends with a line of JSON: the count of each sample.
"""
import json
import random
import sys

import torch

import rubato.torch as adaptive
from rubato import env, goodput
from rubato.torch import data, profile, scaling_rules
from testing import pause

epochs, length, batch, seed = map(int, sys.argv[1:5])
stream, accumulate = "--stream" in sys.argv, "--accumulate" in sys.argv


def option(name, kind):
    return kind(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else kind(0)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(length))


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return length

    def __getitem__(self, index):
        return index


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(length, dtype=torch.float64))

    def forward(self, samples):
        return self.weight[samples]


class OneForEach(scaling_rules.ScalingRuleBase):
    """The gradient is the mean of the step's samples: so each of them contributes 1, however many they are."""

    def scale_lr(self, scale):
        return float(data.Loop.current._size)


def suggest(job, _current):
    """Anything, but the same where it is asked again: of the step alone."""
    draw = random.Random(f"{seed} {job.steps} {env.world_size()}")
    return goodput.Batch(draw.randint(max(batch // env.world_size(), 1), batch), draw.randint(0, 2) if accumulate else 0)


profile.Profile.suggest = suggest
data.ADAPT_EVERY_STEPS = 2
if "--saves" in sys.argv:
    data.CHECKPOINT_EVERY_S = option("--saves", float)
torch.set_num_threads(1)
adaptive.init_process_group("gloo")
model = Counts()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
net = adaptive.AdaptiveDataParallel(model, optimizer, scaling_rule=OneForEach())
processes = option("--processes", int)
options = {"num_workers": processes, "persistent_workers": bool(seed % 2)} if processes else {}
loader = adaptive.AdaptiveDataLoader(Stream() if stream else Samples(), batch, shuffle=not stream, **options)
loader.autoscale_batch_size(100 * batch, gradient_accumulation=accumulate)
for epoch in adaptive.remaining_epochs_until(epochs):
    for drawn in loader:
        optimizer.zero_grad()
        net(drawn).mean().backward()
        optimizer.step()
        pause(option("--slow", float))
print("result", json.dumps({"counts": (-model.weight).round(decimals=6).tolist()}))
