"""A container of a test pod: a real process with its own mounts and process numbers, on this machine's file system.

Its root is an overlay over this machine's root, so that any mount path can be made in it and nothing of it stays; /tmp
and /run are empty, the checkout is there read-only. Its command is process 1, as in a real container: a signal without
a handler does nothing to it, and when it ends all others in there are killed.
"""
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

from harness import MARK, ROOT, die_with_parent

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Image:
    """What a container image is here: files from this machine at some paths, a default command, an environment."""

    def __init__(self, files=None, entrypoint=(), env=None, workdir="/", bad=False):
        self.files, self.entrypoint, self.env = files or {}, list(entrypoint), env or {}
        self.workdir, self.bad = workdir, bad


def expand(text, env):
    """$(NAME) as Kubernetes does it: unknown names stay, $$(NAME) is $(NAME)."""
    return re.sub(r"\$(\$)?\(([A-Za-z_.-][\w.-]*)\)|\$\$",
                  lambda m: "$" if m.group(0) == "$$" else f"$({m.group(2)})" if m.group(1)
                  else env.get(m.group(2), m.group(0)), text)


BEGIN_MAX_S = 60  # for the preparations of a container


class Container:
    """One start of one container. `mounts` is [(source, path inside, read only)]."""

    def __init__(self, folder, pod_network, argv, env, workdir, mounts, files, log):
        self.folder, self._begun = folder, folder / "begun"
        folder.mkdir(parents=True)
        (folder / "fs").mkdir()
        script = folder / "start.sh"
        script.write_text(self._script(argv, env, workdir, mounts, files))
        self.log = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                [*pod_network.inside(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", str(script)],
                env={"PATH": DEFAULT_PATH} | ({MARK: env[MARK]} if MARK in env else {}), cwd="/",
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with_parent, start_new_session=True)
        self.started_at = time.time()
        self._signals = []

    def _script(self, argv, env, workdir, mounts, files):
        quoted = shlex.quote
        fs = quoted(str(self.folder / "fs"))
        lines = ["set -e", "mount --make-rprivate /", f"mount -t tmpfs tmpfs {fs}",
                 f"mkdir {fs}/upper {fs}/work {fs}/root",
                 f"mount -t overlay overlay -o lowerdir=/,upperdir={fs}/upper,workdir={fs}/work {fs}/root",
                 f"cd {fs}/root", "mount --rbind /dev dev", "mount -t tmpfs tmpfs dev/shm", "mount -t proc proc proc",
                 "mount --rbind /sys sys", "mount -t tmpfs -o mode=1777 tmpfs tmp", "mount -t tmpfs tmpfs run",
                 "rm -rf var/run; ln -s /run var/run",
                 f"mkdir -p .{quoted(str(ROOT))}; mount --bind -o ro {quoted(str(ROOT))} .{quoted(str(ROOT))}"]
        for path, text in files.items():
            lines.append(f"rm -f .{quoted(path)}; printf %s {quoted(text)} >.{quoted(path)}")
        for source, path, read_only in mounts:
            there = quoted("./" + resolved(path).lstrip("/"))
            make = f"mkdir -p {there}" if Path(source).is_dir() else \
                f"mkdir -p $(dirname {there}); [ -e {there} ] || : >{there}"
            lines.append(f"{make}; mount --bind {quoted(str(source))} {there}")
            if read_only:
                lines.append(f"mount -o remount,bind,ro {there}")
        given = " ".join(quoted(f"{name}={value}") for name, value in env.items())
        # A folder that is not there is made, as container runtimes do.
        inner = 'mkdir -p "$1" && cd "$1" && shift && exec "$@"'
        lines += [f": >{quoted(str(self._begun))}", "exec chroot . /usr/bin/env -i " + given +
                  f" /bin/sh -c {quoted(inner)} sh {quoted(workdir)} {shlex.join(argv)}"]
        return "\n".join(lines) + "\n"

    @property
    def pid(self):
        """Process 1 of the container as seen from outside; None before and after its life."""
        try:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            return int(children[0]) if children else None
        except OSError:
            return None

    def has_begun(self):
        """Whether its own command runs, so that a signal reaches that and not the preparations."""
        pid = self.pid
        try:
            return self._begun.exists() and pid is not None and \
                b"start.sh" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def terminate(self):
        self._signals.append(signal.SIGTERM)
        self.deliver()

    def deliver(self):
        """Sends the signals that have waited for its command to begin."""
        while self._signals and self.has_begun():
            try:
                os.kill(self.pid, self._signals.pop())
            except (ProcessLookupError, TypeError):
                return

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()  # `unshare --kill-child` and the kernel end the rest

    def code(self):
        """None while it runs; else the exit code as Kubernetes reports it."""
        self.deliver()
        code = self.process.poll()
        return None if code is None else code if code >= 0 else 128 - code

    def enter(self, argv):
        """The argv that runs something inside, for exec and probes: once its own root is there, not this machine's."""
        limit = time.monotonic() + BEGIN_MAX_S
        while not self.has_begun() and self.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.01)
        pid = self.pid
        env = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")[:-1]
        return ["nsenter", "--target", str(pid), "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd", "--",
                "/usr/bin/env", "-i", *env, *argv]


def resolved(path):
    """/var/run is a link to /run in a container here: a mount below it must go where the link leads."""
    return "/run" + path.removeprefix("/var/run") if path.startswith("/var/run/") or path == "/var/run" else path
