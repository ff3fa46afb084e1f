"""Ends in a chosen way: fine, code, text, raise, signal, hard, thread, interrupt. Cold and warm must look the same.

usage: ends.py FOLDER HOW     on the first start it waits for orders, as steps.py
"""
import atexit
import os
import signal
import sys
import threading
import time

import steps


def end(how):
    atexit.register(print, "atexit ran")
    print("half a line", end="")
    if how == "code":
        sys.exit(3)
    if how == "text":
        sys.exit("last words")
    if how == "raise":
        raise RuntimeError("on purpose")
    if how == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    if how == "hard":
        os._exit(5)
    if how == "thread":
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread ran"))).start()
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)


if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    steps.main()
end(sys.argv[2])
