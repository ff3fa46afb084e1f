#!/usr/bin/env python3
"""`rubato up` with `provider: {type: aws}`: EC2 is tests/aws/fake_aws.py, its instances machines with a real sshd."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import aws_machines
from cloud_testing import CloudCase
from harness import ROOT, RUBATO, wait_until
from terminal import Terminal

REGION = "eu-west-1"
IMAGE = "ami-0000000000000002"


class Ec2Case(CloudCase):
    def make_cloud(self):
        return aws_machines.AwsMachines(self.hosts, self.folder / "aws", {"region": REGION} | self.settings)

    def living(self):
        return {name: dict(one, labels=one["tags"]) for name, one in self.cloud.instances().items()
                if one["state"] in ("pending", "running")}

    def environment(self, **changes):
        cloud = {"AWS_ENDPOINT_URL": self.cloud.url, "AWS_ACCESS_KEY_ID": "AKIAFAKE",
                 "AWS_SECRET_ACCESS_KEY": "fake-secret", "AWS_EC2_METADATA_DISABLED": "true"} \
            if hasattr(self, "cloud") else {}
        return super().environment(**(cloud | changes))

    def write_file(self, provider=f"region: {REGION}, ssh_from: 203.0.113.0/24", least=1, most=2, more="",
                   config=f"InstanceType: m5.large, ImageId: {IMAGE}", worker=""):
        (self.folder / "cluster.yaml").write_text(
            f"cluster_name: lab\nprovider: {{type: aws, {provider}}}\nauth: {{ssh_user: root}}\nmax_workers: {most}\n"
            f"idle_timeout_minutes: 0.05\navailable_node_types:\n"
            f"  head: {{node_config: {{{config}}}, resources: {{CPU: 1}}, max_workers: 0}}\n"
            f"  worker: {{node_config: {{{config}{worker}}}, min_workers: {least}, max_workers: {most}, "
            f"resources: {{CPU: 2}}}}\nhead_node_type: head\n{more}")


class AwsCluster(Ec2Case):
    def test_up_makes_a_cluster_that_scales_and_down_leaves_nothing(self):
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        head, worker = self.of_node("head"), self.of_node("worker-1")
        self.assertEqual(head[1]["tags"]["ray-node-type"], "head")
        tags = worker[1]["tags"]
        self.assertEqual((tags["ray-cluster-name"], tags["ray-node-type"], tags["ray-user-node-type"], tags["Name"]),
                         ("lab", "worker", "worker", "ray-lab-worker"))
        self.wait_for_status("worker-1", "ray-node-status", "up-to-date")
        again = self.rubato("up", "-y", "cluster.yaml")
        self.assertEqual((again.stderr, self.cloud.made), ("nothing to change: 'lab' is up with 2 nodes\n", 2))
        # The head manages its workers with its role; the person's credentials are on no machine.
        made_by = {caller for operation, caller in self.cloud.world.callers if operation == "RunInstances"}
        self.assertEqual({self.cloud.world.arn_of(key).rpartition("/")[0] for key in made_by},
                         {"arn:aws:iam::123456789012:user",
                          f"arn:aws:sts::123456789012:assumed-role/rubato-lab-head-{REGION}"})
        self.assert_not_on_machines("fake-secret", "AKIAFAKE")
        # More work than one worker holds: another machine; it goes when nobody needs it.
        job = self.submit_steps("--workers", "2", "--cpus", "2")
        self.wait_for_workers_of(job, 2)
        second = self.of_node("worker-2")
        self.assertEqual(second[1]["state"], "running")
        self.rubato("stop", job)
        wait_until(lambda: not self.of_node("worker-2") or not self.of_node("worker-1"),
                   lambda: f"the end of a worker of {self.cloud.instances()}")
        # It is stopped, and started for the next one.
        wait_until(lambda: any(one["state"] == "stopped" for one in self.cloud.instances().values()),
                   lambda: f"a stopped machine, have {self.cloud.instances()}")
        self.wait_for_workers_of(self.submit_steps("--workers", "2", "--cpus", "2"), 2)
        self.assertEqual(self.cloud.made, 3)
        done = self.rubato("down", "-y", "cluster.yaml")
        self.assertIn("3 machines ended", done.stderr)
        self.assertIn("removed: security group rubato-lab, key pair rubato-lab-", done.stderr)
        self.assertEqual(self.cloud.leftovers(), [])
        self.assertIn("is not running", self.rubato("down", "-y", "cluster.yaml").stderr)

    def test_no_capacity_in_one_zone_is_the_next_ones_turn(self):
        self.cloud.world.settings["stock"] = {f"m5.large/{REGION}a": 1}
        self.write_file(f"region: {REGION}, availability_zone: '{REGION}a,{REGION}b', ssh_from: 203.0.113.0/24")
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        zones = sorted(one["zone"] for one in self.cloud.instances().values())
        self.assertEqual(zones, [f"{REGION}a", f"{REGION}b"])
        # The head is gone for good: the cloud still knows what there was.
        self.cloud.lose(self.of_node("head")[0])
        done = self.rubato("down", "-y", "cluster.yaml")
        self.assertIn("its machines were ended by aws", done.stderr)
        self.assertEqual(self.cloud.leftovers(), [])

    def test_a_job_leaves_a_spot_machine_before_it_is_taken(self):
        self.write_file(worker=", InstanceMarketOptions: {MarketType: spot}")
        self.rubato("up", "-y", "cluster.yaml")
        job = self.submit_steps("--workers", "1", "--cpus", "2", where="/root")
        self.wait_for_workers_of(job, 1)
        spot = self.of_node("worker-1")
        self.assertTrue(spot[1]["spot"])
        self.cloud.reclaim(spot[0], 600)
        moved = wait_until(lambda: self.job(job).get("moved"), lambda: self.rubato("events").stdout)
        self.assertIn("spot notice", moved)
        self.wait_for_workers_of(job, 1)
        # It trains on another machine while the first one is still there, or has been ended by us.
        self.assertTrue(self.of_node("worker-2"))
        if self.of_node("worker-1"):
            self.cloud.lose(spot[0])
        self.rubato("stop", job)
        self.rubato("down", "-y", "cluster.yaml")
        self.assertEqual(self.cloud.leftovers(), [])

    def test_what_the_file_lacks_is_asked_for_before_anything_is_made(self):
        self.write_file(f"region: {REGION}, use_internal_ips: true")
        done = self.rubato("up", "-y", "cluster.yaml", code=2)
        self.assertIn("from which addresses do you reach the head?", done.stderr)
        self.assertIn("cluster.yaml:2:", done.stderr)
        self.write_file(config="InstanceTyp: m5.large")
        self.assertIn("did you mean InstanceType?", self.rubato("up", "-y", "cluster.yaml", code=2).stderr)
        self.write_file(config="InstanceType: m5.large, ImageId: 'ssm:/nobodys'")
        self.assertIn("no image is found by '/nobodys'", self.rubato("up", "-y", "cluster.yaml", code=2).stderr)
        self.assertEqual(self.cloud.made, 0)
        self.assertIn("removed: ", self.rubato("down", "-y", "cluster.yaml").stderr)
        self.assertEqual(self.cloud.leftovers(), [])


class TwoMachines(Ec2Case):
    names = ("m1", "m2")

    def test_a_lost_instance_is_replaced(self):
        self.rubato("up", "-y", "cluster.yaml")
        lost = self.of_node("worker-1")
        self.cloud.lose(lost[0])
        wait_until(lambda: self.of_node("worker-2"), lambda: f"another machine, have {self.cloud.instances()}")
        wait_until(lambda: "worker-2" in self.nodes(), lambda: f"worker-2 to be up, have {self.nodes()}")
        # It has the address of the lost one, and another host key.
        self.assertEqual(self.of_node("worker-2")[1]["host"], lost[1]["host"])
        head = self.of_node("head")[1]["host"]
        self.assertEqual(self.rubato("exec", "cluster.yaml", "hostname").stdout.strip(), head)
        self.rubato("down", "-y", "cluster.yaml")
        self.assertEqual(self.cloud.leftovers(), [])


    def test_a_file_system_is_made_and_mounted_on_every_machine(self):
        """NFS is played by a bind mount of one folder of the real machine, which all machines see."""
        shared = Path(tempfile.mkdtemp(prefix="rubato-efs-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, shared)
        tools = shared / "tools"
        tools.mkdir()
        (shared / "data").mkdir()
        (tools / "mount").write_text(f'#!/bin/sh\necho "$@" >>{shared}/asked\nfor last; do :; done\n'
                                     f'exec /usr/bin/mount --bind {shared}/data "$last"\n')
        (tools / "mount.nfs4").write_text("#!/bin/sh\nexit 1\n")
        for one in tools.iterdir():
            one.chmod(0o755)
        self.cloud.on_disk = lambda host: (host.home / ".bash_profile").write_text(f"PATH={tools}:$PATH\n")
        self.write_file(f"region: {REGION}, ssh_from: 203.0.113.0/24, efs: {{name: shared, mount: ~/efs}}")
        self.assertIn("the file system 'shared' (fs-", self.rubato("up", "-y", "cluster.yaml").stderr)
        self.rubato("exec", "cluster.yaml", "echo hello >~/efs/greeting")
        worker = self.hosts[self.of_node("worker-1")[1]["host"]]
        self.assertEqual(worker.run("cat /root/efs/greeting").strip(), "hello")
        asked = (shared / "asked").read_text().splitlines()
        self.assertEqual(len(asked), 2, asked)
        self.assertRegex(asked[0], r"^-t nfs4 -o nfsvers=4.1,\S+ 10\.0\.0\.\d+:/ /root/efs$")
        told = json.loads(self.rubato("audit", "cluster.yaml", "--json").stdout)
        self.assertIn("file system", [one["kind"] for one in told["resources"] if one["in_use"]])
        done = self.rubato("down", "-y", "cluster.yaml")
        self.assertIn("kept: file system 'shared' (fs-", done.stderr)
        self.assertEqual(self.cloud.leftovers(), [])
        self.assertIn("aws efs delete-file-system", self.rubato("audit", "cluster.yaml", code=1).stdout)

    def test_a_person_is_asked_before_money_is_spent(self):
        up = [RUBATO, "up", "cluster.yaml"]
        with Terminal(up, self.environment(), self.folder, columns=120) as screen:
            screen.expect(r"Proceed\? \[Y/n\]")
            screen.type("n\r")
            self.assertEqual(screen.end(), 1)
        self.assertEqual((self.cloud.made, self.cloud.leftovers()), (0, []))
        with Terminal(up, self.environment(), self.folder, columns=120) as screen:
            screen.expect(f"worker +aws/{REGION} +m5.large +- +no +0.096 +yes")
            screen.expect(r"Proceed\? \[Y/n\]")
            screen.type("\r")
            screen.expect("'lab' is up with 2 nodes")
            self.assertEqual(screen.end(), 0)
        self.rubato("down", "-y", "cluster.yaml")
        self.assertEqual(self.cloud.leftovers(), [])

    def test_workers_may_have_a_profile_of_the_persons_own(self):
        iam = self.cloud.world.services["iam"]
        iam.CreateRole({"RoleName": "data-readers"})
        iam.CreateInstanceProfile({"InstanceProfileName": "readers"})
        iam.AddRoleToInstanceProfile({"InstanceProfileName": "readers", "RoleName": "data-readers"})
        self.write_file(worker=", IamInstanceProfile: {Name: readers}")
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        made = self.cloud.world.services["ec2"].instances[self.of_node("worker-1")[0]]
        self.assertEqual(made["profile"], "readers")
        self.rubato("down", "-y", "cluster.yaml")
        self.assertEqual(self.cloud.leftovers(), ["data-readers", "readers"])


class RaysOwnFile(Ec2Case):
    cluster = "minimal"
    settings = {"region": "us-west-2", "profile_s": 2.0,
                "parameters": {"/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id":
                               IMAGE}}

    def test_a_file_of_rays_from_2019_works_as_it_is(self):
        text = (ROOT / "tests/data/ray-yaml/ray-0.6.6/aws/example-minimal.yaml").read_text()
        self.assertIn("ssh_user: ubuntu", text)
        (self.folder / "cluster.yaml").write_text(text.replace("ssh_user: ubuntu", "ssh_user: root"))
        where = {"AWS_ENDPOINT_URL_CHECKIP": f"{self.cloud.url}/_fake/checkip"}
        done = self.rubato("up", "-y", "cluster.yaml", "--min-workers", 1, env=where)
        self.assertIn("'minimal' is up with 2 nodes", done.stderr)
        self.assertEqual(sorted(one["spot"] for one in self.cloud.instances().values()), [False, True])
        group = next(one for one in self.cloud.world.services["ec2"].groups.values()
                     if one["GroupName"] == "rubato-minimal")
        ssh = [rule for rule in group["IpPermissions"] if rule.get("FromPort") == 22]
        self.assertEqual([each["CidrIp"] for each in ssh[0]["IpRanges"]], ["203.0.113.9/32"])
        self.assertEqual(self.cloud.world.notes, [], "nothing is open to the whole world")
        self.rubato("down", "-y", "cluster.yaml")
        self.assertEqual(self.cloud.leftovers(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
