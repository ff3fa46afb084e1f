"""A worker that does what AdaptDL's trainer does: asks its supervisor who is there, tells hints, saves and leaves with
143 when it is told to.

usage: supervised.py FOLDER
FOLDER/hints.json, once it is there, is told by rank 0, a hundred others before it if there is FOLDER/flood.
FOLDER/done ends the job; FOLDER/leave makes all leave once.
"""
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

folder = Path(sys.argv[1])
rank, world = int(os.environ["ADAPTDL_REPLICA_RANK"]), int(os.environ["ADAPTDL_NUM_REPLICAS"])
url, job, group = (os.environ[f"ADAPTDL_{name}"] for name in ("SUPERVISOR_URL", "JOB_ID", "NUM_RESTARTS"))
assert job.count("/") == 1 and os.environ["ADAPTDL_SCHED_VERSION"].startswith("0."), job
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))


def ask(path, body=None):
    request = urllib.request.Request(f"{url}/{path}", body and json.dumps(body).encode(),
                                     {"Content-Type": "application/json"}, method="PUT" if body else "GET")
    with urllib.request.urlopen(request, timeout=40) as reply:
        return reply.read().decode()


ask("healthz")
found = json.loads(ask(f"discover/{job}/{group}"))
assert len(found) == world and found[0] == os.environ["ADAPTDL_MASTER_ADDR"], found
try:
    ask(f"discover/{job}/{int(group) + 1}?timeout=0")
    raise SystemExit("a group that is not there was found")
except urllib.error.HTTPError as error:
    assert error.code == 408, error
print(f"group {group}: rank {rank} of {world}", flush=True)

told = None
while not (folder / "done").exists():
    if (folder / f"leave.{group}").exists():
        sys.exit(143)
    hints = folder / "hints.json"
    if rank == 0 and hints.exists() and hints.read_text() != told:
        told = hints.read_text()
        for size in range(100 if (folder / "flood").exists() else 0):
            ask(f"hints/{job}", {"initBatchSize": 128, "globalBatchSize": 1 + size})
        ask(f"hints/{job}", json.loads(told))
    time.sleep(0.05)
