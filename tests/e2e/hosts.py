"""Machines for tests: each is a network, mount, PID and UTS namespace with an sshd of its own, all on one bridge.

    with Hosts(folder, ["head", "w1", "w2"]) as hosts:
        hosts["w1"].run("echo hello")          as root on that machine
        hosts["w1"].cut()                      its cable is out; mend() puts it back
        hosts["w1"].crash()                    everything on it dies at once; boot() starts it again
        hosts["w1"].fill_disk()                its home folder has no room (Hosts(..., disk_mb=64)); free_disk()
        hosts["w1"].slow_sshd(5)               sshd says nothing for so long; slow_sshd(0) ends it
        hosts.ssh_command("w1")                the words of ssh that reach it

With set_users() it has users of its own, with homes, beside those of the real machine; with a file `startup` a script
that runs as root at each boot; with `session_environment` variables that every session over SSH gets.

A machine has its own /root, /tmp, /run, /var/tmp, /etc/hostname; the rest of the file system is that of the real one.
/root stays over a crash, the others do not. The real machine has the first address of the bridge.

By hand:  tests/e2e/hosts.py FOLDER NAME...   makes them, prints how to reach them, and ends at ^C.
"""
import contextlib
import ctypes
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import reserve

SSHD = "/usr/sbin/sshd"
PATIENCE_S = 150

# Runs in the fresh namespaces as process 1 of the machine. Its arguments: the machine's folder, its name.
INIT = r"""
set -e
here=$1
mount --make-rprivate /
mkdir -p "$here/run" "$here/var-tmp" "$here/tmp"
hostname "$2"; echo "$2" >"$here/hostname"; mount --bind "$here/hostname" /etc/hostname
for name in passwd shadow group hosts; do
  [ ! -f "$here/etc/$name" ] || mount --bind "$here/etc/$name" "/etc/$name"
done
[ ! -d "$here/home" ] || mount --bind "$here/home" /home
[ ! -f "$here/startup" ] || cp "$here/startup" "$here/run/startup"
mount --bind "$here/root" /root
mount --bind "$here/run" /run; mkdir -p /run/sshd
mount --bind "$here/var-tmp" /var/tmp
ip link set lo up
exec 3<"$here/sshd_config" 4<"$here/slow.py"
mount --bind "$here/tmp" /tmp; chmod 1777 /tmp /var/tmp
cd /
trap '' HUP
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset XDG_RUNTIME_DIR XDG_STATE_HOME SSH_AUTH_SOCK
[ ! -f /run/startup ] || bash /run/startup >/run/startup.log 2>&1 &
while true; do
  delay=$(cat /root/.sshd-delay 2>/dev/null || echo 0)
  if [ "$delay" = 0 ]; then /usr/sbin/sshd -D -e -f /run/sshd_config & else python3 /run/slow.py "$delay" & fi
  echo $! >/run/sshd.pid
  wait || true
  sleep 0.05
done
"""

# Takes connections on port 22, and lets sshd have each after a while.
SLOW = r"""
import os, signal, socket, subprocess, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
server = socket.create_server(("", 22), backlog=64)
while True:
    peer, _ = server.accept()
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        time.sleep(float(sys.argv[1]))
        os._exit(subprocess.call(["/usr/sbin/sshd", "-i", "-f", "/run/sshd_config"], stdin=peer, stdout=peer))
    peer.close()
"""


