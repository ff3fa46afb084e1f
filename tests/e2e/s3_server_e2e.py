#!/usr/bin/env python3
"""`rubato cp` against a server of S3 that others have written: npm's s3rver (it checks keys, not signatures).

It is fetched once, into RUBATO_TEST_CACHE or ~/.cache/rubato-tests; where it cannot be, these tests are skipped.
"""
import fcntl
import filecmp
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import harness
from cloud_client_testing import CloudClientCase

VERSION = "3.7.1"
KEY = "S3RVER"  # its own, and its secret
AWS = "/usr/bin/aws"
AGAIN_S = 1800  # after a fetch that failed


def install():
    """The program's path; None: it is not to be had. Who could not fetch it just now spares the others the wait, or a
    test would run out of its time behind them."""
    usual = Path.home() / ".cache/rubato-tests"
    folder = Path(os.environ.get("RUBATO_TEST_CACHE", usual)) / f"s3rver-{VERSION}-whole"
    program = "node_modules/.bin/s3rver"
    folder.parent.mkdir(parents=True, exist_ok=True)
    # These tests start together: one of them fetches, and what is half there has another name.
    with open(f"{folder}.lock", "w") as lock, tempfile.TemporaryDirectory(dir=folder.parent) as draft:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = Path(f"{folder}.missing")
        tried = missing.exists() and time.time() < missing.stat().st_mtime + AGAIN_S
        if not folder.exists() and shutil.which("npm") and not tried:
            if fetched(f"{draft}/s3rver", program):
                os.rename(f"{draft}/s3rver", folder)
            else:
                missing.touch()
    return folder / program if folder.exists() else None


def fetched(prefix, program):
    try:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", prefix,
                               f"s3rver@{VERSION}"], capture_output=True, timeout=300)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and Path(prefix, program).exists()


class S3Server(CloudClientCase):
    def setUp(self):
        harness.Case.setUp(self)
        program = install()
        if program is None:
            self.skipTest("npm's s3rver cannot be fetched")
        port = harness.free_port()
        self.log = open(self.folder / "s3rver.log", "wb")
        self.addCleanup(self.log.close)
        self.server = subprocess.Popen(
            [program, "--directory", self.folder / "data", "--address", "127.0.0.1", "--port", str(port),
             "--configure-bucket", "bucket"], stdout=self.log, stderr=self.log, preexec_fn=harness.die_with_parent)
        self.addCleanup(self.end_server)
        self.url = f"http://127.0.0.1:{port}"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "AWS_ENDPOINT_URL_S3": self.url,
                    "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": KEY,
                    "AWS_SECRET_ACCESS_KEY": KEY, "AWS_EC2_METADATA_DISABLED": "true", "AWS_PAGER": "",
                    "XDG_STATE_HOME": str(self.folder / "state")}
        harness.wait_until(lambda: self.is_up(port), lambda: (self.folder / "s3rver.log").read_text())

    @staticmethod
    def is_up(port):
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    def end_server(self):
        self.server.terminate()
        self.server.wait()

    def aws(self, *args, **more):
        return self.run_it(AWS, "--endpoint-url", self.url, *args, **more)

    def test_files_there_and_back(self):
        for name, size in (("empty", 0), ("small", 1000), ("large", 30_000_000), ("odd name + ä%20.bin", 12345)):
            path = self.make_file(name, size)
            self.rubato("cp", path, f"s3://bucket/dir/{name}")
            self.rubato("cp", f"s3://bucket/dir/{name}", self.folder / "back")
            self.assertTrue(filecmp.cmp(path, self.folder / "back", shallow=False), name)

    def test_folders_there_and_back(self):
        self.make_tree(["a", "b/c", "b/d e", "b/f/g+h"])
        self.rubato("cp", "-r", "tree", "s3://bucket/tree")
        self.rubato("cp", "-r", "s3://bucket/tree/", "again")
        self.assertEqual(sorted(str(each.relative_to(self.folder / "again")) for each in
                                (self.folder / "again").rglob("*") if each.is_file()),
                         ["a", "b/c", "b/d e", "b/f/g+h"])

    def test_a_wrong_key_is_told(self):
        path = self.make_file("file", 10)
        wrong = {"AWS_ACCESS_KEY_ID": "NOBODY"}
        self.assertIn("not known to AWS", self.rubato("cp", path, "s3://bucket/x", env=wrong, code=1).stderr)
        self.assertIn("NoSuchBucket", self.rubato("cp", path, "s3://nobodys-bucket/x", code=1).stderr)
        self.rubato("cp", "s3://bucket/nothing", "back", code=1)

    def test_no_region_is_needed(self):
        path = self.make_file("file", 10)
        self.rubato("cp", path, "s3://bucket/x", env={"AWS_REGION": "", "AWS_DEFAULT_REGION": ""})

    def test_the_real_aws_reads_what_we_wrote(self):
        if not os.path.exists(AWS):
            self.skipTest("no aws program")
        path = self.make_file("file", 20_000_000)
        self.rubato("cp", path, "s3://bucket/ours")
        self.aws("s3", "cp", "s3://bucket/ours", self.folder / "back")
        self.assertTrue(filecmp.cmp(path, self.folder / "back", shallow=False))
        self.aws("s3", "cp", path, "s3://bucket/theirs")
        self.rubato("cp", "s3://bucket/theirs", self.folder / "back")
        self.assertTrue(filecmp.cmp(path, self.folder / "back", shallow=False))


if __name__ == "__main__":
    harness.main()
