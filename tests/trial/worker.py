"""A worker of the trial: it writes down its own life, and ends as its kind says.

usage: worker.py FOLDER KIND NUMBER
  run S       S seconds, then 0
  fail S      S seconds, then 3
  retry S     fails twice in the life of its job, with 5 and 6; then 0
  endless S   until it is stopped; NUMBER means nothing
  stubborn S  the same, and it ignores SIGTERM
  steps N     N steps of 0.1 s; rank 0 saves each, the next generation goes on from there
  slow N      the same, and it takes 1.5 s to end on SIGTERM
  print N     N numbered lines as fast as they are taken

FOLDER/lives/JOB.jsonl      a line when a worker starts, is told to end (SIGTERM), ends by itself
FOLDER/ticks/JOB.GENERATION.RANK.PID    "monotonic-time count", rewritten all the time: when it was last alive
"""
import json
import os
import signal
import sys
import time

folder, kind, number = sys.argv[1], sys.argv[2], float(sys.argv[3])
env = os.environ
job, generation, rank = env["RUBATO_JOB_ID"], int(env["RUBATO_GENERATION"]), int(env["RANK"])
lives = f"{folder}/lives/{job}.jsonl"
ticks = os.open(f"{folder}/ticks/{job}.{generation}.{rank}.{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o644)


def note(what, **more):
    """One write in append mode: lines of several workers do not mix."""
    line = {"at": time.monotonic(), "what": what, "generation": generation, "rank": rank, "pid": os.getpid(),
            "node": env["RUBATO_NODE"], "world": int(env["WORLD_SIZE"])} | more
    fd = os.open(lives, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps(line) + "\n").encode())
    os.close(fd)


def tick(count=0):
    os.pwrite(ticks, b"%-40s" % f"{time.monotonic():.3f} {count}".encode(), 0)


def end(code, **more):
    tick(more.get("printed", 0))
    note("end", code=code, **more)
    os._exit(code)


def told_to_end(*_):
    note("term")
    if kind == "stubborn":
        return
    if kind == "slow":
        live(1.5)
    os._exit(0 if kind in ("steps", "slow") else 143)


def live(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tick()
        time.sleep(min(0.05, max(0.0, until - time.monotonic())))


def failures_so_far():
    with open(lives) as lines:
        return sum(1 for line in map(json.loads, lines) if line["what"] == "end" and line["code"] in (5, 6))


def train(steps):
    path = f"{folder}/lives/{job}.step"
    done = int(open(path).read()) if os.path.exists(path) else 0
    while done < steps:
        live(0.1)
        done += 1
        if rank == 0:
            with open(path + ".new", "w") as out:
                out.write(str(done))
            os.rename(path + ".new", path)


def print_lines(count):
    for n in range(count):
        os.write(1, b"%d.%d line %d %s\n" % (generation, rank, n, b"x" * 80))
        if n % 50 == 49:
            tick(n + 1)
    end(0, printed=count)


def main():
    signal.signal(signal.SIGTERM, told_to_end)
    tick()
    note("start")
    if kind == "run":
        live(number)
    elif kind == "fail":
        live(number)
        end(3)
    elif kind == "retry":
        before = failures_so_far()
        live(number)
        if rank == 0 and before < 2:
            end(5 + before)
        live(1 if before < 2 else 0)
    elif kind in ("endless", "stubborn"):
        live(86400)
    elif kind in ("steps", "slow"):
        train(int(number))
    elif kind == "print":
        print_lines(int(number))
    end(0)


main()
