"""A worker for tests of jobs that says what it is told to, and ends as it is told to.

usage: job_tool.py VERB [args]
  say N [PACE]   N numbered lines on stdout, the last one on stderr
  env NAME...    the values of variables, one a line
  mark [PACE]    one more file in $RUBATO_OUTPUT for this start, RANK.RANDOM; then a pause
  fail CODE      a traceback of the root cause when CODE is 1, else that exit code
  ignore         tells that it runs, then neither ends nor heeds SIGTERM
"""
import os
import signal
import sys
import time
import uuid


def mark():
    rank = os.environ["RANK"]
    path = f"{os.environ['RUBATO_OUTPUT']}/{rank}.{uuid.uuid4().hex}"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def fails():
    raise ValueError("the root cause")


def main():
    verb, *args = sys.argv[1:]
    rank = os.environ["RANK"]
    if verb == "say":
        for n in range(int(args[0])):
            last = n == int(args[0]) - 1
            print(f"rank {rank} line {n}", file=sys.stderr if last else sys.stdout, flush=True)
            time.sleep(float(args[1]) if len(args) > 1 else 0)
    elif verb == "env":
        for name in args:
            print(f"{name}={os.environ.get(name)}")
    elif verb == "mark":
        mark()
        time.sleep(float(args[0]) if args else 0)
    elif verb == "fail":
        if args[0] == "1":
            from torch.distributed.elastic.multiprocessing.errors import record
            record(fails)()
        sys.exit(int(args[0]))
    elif verb == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("runs", flush=True)
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
