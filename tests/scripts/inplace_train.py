"""A training with the library whose parameters count how often each sample has contributed to them.

    inplace_train.py FOLDER PACE_SECONDS

Adds a line for each step to FOLDER/workers.jsonl. It ends after the pass during which FOLDER/finish is seen; rank 0
then writes FOLDER/result.json: the passes, and the count of each sample, which must be the same number.
While there is FOLDER/hold nobody begins: whoever is new comes when the test says so.
"""
import json
import os
import sys
import time

while os.path.exists(os.path.join(sys.argv[1], "hold")):
    time.sleep(0.02)

import torch

import rubato
from rubato import collective, env

LENGTH, BATCH = 48, 6
folder, pace = sys.argv[1], float(sys.argv[2])
torch.set_num_threads(1)


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(LENGTH, dtype=torch.float64))

    def forward(self, samples):
        return self.weight[samples]


def write(name, mode, text):
    with open(os.path.join(folder, name), mode, encoding="utf-8") as file:
        file.write(text)


model = Counts()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
loader = torch.utils.data.DataLoader(list(range(LENGTH)), batch_size=BATCH, shuffle=True)
with rubato.elastic(model, optimizer) as job:
    passes = 0
    for epoch in job.epochs(100_000):
        for samples in job.batches(loader):
            optimizer.zero_grad()
            loss = job.model(samples).mean()
            time.sleep(pace)
            loss.backward()
            optimizer.step()
            write("workers.jsonl", "a", json.dumps(
                {"pid": os.getpid(), "rank": env.rank(), "world": env.world_size(), "generation": env.generation(),
                 "epoch": epoch}) + "\n")
        passes = epoch + 1
        if collective.allreduce(int(os.path.exists(os.path.join(folder, "finish"))), max):
            break
    if env.rank() == 0:
        counts = (model.weight * -BATCH).round(decimals=6).tolist()
        write("result.new", "w", json.dumps({"passes": passes, "counts": counts}))
        os.rename(os.path.join(folder, "result.new"), os.path.join(folder, "result.json"))
