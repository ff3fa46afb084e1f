#!/usr/bin/env python3
"""`rubato submit` of what lies in S3 (tests/aws/fake_aws.py)."""
import json
import subprocess
import tarfile

import cluster_harness
import harness
from cluster_harness import ClusterCase
from harness import PYTHON, ROOT

SAY = "import sys\nprint('said', *sys.argv[1:])\n"


class BucketJobs(ClusterCase):
    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen([PYTHON, str(ROOT / "tests/aws/fake_aws.py")], stdout=subprocess.PIPE, text=True,
                                       preexec_fn=harness.die_with_parent)
        self.addCleanup(self.end_server)
        self.told = json.loads(self.server.stdout.readline())

    def end_server(self):
        self.server.terminate()
        self.server.wait()
        self.server.stdout.close()

    def environment(self, **changes):
        aws = {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": self.told["url"], "AWS_ACCESS_KEY_ID": "AKIAFAKE",
               "AWS_SECRET_ACCESS_KEY": "fake-secret"} if hasattr(self, "told") else {}
        return super().environment(**(aws | changes))

    def test_a_script_a_folder_and_a_package(self):
        self.script(SAY, "say.py")
        self.script("import part\nprint('said', part.NAME)\n", "main.py", "project")
        self.script("NAME = 'part'\n", "part.py", "project/sub/..")
        with tarfile.open(self.folder / "code.tar.gz", "w:gz") as archive:
            archive.add(self.folder / "project", ".")
        self.rubato("cp", "work/say.py", "s3://bucket/jobs/say.py")
        self.rubato("cp", "-r", "project", "s3://bucket/project/")
        self.rubato("cp", "code.tar.gz", "s3://bucket/code.tar.gz")
        self.up()
        done = self.rubato("submit", "--follow", "s3://bucket/jobs/say.py", "--loud", "s3://bucket/data")
        self.assertIn("said --loud s3://bucket/data", done.stdout)  # arguments are the script's
        self.assertIn("from s3://bucket/jobs/say.py", done.stderr)
        self.assertIn("said part", self.rubato("submit", "--follow", "s3://bucket/project/", "main.py").stdout)
        self.assertIn("said part", self.rubato("submit", "--follow", "s3://bucket/code.tar.gz", "main.py").stdout)
        self.assertEqual([job["name"] for job in self.json("jobs", "--all")["jobs"]].count("say"), 1)
        missing = self.rubato("submit", "s3://bucket/none.py", code=1)
        self.assertIn("there is no s3://bucket/none.py", missing.stderr)
        self.assertIn("nothing begins with s3://bucket/none/", self.rubato("submit", "s3://bucket/none/", "x.py", code=1)
                      .stderr)
        self.rubato("submit", "s3://bucket/jobs/..", code=2)


if __name__ == "__main__":
    cluster_harness.main()
