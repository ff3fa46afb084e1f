#!/usr/bin/env python3
"""`rubato up` with `provider: {type: gcp}`: Compute is tests/gcp/fake_gcp.py, its instances are real machines."""
import json
import os
import signal
import socket
import subprocess
import unittest
import urllib.request
from pathlib import Path

import gcp_machines
from cloud_testing import CloudCase
from harness import ROOT, RUBATO, wait_until
from terminal import Terminal

PROJECT, REGION = "fake-project", "us-west1"
ZONES = f"{REGION}-a,{REGION}-b"
IMAGE = "projects/debian-cloud/global/images/family/debian-12"
DISKS = f"disks: [{{boot: true, autoDelete: true, initializeParams: {{sourceImage: {IMAGE}}}}}]"


class GceCase(CloudCase):
    def make_cloud(self):
        return gcp_machines.GcpMachines(self.hosts, self.folder / "gcp", self.settings)

    def environment(self, **changes):
        return super().environment(**((self.cloud.environment() if hasattr(self, "cloud") else {}) | changes))

    def living(self):
        return {name: one for name, one in self.cloud.instances().items()
                if one["status"] in ("PROVISIONING", "STAGING", "RUNNING")}

    def write_file(self, provider="ssh_from: 203.0.113.0/24", zones=ZONES, project=PROJECT, least=1, most=2,
                   config=f"machineType: n1-standard-2, {DISKS}", worker="", user="ubuntu"):
        (self.folder / "cluster.yaml").write_text(
            f"cluster_name: lab\nprovider: {{type: gcp, project_id: {project}, region: {REGION}, "
            f"availability_zone: '{zones}', {provider}}}\nauth: {{ssh_user: {user}}}\nmax_workers: {most}\n"
            f"idle_timeout_minutes: 0.05\navailable_node_types:\n"
            f"  head: {{node_config: {{{config}}}, resources: {{CPU: 1}}, max_workers: 0}}\n"
            f"  worker: {{node_config: {{{config}{worker}}}, min_workers: {least}, max_workers: {most}, "
            f"resources: {{CPU: 2}}}}\nhead_node_type: head\n")

    def inserts(self):
        """[(name, zone, requestId)] of the machines that were asked for, again and again too."""
        with self.cloud.world.lock:
            asked = [one["parameters"] for one in self.cloud.world.requests if one["operation"] == "instances.insert"]
            return [(one["body"]["name"], one["zone"], one.get("requestId")) for one in asked]

    def asked(self):
        with self.cloud.world.lock:
            return [one["operation"] for one in self.cloud.world.requests]

    def assert_clean(self):
        wait_until(lambda: not self.cloud.leftovers(), lambda: f"the end of {self.cloud.leftovers()}")


