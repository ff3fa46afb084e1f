#!/usr/bin/python3
"""Clusters over SSH: how long `up` takes on warm hosts, and what `exec` adds to plain ssh.

usage: bench/ssh.py [--quick] [--only up,exec,many] [--out FILE]
Hosts are network namespaces with an sshd each (tests/e2e/hosts.py; needs root). Prints Markdown tables on stdout
(progress on stderr) and writes all samples as JSON with --out.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import hosts as machines
from harness import RUBATO


class Lab:
    """A head and workers of their own; leaving the `with` block ends everything."""

    def __init__(self, workers):
        self.names = ["head"] + [f"w{i}" for i in range(1, workers + 1)]

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rubato-bench-ssh-", dir="/tmp"))
        self.hosts = machines.Hosts(self.folder / "hosts", self.names)
        self.env = os.environ | {"XDG_STATE_HOME": str(self.folder / "state"), "NO_COLOR": "1"}
        workers = ", ".join(host.address for host in self.hosts if host.name != "head")
        self.file = self.folder / "lab.yaml"
        self.file.write_text(
            f"cluster_name: lab\nprovider: {{type: local, head_ip: {self.hosts['head'].address}, "
            f"worker_ips: [{workers}]}}\nauth: {{ssh_user: root, ssh_private_key: {self.hosts.key}}}\n")
        return self

    def __exit__(self, *_):
        self.rubato("down", self.file, "-y", "--purge", check=False)
        self.hosts.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def rubato(self, *words, check=True):
        return subprocess.run([RUBATO, *map(str, words)], env=self.env, cwd=self.folder, check=check,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def timed(self, *words):
        begin = time.monotonic()
        self.rubato(*words)
        return time.monotonic() - begin

    def head_memory_mb(self):
        """The most that the head's process ever had."""
        head = self.hosts["head"]
        line = next(line for line in head.run("ps -eo pid=,args= -ww").splitlines() if " head --dir " in line)
        status = head.run(f"cat /proc/{line.split()[0]}/status")
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def say(words):
    print(words, file=sys.stderr, flush=True)


def row(name, samples, unit="ms"):
    scale, digits = (1000, 0) if unit == "ms" else (1, 2)
    values = sorted(sample * scale for sample in samples)
    cells = [f"{value:.{digits}f}" for value in (statistics.median(values), values[0], values[-1])]
    return f"| {name} | {cells[0]} {unit} | {cells[1]} | {cells[2]} | {len(values)} |"


def measure_up(quick):
    """The first `up` sends the binary and is not counted: the hosts are warm."""
    first, again = [], []
    with Lab(3) as lab:
        lab.rubato("up", lab.file, "-y")
        for i in range(2 if quick else 5):
            lab.rubato("down", lab.file, "-y")
            first.append(lab.timed("up", lab.file, "-y"))
            again += [lab.timed("up", lab.file, "-y") for _ in range(2 if quick else 4)]
            say(f"up {first[-1]:.2f} s, again {again[-1]:.2f} s")
    return {"up, 1 head + 3 workers": first, "up again, nothing to change": again}


def measure_exec(quick):
    """All over a control master that is there; turn and turn about, so that the machine's mood is the same. `exec` runs
    its command in the shell that a person has who logs in, as Ray does: the second one shows what that alone costs."""
    plain, shell, ours = [], [], []
    with Lab(0) as lab:
        lab.rubato("up", lab.file, "-y")
        lab.rubato("exec", lab.file, "true")
        control = lab.folder / "control"
        ssh = [*lab.hosts.ssh_command("head")[:-1], "-o", "ControlMaster=auto", "-o", f"ControlPath={control}", "-o",
               "ControlPersist=60", lab.hosts.ssh_command("head")[-1], "true"]
        login = [*ssh[:-1], "bash --login -i -c true 2>/dev/null"]
        subprocess.run(ssh, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(10 if quick else 60):
            for words, samples in ((ssh, plain), (login, shell)):
                begin = time.monotonic()
                subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
                samples.append(time.monotonic() - begin)
            ours.append(lab.timed("exec", lab.file, "true"))
        subprocess.run([*ssh[:-2], "-O", "exit", ssh[-2]], capture_output=True)
    return {"ssh host true": plain, "ssh host bash --login -i -c true": shell, "rubato exec true": ours}


def measure_many(quick):
    count = 10 if quick else 50
    with Lab(count - 1) as lab:
        took = lab.timed("up", lab.file, "-y")
        memory = lab.head_memory_mb()
    say(f"{count} hosts in {took:.1f} s, the head had {memory:.0f} MB")
    return {"hosts": count, "up_s": took, "head_mb": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="up,exec,many")
    parser.add_argument("--out", help="write the samples there as JSON")
    args = parser.parse_args()
    if machines.why_not():
        say(f"no benchmark over SSH: {machines.why_not()}")
        return
    wanted = args.only.split(",")
    results = {"load": os.getloadavg()[0]}
    print("| | median | least | most | samples |\n|---|---|---|---|---|")
    if "up" in wanted:
        results["up"] = measure_up(args.quick)
        for name, samples in results["up"].items():
            print(row(name, samples, "s"), flush=True)
    if "exec" in wanted:
        results["exec"] = measure_exec(args.quick)
        for name, samples in results["exec"].items():
            print(row(name, samples), flush=True)
        plain, shell, ours = (statistics.median(samples) for samples in results["exec"].values())
        print(f"\n`exec true` takes {ours / plain:.2f} times as long as plain ssh, {ours / shell:.2f} times as long as "
              "ssh with the same shell.\n")
    if "many" in wanted:
        many = results["many"] = measure_many(args.quick)
        print(f"\n{many['hosts']} hosts at once: up in {many['up_s']:.1f} s, the head's process "
              f"{many['head_mb']:.0f} MB at most.")
    if args.out:
        Path(args.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
