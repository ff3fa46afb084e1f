#!/usr/bin/python3
"""What the client of Google Cloud costs, against the stand-in tests/gcp/fake_gcp.py on loopback.

    bench/gcp.py [--only gcs,list,cluster] [--mb 512] [--rounds 3] [--machines 500] [--workers 8] [--idle-s 120]

    gcs      files to and from Cloud Storage: `rubato cp`, the best of the rounds
    list, cluster: see clouds.py
"""
import json
import os
import tempfile
import urllib.parse
import urllib.request

import clouds
from clouds import RUBATO, StandIn, timed

PROJECT, REGION = "fake-project", "us-west1"
IMAGE = "projects/debian-cloud/global/images/family/debian-12"
CONFIG = (f"machineType: n1-standard-2, "
          f"disks: [{{boot: true, autoDelete: true, initializeParams: {{sourceImage: {IMAGE}}}}}]")


class Gcp:
    @staticmethod
    def stand_in(folder):
        server = StandIn("tests/gcp/fake_gcp.py", folder, {"operation_s": 0, "buckets": ["bucket"]})
        server.env |= {"RUBATO_GCP_ENDPOINT": server.told["url"], "GCE_METADATA_HOST": "127.0.0.1:9",
                       "GOOGLE_APPLICATION_CREDENTIALS": server.told["credentials"]["service_account"]}
        return server

    @staticmethod
    def fill(server, machines):
        """By the API itself, with a token that `rubato` would buy as well."""
        token = json.loads(urllib.request.urlopen(urllib.request.Request(
            server.told["url"] + "/token", method="POST", data=urllib.parse.urlencode(refresh(server)).encode(),
            headers={"content-type": "application/x-www-form-urlencoded"})).read())["access_token"]
        for number in range(machines):
            body = {"name": f"ray-lab-{number}", "machineType": f"zones/{REGION}-a/machineTypes/n1-standard-2",
                    "labels": {"rubato-cluster": "lab", "ray-user-node-type": "worker"},
                    "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": IMAGE}}],
                    "networkInterfaces": [{"subnetwork": f"projects/{PROJECT}/regions/{REGION}/subnetworks/default"}]}
            urllib.request.urlopen(urllib.request.Request(
                f"{server.told['url']}/compute/v1/projects/{PROJECT}/zones/{REGION}-a/instances", method="POST",
                data=json.dumps(body).encode(), headers={"authorization": f"Bearer {token}",
                                                         "content-type": "application/json"})).read()

    @staticmethod
    def file(most):
        return (f"cluster_name: lab\nprovider: {{type: gcp, project_id: {PROJECT}, region: {REGION}, "
                f"availability_zone: '{REGION}-a,{REGION}-b', ssh_from: 203.0.113.0/24}}\nmax_workers: {most}\n"
                f"auth: {{ssh_user: ubuntu}}\navailable_node_types:\n"
                f"  head: {{node_config: {{{CONFIG}}}, resources: {{CPU: 1}}, max_workers: 0}}\n"
                f"  worker: {{node_config: {{{CONFIG}}}, resources: {{CPU: 2}}, min_workers: {most}, "
                f"max_workers: {most}}}\nhead_node_type: head\n")

    @staticmethod
    def machines(hosts, folder, settings):
        import gcp_machines
        return gcp_machines.GcpMachines(hosts, folder, settings)

    @staticmethod
    def environment(server):
        return server.environment()


def refresh(server):
    with open(server.told["credentials"]["authorized_user"]) as file:
        known = json.load(file)
    wanted = ("client_id", "client_secret", "refresh_token")
    return {"grant_type": "refresh_token"} | {key: known[key] for key in wanted}


def bench_gcs(options):
    with tempfile.TemporaryDirectory() as folder, Gcp.stand_in(folder) as server:
        with open(f"{folder}/file", "wb") as file:
            for _ in range(options.mb):
                file.write(os.urandom(1_000_000))
        for what, args in (("up", ["file", "gs://bucket/x"]), ("down", ["gs://bucket/x", "back"])):
            rounds = [timed([RUBATO, "cp", *args], server.env, folder) for _ in range(options.rounds)]
            print(f"rubato cp  {what:<4} {options.mb / min(each.seconds for each in rounds):6.0f} MB/s, "
                  f"at most {max(each.memory for each in rounds):.0f} MB of memory")


if __name__ == "__main__":
    clouds.main(__doc__, Gcp, {"gcs": bench_gcs})