def why_not():
    """Why machines cannot be made here; None when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in (SSHD, "ip", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed: tools/install-packages.sh test"
    return None


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Host:
    def __init__(self, hosts, name, number):
        self.hosts, self.name = hosts, name
        self.address = f"{hosts.subnet}.{number}"
        self.folder = hosts.folder / name
        self.home = self.folder / "root"
        self.netns = f"{hosts.tag}-{name}"
        self.link = f"{hosts.tag}{number:02x}"  # of the bridge's side
        self.session_environment = {}
        self._init = None

    def make(self, disk_mb):
        self.home.mkdir(parents=True)
        if disk_mb:
            call("mount", "-t", "tmpfs", "-o", f"size={disk_mb}m,mode=0700", "tmpfs", str(self.home))
        os.chmod(self.home, 0o700)
        ssh = self.home / ".ssh"
        ssh.mkdir(mode=0o700)
        (ssh / "authorized_keys").write_text(self.hosts.key.with_suffix(".pub").read_text())
        self.new_host_key()
        call("ip", "netns", "add", self.netns)
        call("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.netns)
        call("ip", "link", "set", self.link, "master", self.hosts.bridge, "up")
        inside = ("ip", "-n", self.netns)
        call(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        call(*inside, "link", "set", "eth0", "up")
        call(*inside, "route", "add", "default", "via", f"{self.hosts.subnet}.1")

    def new_host_key(self):
        """As if the machine had been set up anew; takes effect at the next boot."""
        key = self.folder / "host_key"
        for path in (key, key.with_suffix(".pub")):
            path.unlink(missing_ok=True)
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))

    def wipe(self):
        """A new disk. Before boot()."""
        for path in (self.home, self.folder / "home", self.folder / "etc"):
            shutil.rmtree(path, ignore_errors=True)
        (self.folder / "startup").unlink(missing_ok=True)
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)

    def set_users(self, users):
        """{user: [public keys]}: who may log in, root too. Those that are new get an account; while it runs, too, if
        there were some when it booted."""
        (self.folder / "home").mkdir(exist_ok=True)
        etc = self.folder / "etc"
        if not etc.exists():
            etc.mkdir()
            for name in ("passwd", "shadow", "group"):
                shutil.copy(f"/etc/{name}", etc / name)
        known = {line.partition(":")[0]: int(line.split(":")[2]) for line in
                 (etc / "passwd").read_text().splitlines()}
        for user, keys in users.items():
            home = self.home if user == "root" else self.folder / "home" / user
            if user not in known:
                known[user] = number = 2000 + len(known)
                # Appended: the machine has these very files mounted.
                for name, line in (("passwd", f"{user}:x:{number}:{number}::/home/{user}:/bin/bash"),
                                   ("shadow", f"{user}:*:19000:0:99999:7:::"), ("group", f"{user}:x:{number}:")):
                    with open(etc / name, "a") as file:
                        file.write(line + "\n")
            (home / ".ssh").mkdir(parents=True, mode=0o700, exist_ok=True)
            (home / ".ssh/authorized_keys").write_text("".join(key.strip() + "\n" for key in keys))
            for path in (home, home / ".ssh", home / ".ssh/authorized_keys"):
                os.chown(path, known[user], known[user])

    def boot(self):
        assert self._init is None, "it runs"
        self.mend()
        for name in ("tmp", "run", "var-tmp"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        run = self.folder / "run"
        shutil.copy(self.folder / "host_key", run / "host_key")
        os.chmod(run / "host_key", 0o600)
        variables = "".join(f" {name}={value}" for name, value in self.session_environment.items())
        variables = f"SetEnv{variables}\n" if variables else ""
        for target in (run / "sshd_config", self.folder / "sshd_config"):
            target.write_text(
                "Port 22\nHostKey /run/host_key\nPidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
                "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUseDNS no\nMaxStartups 200\n"
                "MaxSessions 100\nAllowTcpForwarding yes\nSubsystem sftp internal-sftp\n" + variables)
        for target in (run / "slow.py", self.folder / "slow.py"):
            target.write_text(SLOW)
        log = (self.folder / "sshd.log").open("ab")
        self._init = subprocess.Popen(
            ["ip", "netns", "exec", self.netns, "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork",
             "--kill-child", "--mount-proc", "sh", "-c", INIT, "init", str(self.folder), self.name],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent)
        log.close()
        return self

    @property
    def pid(self):
        """Process 1 of the machine, as seen from outside."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self._init.poll() is None:  # it may not have been forked yet
            children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text().split()
            if children:
                return int(children[0])
            time.sleep(0.01)
        raise RuntimeError(f"{self.name} does not boot")

    def wait_for_sshd(self):
        end = time.monotonic() + PATIENCE_S
        while self.ssh("true").returncode != 0:
            if time.monotonic() > end:
                raise RuntimeError(f"sshd of {self.name}: {(self.folder / 'sshd.log').read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def crash(self):
        """Everything on it dies at once, and it answers nothing until boot(): the cable is out first."""
        if self._init is None:
            return
        self.cut()
        os.kill(self.pid, signal.SIGKILL)
        self._init.wait()
        self._init = None

    def cut(self):
        call("ip", "link", "set", self.link, "down")

    def mend(self):
        call("ip", "link", "set", self.link, "up")

    def enter(self, *words):
        return ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--net", "--uts", "--ipc", "--", *words]

    def run(self, script, check=True):
        """A script as root on the machine, not over its network."""
        environment = {"HOME": "/root", "PATH": os.environ["PATH"], "USER": "root"}
        done = subprocess.run(self.enter("sh", "-c", "cd /root && " + script), capture_output=True, text=True,
                              env=environment)
        if check and done.returncode != 0:
            raise RuntimeError(f"on {self.name}: {script}: {done.stderr or done.stdout}")
        return done.stdout

    def ssh(self, script):
        return subprocess.run([*self.hosts.ssh_command(self.name), script], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)

    def processes(self):
        """Command lines of all that runs there, less its sshd and this look."""
        lines = self.run("ps -eo args= -ww").splitlines()
        own = ("sh -c", "sshd", SSHD, "ps -eo", "sleep 0.05")
        return [line for line in lines if not line.startswith(own)]

    def fill_disk(self):
        """Leaves no room in its home folder. Only with disk_mb."""
        self.run("cat /dev/zero >/root/.filler 2>/dev/null || true")

    def free_disk(self):
        self.run("rm -f /root/.filler")

    def slow_sshd(self, seconds):
        self.run(f"echo {seconds} >/root/.sshd-delay; kill $(cat /run/sshd.pid)")

    def close(self):
        if self._init is not None:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError, RuntimeError):
                os.kill(self.pid, signal.SIGKILL)
            self._init.kill()
            self._init.wait()
            self._init = None
        subprocess.run(["ip", "link", "del", self.link], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.netns], capture_output=True)
        while os.path.ismount(self.home):
            if subprocess.run(["umount", "--lazy", str(self.home)], capture_output=True).returncode != 0:
                break


