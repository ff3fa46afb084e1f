"""A small FSDP2 training, one process of a group. Prints a checksum of all parameters and Adam's moments at the end.

    sharded.py STEPS [--save-at STEP]       it saves and leaves there, as on SIGTERM
"""
import sys

import torch
from torch.distributed.device_mesh import init_device_mesh

import rubato.torch as adaptive
from rubato import checkpoint, env
from rubato.torch.sharded import ShardedState

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard

steps = int(sys.argv[1])
save_at = int(sys.argv[sys.argv.index("--save-at") + 1]) if "--save-at" in sys.argv else None
adaptive.init_process_group("gloo", in_place=False)
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(7, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3))
fully_shard(model, mesh=init_device_mesh("cpu", (env.world_size(),)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
ShardedState(model, optimizer, scheduler)
while scheduler.last_epoch < steps:
    if scheduler.last_epoch == save_at:
        checkpoint.save_all_states()
        sys.exit(143)
    for number, parameter in enumerate(model.parameters()):  # gradients that do not depend on who computes them
        parameter.grad = parameter.detach() * 0.1 + (number + scheduler.last_epoch)
    optimizer.step()
    scheduler.step()
moments = [optimizer.state[parameter]["exp_avg_sq"] for parameter in model.parameters()]
found = [float(tensor.detach().full_tensor().double().sum()) for tensor in [*model.parameters(), *moments]]
if env.rank() == 0:
    print("weights", [round(value, 6) for value in found])