class GcpCluster(GceCase):
    def test_up_makes_a_cluster_that_scales_and_down_leaves_nothing(self):
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        head, worker = self.of_node("head"), self.of_node("worker-1")
        self.assertEqual(head[1]["labels"]["ray-node-type"], "head")
        labels = worker[1]["labels"]
        self.assertEqual((labels["ray-cluster-name"], labels["ray-node-type"], labels["ray-user-node-type"]),
                         ("lab", "worker", "worker"))
        self.wait_for_status("worker-1", "ray-node-status", "up-to-date")
        again = self.rubato("up", "-y", "cluster.yaml")
        self.assertEqual((again.stderr, self.cloud.made), ("nothing to change: 'lab' is up with 2 nodes\n", 2))
        # The head manages its workers with an account of its own; the person's key is on no machine.
        account, = head[1]["accounts"]
        self.assertEqual({head[1]["by"], worker[1]["by"]}, {self.cloud.world.tester, account})
        self.assertEqual(worker[1]["accounts"], [])
        self.assert_not_on_machines(self.cloud.world.oauth.keys[self.cloud.world.tester].pem.split("\n")[5])
        self.assertEqual(self.rubato("exec", "cluster.yaml", "whoami; hostname").stdout.split(),
                         ["ubuntu", head[1]["host"]])
        audit = self.json("audit")
        self.assertEqual((len(audit["owned"]), audit["leaked"], audit["complete"]), (2, [], True))
        # More work than one worker holds: another machine; it goes when nobody needs it.
        job = self.submit_steps("--workers", "2", "--cpus", "2", where="/tmp")
        self.wait_for_workers_of(job, 2)
        self.assertEqual(self.of_node("worker-2")[1]["status"], "RUNNING")
        self.rubato("stop", job)
        wait_until(lambda: len(self.living()) == 2, lambda: f"the end of a worker of {self.living()}")
        self.assertEqual(self.cloud.made, 3)
        done = self.rubato("down", "-y", "cluster.yaml")
        # The head has ended its workers, or not yet; the one that went before may still be listed.
        self.assertRegex(done.stderr, "[1-3] machines? ended")
        self.assertIn("removed: firewall rule rubato-lab-ssh", done.stderr)
        self.assert_clean()
        self.assertEqual(self.cloud.world.notes, [])
        self.assertIn("is not running", self.rubato("down", "-y", "cluster.yaml").stderr)

    def test_no_stock_in_one_zone_is_the_next_ones_turn(self):
        self.cloud.world.settings["stock"] = {f"n1-standard-2/{REGION}-a": 1}
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        self.assertEqual(sorted(one["zone"] for one in self.living().values()), [f"{REGION}-a", f"{REGION}-b"])
        # The head is gone for good: the cloud still knows what there was.
        self.cloud.lose(self.of_node("head")[0])
        self.assertIn("its machines were ended by gcp", self.rubato("down", "-y", "cluster.yaml").stderr)
        self.assert_clean()

    def test_up_again_after_no_stock_asks_anew(self):
        settings = self.cloud.world.settings
        settings["stock"] = {"n1-standard-2": 0}
        self.assertIn("ZONE_RESOURCE_POOL_EXHAUSTED", self.rubato("up", "-y", "cluster.yaml", code=1).stderr)
        self.assertEqual({zone for _, zone, _ in self.inserts()}, {f"{REGION}-a", f"{REGION}-b"})
        # Google answers a request that comes again with what it said before.
        settings |= {"stock": {}, "quota": {"CPUS": 1}, "quota_in_operation": True}
        self.assertIn("Quota 'CPUS' exceeded", self.rubato("up", "-y", "cluster.yaml", code=1).stderr)

    def test_what_is_missing_is_told_before_anything_is_made(self):
        self.write_file(config=f"machineTyp: n1-standard-2, {DISKS}")
        self.assertIn("did you mean machineType?", self.rubato("up", "-y", "cluster.yaml", code=2).stderr)
        self.write_file(config=f"machineType: n9-none-2, {DISKS}")
        done = self.rubato("up", "-y", "cluster.yaml", code=2)
        self.assertIn("there is no machine type 'n9-none-2'", done.stderr)
        self.write_file(zones="us-west1-z")
        self.assertIn("'us-west1-z' is no zone", self.rubato("up", "-y", "cluster.yaml", code=2).stderr)
        self.write_file(config="acceleratorType: v2-8, runtimeVersion: v2-alpha")
        self.assertIn("TPU", self.rubato("up", "-y", "cluster.yaml", code=2).stderr)
        self.assertEqual(self.cloud.made, 0)
        self.rubato("down", "-y", "cluster.yaml", code=None)
        self.assert_clean()

    def test_who_may_not_is_told_what_is_missing(self):
        world = self.cloud.world
        world.settings["deny"] = {"*": ["compute.instances.create"]}
        done = self.rubato("up", "-y", "cluster.yaml", code=1)
        self.assertIn("compute.instances.create", done.stderr)
        self.assertIn("fix let an owner run: gcloud projects add-iam-policy-binding", done.stderr)
        world.settings |= {"deny": {}, "disabled": ["compute"]}
        self.assertIn("gcloud services enable compute.googleapis.com",
                      self.rubato("up", "-y", "cluster.yaml", code=1).stderr)
        world.settings["disabled"] = []
        self.write_file(project="another-project")
        self.assertIn("another-project", self.rubato("up", "-y", "cluster.yaml", code=1).stderr)
        self.write_file()
        told = json.loads(Path(self.cloud.credentials["service_account"]).read_text())
        other = self.folder / "other.json"
        other.write_text(json.dumps(told | {"private_key": gcp_machines.fake_gcp.OAuth(world).credentials(
            "someone@else", told["token_uri"])["private_key"]}))
        wrong = self.rubato("up", "-y", "cluster.yaml", code=1, env={"GOOGLE_APPLICATION_CREDENTIALS": str(other)})
        self.assertIn("Invalid JWT Signature", wrong.stderr)
        self.assertNotIn("PRIVATE KEY", wrong.stderr)
        nobody = self.rubato("up", "-y", "cluster.yaml", code=1, env={"GOOGLE_APPLICATION_CREDENTIALS": None})
        self.assertIn("no Google credentials were found", nobody.stderr)
        self.assertEqual(self.cloud.leftovers(), [])


