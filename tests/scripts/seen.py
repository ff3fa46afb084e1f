"""A module's-eye view of how it was started, for comparing a warm start with a cold one.

usage: seen.py FOLDER      FOLDER/seen.RESTART.RANK is the view; then as steps.py
"""
import json
import multiprocessing
import os
import pickle
import random
import resource
import signal
import sys
import threading

import steps


class Here:
    """Pickle finds it again only if __main__ is really this file."""


def double(number):
    return 2 * number


def view():
    main = sys.modules["__main__"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # imports this file again, as __mp_main__
        spawned = pool.map(double, [21])
    return {
        "name": __name__,
        "main": [main.__dict__ is globals(), main.__file__, main.__doc__ == __doc__, main.__package__,
                 getattr(main.__spec__, "name", None)],
        "argv": sys.argv,
        "path": sys.path,
        "executable": sys.executable,
        "flags": list(sys.flags),
        "modules": sorted(name for name in sys.modules if "zygote" in name or "rubato" in name),
        "pickled": isinstance(pickle.loads(pickle.dumps(Here())), Here),
        "spawned": spawned,
        "signals": {number.name: str(signal.getsignal(number)).split(" at ")[0] for number in signal.Signals
                    if number not in (signal.SIGKILL, signal.SIGSTOP)},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
                   if name.startswith("RLIMIT_")},
        "cwd": os.getcwd(),
        "umask": os.umask(0o022),
        "leads_its_group": os.getpgid(0) == os.getpid(),
        "threads": threading.active_count(),
        "open_files": sorted(fd for fd in map(int, os.listdir("/proc/self/fd"))
                             if fd > 2 and os.path.exists(f"/proc/self/fd/{fd}")),
        "streams": [os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) for fd in range(3)],
        "unbuffered": sys.stdout.write_through,
        "env": {name: value for name, value in os.environ.items() if not name.startswith("RUBATO_") and name not in
                ("MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "ADAPTDL_MASTER_PORT",
                 "ADAPTDL_JOB_ID")},
    }


if __name__ == "__main__":
    name = f"seen.{os.environ['TORCHELASTIC_RESTART_COUNT']}.{os.environ['RANK']}"
    with open(f"{sys.argv[1]}/.{name}", "w") as out:
        json.dump({"view": view(), "random": random.random(), "json_was_there": "decimal" in sys.modules}, out)
    os.rename(f"{sys.argv[1]}/.{name}", f"{sys.argv[1]}/{name}")
    steps.main()
