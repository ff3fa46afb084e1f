"""Two workers or more, of which the last one has too little memory for the batch that the others would take.

    memory.py LENGTH
"""
import json
import sys

import torch

import rubato.torch as adaptive
from rubato import env, goodput

length = int(sys.argv[1])
# Gradients are all noise: the largest batch is always the best.
eager = goodput.Goodput(goodput.PerfParams(1, 1e-6, 1, 1, 1, 1, 1.0), goodput.GradParams(0.0, 1.0), 4)
adaptive.profile.Profile.goodput = lambda job: eager


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x):
        if env.rank() == env.world_size() - 1 and len(x) > 10 and torch.is_grad_enabled():
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return self.layer(x)


adaptive.init_process_group("gloo")
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
net = adaptive.AdaptiveDataParallel(model, optimizer)
loader = adaptive.AdaptiveDataLoader(torch.arange(float(length)).reshape(-1, 1), batch_size=4, shuffle=True)
loader.autoscale_batch_size(256, local_bsz_bounds=(1, 64))
totals = adaptive.Accumulator()
for epoch in adaptive.remaining_epochs_until(2):
    for x in loader:
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
        totals["sum"] += float(x.sum())
    with totals.synchronized():
        seen = dict(totals)
print("result", json.dumps({"sum": seen["sum"], "limit": adaptive.profile.current().memory_limit}))
