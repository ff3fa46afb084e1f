"""A small FSDP2 training in a group that changes in place. The result is the same for any sequence of groups.

    sharded_in_place.py EPOCHS LENGTH BATCH [--slow SECONDS]

Ends with a line of JSON: sums of all parameters and of Adam's moments, and steps of the learning rate.
"""
import json
import sys

import torch

import rubato.torch as adaptive
from rubato.torch.sharded import ShardedModel
from testing import pause

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard

epochs, length, batch = map(int, sys.argv[1:4])
slow = float(sys.argv[sys.argv.index("--slow") + 1]) if "--slow" in sys.argv else 0.0
torch.set_num_threads(1)


def make(mesh):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(7, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.9)


adaptive.init_process_group("gloo")
torch.manual_seed(1)
inputs, targets = torch.randn(length, 7), torch.randn(length, 3)
loader = adaptive.AdaptiveDataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=batch, shuffle=True)
shards = ShardedModel(make)
for epoch in adaptive.remaining_epochs_until(epochs):
    for x, y in loader:
        shards.optimizer.zero_grad()
        weight = adaptive.current_dataloader().weight
        (torch.nn.functional.mse_loss(shards.model(x), y) * weight).backward()
        shards.optimizer.step()
        shards.lr_scheduler.step()
        pause(slow)
moments = [shards.optimizer.state[parameter]["exp_avg_sq"] for parameter in shards.model.parameters()]
found = [float(one.detach().full_tensor().double().abs().sum()) for one in [*shards.model.parameters(), *moments]]
print("result", json.dumps({"sums": found, "scheduled": shards.lr_scheduler.last_epoch}))