class TwoMachines(GceCase):
    names = ("m1", "m2")

    def test_a_preempted_machine_is_replaced(self):
        self.write_file(worker=", scheduling: {provisioningModel: SPOT}")
        # Answers that never arrive: what is asked for again is there already.
        self.cloud.world.settings["lose"] = {"firewalls.insert": 1, "create_role": 1, "create_account": 1,
                                             "set_iam_policy": 1, "instances.insert": 2}
        self.rubato("up", "-y", "cluster.yaml")
        self.assertEqual((self.cloud.made, set(self.cloud.world.settings["lose"].values())), (2, {0}))
        name, lost = self.of_node("worker-1")
        self.assertTrue(lost["spot"])
        self.cloud.lose(name)
        wait_until(lambda: self.of_node("worker-2"), lambda: f"another machine, have {self.cloud.instances()}")
        wait_until(lambda: "worker-2" in self.nodes(), lambda: f"worker-2 to be up, have {self.nodes()}")
        # It has the address of the lost one, and another host key.
        self.assertEqual(self.of_node("worker-2")[1]["host"], lost["host"])
        self.rubato("down", "-y", "cluster.yaml")
        self.assert_clean()

    def test_up_that_is_killed_makes_nothing_twice(self):
        self.cloud.world.settings["operation_s"] = 2
        for step in ("firewalls.insert", "create_role", "create_account", "set_iam_policy", "instances.insert"):
            killed = self.follow("up", "-y", "cluster.yaml")
            wait_until(lambda: step in self.asked(), lambda: f"{step} in {self.asked()}")
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        self.assertEqual((self.cloud.made, len(self.living())), (2, 2))
        heads = [each for each in self.inserts() if "-head-" in each[0]]
        self.assertEqual(len(set(heads)), 1, "the same request, again")
        self.assertEqual(self.cloud.world.notes, [])
        self.rubato("down", "-y", "cluster.yaml")
        self.assert_clean()


class WithOsLogin(GceCase):
    """The project wants it, and machines let nobody in at first, as Google's do until their agent has run."""
    names = ("m1", "m2")
    settings = {"project_metadata": {"enable-oslogin": "TRUE"}, "keys_s": 3}

    def test_up_exec_and_down_by_the_accounts_users(self):
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        accounts = self.cloud.world.iam.accounts
        person, head = (f"sa_{accounts[each]['uniqueId']}"
                        for each in (self.cloud.world.tester, self.of_node("head")[1]["accounts"][0]))
        self.assertEqual(self.rubato("exec", "cluster.yaml", "whoami").stdout.split(), [person])
        self.assertNotIn("ssh-keys", [each["key"] for each in
                                      self.of_node("worker-1")[1]["body"]["metadata"]["items"]])
        homes = self.hosts[self.of_node("worker-1")[1]["host"]].folder / "home"
        self.assertTrue((homes / head / ".rubato").is_dir(), "the head logs in to its workers as its own account")
        done = self.rubato("down", "-y", "cluster.yaml")
        self.assertIn("the SSH key in OS Login of", done.stderr)
        self.assert_clean()
        self.assertEqual(self.cloud.world.notes, [])

    def test_a_key_of_ones_own_stays(self):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "mine"], check=True)
        text = (self.folder / "cluster.yaml").read_text().replace("auth: {", "auth: {ssh_private_key: mine, ")
        (self.folder / "cluster.yaml").write_text(text.replace("key: mine", f"key: {self.folder}/mine"))
        self.rubato("up", "-y", "cluster.yaml")
        done = self.rubato("down", "-y", "cluster.yaml")
        self.assertIn("note: kept: the SSH key in OS Login of", done.stderr)
        self.assertEqual(len(self.cloud.world.os_login.profiles[self.cloud.world.tester]["keys"]), 1)

    def test_who_may_not_is_told_the_role(self):
        self.cloud.world.settings["deny"] = {"*": ["compute.instances.osLogin", "compute.instances.osAdminLogin"]}
        done = self.rubato("up", "-y", "cluster.yaml", code=1)
        self.assertIn("roles/compute.osAdminLogin", done.stderr)
        self.assertEqual(self.cloud.made, 0)


class RaysOwnFiles(GceCase):
    cluster = "minimal"
    settings = {"account_s": 1.0, "grant_s": 1.0, "consistency_s": 0.5}

    def up_file(self, name, *flags):
        """One of Ray's files; its person has filled in the project, as it tells them to."""
        text = (ROOT / "tests/data/ray-yaml" / name).read_text()
        self.assertIn("project_id: null", text)
        (self.folder / "cluster.yaml").write_text(text.replace("project_id: null", f"project_id: {PROJECT}"))
        return self.rubato("up", "-y", "cluster.yaml", *flags)

    def test_a_file_of_rays_from_2019_works_as_it_is(self):
        self.assertIn("'minimal' is up with 2 nodes",
                      self.up_file("ray-0.6.6/gcp/example-minimal.yaml", "--min-workers", 1).stderr)
        self.assertEqual(sorted(one["spot"] for one in self.living().values()), [False, True])
        rule = self.cloud.world.instances.firewalls["rubato-minimal-ssh"]
        self.assertEqual(rule["sourceRanges"], ["203.0.113.9/32"])
        self.assertEqual(self.cloud.world.notes, [], "nothing is open to the whole world")
        self.rubato("down", "-y", "cluster.yaml")
        self.assert_clean()

    def test_a_file_of_rays_of_today_works_as_it_is(self):
        self.assertIn("'minimal' is up with 1 node", self.up_file("head/gcp/example-minimal-pinned.yaml").stderr)
        one, = self.living().values()
        self.assertEqual((one["type"], one["zone"]), ("n1-standard-2", "us-west1-a"))
        image = one["body"]["disks"][0]["initializeParams"]["sourceImage"]
        self.assertTrue(image.endswith("common-cpu-v20240922"), image)
        self.assertEqual(self.rubato("exec", "cluster.yaml", "whoami").stdout, "ubuntu\n")
        self.rubato("down", "-y", "cluster.yaml")
        self.assert_clean()


