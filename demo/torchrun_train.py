"""The demo's training: a small classifier, DDP over gloo on the CPU, that checkpoints and resumes.

usage: torchrun_train.py STEPS [FOLDER]        FOLDER is $RUBATO_OUTPUT unless given

This is how any elastic training for torchrun is written, but for one thing: it keeps a record of what it did
(FOLDER/record.jsonl), from which the demo proves that no sample was lost or counted twice.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

SAMPLES, BATCH = 240, 48
EPOCH = SAMPLES // BATCH  # steps; a checkpoint after each
STEP_TIME = float(os.environ.get("DEMO_STEP_TIME", 0.03))  # a real step takes longer than this one


def spirals():
    """Two interleaved spirals: x, and which of the two."""
    t = torch.linspace(0.5, 6, SAMPLES // 2)
    arm = torch.stack([t * t.cos(), t * t.sin()], dim=1) / 6
    return torch.cat([arm, -arm]), torch.cat([torch.zeros(len(t)), torch.ones(len(t))]).long()


def batch_of(step):
    """The samples of a step: each epoch has its own order, the same for every size of the group."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(step // EPOCH))
    return order[step % EPOCH * BATCH:][:BATCH]


def tell(folder, **line):
    fd = os.open(f"{folder}/record.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps(line) + "\n").encode())
    os.close(fd)


def main(steps, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    x, y = spirals()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(),
                                torch.nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    done = 0
    checkpoint = f"{folder}/training.pt"
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    ddp = DistributedDataParallel(model)
    run = torch.tensor(time.time_ns())  # names this start of the group
    dist.broadcast(run, 0)
    run = run.item()
    if rank == 0:
        tell(folder, run=run, resumed=done, world=world)
    dist.barrier()  # everybody has read the checkpoint before the next one is written

    while done < steps:
        mine = batch_of(done)[rank::world]
        # Before the gradients are shared: when the step is done, all its samples are on record.
        tell(folder, run=run, step=done + 1, rank=rank, samples=mine.tolist())
        optimizer.zero_grad()
        loss = cross_entropy(ddp(x[mine]), y[mine], reduction="sum") * world / BATCH
        loss.backward()
        optimizer.step()
        done += 1
        if rank == 0:
            tell(folder, run=run, done=done, world=world, loss=cross_entropy(model(x), y).item())
            if done % EPOCH == 0:
                state = {"step": done, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, f"{checkpoint}.new")
                os.rename(f"{checkpoint}.new", checkpoint)
        time.sleep(STEP_TIME)
    dist.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else os.environ["RUBATO_OUTPUT"])
