"""What the tests of clusters over SSH share: hosts.py makes the machines, this one is the laptop."""
import http.client
import urllib.request

import hosts as machines
from cluster_harness import ClusterCase
from harness import wait_until


class RemoteCase(ClusterCase):
    cluster = "lab"
    names = ("head", "w1", "w2")

    def make(self, *names, disk_mb=0):
        self.hosts = machines.Hosts(self.folder / "hosts", names or self.names, disk_mb=disk_mb)
        return self.hosts

    def tearDown(self):
        if hasattr(self, "hosts"):
            for host in self.hosts:
                host.mend()  # what was cut must not keep `down` waiting
        super().tearDown()

    def assert_nothing_left(self):
        if hasattr(self, "hosts"):
            self.hosts.close()
        super().assert_nothing_left()

    def text(self, *lines, key=None, workers=None, head=None):
        workers = [host for host in self.hosts if host.name != "head"] if workers is None else workers
        addresses = ", ".join(host.address for host in workers)
        return "\n".join([
            f"cluster_name: {self.cluster}", "provider:", "  type: local",
            f"  head_ip: {head or self.hosts['head'].address}", f"  worker_ips: [{addresses}]",
            "auth:", "  ssh_user: root", f"  ssh_private_key: {key or self.hosts.key}", *lines]) + "\n"

    def agents_on(self, name):
        """The processes of agents on a machine, by their pid there."""
        lines = self.hosts[name].run("ps -eo pid=,args= -ww").splitlines()
        return sorted(int(line.split()[0]) for line in lines if " agent --dir " in line and "sh -c" not in line)

    def assert_hosts_are_clean(self):
        for host in self.hosts:
            wait_until(lambda: not host.processes(), lambda: f"the end of {host.processes()} on {host.name}")
            self.assertNotIn("rubato-lab", (host.home / ".ssh/authorized_keys").read_text())

    def page(self, port):
        """What a web server at this port of the laptop says; "" when there is none yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=10) as reply:
                return reply.read().decode()
        except (OSError, http.client.HTTPException):
            return ""
