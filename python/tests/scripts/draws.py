"""Draws random numbers in a training, and saves and leaves after some steps.

    draws.py STEPS          of this life
"""
import json
import sys

import torch

import rubato
from rubato import checkpoint

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(3)  # of all workers alike, as scripts do
drawn = []
with rubato.elastic(model, optimizer) as job:
    for _ in job.epochs(1):
        for batch in job.batches(torch.utils.data.DataLoader(torch.randn(60, 1), batch_size=6, shuffle=True)):
            if len(drawn) == int(sys.argv[1]):
                checkpoint.save_all_states()
                print("drawn", json.dumps(drawn), flush=True)
                sys.exit(143)
            optimizer.zero_grad()
            job.model(batch).mean().backward()
            optimizer.step()
            drawn.append(float(torch.rand(())))
