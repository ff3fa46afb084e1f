"""A training whose parameters count how often each sample has contributed to them.

    count.py EPOCHS LENGTH BATCH [--slow SECONDS] [--stream] [--evaluate]

Ends with a line of JSON: the count of each sample, what an Accumulator has counted, steps of the learning rate.
"""
import json
import sys
import time

import torch

import rubato
from rubato import env
from rubato.torch import Accumulator, AdaptiveDataLoader

epochs, length, batch = map(int, sys.argv[1:4])
slow = float(sys.argv[sys.argv.index("--slow") + 1]) if "--slow" in sys.argv else 0.0
torch.set_num_threads(1)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(length))


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(length, dtype=torch.float64))

    def forward(self, samples):
        return self.weight[samples]


model = Counts()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
stream = "--stream" in sys.argv
samples = Stream() if stream else list(range(length))
loader = torch.utils.data.DataLoader(samples, batch_size=batch, shuffle=not stream)
with rubato.elastic(model, optimizer, scheduler) as job:
    totals = Accumulator()
    check = AdaptiveDataLoader(list(range(7)), batch_size=3)
    for epoch in job.epochs(epochs):
        for drawn in job.batches(loader):
            optimizer.zero_grad()
            job.model(drawn).mean().backward()
            optimizer.step()
            scheduler.step()  # with each batch
            totals["steps"] += 1 / env.world_size()
            time.sleep(slow)
        if "--evaluate" in sys.argv:
            job.model.eval()
            for drawn in check:
                job.model(drawn)
                totals["checked"] += len(drawn)
            job.model.train()
        with totals.synchronized():
            seen = dict(totals)
    # Each contribution is 1/batch: all steps are full.
    counts = (model.weight * -batch).round(decimals=6).tolist()
    print("result", json.dumps({"counts": counts, "totals": seen, "scheduled": scheduler.last_epoch}))
