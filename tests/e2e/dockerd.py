"""A dockerd of the test's own: its data, its socket, its images. No registry is needed.

    with Dockerd(folder) as docker:
        docker.cli("ps")
    with Dockerd.on(host) as docker:      on a machine of hosts.py, at the usual place
    with Podman(host) as podman:          the same with podman, which needs no service

By hand, and for the unit tests in C++: `dockerd.py FOLDER` starts one, prints `ready SOCKET` (or `skip REASON`), and
ends it when standard input does.

The image `rubato-test` has busybox, and bash with the libraries that it needs, from this machine.
"""
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

IMAGE = "rubato-test"
# `ip netns exec` puts a /sys without cgroups in the place of the real one: mount them again, version 1 or 2.
MOUNT_CGROUPS = r"""
if [ "$(cut -c-3 /proc/self/cgroup)" = 0:: ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
  mount -t tmpfs cgroup /sys/fs/cgroup
  while IFS=: read -r _ controllers _; do
    [ -n "$controllers" ] || continue
    mkdir -p "/sys/fs/cgroup/${controllers#name=}"
    mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/${controllers#name=}"
  done </proc/self/cgroup
fi
exec "$@"
"""
HOST_START = ["unshare", "--mount", "sh", "-c", MOUNT_CGROUPS, "sh"]
START_MAX_S = 150
STOP_MAX_S = 30


# The same for podman, which needs no service: its images and containers are the machine's own. crun does not run where
# cgroups are of both versions, runc does.
PODMAN_CONF = """[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Unusable(Exception):
    """Docker cannot run on this machine; why."""


def why_not():
    """Why dockerd cannot run here, or None."""
    if os.geteuid() != 0:
        return "dockerd needs root"
    for program in ("dockerd", "docker", "busybox"):
        if not shutil.which(program):
            return f"{program} is not installed: tools/install-packages.sh test"
    return None


def libraries_of(program):
    words = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split()
    return [word for word in words if word.startswith("/")]


def make_image_tar(path):
    """The root of the image, as a tar file."""
    busybox, bash = shutil.which("busybox"), shutil.which("bash")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for folder in ("bin", "usr/bin", "etc", "tmp", "root", "proc", "sys", "dev", "home", "var"):
            (root / folder).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        shutil.copy(busybox, root / "bin/busybox")
        for applet in applets:
            if applet not in ("busybox", "bash"):
                (root / "bin" / applet).symlink_to("busybox")
        shutil.copy(bash, root / "bin/bash")
        for library in libraries_of(bash):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
        (root / "usr/bin/env").symlink_to("/bin/busybox")
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        (root / "etc/group").write_text("root:x:0:\n")
        (root / "etc/image").write_text("rubato-test\n")
        with tarfile.open(path, "w") as tar:
            tar.add(root, ".")


class Dockerd:
    def __init__(self, folder, inside=None, socket=None, enter=(), start=()):
        """`inside`: the folder's name where dockerd runs; `enter`: words that get there; `start`: before dockerd."""
        self.folder = Path(folder)
        self.inside = Path(inside or folder)
        self.socket = Path(socket or self.inside / "docker.sock")
        self.enter, self.start_words = list(enter), list(start)
        self.process = None

    @classmethod
    def on(cls, host):
        return cls(host.home / "docker", "/root/docker", "/run/docker.sock", host.enter(), HOST_START)

    @property
    def host(self):
        return f"unix://{self.socket}"

    @property
    def env(self):
        """For whoever is to use this one."""
        return dict(os.environ, DOCKER_HOST=self.host)

    def __enter__(self):
        reason = why_not()
        if reason:
            raise Unusable(reason)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.start()
            self.make_image()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        # Overlay of an overlay is refused by the kernel: then vfs, slow but always there.
        for driver in ("overlay2", "vfs"):
            if self.try_start(driver):
                return
            words = (self.folder / "log").read_text(errors="replace").strip().splitlines()[-3:]
            self.stop()
        raise Unusable("dockerd does not start: " + " | ".join(words))

    def try_start(self, driver):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*self.enter, *self.start_words, "dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none",
                 f"--storage-driver={driver}",
                 f"--data-root={self.inside}/data", f"--exec-root={self.inside}/exec", f"--pidfile={self.inside}/pid",
                 f"--host={self.host}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_MAX_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            if self.cli("version", check=False).returncode == 0:
                return True
            time.sleep(0.05)
        return False

    def make_image(self):
        path = self.folder / "image.tar"
        make_image_tar(path)
        self.cli("import", str(self.inside / "image.tar"), IMAGE)
        path.unlink()

    def cli(self, *words, check=True):
        done = subprocess.run([*self.enter, "docker", *words], capture_output=True, text=True, env=self.env,
                              stdin=subprocess.DEVNULL, timeout=START_MAX_S)
        if check and done.returncode != 0:
            raise AssertionError(f"docker {' '.join(words)}: {done.stderr.strip()}")
        return done

    def containers(self):
        return self.cli("ps", "-a", "--format", "{{.Names}}").stdout.split()

    def stop(self):
        if self.process is not None:
            if self.process.poll() is None:
                ids = self.cli("ps", "-aq", check=False).stdout.split()
                if ids:
                    self.cli("rm", "-f", *ids, check=False)
                self.process.terminate()
            try:
                self.process.wait(STOP_MAX_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process = None
        self.unmount()
        for name in ("data", "exec"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def unmount(self):
        """What dockerd leaves mounted, such as the namespace of --net=host."""
        inside = str(self.folder) + "/"
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted((each for each in mounts if each.startswith(inside)), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)


class Podman:
    """podman on a machine of hosts.py; `with Podman(host) as podman: podman.cli("ps")`."""

    def __init__(self, host):
        self.host = host

    @staticmethod
    def why_not():
        for program in ("podman", "runc", "busybox"):
            if not shutil.which(program):
                return f"{program} is not installed: tools/install-packages.sh test"
        return None

    def __enter__(self):
        (self.host.home / "etc").mkdir()
        shutil.copytree("/etc/containers", self.host.home / "etc/containers")
        (self.host.home / "etc/containers/containers.conf").write_text(PODMAN_CONF)
        self.host.run("mkdir -p /root/containers && mount --bind /root/containers /var/lib/containers && "
                      "mount --bind /root/etc/containers /etc/containers\n" + MOUNT_CGROUPS.replace('exec "$@"', ""))
        make_image_tar(self.host.home / "image.tar")
        self.cli("import", "/root/image.tar", IMAGE)
        (self.host.home / "image.tar").unlink()
        return self

    def cli(self, *words):
        return self.host.run(shlex.join(["podman", *words]))

    def containers(self):
        return self.cli("ps", "-a", "--format", "{{.Names}}").split()

    def stop(self):
        """Before the machine goes: containers outlive who started them."""
        self.host.run("podman rm -f -a -t 0", check=False)

    def __exit__(self, *_):
        self.stop()


def main():
    try:
        with Dockerd(sys.argv[1]) as docker:
            print("ready", docker.socket, flush=True)
            sys.stdin.read()
    except Unusable as reason:
        print("skip", reason, flush=True)


if __name__ == "__main__":
    main()
