"""EC2 whose instances are machines of hosts.py: tests/aws/fake_aws.py, with a real sshd behind each instance.

    with AwsMachines(hosts, folder, {"boot_s": 1}) as cloud:   hosts: a Hosts(..., booted=False)
        cloud.url                       the endpoint for the laptop; machines have to be told
        cloud.instances()               {id: {"state", "tags", "host", ...}} of those that are not terminated
        cloud.reclaim(id, seconds)      EC2 gives notice to the machine: so many seconds are left
        cloud.lose(id)                  EC2 takes it away: its machine is off at once
        cloud.world                     the fake's own state

A machine boots as a cloud's does (cloud_machines.py), with the keys of its key pair and of its user data. A script in
its user data is run, with its output on the machine's console.
"""
import base64
import subprocess
import sys

from cloud_machines import CloudMachines
from harness import ROOT, wait_until

sys.path.insert(0, str(ROOT / "tests/aws"))
import fake_aws  # noqa: E402
import protocols  # noqa: E402

# Its own /run, and sshd started: all that is the machine's own is there.
MOUNTED = "[ -e /run/sshd_config ] && [ -e /run/sshd.pid ]"
WHEN_MOUNTED = f"until {MOUNTED}; do sleep 0.05; done; exec /root/user-data"


class AwsMachines(CloudMachines):
    def __init__(self, hosts, folder, settings=None):
        self.on_boot = None  # what an image would start before user data runs; called with the machine
        self.on_disk = None  # what an image has on its disk; called with the machine, which is off
        self._scripts = {}
        self._script_of = {}
        super().__init__(hosts, folder, fake_aws.World, fake_aws.Handler, {"strict": True} | (settings or {}))

    def boot(self, instance, keys, user_data):
        """What EC2 asks for."""
        script = self._script_in(user_data)

        def write_disk(host):
            host.set_users({"root": keys + self._keys_in(user_data)})
            if self.on_disk is not None:
                self.on_disk(host)
            self._console_of(host.name).unlink(missing_ok=True)
            self._script_of[host.name] = script
        return self.make(instance, write_disk)

    @staticmethod
    def _keys_in(user_data):
        """As cloud-init reads them; the key is in the only list there is."""
        lines = base64.b64decode(user_data or b"").decode().splitlines()
        return [line.strip().removeprefix("- ") for line in lines if line.strip().startswith("- ssh-")]

    @staticmethod
    def _script_in(user_data):
        text = base64.b64decode(user_data or b"").decode()
        return text if text.startswith("#!") else None

    def _console_of(self, name):
        return self.hosts[name].folder / "console.log"

    def console(self, instance):
        name = self.host_of(instance)
        path = self._console_of(name) if name is not None else None
        return path.read_text(errors="replace") if path is not None and path.exists() else ""

    def _boot_new(self, name, write_disk):
        super()._boot_new(name, write_disk)
        host = self.hosts[name]
        if self.on_boot is not None:
            wait_until(lambda: host.run(f"{MOUNTED} && echo yes", check=False), lambda: f"{name} to be mounted")
            self.on_boot(host)
        text = self._script_of.pop(name)
        if text is not None:
            self._run_script(host, text)

    def _run_script(self, host, text):
        """As cloud-init does: as root, with nearly nothing in its environment."""
        script = host.home / "user-data"
        script.write_text(text)
        script.chmod(0o700)
        with self._console_of(host.name).open("ab") as console:
            self._scripts[host.name] = subprocess.Popen(
                host.enter("sh", "-c", WHEN_MOUNTED), stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, start_new_session=True)

    def _off(self, name):
        super()._off(name)
        script = self._scripts.pop(name, None)
        if script is not None:
            script.kill()
            script.wait()

    # --- for tests

    def instances(self):
        with self.world.lock:
            ec2 = self.world.services["ec2"]
            return {one["id"]: {"state": ec2._state(one), "tags": dict(ec2.tags.get(one["id"], {})),
                                "spot": one["spot"], "host": self.host_of(one["id"]), "type": one["type"],
                                "zone": one["zone"]}
                    for one in ec2.instances.values() if ec2._state(one) != "terminated"}

    def lose(self, instance, reason="Server.SpotInstanceTermination"):
        with self.world.lock:
            one = self.world.services["ec2"].instances[instance]
            one["ended"], one["reason"] = self.world.now(), reason
            self.end(instance)

    def reclaim(self, instance, seconds):
        """EC2 tells the machine, through its metadata service, that it will be taken away then."""
        with self.world.lock:
            self.world.services["ec2"].instances[instance]["notice"] = {
                "action": "terminate", "time": protocols.iso(self.world.now() + seconds)}

    def leftovers(self):
        """What of a cluster EC2 and IAM still have."""
        with self.world.lock:
            ec2, iam = self.world.services["ec2"], self.world.services["iam"]
            scaling = self.world.services["autoscaling"]
            kept = [volume for volume in ec2.volumes if ec2.holds(volume) is False]
            return [*self.instances(), *kept, *ec2.keys, *ec2.placements, *iam.roles, *iam.profiles, *scaling.groups,
                    *(one["LaunchTemplateName"] for one in ec2.templates.values()),
                    *(one["GroupName"] for one in ec2.groups.values() if one["GroupName"] != "default")]
