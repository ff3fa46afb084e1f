"""Compute Engine whose instances are machines of hosts.py: tests/gcp/fake_gcp.py, with a real sshd behind each.

    with GcpMachines(hosts, folder, {"boot_s": 1}) as cloud:   hosts: a Hosts(..., booted=False)
        cloud.url                       the endpoint, for the laptop and, by their sshd, for sessions on machines
        cloud.environment()             what the laptop needs: the endpoint, credentials of a service account
        cloud.instances()               {name: {"status", "labels", "host", ...}} of those that there are
        cloud.lose(name)                Google takes it away: its machine is off at once
        cloud.leftovers()               what a cluster has left in the project
        cloud.world                     the stand-in's own state

A machine boots as a cloud's does (cloud_machines.py): the users of `ssh-keys` with their keys, `startup-script`.
"""
import copy
import json
import sys
import threading
from pathlib import Path

from cloud_machines import METADATA, CloudMachines
from harness import ROOT

sys.path.insert(0, str(ROOT / "tests/gcp"))
import fake_gcp  # noqa: E402


# What docs/gcp.md says that a person needs.
PERSON = ("compute.admin", "iam.serviceAccountAdmin", "iam.serviceAccountUser", "iam.roleAdmin",
          "resourcemanager.projectIamAdmin")


class GcpMachines(CloudMachines):
    def __init__(self, hosts, folder, settings=None):
        super().__init__(hosts, folder, fake_gcp.World, fake_gcp.Handler, settings or {})
        self.credentials = fake_gcp.write_credentials(self.world, self.url, str(folder))
        self.world.iam.set_policy(f"projects/{self.world.project}", [
            {"role": f"roles/{role}", "members": [f"serviceAccount:{self.world.tester}"]} for role in PERSON])
        self._before = self._surroundings()

    def environment(self):
        return {"RUBATO_GCP_ENDPOINT": self.url, "GOOGLE_APPLICATION_CREDENTIALS": self.credentials["service_account"],
                "GCE_METADATA_HOST": "127.0.0.1:9",  # the laptop is no instance
                "RUBATO_CHECKIP": f"{self.url}/_fake/checkip"}

    # --- what Compute asks for, under its lock

    def boot(self, one):
        late = self.world.settings["keys_s"]
        users = {} if late else self.world.instances.users_of(one)
        startup = next((each.get("value", "") for each in one["metadata"]["items"]
                        if each["key"] == "startup-script"), None)

        def write_disk(host):
            host.set_users(users)
            (host.folder / "etc/hosts").write_text(
                Path("/etc/hosts").read_text() + f"{METADATA} metadata.google.internal metadata\n")
            if startup is not None:
                (host.folder / "startup").write_text(startup)
        if late:
            timer = threading.Timer(late, self._write_keys, (one,))
            timer.daemon = True
            timer.start()
        return self.make(one["id"], write_disk)

    def _write_keys(self, one):
        """What the guest's agent does, some time after sshd answers."""
        with self.world.lock:
            if self.host_of(one["id"]):
                self.keys_changed(one)

    def keys_changed(self, one):
        self._orders.put((lambda name, users: self.hosts[name].set_users(users), self.host_of(one["id"]),
                          self.world.instances.users_of(one)))

    # --- for tests

    def instances(self):
        with self.world.lock:
            instances = self.world.instances
            return {one["name"]: {"status": instances.state(one), "labels": dict(one["labels"]), "zone": one["zone"],
                                  "spot": instances.is_spot(one["body"]), "host": self.host_of(one["id"]),
                                  "type": one["body"]["machineType"].rpartition("/")[2], "by": one["by"],
                                  "accounts": [each["email"] for each in one["body"].get("serviceAccounts", ())],
                                  "body": copy.deepcopy(one["body"])}
                    for one in instances.known()}

    def one(self, name):
        return next(one for one in self.world.instances.known() if one["name"] == name)

    def lose(self, name):
        """As a preemption does; the machine hears nothing of it."""
        with self.world.lock:
            self.world.instances.end(self.one(name))

    def notice(self, name):
        """The machine is told that it will be preempted, and goes on running until lose()."""
        with self.world.lock:
            self.one(name)["preempted"] = True

    def _surroundings(self):
        """What a project has besides instances. A role costs nothing, and all clusters share it: it may stay."""
        world, iam = self.world, self.world.iam
        bindings = iam.policies[f"projects/{world.project}"]["bindings"]
        return {f"firewall {each}" for each in world.instances.firewalls} \
            | {f"disk {each[1]}" for each in world.instances.disks} | {f"account {each}" for each in iam.accounts} \
            | {f"binding {each['role']} {member}" for each in bindings for member in each["members"]} \
            | {f"metadata {json.dumps(each)}" for each in world.instances.own_metadata["items"]} \
            | {f"key of {email}" for email, profile in world.os_login.profiles.items() if profile["keys"]
               and email in iam.accounts}

    def leftovers(self):
        with self.world.lock:
            return [*self.instances(), *sorted(self._surroundings() - self._before)]
