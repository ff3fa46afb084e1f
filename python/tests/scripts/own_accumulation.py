"""A script that updates with every third batch, and at the end; its parameters count how often each sample contributed.

    own_accumulation.py EPOCHS LENGTH BATCH [--slow SECONDS] [--stop-at BATCHES]

--stop-at: asks itself to stop after so many batches. Ends with a line of JSON: the count of each sample.
"""
import json
import os
import signal
import sys

import torch

import rubato.torch as adaptive
from testing import pause

epochs, length, batch = map(int, sys.argv[1:4])


def option(name, kind):
    return kind(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else kind(0)


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(length, dtype=torch.float64))

    def forward(self, samples):
        return self.weight[samples]


torch.set_num_threads(1)
adaptive.init_process_group("gloo")
model = Counts()
optimizer = torch.optim.SGD(model.parameters(), lr=float(batch))
net = adaptive.AdaptiveDataParallel(model, optimizer)
loader = adaptive.AdaptiveDataLoader(torch.arange(length), batch, shuffle=True)
seen = 0
for epoch in adaptive.remaining_epochs_until(epochs):
    for drawn in loader:
        net(drawn).mean().backward()
        last = adaptive.current_dataloader().current_index + batch >= length
        seen += 1
        if seen == option("--stop-at", int):
            os.kill(os.getpid(), signal.SIGTERM)
        if last or (adaptive.current_dataloader().current_index // batch) % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        pause(option("--slow", float))
print("result", json.dumps({"counts": (-model.weight).round(decimals=6).tolist()}))
