"""EC2 whose instances are machines of hosts.py: tests/aws/fake_aws.py, with a real sshd behind each instance.

    with AwsMachines(hosts, folder, {"boot_s": 1}) as cloud:   hosts: a Hosts(..., booted=False)
        cloud.url                       the endpoint for the laptop, and in ~/.aws/config of each machine
        cloud.instances()               {id: {"state", "tags", "host", ...}} of those that are not terminated
        cloud.lose(id)                  EC2 takes it away: its machine is off at once
        cloud.world                     the fake's own state

A machine boots as a cloud's does: a new disk, a new host key, the keys of its key pair and its user data. Its metadata
service answers at 169.254.169.254, by a rule of its own network.
"""
import base64
import queue
import shutil
import subprocess
import sys
import threading

import hosts as machines
from harness import ROOT

sys.path.insert(0, str(ROOT / "tests/aws"))
import fake_aws  # noqa: E402

IMDS = "169.254.169.254"


class AwsMachines:
    def __init__(self, hosts, folder, settings=None):
        self.hosts, self.made = hosts, 0
        folder.mkdir()
        self.world = fake_aws.World({"strict": True} | (settings or {}), str(folder))
        self.world.machines = self
        self._free = [host.name for host in hosts]
        self._host_of = {}
        self._orders = queue.Queue()
        self._servers = [fake_aws.Server(0, self.world, str(folder), is_imds, hosts.address)
                         for is_imds in (False, True)]
        self.url = f"http://{hosts.address}:{self._servers[0].server_port}"
        # One thread that stays: the kernel ends a machine with the thread that has booted it.
        self._threads = [threading.Thread(target=each.serve_forever, daemon=True) for each in self._servers]
        self._threads.append(threading.Thread(target=self._carry_out, daemon=True))
        for thread in self._threads:
            thread.start()

    # --- what EC2 asks for, under its lock

    def has_free(self):
        return bool(self._free)

    def boot(self, instance, keys, user_data):
        name = self._free.pop(0)
        self._host_of[instance] = name
        self.made += 1
        self._orders.put((self._boot_new, name, keys + self._keys_in(user_data)))
        return self.hosts[name].address

    def end(self, instance):
        name = self._host_of.pop(instance)
        self._orders.put((self._off, name))
        self._orders.put((self._give_back, name))

    def stop(self, instance):
        self._orders.put((self._off, self._host_of[instance]))

    def start(self, instance):
        self._orders.put((lambda name: self.hosts[name].boot(), self._host_of[instance]))

    # --- done in order, by the thread that stays

    def _carry_out(self):
        while True:
            call, *arguments = self._orders.get()
            if call is None:
                return
            call(*arguments)

    @staticmethod
    def _keys_in(user_data):
        """As cloud-init reads them; the key is in the only list there is."""
        lines = base64.b64decode(user_data or b"").decode().splitlines()
        return [line.strip().removeprefix("- ") for line in lines if line.strip().startswith("- ssh-")]

    def _boot_new(self, name, keys):
        host = self.hosts[name]
        shutil.rmtree(host.home)
        (host.home / ".ssh").mkdir(parents=True, mode=0o700)
        (host.home / ".ssh/authorized_keys").write_text("".join(key.strip() + "\n" for key in keys))
        (host.home / ".aws").mkdir()
        (host.home / ".aws/config").write_text(f"[default]\nendpoint_url = {self.url}\n")
        host.new_host_key()
        host.boot()
        nat = ("ip", "netns", "exec", host.netns, "iptables", "-t", "nat")
        machines.call(*nat, "-F")
        machines.call(*nat, "-A", "OUTPUT", "-d", IMDS, "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination",
                      f"{self.hosts.address}:{self._servers[1].server_port}")

    def _off(self, name):
        self.hosts[name].crash()

    def _give_back(self, name):
        with self.world.lock:
            self._free.append(name)

    # --- for tests

    def instances(self):
        with self.world.lock:
            ec2 = self.world.services["ec2"]
            return {one["id"]: {"state": ec2._state(one), "tags": dict(ec2.tags.get(one["id"], {})),
                                "spot": one["spot"], "host": self._host_of.get(one["id"]), "type": one["type"],
                                "zone": one["zone"]}
                    for one in ec2.instances.values() if ec2._state(one) != "terminated"}

    def lose(self, instance, reason="Server.SpotInstanceTermination"):
        with self.world.lock:
            one = self.world.services["ec2"].instances[instance]
            one["ended"], one["reason"] = self.world.now(), reason
            self.end(instance)

    def leftovers(self):
        """What of a cluster EC2 and IAM still have."""
        with self.world.lock:
            ec2, iam = self.world.services["ec2"], self.world.services["iam"]
            return [*self.instances(), *ec2.keys, *ec2.placements, *iam.roles, *iam.profiles,
                    *(one["GroupName"] for one in ec2.groups.values() if one["GroupName"] != "default")]

    def close(self):
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._orders.put((None,))
        for thread in self._threads:
            thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