class TheSeedsCommands(GceCase):
    """"Cloud Setup and Auto-Scaling", Google's part: each command as it is written there, in its order."""
    cluster = "default"

    def write_file(self):
        """Ray's example-full.yaml of that time. Its person has a project; nothing here reaches the Internet."""
        text = (ROOT / "tests/data/ray-yaml/ray-0.6.6/gcp/example-full.yaml").read_text()
        text = text.replace("project_id: null", f"project_id: {PROJECT}")
        text = text.replace("wget ", "touch ~/anaconda3.sh; echo ").replace("pip install", "echo pip install")
        for name in ("example-full.yaml", "cluster.yaml"):
            (self.folder / name).write_text(text)

    def test_the_quick_start_and_what_follows(self):
        full = ("-y", "example-full.yaml")
        self.assertIn("'default' is up with 1 node", self.rubato("up", *full).stderr)
        head, = self.living().values()
        self.assertEqual((head["type"], head["spot"]), ("n1-standard-2", False))
        # Create or update, and limits beside running jobs.
        job = self.submit_steps("--workers", "1", where="/tmp")
        self.wait_for_workers_of(job, 1)
        self.rubato("up", *full, "--max-workers=1", "--no-restart")
        self.assertEqual(self.cloud.made, 1)
        self.wait_for_workers_of(job, 1)
        self.rubato("stop", job)
        # Running commands on new and existing clusters.
        hello = 'echo "hello world"'
        self.assertIn("hello world\n", self.rubato("exec", "cluster.yaml", hello).stdout)
        self.assertIn("hello world\n", self.rubato("exec", "cluster.yaml", hello, "--start").stdout)
        self.hosts[head["host"]].run("mkdir -m 777 /run/screen")  # by systemd, where there is one
        self.rubato("exec", "cluster.yaml", hello + " > screened", "--screen")
        wait_until(lambda: "hello" in self.rubato("exec", "cluster.yaml", "cat screened || true").stdout, "the screen")
        # Attaching.
        with Terminal([RUBATO, "attach", "cluster.yaml"], self.environment(), self.folder, columns=120) as screen:
            screen.type("echo at $(hostname).\r")
            screen.expect(f"at {head['host']}\\.")
            screen.type("exit\r")
            self.assertEqual(screen.end(), 0)
        # Port-forwarding: a server of the cluster answers here, as long as the command runs.
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        serving = self.follow("exec", "cluster.yaml", f"--port-forward={port}",
                              f"python3 -m http.server {port} --bind 127.0.0.1")
        wait_until(lambda: answers(port), lambda: f"an answer at {port}")
        serving.terminate()
        serving.wait()
        # Manually synchronizing files.
        (self.folder / "local").write_text("from here")
        self.rubato("rsync_up", "cluster.yaml", f"{self.folder}/local", "/tmp/on-cluster")
        self.rubato("rsync_down", "cluster.yaml", "/tmp/on-cluster", f"{self.folder}/back")
        self.assertEqual((self.folder / "back").read_text(), "from here")
        # Stopping the cluster behind a command; the next down removes the head's machine.
        self.assertIn("hello world\n", self.rubato("exec", "cluster.yaml", hello, "--stop").stdout)
        self.rubato("down", *full)
        self.assert_clean()

    def test_a_new_cluster_for_one_command(self):
        done = self.rubato("exec", "cluster.yaml", 'echo "hello world"', "--start", "--stop", "--cluster-name",
                           "experiment-1")
        self.assertIn("hello world\n", done.stdout)
        names = {one["labels"]["ray-cluster-name"] for one in self.cloud.instances().values()}
        self.assertLessEqual(names, {"experiment-1"})
        self.rubato("down", "-y", "cluster.yaml", "--cluster-name", "experiment-1")
        self.assert_clean()


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main(verbosity=2)
