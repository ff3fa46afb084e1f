"""What bench/aws.py and bench/gcp.py share: clusters against stand-ins for a cloud on loopback.

    list     `rubato audit` of a cluster with many machines: start, credentials, every list, all of it
    cluster  `rubato up` of a head and workers whose machines boot in 5 s, and the calls a minute when it is idle;
             needs what tests/e2e/hosts.py needs (root, network namespaces)
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
RUBATO = os.environ.get("RUBATO", str(ROOT / "build/rubato"))
BOOT_S = 5


Run = collections.namedtuple("Run", ("seconds", "memory", "own"))


def timed(command, env, folder, code=0):
    """A Run: seconds by the clock and of its own, MB of memory at most."""
    begin = time.monotonic()
    process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != code:
        raise SystemExit(f"{command} failed")
    return Run(time.monotonic() - begin, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


class StandIn:
    """A server of tests/ as a process; `told` is what it prints when it listens, `env` what a person's shell has."""

    def __init__(self, script, folder, settings=None):
        self.process = subprocess.Popen(["/usr/bin/python3", str(ROOT / script), "--set", json.dumps(settings or {})],
                                        stdout=subprocess.PIPE, text=True)
        self.told = json.loads(self.process.stdout.readline())
        self.env = {"PATH": os.environ["PATH"], "HOME": folder, "USER": "bench"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def bench_list(cloud, options):
    with tempfile.TemporaryDirectory() as folder, cloud.stand_in(folder) as server:
        cloud.fill(server, options.machines)
        Path(folder, "cluster.yaml").write_text(cloud.file(options.machines))
        rounds = [timed([RUBATO, "audit", "cluster.yaml"], server.env, folder, code=1) for _ in range(options.rounds)]
        print(f"audit      {options.machines} machines: {min(each.seconds for each in rounds):.2f} s "
              f"({min(each.own for each in rounds):.2f} s of it rubato's own CPU time, the rest the stand-in's), "
              f"{max(each.memory for each in rounds):.0f} MB of memory; load {os.getloadavg()[0]:.0f}")


def bench_cluster(cloud, options):
    import hosts as machines
    reason = machines.why_not()
    if reason:
        return print(f"up         not measured: {reason}")
    names = [f"m{number}" for number in range(options.workers + 1)]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, \
            machines.Hosts(Path(folder, "hosts"), names, booted=False) as hosts, \
            cloud.machines(hosts, Path(folder, "cloud"), {"boot_s": BOOT_S}) as server:
        env = {"PATH": os.environ["PATH"], "HOME": folder, "XDG_STATE_HOME": f"{folder}/state", "USER": "bench"} \
            | cloud.environment(server)
        Path(folder, "cluster.yaml").write_text(cloud.file(options.workers))
        try:
            seconds = timed([RUBATO, "up", "-y", "cluster.yaml"], env, folder).seconds
            print(f"up         1+{options.workers}, machines boot in {BOOT_S} s (the head's, then the workers'): "
                  f"{seconds:.1f} s")
            time.sleep(10)
            before = len(server.world.requests)
            time.sleep(options.idle_s)
            calls = len(server.world.requests) - before
            print(f"idle       {calls * 60 / options.idle_s:.1f} calls a minute")
        finally:
            timed([RUBATO, "down", "-y", "cluster.yaml"], env, folder)


def main(description, cloud, more):
    """`more`: further benches, by their names."""
    benches = more | {"list": lambda options: bench_list(cloud, options),
                      "cluster": lambda options: bench_cluster(cloud, options)}
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("--only", default=",".join(benches))
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--machines", type=int, default=500)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--idle-s", type=int, default=120)
    options = parser.parse_args()
    for name in options.only.split(","):
        benches[name](options)
