#!/usr/bin/env python3
"""Signatures a second, and files to and from a stand-in for S3 on loopback: `rubato cp` beside `aws s3 cp`.

    bench/aws.py [--mb 512] [--rounds 3]

The server (tests/aws/fake_aws.py) hashes all that comes, as S3 does; the best of the rounds counts for each.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUBATO = os.environ.get("RUBATO", str(ROOT / "build/rubato"))
SIGN = ROOT / "build/release/bench_sign"


def timed(command, env, folder):
    begin = time.monotonic()
    process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{command} failed")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if SIGN.exists():
        subprocess.run([SIGN], check=True)
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(["/usr/bin/python3", str(ROOT / "tests/aws/fake_aws.py")], stdout=subprocess.PIPE,
                                  text=True)
        url = json.loads(server.stdout.readline())["url"]
        env = {"PATH": os.environ["PATH"], "HOME": folder, "AWS_DEFAULT_REGION": "eu-west-1", "AWS_ENDPOINT_URL": url,
               "AWS_ACCESS_KEY_ID": "AKIAFAKE", "AWS_SECRET_ACCESS_KEY": "fake-secret"}
        with open(f"{folder}/file", "wb") as file:
            for _ in range(options.mb):
                file.write(os.urandom(1_000_000))
        programs = {"rubato cp": [RUBATO, "cp"], "aws s3 cp": ["/usr/bin/aws", "--endpoint-url", url, "s3", "cp"]}
        try:
            for name, words in programs.items():
                for what, args in (("up", ["file", "s3://bucket/x"]), ("down", ["s3://bucket/x", "back"])):
                    rounds = [timed(words + args, env, folder) for _ in range(options.rounds)]
                    print(f"{name:<10} {what:<4} {options.mb / min(s for s, _ in rounds):6.0f} MB/s, "
                          f"at most {max(m for _, m in rounds):.0f} MB of memory")
        finally:
            server.kill()


if __name__ == "__main__":
    main()
