"""A worker without PyTorch that a test steers through files.

usage: steps.py FOLDER
Appends one JSON line to FOLDER/workers.jsonl when it starts, then waits for orders:
  FOLDER/finish      every worker exits with 0
  FOLDER/exit.RANK   that rank takes the file away and exits with the number in it
"""
import time

STARTED = time.monotonic()  # the benchmark's "the worker's main runs"

import json
import os
import sys


def append(path, line):
    """One write in append mode: lines of several workers do not mix."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps(line) + "\n").encode())
    os.close(fd)


def main():
    folder = sys.argv[1]
    env = os.environ
    rank = int(env["RANK"])
    append(f"{folder}/workers.jsonl", {
        "mono": STARTED, "pid": os.getpid(), "rank": rank, "local_rank": int(env["LOCAL_RANK"]),
        "group_rank": int(env["GROUP_RANK"]), "world": int(env["WORLD_SIZE"]),
        "restart": int(env["TORCHELASTIC_RESTART_COUNT"]), "master": f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"})
    while not os.path.exists(f"{folder}/finish"):
        try:
            with open(f"{folder}/exit.{rank}") as order:
                code = int(order.read())
            os.unlink(f"{folder}/exit.{rank}")
            sys.exit(code)
        except FileNotFoundError:
            time.sleep(0.01)


if __name__ == "__main__":
    main()
