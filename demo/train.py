"""The demo's training: a small classifier, DDP over gloo on the CPU, that checkpoints and resumes.

usage: train.py FOLDER STEPS

Nothing in it knows of rubato: this is how any elastic training for torchrun is written.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def spirals(points=120):
    """Two interleaved spirals: x, and which of the two."""
    torch.manual_seed(0)
    t = torch.linspace(0.5, 6, points)
    arm = torch.stack([t * t.cos(), t * t.sin()], dim=1) / 6
    return torch.cat([arm, -arm]), torch.cat([torch.zeros(points), torch.ones(points)]).long()


def tell(folder, **line):
    fd = os.open(f"{folder}/progress.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps({"mono": time.monotonic()} | line) + "\n").encode())
    os.close(fd)


def main(folder, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    x, y = spirals()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(),
                                torch.nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    done = 0
    checkpoint = f"{folder}/checkpoint"
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    ddp = DistributedDataParallel(model)
    dist.barrier()  # everybody has read the checkpoint before the next one is written
    if rank == 0:
        tell(folder, resumed=done, world=world)

    mine = slice(rank, None, world)
    while done < steps:
        optimizer.zero_grad()
        loss = cross_entropy(ddp(x[mine]), y[mine], reduction="sum") * world / len(x)
        loss.backward()
        optimizer.step()
        done += 1
        if rank == 0:
            state = {"step": done, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, f"{checkpoint}.new")
            os.rename(f"{checkpoint}.new", checkpoint)
            tell(folder, step=done, world=world, loss=cross_entropy(model(x), y).item())
        time.sleep(0.03)  # a real step takes longer than this one
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
