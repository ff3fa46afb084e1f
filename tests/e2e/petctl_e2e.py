#!/usr/bin/env python3
"""`rubato petctl` and `rubato aws run-job`: Auto Scaling is tests/aws/fake_aws.py, its instances machines that run
their user data with the real binary."""
import json
import subprocess
import tarfile
import unittest

import aws_machines
import dockerd
import hosts as machines
from cluster_harness import ClusterCase
from harness import ROOT, RUBATO, wait_until

REGION = "eu-west-1"
IMAGE = "ami-0000000000000002"
TIMEOUT_S = 500
READING = ["s3:GetObject", "s3:ListBucket"]
WRITING = [*READING, "s3:PutObject", "autoscaling:DeleteAutoScalingGroup", "autoscaling:DescribeAutoScalingGroups"]

# Says who it is.
SCRIPT = """
import os, sys, time
env = os.environ
print("worker", env["RANK"], "of", env["WORLD_SIZE"], "job", env["JOB_ID"], sys.argv[1:], flush=True)
"""
# And stays until its machine has this file.
WAITING = SCRIPT + """
while not os.path.exists("/root/end"):
    time.sleep(0.1)
"""


class PetctlCase(ClusterCase):
    names = ("m1", "m2", "m3")

    def setUp(self):
        super().setUp()
        reason = machines.why_not()
        if reason:
            self.skipTest(reason)
        self.hosts = machines.Hosts(self.folder / "hosts", list(self.names), booted=False)
        images = {"/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id": IMAGE}
        self.cloud = aws_machines.AwsMachines(self.hosts, self.folder / "aws", {
            "region": REGION, "parameters": images, "boot_s": 0.1, "shutdown_s": 0.1})
        (self.folder / "main.py").write_text(SCRIPT)
        self.write_specs()

    def assert_nothing_left(self):
        if hasattr(self, "cloud"):
            self.cloud.close()
            self.hosts.close()
        super().assert_nothing_left()

    def environment(self, **changes):
        cloud = {"AWS_ENDPOINT_URL": self.cloud.url, "AWS_ACCESS_KEY_ID": "AKIAFAKE", "AWS_REGION": REGION,
                 "AWS_SECRET_ACCESS_KEY": "fake-secret", "AWS_EC2_METADATA_DISABLED": "true"} \
            if hasattr(self, "cloud") else {}
        return super().environment(**(cloud | changes))

    def give_role(self, name, actions):
        with self.cloud.world.lock:
            iam = self.cloud.world.services["iam"]
            iam.roles[name] = {"policy": json.dumps({"Statement": [{"Action": actions}]})}
            iam.profiles[name] = [name]
            self.group = next(iter(self.cloud.world.services["ec2"].groups))

    def write_specs(self, actions=WRITING, **worker):
        self.give_role("hosts", actions)
        text = json.loads((ROOT / "tests/data/petctl/specs.json").read_text())
        for section in text.values():
            section |= {"instance_type": "t3.micro", "accelerator": "none", "instance_role": "hosts",
                        "security_groups": [self.group]}
            del section["key_pair"]
        del text["worker"]["docker_image"], text["worker"]["efs_file_system_id"]
        text["worker"] |= worker
        (self.folder / "specs.json").write_text(json.dumps(text, indent=2))

    def run_job(self, *words, code=0, name="ann-job"):
        try:
            return self.rubato("petctl", "run_job", "--specs_file", "specs.json", "--name", name, *words, code=code,
                               timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as late:
            self.fail(f"{late}\n{late.stderr}\n{self.consoles()}")

    def requests(self, operation):
        with self.cloud.world.lock:
            return [one["parameters"] for one in self.cloud.world.requests if one["operation"] == operation]

    def objects(self):
        with self.cloud.world.lock:
            return sorted(self.cloud.world.services["s3"].buckets["bucket"])

    def job_leftovers(self):
        return [one for one in self.cloud.leftovers() if one != "hosts"]

    def status(self, name="ann-job"):
        done = self.rubato("aws", "status", name, "--json", code=None)
        return json.loads(done.stdout) if done.returncode in (0, 1) and done.stdout else {"phase": "none", "hosts": []}

    def consoles(self):
        return {host.name: (host.folder / "console.log").read_text() for host in self.hosts
                if (host.folder / "console.log").exists()}


class Petctl(PetctlCase):
    def test_the_guides_job_runs_to_its_end_and_takes_everything_away(self):
        (self.folder / "imagenet").mkdir()
        (self.folder / "imagenet/main.py").write_text("from part import text\n" + SCRIPT)
        (self.folder / "imagenet/part.py").write_text("text = 'imported'\n")
        done = self.run_job("--size", 2, "imagenet", "main.py", "--", "--arch", "it's $HOME")
        self.assertIn("made the Auto Scaling group ann-job_rdzv with 1 x t3.micro", done.stderr)
        self.assertIn("made the Auto Scaling group ann-job_worker with 2 x t3.micro", done.stderr)
        self.assertIn("ann-job: succeeded", done.stderr, self.consoles())
        self.assertIn("removed: ", done.stderr)
        self.assertEqual(self.job_leftovers(), [])
        # Three machines: one only hosts the rendezvous. No secret was in user data, and no credentials of the person.
        self.assertEqual(self.cloud.made, 3)
        templates = json.dumps(self.requests("CreateLaunchTemplate"), default=str)
        for secret in ("fake-secret", "AKIAFAKE"):
            self.assertNotIn(secret, templates)
        logs = self.rubato("aws", "logs", "ann-job").stdout
        for rank in range(2):
            self.assertIn(f"worker {rank} of 2 job ann-job ['--arch', \"it's $HOME\"]", logs)
        self.assertEqual(self.status()["phase"], "succeeded")
        # The binary stays for the next job; script and key are gone.
        kept = self.objects()
        self.assertEqual(sum("/bin/" in one for one in kept), 1)
        self.assertEqual([one for one in kept if "imagenet" in one or one.endswith("/key")], [])
        again = self.rubato("petctl", "kill_job", "--name", "ann-job")
        self.assertIn("there is nothing of a job 'ann-job'", again.stderr)

    def test_a_role_that_may_only_read_is_told_what_it_lacks_and_still_works(self):
        self.write_specs(READING)
        # An archive as the original petctl has uploaded it.
        with tarfile.open(self.folder / "dir.tar.gz", "w:gz") as archive:
            (self.folder / "dir").mkdir()
            (self.folder / "dir/main.py").write_text(SCRIPT)
            archive.add(self.folder / "dir", arcname="", recursive=True)
        self.assertEqual(self.rubato("petctl", "upload", "dir.tar.gz", "s3://bucket/dir.tar.gz").stdout,
                         "s3://bucket/dir.tar.gz\n")
        done = self.run_job("--size", 1, "s3://bucket/dir.tar.gz", "main.py")
        self.assertIn("the hosts' role may read S3 and no more", done.stderr)
        self.assertIn('"arn:aws:s3:::bucket/petctl/ann/ann-job/rubato/*"', done.stderr)
        self.assertIn('"autoscaling:DeleteAutoScalingGroup"', done.stderr)
        self.assertIn("ann-job: succeeded", done.stderr, self.consoles())
        self.assertEqual(self.job_leftovers(), [])
        self.assertEqual([one for one in self.objects() if "/logs/" in one or "/status/" in one], [])


class Kept(PetctlCase):
    def test_killed_in_the_middle_and_repeated_makes_nothing_double(self):
        (self.folder / "main.py").write_text(WAITING)
        words = ["petctl", "--specs_file", "specs.json", "run_job", "--name", "ann-job", "--size", "2", "--detach",
                 "main.py"]
        # It is killed when the first group is there.
        victim = subprocess.Popen([RUBATO, *words], cwd=self.folder, env=self.environment(),
                                  stderr=subprocess.DEVNULL)
        wait_until(lambda: self.requests("CreateAutoScalingGroup"), lambda: "a group")
        victim.kill()
        victim.wait()
        done = self.rubato(*words)
        self.assertIn("Its groups are deleted when it has ended.", done.stderr)
        self.assertEqual(len(self.requests("CreateLaunchTemplate")), 2)
        wait_until(lambda: self.status()["phase"] == "running", lambda: f"{self.status()} {self.consoles()}")
        wait_until(lambda: sum(host["state"] == "running" for host in self.status()["hosts"]
                               if host["role"] == "worker") == 2, lambda: f"{self.status()} {self.consoles()}")
        self.assertEqual(self.cloud.made, 3)
        hosts = self.rubato("petctl", "list_hosts", "ann-job").stdout
        self.assertEqual(len(hosts.splitlines()), 4, hosts)
        # Another job of that name is in the way.
        other = self.run_job("--size", 1, "--detach", "main.py", code=1)
        self.assertIn("there is another job 'ann-job'", other.stderr)
        self.assertIn("was started for 2 to 2 hosts", self.rubato("aws", "resize", "ann-job", 3, code=2).stderr)
        killed = self.rubato("petctl", "kill_job", "ann-job")
        self.assertIn("Auto Scaling group ann-job_worker", killed.stderr)
        self.assertEqual(self.job_leftovers(), [])
        self.assertEqual([one for one in self.objects() if "/bin/" not in one and "/logs/" not in one], [])


class Native(PetctlCase):
    names = ("m1", "m2", "m3", "m4")

    def native(self, *words, code=0):
        return self.rubato("aws", "run-job", "--name", "lab", "--instance-type", "t3.micro", "--s3",
                           "s3://bucket/jobs", *words, code=code)

    def meeting_place(self):
        with self.cloud.world.lock:  # nobody replaces it meanwhile
            found = self.cloud.world.services["s3"].buckets["bucket"].get("jobs/lab/rubato/rdzv.json")
            if found is None:
                return {}
            with open(found.path) as file:
                return json.load(file)

    def of_three(self):
        """The machines that have had a worker in a group of three."""
        return {name for name, text in self.consoles().items() if " of 3 job" in text}

    def test_one_group_with_a_role_of_its_own_grows_and_survives_its_first_host(self):
        self.cloud.world.settings["profile_s"] = 2.0
        (self.folder / "main.py").write_text(WAITING)
        self.native("--size", 2, "--min-size", 1, "--max-size", 3, "--detach", "main.py")
        wait_until(lambda: self.status("lab")["phase"] == "running", lambda: f"{self.status('lab')} {self.consoles()}")
        self.rubato("aws", "resize", "lab", 3)
        wait_until(lambda: len(self.of_three()) == 3, lambda: f"three workers: {self.consoles()}")
        first = self.meeting_place()["instance"]
        before = self.of_three()
        self.cloud.lose(first)
        # Two of three go on; the host that replaces the lost one finds the agent that took over.
        wait_until(lambda: self.status("lab") and self.of_three() - before, lambda: f"a fourth: {self.consoles()}")
        self.assertNotEqual(self.meeting_place()["instance"], first)
        for host in self.hosts:
            if host._init is not None:
                host.run("touch /root/end")
        # No client waits: the last host deletes the group.
        wait_until(lambda: not self.cloud.instances(), lambda: f"the end: {self.consoles()}")
        self.assertEqual(self.status("lab")["phase"], "succeeded")
        self.assertIn("role rubato-job-lab-eu-west-1", self.rubato("aws", "kill-job", "lab").stderr)
        self.assertEqual(self.job_leftovers(), [])


class Containers(PetctlCase):
    names = ("m1",)

    def test_our_binary_is_the_entry_point_of_the_container(self):
        reason = dockerd.why_not()
        if reason:
            self.skipTest(reason)
        started = []

        def start_docker(host):
            started.append(dockerd.Dockerd.on(host))
            started[-1].__enter__()
        self.cloud.on_boot = start_docker
        self.addCleanup(lambda: [one.stop() for one in started])
        image = {"/aws/service/ecs/optimized-ami/amazon-linux-2023/recommended/image_id": IMAGE}
        self.cloud.world.settings["parameters"] |= image
        (self.folder / "train.sh").write_text(
            '#!/bin/bash\necho "$(cat /etc/image): $RANK of $WORLD_SIZE, $JOB_ID, $*"\n')
        done = self.rubato("aws", "run-job", "--name", "box", "--size", 1, "--instance-type", "t3.micro", "--s3",
                           "s3://bucket/jobs", "--docker-image", dockerd.IMAGE, "train.sh", "--", "a b",
                           timeout=TIMEOUT_S)
        self.assertIn("box: succeeded", done.stderr, self.consoles())
        self.assertIn("rubato-test: 0 of 1, box, a b", self.rubato("aws", "logs", "box").stdout)
        self.assertEqual(self.job_leftovers(), [])


class Bake(PetctlCase):
    names = ("m1",)

    def test_an_image_of_the_head_is_made_once(self):
        (self.folder / "cluster.yaml").write_text(f"cluster_name: lab\nprovider: {{type: aws, region: {REGION}}}\n")
        bake = ("aws", "bake", "cluster.yaml", "--name", "lab-ready")
        self.assertIn("no head of 'lab' runs", self.rubato(*bake, code=1).stderr)
        tags = [{"Key": "rubato-cluster", "Value": "lab"}, {"Key": "rubato-node", "Value": "head"}]
        with self.cloud.world.lock:
            self.cloud.world.services["ec2"].RunInstances({
                "InstanceType": "t3.micro", "ImageId": IMAGE, "MinCount": 1, "MaxCount": 1,
                "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]})
        wait_until(lambda: [one["state"] for one in self.cloud.instances().values()] == ["running"], lambda: "a head")
        image = self.rubato(*bake).stdout.strip()
        self.assertRegex(image, "^ami-")
        self.assertEqual(self.requests("CreateImage")[0]["NoReboot"], True)
        again = self.rubato(*bake)
        self.assertEqual((again.stdout.strip(), len(self.requests("CreateImage"))), (image, 1))
        # A server that cannot tag snapshots makes the image all the same.
        with self.cloud.world.lock:
            self.cloud.world.settings["habits"] = ["no snapshot tags"]
        other = self.rubato("aws", "bake", "cluster.yaml", "--name", "lab-other").stdout.strip()
        self.assertRegex(other, "^ami-")
        self.assertNotEqual(other, image)
        (self.folder / "cluster.yaml").write_text("provider: {type: local}\n")
        self.assertIn("cluster.yaml:1:11", self.rubato(*bake, code=2).stderr)


class WrongWords(PetctlCase):
    names = ("m1",)

    def test_what_cannot_be_is_said_before_anything_is_made(self):
        text = (self.folder / "specs.json").read_text()
        (self.folder / "specs.json").write_text(text.replace('"instance_role"', '"instance_rol"', 1))
        done = self.run_job("--size", 1, "main.py", code=2)
        self.assertIn("specs.json:", done.stderr)
        self.assertIn("instance_role", done.stderr)
        (self.folder / "specs.json").write_text(text)
        (self.folder / "old.py").write_text("import torchelastic.train_loop as elastic_train_loop\n")
        done = self.run_job("--size", 1, "old.py", code=2)
        self.assertIn("torchelastic 0.1", done.stderr)
        self.assertIn("docs/petctl.md", done.stderr)
        self.assertIn("there is no script", self.run_job("--size", 1, "nobody.py", code=2).stderr)
        self.assertIn("1 <= --min_size <= --size", self.run_job("--size", 2, "--max_size", 1, "main.py", code=2).stderr)
        self.write_specs(instance_type="c5.large")
        self.assertIn("no instance type 'c5.large'", self.run_job("--size", 1, "main.py", code=2).stderr)
        self.write_specs(instance_role="nobody")
        self.assertIn("there is no instance profile 'nobody'", self.run_job("--size", 1, "main.py", code=2).stderr)
        self.assertEqual(self.cloud.made, 0)
        self.write_specs()
        plan = self.run_job("--size", 1, "--dry-run", "main.py", "--", "; rm -rf /").stdout
        self.assertIn("exec bin/rubato aws-host order.json", plan)
        self.assertIn('"args":["; rm -rf /"]', plan)
        where = self.rubato("petctl", "upload", "main.py", "s3://bucket/scripts/").stdout
        self.assertEqual(where, "s3://bucket/scripts/main.py\n")
        self.assertIn("there is no job 'nobody'", self.rubato("aws", "status", "nobody", code=1).stderr)
        self.rubato("petctl", "kill_job", "ann-job")
        self.assertEqual(self.job_leftovers(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
