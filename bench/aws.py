#!/usr/bin/env python3
"""What the AWS client costs, against the stand-in tests/aws/fake_aws.py on loopback.

    bench/aws.py [--only sign,s3,list,cluster] [--mb 512] [--rounds 3] [--machines 500] [--workers 8] [--idle-s 120]

    sign     signatures a second (build/release/bench_sign)
    s3       files to and from S3: `rubato cp` beside `aws s3 cp`, the best of the rounds for each
    list, cluster: see clouds.py
"""
import os
import subprocess
import tempfile

import clouds
from clouds import ROOT, RUBATO, StandIn, timed

SIGN = ROOT / "build/release/bench_sign"
IMAGE = "ami-0000000000000002"
FILE = """cluster_name: lab
provider: {{type: aws, region: eu-west-1, ssh_from: 203.0.113.0/24}}
auth: {{ssh_user: root}}
max_workers: {most}
available_node_types:
  head: {{node_config: {{InstanceType: m5.large, ImageId: {image}}}, resources: {{CPU: 1}}, max_workers: 0}}
  worker: {{node_config: {{InstanceType: m5.large, ImageId: {image}}}, resources: {{CPU: 2}}, min_workers: {most}, \
max_workers: {most}}}
head_node_type: head
"""


def environment(url):
    return {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "AKIAFAKE",
            "AWS_SECRET_ACCESS_KEY": "fake-secret", "AWS_EC2_METADATA_DISABLED": "true", "AWS_PAGER": ""}


class Aws:
    @staticmethod
    def stand_in(folder):
        server = StandIn("tests/aws/fake_aws.py", folder)
        server.env |= environment(server.told["url"])
        return server

    @staticmethod
    def fill(server, machines):
        tags = "ResourceType=instance,Tags=[{Key=rubato-cluster,Value=lab},{Key=ray-user-node-type,Value=worker}]"
        subprocess.run(["/usr/bin/aws", "--endpoint-url", server.told["url"], "ec2", "run-instances", "--image-id",
                        IMAGE, "--instance-type", "m5.large", "--count", str(machines), "--tag-specifications", tags],
                       env=server.env, check=True, stdout=subprocess.DEVNULL)

    @staticmethod
    def file(most):
        return FILE.format(most=most, image=IMAGE)

    @staticmethod
    def machines(hosts, folder, settings):
        import aws_machines
        return aws_machines.AwsMachines(hosts, folder, settings)

    @staticmethod
    def environment(server):
        return environment(server.url)


def bench_sign(_):
    if not SIGN.exists():
        return print("sign       not measured: build bench_sign")
    subprocess.run([SIGN], check=True)


def bench_s3(options):
    with tempfile.TemporaryDirectory() as folder, Aws.stand_in(folder) as server:
        with open(f"{folder}/file", "wb") as file:
            for _ in range(options.mb):
                file.write(os.urandom(1_000_000))
        programs = {"rubato cp": [RUBATO, "cp"],
                    "aws s3 cp": ["/usr/bin/aws", "--endpoint-url", server.told["url"], "s3", "cp"]}
        for name, words in programs.items():
            for what, args in (("up", ["file", "s3://bucket/x"]), ("down", ["s3://bucket/x", "back"])):
                rounds = [timed(words + args, server.env, folder) for _ in range(options.rounds)]
                print(f"{name:<10} {what:<4} {options.mb / min(each.seconds for each in rounds):6.0f} MB/s, "
                      f"at most {max(each.memory for each in rounds):.0f} MB of memory")


if __name__ == "__main__":
    clouds.main(__doc__, Aws, {"sign": bench_sign, "s3": bench_s3})
