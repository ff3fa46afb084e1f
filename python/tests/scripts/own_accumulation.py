"""A script that updates with every third batch, and at the end; its parameters count how often each sample contributed.

    own_accumulation.py EPOCHS LENGTH BATCH [--slow SECONDS] [--stop-at BATCHES] [--across BATCHES] [--kill-at BATCHES]

--stop-at: asks itself to stop after so many batches.
--across: updates with every so many batches, also over the end of an epoch; each epoch ends with a loop that evaluates,
          in the first of which a group is planned.
--kill-at: after so many batches w2 kills itself, w1 goes on when it has heard of it, and w0 at once.
Ends with a line of JSON: the count of each sample.
"""
import json
import os
import signal
import sys
import time

import torch

import rubato.torch as adaptive
from rubato import group
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
checked = adaptive.AdaptiveDataLoader(torch.arange(length), batch)
seen, across, name = 0, option("--across", int), os.environ.get("RUBATO_WORKER_ID")


def wait_for(condition):
    while not condition():
        time.sleep(0.003)


def is_update(index):
    number = epoch * (length // batch) + index // batch
    return number % across == across - 1 if across else index + batch >= length or index // batch % 3 == 2


for epoch in adaptive.remaining_epochs_until(epochs):
    for drawn in loader:
        net(drawn).mean().backward()
        seen += 1
        if seen == option("--stop-at", int):
            os.kill(os.getpid(), signal.SIGTERM)
        if is_update(adaptive.current_dataloader().current_index):
            optimizer.step()
            optimizer.zero_grad()
        if seen == option("--kill-at", int):
            if name == "w2":
                os.kill(os.getpid(), signal.SIGKILL)
            wait_for(lambda: name == "w0" or group.broken())
        pause(option("--slow", float))
    if across:
        for i, _ in enumerate(checked):
            if epoch == 0 and i == 1:
                wait_for(lambda: group.current().newest() > 1)
print("result", json.dumps({"counts": (-model.weight).round(decimals=6).tolist()}))
