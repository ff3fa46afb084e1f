"""The benchmark's worker, the same under both launchers.

usage: worker.py FOLDER plain|torch|talk
  plain  reaches its main and waits
  torch  also imports torch, as a real training does
  talk   also forms a gloo group and all-reduces for ever, so it fails when a peer is gone
Appends to FOLDER/workers.jsonl when its main runs: the times are of the monotonic clock, which all processes share.
"""
import time

MAIN = time.monotonic()

import json
import os
import sys

folder, how = sys.argv[1:3]
line = {"main": MAIN, "pid": os.getpid(), "rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"])}
if how == "torch":
    import torch

    line["imported"] = time.monotonic()
fd = os.open(f"{folder}/workers.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(fd, (json.dumps(line) + "\n").encode())
if how == "talk":
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    os.write(fd, (json.dumps({"talking": time.monotonic()} | line) + "\n").encode())
    while True:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.02)
time.sleep(3600)
