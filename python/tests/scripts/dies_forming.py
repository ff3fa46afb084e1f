"""count.py, but for a worker whose name is in $DIES: it dies while its first group is formed, known to the others.

    dies_forming.py (arguments of count.py)
"""
import os
import runpy
import signal

from rubato import group

if os.environ["RUBATO_WORKER_ID"] in os.environ.get("DIES", "").split():
    group._Store.wait = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # its address is in the store by now
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "count.py"), run_name="__main__")
