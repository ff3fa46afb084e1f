#!/usr/bin/env python3
"""`rubato aws …` and `rubato cp` against tests/aws/fake_aws.py, and that server against the real `aws` program."""
import filecmp
import json
import sys

import harness
from cloud_client_testing import CloudClientCase
from harness import PYTHON, ROOT

AWS = "/usr/bin/aws"  # Debian's awscli
MEMORY_MAX = 100 << 20


class AwsClient(CloudClientCase):
    stand_in = "aws/fake_aws.py"

    def environment_for(self, told):
        return {"AWS_REGION": "eu-west-1", "AWS_PAGER": "", "AWS_DEFAULT_REGION": "eu-west-1",
                "AWS_ENDPOINT_URL": told["url"], "AWS_ACCESS_KEY_ID": "AKIAFAKE",
                "AWS_SECRET_ACCESS_KEY": "fake-secret", "AWS_EC2_METADATA_SERVICE_ENDPOINT": told["imds"]}

    def aws(self, *args, **more):
        return self.run_it(AWS, "--endpoint-url", self.url, "--output", "json", *args, **more)

    # Who we are.

    def test_whoami_tells_where_credentials_come_from(self):
        told = json.loads(self.rubato("aws", "whoami", "--json").stdout)
        self.assertEqual(told["account"], "123456789012")
        self.assertEqual(told["arn"], "arn:aws:iam::123456789012:user/tester")
        self.assertEqual(told["credentials_from"], "AWS_ACCESS_KEY_ID")
        self.assertEqual((told["region"], told["region_from"]), ("eu-west-1", "AWS_REGION"))
        self.assertNotIn("fake-secret", json.dumps(told))
        plain = self.rubato("aws", "whoami").stdout
        self.assertIn("AKIAFAKE, from AWS_ACCESS_KEY_ID", plain)
        self.assertNotIn("fake-secret", plain)

    def test_a_profile_with_a_role(self):
        aws = self.home / ".aws"
        aws.mkdir()
        (aws / "credentials").write_text("[base]\naws_access_key_id = AKIAFAKE\naws_secret_access_key = fake-secret\n")
        (aws / "config").write_text("[profile trainer]\nrole_arn = arn:aws:iam::123456789012:role/trainer\n"
                                    "source_profile = base\nregion = us-east-2\nrole_session_name = me\n"
                                    "[profile denied]\nrole_arn = arn:aws:iam::123456789012:role/forbidden\n"
                                    "source_profile = base\n")
        unset = {"AWS_REGION": "", "AWS_DEFAULT_REGION": ""}
        told = json.loads(self.rubato("aws", "whoami", "--json", "--profile", "trainer", env=unset).stdout)
        self.assertEqual(told["arn"], "arn:aws:sts::123456789012:assumed-role/trainer/me")
        self.assertEqual(told["region"], "us-east-2")
        self.assertIn("expires", told)
        refused = self.rubato("aws", "whoami", "--profile", "denied", code=1)
        self.assertIn("AccessDenied", refused.stderr)
        self.assertIn('"Action": "sts:AssumeRole"', refused.stderr)
        self.assertIn("request id", refused.stderr)

    def test_errors_say_how_to_fix_them(self):
        wrong = self.rubato("aws", "whoami", code=1, env={"AWS_SECRET_ACCESS_KEY": "wrong"})
        self.assertIn("the secret key does not belong to this access key", wrong.stderr)
        nobody = self.rubato("aws", "whoami", code=1, env={"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""})
        self.assertIn("no AWS credentials were found", nobody.stderr)
        nowhere = self.rubato("aws", "whoami", code=1, env={"AWS_ENDPOINT_URL": "http://127.0.0.1:1",
                                                            "AWS_MAX_ATTEMPTS": "2"})
        self.assertIn("connection refused (tried 2 times)", nowhere.stderr)
        lost = self.rubato("aws", "whoami", code=2, env={"AWS_REGION": "", "AWS_DEFAULT_REGION": "",
                                                         "AWS_EC2_METADATA_DISABLED": "true"})
        self.assertIn("no AWS region is set", lost.stderr)

    def test_policy_names_only_operations_that_exist(self):
        sys.path[:0] = [str(ROOT / "tests/aws"), str(ROOT / "tests/clouds")]
        import protocols
        models = {prefix: protocols.Model(name).service.operation_names for prefix, name in (
            ("ec2", "ec2"), ("sts", "sts"), ("iam", "iam"), ("ssm", "ssm"), ("autoscaling", "autoscaling"),
            ("elasticfilesystem", "efs"), ("servicequotas", "service-quotas"))}
        not_operations = {"iam:PassRole"}
        for whom in ("user", "head", "workers", "jobs"):
            policy = json.loads(self.rubato("aws", "policy", "--for", whom, "--bucket", "data").stdout)
            for statement in policy["Statement"]:
                for action in statement["Action"]:
                    service, _, name = action.partition(":")
                    if service != "s3" and action not in not_operations:
                        self.assertIn(name, models[service], action)
                self.assertFalse(any("*" in action for action in statement["Action"]), "no wildcards")
        self.assertIn("arn:aws-cn:s3:::data", self.rubato("aws", "policy", "--for", "workers", "--bucket", "data",
                                                         "--region", "cn-north-1").stdout)
        self.assertIn("--bucket", self.rubato("aws", "policy", "--for", "workers", code=2).stderr)
        # A star would allow more than was asked for.
        for wrong in (("--bucket", "data*"), ("--bucket", 'a"b'), ("--cluster", "*"), ("--for", "nobody")):
            self.rubato("aws", "policy", *wrong, code=2)

    def test_node_config_has_the_names_of_the_model(self):
        self.run_it(PYTHON, ROOT / "tools/aws_shapes.py", "--check")

    # Files.

    def test_a_script_in_a_bucket_is_run(self):
        """As the images of torchelastic do it: `s3://…/main.py` in the place of the script."""
        (self.folder / "main.py").write_text(
            "import os, sys\nos.write(1, ' '.join(['rank', os.environ['RANK'], *sys.argv[1:], '\\n']).encode())\n")
        self.rubato("cp", "main.py", "s3://bucket/jobs/main.py")
        env = {"TMPDIR": str(self.folder), "PYTHON_EXEC": PYTHON}
        for words in (["s3://bucket/jobs/main.py"], ["--no-python", PYTHON, "-u", "s3://bucket/jobs/main.py"]):
            ran = self.rubato("run", "--nproc-per-node", "2", *words, "--epochs", "3", env=env)
            self.assertIn("rank 0 --epochs 3", ran.stdout)
            self.assertIn("rank 1 --epochs 3", ran.stdout)
            self.assertEqual(list(self.folder.glob("rubato-program-*")), [], "it goes with the run")
        absent = self.rubato("run", "s3://bucket/none.py", code=1, env=env)
        self.assertIn("there is no s3://bucket/none.py", absent.stderr)
        self.assertIn("names no file", self.rubato("run", "s3://bucket/jobs/", code=2, env=env).stderr)
        self.assertEqual(list(self.folder.glob("rubato-program-*")), [])

    def test_cp_there_and_back(self):
        source = self.make_file("model.pt", (20 << 20) + 17)
        up = self.rubato("cp", "model.pt", "s3://bucket/models/")
        self.assertIn("s3://bucket/models/model.pt", up.stderr)
        self.assertEqual(up.stdout, "")
        down = self.rubato("cp", "--json", "s3://bucket/models/model.pt", "back.pt")
        self.assertEqual(json.loads(down.stdout)[0]["checked_by"], "SHA-256")
        self.assertTrue(filecmp.cmp(source, self.folder / "back.pt", shallow=False))
        self.assertEqual(sorted(path.name for path in self.folder.glob("*rubato-part*")), [])
        asked = self.asked()
        self.assertEqual(asked.count("UploadPart"), 3)
        self.assertEqual(asked.count("GetObject"), 3)
        self.assertIn("there is no s3://bucket/none", self.rubato("cp", "s3://bucket/none", ".", code=1).stderr)
        self.assertIn("NoSuchBucket", self.rubato("cp", "model.pt", "s3://other/x", code=1).stderr)
        self.assertIn("neither is in", self.rubato("cp", "model.pt", "b", code=2).stderr)

    def test_cp_and_aws_s3_read_each_other(self):
        source = self.make_file("one", (12 << 20) + 1)
        self.rubato("cp", "one", "s3://bucket/ours")
        self.aws("s3", "cp", "s3://bucket/ours", "by-aws")
        self.assertTrue(filecmp.cmp(source, self.folder / "by-aws", shallow=False))
        self.aws("s3", "cp", "one", "s3://bucket/theirs")
        told = json.loads(self.rubato("cp", "--json", "s3://bucket/theirs", "by-rubato").stdout)
        self.assertEqual(told[0]["checked_by"], "MD5")
        self.assertTrue(filecmp.cmp(source, self.folder / "by-rubato", shallow=False))

    def test_a_bucket_in_another_region_is_reached(self):
        self.control("set", {"bucket_regions": {"far": "us-east-2"}})
        source = self.make_file("one", (12 << 20) + 1)
        self.rubato("cp", "one", "s3://far/ours")
        self.rubato("cp", "s3://far/ours", "back")
        self.assertTrue(filecmp.cmp(source, self.folder / "back", shallow=False))
        self.rubato("cp", "-r", "s3://far/", "all")
        self.assertTrue(filecmp.cmp(source, self.folder / "all/ours", shallow=False))
        self.aws("s3", "cp", "s3://far/ours", "by-aws")
        self.assertTrue(filecmp.cmp(source, self.folder / "by-aws", shallow=False))

    def test_cp_of_folders(self):
        self.make_tree(("a", "sub/b c", "sub/deep/ü"))
        self.control("set", {"page_max": 2})
        self.rubato("cp", "-r", "tree", "s3://bucket/tree/")
        self.rubato("cp", "-r", "s3://bucket/tree/", "copy")
        for name in ("a", "sub/b c", "sub/deep/ü"):
            self.assertEqual((self.folder / "copy" / name).read_text(), name)
        self.rubato("cp", "tree/a", "s3://bucket/evil/../../x")
        refused = self.rubato("cp", "-r", "s3://bucket/evil/", "copy/inner", code=1)
        self.assertIn("leads out of the folder", refused.stderr)
        self.assertFalse((self.folder / "x").exists())

    def test_cp_between_buckets(self):
        self.make_tree(("a", "sub/b c+%20", "sub/deep/ü"))
        self.rubato("cp", "-r", "tree", "s3://bucket/tree")
        self.rubato("cp", "tree/a", "s3://bucket/treetop")
        self.rubato("cp", "-r", "s3://bucket/tree", "s3://bucket/copies/of")
        self.rubato("cp", "-r", "s3://bucket/copies", "back")
        for name in ("a", "sub/b c+%20", "sub/deep/ü"):
            self.assertEqual((self.folder / "back/of" / name).read_text(), name)
        self.assertFalse((self.folder / "back/of/top").exists(), "a name that begins alike is another one")
        self.assertNotIn("GetObject", [each for each in self.asked()[:self.asked().index("CopyObject") + 1]])
        self.rubato("cp", "s3://bucket/tree/a", "s3://bucket/one/")
        self.assertEqual(self.aws("s3", "cp", "s3://bucket/one/a", "-").stdout, "a")
        onto = self.rubato("cp", "s3://bucket/tree/a", "s3://bucket/tree/", code=2)
        self.assertIn("copied onto itself", onto.stderr)
        self.assertIn("there is no s3://bucket/none", self.rubato("cp", "s3://bucket/none", "s3://bucket/x",
                                                                  code=1).stderr)
        self.assertIn("nothing begins with", self.rubato("cp", "-r", "s3://bucket/none", "s3://bucket/x",
                                                         code=1).stderr)

    def test_keys_that_cannot_be_files_are_told_before_anything_is_fetched(self):
        self.make_tree(("a",))
        for key in ("t/x", "t/x/y", "u/x", "u//x"):
            self.rubato("cp", "tree/a", f"s3://bucket/{key}")
        for folder in ("t", "u"):
            refused = self.rubato("cp", "-r", f"s3://bucket/{folder}", "copy", code=2)
            self.assertIn("cannot both be files", refused.stderr)
            self.assertFalse((self.folder / "copy").exists())

    def test_cp_outlives_a_bad_server(self):
        source = self.make_file("file", 12 << 20)
        self.control("set", {"fail": {"s3": 2}, "throttle": {"s3": 2}})
        self.rubato("cp", "file", "s3://bucket/file")
        self.control("set", {"drop": {"s3": 2}, "clock_offset_s": -1200})
        self.rubato("cp", "s3://bucket/file", "back")
        self.assertTrue(filecmp.cmp(source, self.folder / "back", shallow=False))
        (self.folder / "back").unlink()
        self.control("set", {"corrupt": 1})
        self.assertIn("is damaged", self.rubato("cp", "s3://bucket/file", "back", code=1).stderr)
        self.assertFalse((self.folder / "back").exists())

    def test_cp_needs_little_memory(self):
        self.make_file("large", 200 << 20)
        for args in (("large", "s3://bucket/large"), ("s3://bucket/large", "back")):
            self.assertLess(self.memory_of("cp", *args), MEMORY_MAX, args)

    # The stand-in, by AWS's own program.

    def test_the_stand_in_with_the_real_aws(self):
        run = ["ec2", "run-instances", "--image-id", "ami-0000000000000001", "--instance-type", "t3.micro",
               "--client-token", "t", "--tag-specifications", "ResourceType=instance,Tags=[{Key=k,Value=v}]"]
        first = json.loads(self.aws(*run).stdout)["Instances"][0]
        self.assertEqual(json.loads(self.aws(*run).stdout)["Instances"][0]["InstanceId"], first["InstanceId"])
        self.control("set", {"page_max": 1})
        self.aws("ec2", "run-instances", "--image-id", "ami-0000000000000001", "--instance-type", "t3.micro")
        listed = json.loads(self.aws("ec2", "describe-instances").stdout)["Reservations"]
        self.assertEqual(len(listed), 2, "aws reads all pages")
        self.aws("ec2", "terminate-instances", "--instance-ids", first["InstanceId"])
        harness.wait_until(lambda: json.loads(self.aws(
            "ec2", "describe-instances", "--instance-ids", first["InstanceId"]).stdout)["Reservations"][0]["Instances"]
            [0]["State"]["Name"] == "terminated", "the instance has ended")
        self.control("set", {"stock": {"t3.micro": 0}})
        refused = self.aws("ec2", "run-instances", "--image-id", "ami-0000000000000001", "--instance-type", "t3.micro",
                           code=254, env={"AWS_MAX_ATTEMPTS": "1"})
        self.assertIn("InsufficientInstanceCapacity", refused.stderr)
        self.assertIn("SignatureDoesNotMatch", self.aws("sts", "get-caller-identity", code=254, env={
            "AWS_SECRET_ACCESS_KEY": "wrong"}).stderr)
        self.aws("iam", "create-role", "--role-name", "r", "--assume-role-policy-document", "{}")
        self.aws("efs", "create-file-system", "--creation-token", "x")
        self.assertIn("NotFound", self.aws("ssm", "get-parameter", "--name", "/x", code=254).stderr)
        self.aws("autoscaling", "describe-auto-scaling-groups")


if __name__ == "__main__":
    harness.main()
