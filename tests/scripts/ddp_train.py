"""Elastic DDP training over gloo that checkpoints and resumes.

usage: ddp_train.py FOLDER STEPS PACE      train; PACE is a pause in seconds after each step
       ddp_train.py --reference STEPS      print the loss of an undisturbed training in one process

Every step sees all rows, shared out over the ranks, so the final loss depends neither on the world size nor on where
the training was interrupted, provided that it resumes from what it saved: the momentum makes lost state visible.
FOLDER may name variables: '$RUBATO_OUTPUT'.
FOLDER/limit, if it is there, names the last step that may be done now: so a test decides how far it gets, not the speed
of the machine. With $WAIT_FOR_LIMIT none is done before it is there.
FOLDER/checkpoint is the saved state, FOLDER/workers.jsonl tells of starts and steps, FOLDER/result.json of the end.
"""
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def problem():
    torch.manual_seed(0)
    x = torch.randn(96, 8, dtype=torch.float64)
    y = x @ torch.randn(8, 1, dtype=torch.float64) + 0.1 * torch.randn(96, 1, dtype=torch.float64)
    model = torch.nn.Linear(8, 1).double()
    return x, y, model, torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)


def reference(steps):
    x, y, model, optimizer = problem()
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    return ((model(x) - y) ** 2).mean().item()


def tell(folder, line):
    fd = os.open(f"{folder}/workers.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps({"mono": time.monotonic()} | line) + "\n").encode())
    os.close(fd)


def may_go_on(folder, step):
    try:
        with open(f"{folder}/limit") as limit:
            return step <= int(limit.read())
    except FileNotFoundError:
        return "WAIT_FOR_LIMIT" not in os.environ


def save(path, state):
    torch.save(state, f"{path}.draft")
    os.rename(f"{path}.draft", path)


def train(folder, steps, pace):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y, model, optimizer = problem()
    checkpoint = f"{folder}/checkpoint"
    first = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    ddp = DistributedDataParallel(model)
    # All ranks read the same checkpoint: nobody may write the next one before everybody has read this one.
    dist.barrier()
    tell(folder, {"rank": rank, "world": world, "pid": os.getpid(), "first": first})
    mine = slice(rank, None, world)
    for step in range(first + 1, steps + 1):
        while not may_go_on(folder, step):
            time.sleep(0.02)
        optimizer.zero_grad()
        # DDP averages the ranks' gradients; this scaling makes the average the gradient of the mean over all rows.
        (((ddp(x[mine]) - y[mine]) ** 2).sum() * world / len(x)).backward()
        optimizer.step()
        if rank == 0:
            # In this order: a step that is saved, and so not repeated, has its line; one that is told is saved.
            print(f"step {step} of {steps}", flush=True)
            save(checkpoint, {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
            tell(folder, {"step": step, "world": world})
        time.sleep(pace)
    if rank == 0:
        loss = ((model(x) - y) ** 2).mean().item()
        with open(f"{folder}/result.json", "w") as out:
            json.dump({"loss": loss, "steps": steps, "world": world}, out)
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "--reference":
        print(reference(int(sys.argv[2])))
    else:
        train(os.path.expandvars(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
