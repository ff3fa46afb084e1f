"""A worker as AdaptDL's: it meets its group at the master by the ADAPTDL_ variables, and leaves with 143 at SIGTERM.

usage: adaptdl_worker.py
Appends a line to /out/workers.jsonl when it has met the master; ends when /out/finish is there. Where there is a
supervisor, it asks that for its master, and reports hints to it, as AdaptDL's do (hints.py stands beside it then).
"""
import json
import os
import signal
import socket
import sys
import time

env = os.environ
rank, world = int(env["ADAPTDL_REPLICA_RANK"]), int(env["ADAPTDL_NUM_REPLICAS"])
master = env["ADAPTDL_MASTER_ADDR"], int(env["ADAPTDL_MASTER_PORT"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
supervised = "ADAPTDL_SUPERVISOR_URL" in env
if supervised:
    import hints
    answer = None
    while answer is None:
        answer = hints.supervisor("GET", f"discover/{env['ADAPTDL_JOB_ID']}/{env['ADAPTDL_NUM_RESTARTS']}")
    assert len(json.loads(answer)) == world, answer
    master = json.loads(answer)[0], master[1]

if rank == 0:
    server = socket.create_server(("", master[1]))
    met = [server.accept()[0] for _ in range(world - 1)]
else:
    while True:
        try:
            connection = socket.create_connection(master, 5)
            break
        except OSError:
            time.sleep(0.05)

line = {"rank": rank, "world": world, "restarts": int(env["ADAPTDL_NUM_RESTARTS"]), "job": env["ADAPTDL_JOB_ID"]}
fd = os.open("/out/workers.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(fd, (json.dumps(line) + "\n").encode())
os.close(fd)
if supervised and rank == 0:
    hints.report()  # not before: the answer to it may be SIGTERM
while not os.path.exists("/out/finish"):
    time.sleep(0.02)
