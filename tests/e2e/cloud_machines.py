"""What tests of clouds share: instances of a stand-in (tests/aws, tests/gcp) are machines of hosts.py.

A machine boots as a cloud's does: a new disk and a new host key. Its metadata service answers at 169.254.169.254, by a
rule of its own network. One thread makes and ends them, in order.
"""
import queue
import sys
import threading

import hosts as machines
from harness import ROOT

sys.path.insert(0, str(ROOT / "tests/clouds"))
import cloud_server  # noqa: E402

METADATA = "169.254.169.254"


class CloudMachines:
    def __init__(self, hosts, folder, make_world, handler, settings):
        self.hosts, self.made = hosts, 0
        folder.mkdir()
        self.folder = folder
        self.world = make_world(settings, str(folder))
        self.world.machines = self
        self._free = [host.name for host in hosts]
        self._host_of = {}
        self._orders = queue.Queue()
        self._servers = [cloud_server.Server(handler, 0, self.world, str(folder), is_metadata, hosts.address)
                         for is_metadata in (False, True)]
        self.url = f"http://{hosts.address}:{self._servers[0].server_port}"
        # One thread that stays: the kernel ends a machine with the thread that has booted it.
        self._threads = [threading.Thread(target=each.serve_forever, daemon=True) for each in self._servers]
        self._threads.append(threading.Thread(target=self._carry_out, daemon=True))
        for thread in self._threads:
            thread.start()

    # --- what the cloud asks for, under its lock

    def has_free(self):
        return bool(self._free)

    def make(self, instance, write_disk):
        """Its address. write_disk(host): what a new machine has on its disk."""
        name = self._free.pop(0)
        self._host_of[instance] = name
        self.made += 1
        self._orders.put((self._boot_new, name, write_disk))
        return self.hosts[name].address

    def end(self, instance):
        name = self._host_of.pop(instance)
        self._orders.put((self._off, name))
        self._orders.put((self._give_back, name))

    def stop(self, instance):
        self._orders.put((self._off, self._host_of[instance]))

    def start(self, instance):
        self._orders.put((lambda name: self.hosts[name].boot(), self._host_of[instance]))

    def host_of(self, instance):
        """The name of its machine; None: it has none any more."""
        return self._host_of.get(instance)

    # --- done in order, by the thread that stays

    def _carry_out(self):
        while True:
            call, *arguments = self._orders.get()
            if call is None:
                return
            call(*arguments)

    def _boot_new(self, name, write_disk):
        host = self.hosts[name]
        host.wipe()
        write_disk(host)
        host.new_host_key()
        host.boot()
        nat = ("ip", "netns", "exec", host.netns, "iptables", "-t", "nat")
        machines.call(*nat, "-F")
        machines.call(*nat, "-A", "OUTPUT", "-d", METADATA, "-p", "tcp", "--dport", "80", "-j", "DNAT",
                      "--to-destination", f"{self.hosts.address}:{self._servers[1].server_port}")

    def _off(self, name):
        self.hosts[name].crash()

    def _give_back(self, name):
        with self.world.lock:
            self._free.append(name)

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
