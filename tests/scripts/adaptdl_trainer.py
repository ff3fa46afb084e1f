"""A training as AdaptDL's own package runs it: its variables, its supervisor, a DataLoader with processes of its own, a
flag that SIGTERM raises and all workers agree on after each batch, one checkpoint for each life, and exit code 143.

usage: adaptdl_trainer.py FOLDER
FOLDER/hints.json, once it is there, is told by rank 0. FOLDER/slow: rank 0 takes so many seconds to save.
FOLDER/pid.GROUP.RANK are the workers' processes. FOLDER/done ends the job.
"""
import json
import os
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

folder = Path(sys.argv[1])
env = os.environ
rank, world, group = (int(env[f"ADAPTDL_{name}"]) for name in ("REPLICA_RANK", "NUM_REPLICAS", "NUM_RESTARTS"))
checkpoints = Path(env["ADAPTDL_CHECKPOINT_PATH"])
asked_to_leave = False


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{env['ADAPTDL_SUPERVISOR_URL']}/{path}", data,
                                     {"Content-Type": "application/json"}, method="GET" if body is None else "PUT")
    with urllib.request.urlopen(request) as reply:
        return reply.read().decode()


def discover():
    while True:
        try:
            return json.loads(ask(f"discover/{env['ADAPTDL_JOB_ID']}/{group}"))
        except urllib.error.HTTPError as error:
            if error.code != 408:
                raise


def load():
    """Whatever is named as a checkpoint must have a number: the highest one counts."""
    numbers = [int(name[len("checkpoint-"):]) for name in os.listdir(checkpoints) if name.startswith("checkpoint-")]
    if not numbers:
        return 0
    assert max(numbers) < group, (numbers, group)
    return torch.load(checkpoints / f"checkpoint-{max(numbers)}/state")["step"]


def save(step):
    draft, final = checkpoints / "_checkpoint", checkpoints / f"checkpoint-{group}"
    draft.mkdir(exist_ok=True)
    torch.save({"step": step}, draft / "state")
    if (folder / "slow").exists():
        time.sleep(float((folder / "slow").read_text()))
    os.rename(draft, final)
    for name in os.listdir(checkpoints):
        if name.startswith("checkpoint-") and checkpoints / name != final:
            shutil.rmtree(checkpoints / name)


def on_signal(*_):
    global asked_to_leave
    asked_to_leave = True


signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGINT, on_signal)
torch.set_num_threads(1)
address = discover()[0]
dist.init_process_group("gloo", f"tcp://{address}:{env['ADAPTDL_MASTER_PORT']}?rank={rank}&world_size={world}")
step = load()
print(f"group {group}: rank {rank} of {world} begins at step {step}", flush=True)
(folder / f"pid.{group}.{rank}").write_text(str(os.getpid()))
told = None
for _ in DataLoader(torch.arange(1_000_000), batch_size=1, num_workers=2):
    hints = folder / "hints.json"
    if rank == 0 and hints.exists() and hints.read_text() != told:
        told = hints.read_text()
        ask(f"hints/{env['ADAPTDL_JOB_ID']}", json.loads(told))
    time.sleep(0.3)  # a batch: processes of the loader that have died would be noticed in it
    step += 1
    flags = torch.tensor([float(asked_to_leave), float((folder / "done").exists())])
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    if flags[0]:
        if rank == 0:
            save(step)
            print(f"group {group}: saved step {step}", flush=True)
        sys.exit(143)
    if flags[1]:
        break
print(f"group {group}: ended at step {step}", flush=True)
