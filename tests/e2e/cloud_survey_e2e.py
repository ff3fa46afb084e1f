#!/usr/bin/env python3
"""`rubato audit` and `rubato doctor` of files of clusters in a cloud: the stand-ins are processes, without machines."""
import json
import subprocess

import harness
from cloud_client_testing import CloudClientCase

AWS_FILE = """cluster_name: lab
provider: {type: aws, region: eu-west-1, ssh_from: 203.0.113.0/24}
available_node_types:
  head: {node_config: {InstanceType: m5.large, ImageId: ami-0000000000000002}, max_workers: 0}
head_node_type: head
"""
GCP_FILE = """cluster_name: lab
provider: {type: gcp, project_id: fake-project, region: us-west1, ssh_from: 203.0.113.0/24}
available_node_types:
  head: {node_config: {machineType: n1-standard-2}, max_workers: 0}
head_node_type: head
"""


class Survey(CloudClientCase):
    file = ""

    def setUp(self):
        super().setUp()
        (self.folder / "cluster.yaml").write_text(self.file)

    def machines(self):
        """Whether the head's machine was asked for."""
        raise NotImplementedError

    def lose_machines(self):
        raise NotImplementedError

    def break_off_up(self):
        """`up` that is killed when it has made the head's machine, which has no sshd to wait for."""
        up = subprocess.Popen([harness.RUBATO, "up", "-y", "cluster.yaml"], env=self.env, cwd=self.folder,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              preexec_fn=harness.die_with_parent)
        try:
            harness.wait_until(lambda: self.machines() or up.poll() is not None, "the head's machine")
        finally:
            up.kill()
            up.wait()

    def kinds(self, told, in_use):
        return sorted(one["kind"] for one in told["resources"] if one["in_use"] == in_use)

    def check_life(self, tool):
        self.assertIn("nothing is left over\n", self.rubato("audit", "cluster.yaml").stdout)
        self.break_off_up()
        told = json.loads(self.rubato("audit", "cluster.yaml", "--json").stdout)
        self.assertEqual((told["left_over"], told["not_listed"]), (0, []))
        self.assertIn("instance", self.kinds(told, True))
        self.lose_machines()
        done = self.rubato("audit", "cluster.yaml", code=1)
        self.assertIn("  remove  rubato down cluster.yaml\n", done.stdout)
        told = json.loads(self.rubato("audit", "cluster.yaml", "--json", code=1).stdout)
        self.assertGreaterEqual(told["left_over"], 3)
        for one in told["resources"]:
            self.assertTrue(one["remove"].startswith(tool), one)
        self.rubato("down", "-y", "cluster.yaml")
        self.assertIn("nothing is left over\n", self.rubato("audit", "cluster.yaml").stdout)


class AwsSurvey(Survey):
    stand_in, file = "aws/fake_aws.py", AWS_FILE

    def environment_for(self, told):
        return {"AWS_ENDPOINT_URL": told["url"], "AWS_ACCESS_KEY_ID": "AKIAFAKE", "USER": "tester",
                "AWS_SECRET_ACCESS_KEY": "fake-secret", "AWS_EC2_METADATA_DISABLED": "true",
                "XDG_STATE_HOME": str(self.folder / "state")}

    def machines(self):
        return "RunInstances" in self.asked()

    def lose_machines(self):
        told = json.loads(self.rubato("audit", "cluster.yaml", "--json").stdout)
        ids = [one["name"] for one in told["resources"] if one["kind"] == "instance"]
        self.run_it("/usr/bin/aws", "--endpoint-url", self.url, "--region", "eu-west-1", "ec2", "terminate-instances",
                    "--instance-ids", *ids)

    def test_audit_finds_what_aws_still_has_and_down_removes_it(self):
        self.check_life("aws ")

    def test_doctor_says_what_an_account_lacks_and_changes_nothing(self):
        done = self.rubato("doctor", "cluster.yaml")
        self.assertIn("arn:aws:iam::123456789012:user/tester", done.stdout)
        self.assertNotIn("fake-secret", done.stdout + done.stderr)
        self.control("set", {"refuse": {"RunInstances": ["UnauthorizedOperation", 403]}})
        done = self.rubato("doctor", "cluster.yaml", code=1)
        self.assertIn("missing: ec2:RunInstances", done.stdout)
        self.assertIn('"Action": ["ec2:RunInstances"]', done.stdout)
        told = json.loads(self.rubato("doctor", "cluster.yaml", "--json", code=1).stdout)
        self.assertFalse(told["ok"])
        self.control("set", {"refuse": {}})
        self.assertIn("nothing is left over\n", self.rubato("audit", "cluster.yaml").stdout)


class GcpSurvey(Survey):
    stand_in, file = "gcp/fake_gcp.py", GCP_FILE

    def environment_for(self, told):
        return {"RUBATO_GCP_ENDPOINT": told["url"], "XDG_STATE_HOME": str(self.folder / "state"), "USER": "tester",
                "GCE_METADATA_HOST": "127.0.0.1:9",
                "GOOGLE_APPLICATION_CREDENTIALS": told["credentials"]["service_account"]}

    def machines(self):
        return self.control("instances")

    def lose_machines(self):
        for one in self.control("instances"):
            self.control("end", {"instance": one})
        harness.wait_until(lambda: not self.control("instances"), "the end of the machines")

    def test_audit_finds_what_google_still_has_and_down_removes_it(self):
        self.check_life("gcloud ")

    def test_doctor_says_what_a_project_lacks_and_changes_nothing(self):
        self.assertIn("fake-project, where you may do all that up needs", self.rubato("doctor", "cluster.yaml").stdout)
        self.control("set", {"deny": {"*": ["compute.firewalls.create"]}})
        self.assertIn("compute.firewalls.create", self.rubato("doctor", "cluster.yaml", code=1).stdout)
        self.control("set", {"deny": {}})
        self.assertIn("nothing is left over\n", self.rubato("audit", "cluster.yaml").stdout)


if __name__ == "__main__":
    harness.main()