def own_names(folder, prefix):
    """A tag and a subnet that nobody on this machine has: no other test, of whatever checkout, and no network."""
    routes = subprocess.run(["ip", "-4", "route", "show", "table", "all"], capture_output=True, text=True).stdout
    for attempt in range(1000):
        digest = hashlib.sha256(f"{folder}{os.getpid()}{attempt}".encode()).digest()
        # 10.200.0.0/13: apart from what LocalNetwork (10.64.0.0/10) and containers use.
        subnet = f"10.{200 + digest[4] % 8}.{digest[5]}"
        if f"{subnet}." not in routes and reserve(f"subnet-{subnet}"):
            return prefix + digest[:4].hex(), subnet  # interface names have 15 bytes at most
    raise RuntimeError("no subnet of 10.200.0.0/13 is free")


class Hosts:
    def __init__(self, folder, names, disk_mb=0, booted=True):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tag, self.subnet = own_names(self.folder, "rh")
        self.bridge = self.tag + "br"
        (self.folder / "tag").write_text(self.tag)  # what is left after a kill -9 is found by it, and by nothing wider
        # A test that runs out of its time is told with SIGTERM: it must still take its machines away.
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        self.address = f"{self.subnet}.1"  # of the real machine
        self.key = self.folder / "id"
        self.hosts = {name: Host(self, name, 2 + number) for number, name in enumerate(names)}
        try:
            if not self.key.exists():
                call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
            call("ip", "link", "add", self.bridge, "type", "bridge")
            call("ip", "addr", "add", f"{self.address}/24", "dev", self.bridge)
            call("ip", "link", "set", self.bridge, "up")
            for host in self.hosts.values():
                host.make(disk_mb)
            for host in self.hosts.values() if booted else ():
                host.boot()
            for host in self.hosts.values() if booted else ():
                host.wait_for_sshd()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name):
        return self.hosts[name]

    def __iter__(self):
        return iter(self.hosts.values())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ssh_command(self, name):
        """For looking at a machine from a test; without its host key, which may change."""
        return ["ssh", "-i", str(self.key), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o",
                "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", "-o",
                "IdentitiesOnly=yes", f"root@{self.hosts[name].address}"]

    def close(self):
        for host in self.hosts.values():
            host.close()
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)


def main():
    folder, *names = sys.argv[1:]
    with Hosts(folder, names or ["head", "w1"]) as hosts:
        for host in hosts:
            print(f"{host.name:8} {shlex.join(hosts.ssh_command(host.name))}", flush=True)
        print(json.dumps({host.name: host.address for host in hosts}), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
