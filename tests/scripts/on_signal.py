"""A worker that reacts to SIGTERM and SIGINT in a chosen way.

usage: on_signal.py FOLDER save|ignore [SECONDS]
  save    takes SECONDS (0.5) to write FOLDER/saved.RANK, then exits with 0
  ignore  goes on
FOLDER/ready.RANK tells that the handlers are there.
"""
import os
import signal
import sys
import time
from pathlib import Path

folder, how, rank = Path(sys.argv[1]), sys.argv[2], os.environ["RANK"]
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.5


def save(number, frame):
    time.sleep(seconds)
    (folder / f"saved.{rank}").write_text(signal.Signals(number).name)
    sys.exit(0)


for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, save if how == "save" else signal.SIG_IGN)
(folder / f"ready.{rank}").touch()
time.sleep(600)
