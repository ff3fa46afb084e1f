"""A worker that does what AdaptDL's trainer does: asks its supervisor who is there, meets the others at the master's
port, tells hints, saves and leaves with 143 when it is told to, and goes on from the newest checkpoint.

usage: supervised.py FOLDER
FOLDER/hints.json, once it is there, is told by rank 0, a hundred others before it if there is FOLDER/flood.
FOLDER/done ends the job; FOLDER/leave makes all leave once.
"""
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

folder = Path(sys.argv[1])
rank, world = int(os.environ["ADAPTDL_REPLICA_RANK"]), int(os.environ["ADAPTDL_NUM_REPLICAS"])
url, job, group = (os.environ[f"ADAPTDL_{name}"] for name in ("SUPERVISOR_URL", "JOB_ID", "NUM_RESTARTS"))
checkpoints = Path(os.environ["ADAPTDL_CHECKPOINT_PATH"])
assert job.count("/") == 1 and os.environ["ADAPTDL_SCHED_VERSION"].startswith("0."), job
assert 1 <= int(os.environ["ADAPTDL_NUM_NODES"]) <= world and os.path.isdir(os.environ["ADAPTDL_SHARE_PATH"])


def save_and_leave(*_):
    """A folder of the name that the group's number gives: one that is there already would be an error."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once
    if rank == 0:
        (checkpoints / "_checkpoint").mkdir(exist_ok=True)
        (checkpoints / "_checkpoint/groups").write_text(json.dumps(groups + [int(group)]))
        os.rename(checkpoints / "_checkpoint", checkpoints / f"checkpoint-{group}")
    sys.exit(143)


def load():
    """The groups that have saved so far."""
    saved = [int(name.rpartition("-")[2]) for name in os.listdir(checkpoints) if name.startswith("checkpoint-")]
    if not saved:
        return []
    assert max(saved) < int(group), (saved, group)
    return json.loads((checkpoints / f"checkpoint-{max(saved)}/groups").read_text())


def ask(path, body=None):
    request = urllib.request.Request(f"{url}/{path}", body and json.dumps(body).encode(),
                                     {"Content-Type": "application/json"}, method="PUT" if body else "GET")
    with urllib.request.urlopen(request, timeout=40) as reply:
        return reply.read().decode()


def meet(address, port):
    """As AdaptDL's reducer: rank 0 serves at the master's port on all addresses, and all of them connect."""
    if rank == 0:
        server = socket.socket()
        server.bind(("0.0.0.0", port))  # not with SO_REUSEADDR: the port must be this group's alone
        server.listen(world)
    while True:
        client = socket.socket()
        try:
            client.connect((address, port))
            break
        except ConnectionRefusedError:
            client.close()
            time.sleep(0.05)
    if rank == 0:
        members = [server.accept()[0] for _ in range(world)]
        for member in members:
            member.sendall(b"!")
    assert client.recv(1) == b"!"


ask("healthz")
found = json.loads(ask(f"discover/{job}/{group}"))
assert len(found) == world and found[0] == os.environ["ADAPTDL_MASTER_ADDR"], found
try:
    ask(f"discover/{job}/{int(group) + 1}?timeout=0")
    raise SystemExit("a group that is not there was found")
except urllib.error.HTTPError as error:
    assert error.code == 408, error
meet(found[0], int(os.environ["ADAPTDL_MASTER_PORT"]))
groups = load()
signal.signal(signal.SIGTERM, save_and_leave)
print(f"group {group}: rank {rank} of {world}, after {groups}", flush=True)

told = None
while not (folder / "done").exists():
    if (folder / f"leave.{group}").exists():
        save_and_leave()
    hints = folder / "hints.json"
    if rank == 0 and hints.exists() and hints.read_text() != told:
        told = hints.read_text()
        for size in range(100 if (folder / "flood").exists() else 0):
            ask(f"hints/{job}", {"initBatchSize": 128, "globalBatchSize": 1 + size})
        ask(f"hints/{job}", json.loads(told))
    time.sleep(0.05)
