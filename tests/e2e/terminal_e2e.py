#!/usr/bin/env python3
"""`attach` and `exec` at a real terminal: shells, screen and tmux on machines of hosts.py, typed by a person."""
import shlex
import unittest

import hosts as machines
import remote_testing
from harness import RUBATO, free_port, wait_until
from terminal import Terminal

DETACH = {"tmux": "\x02d", "screen": "\x01d"}


@unittest.skipIf(machines.why_not(), machines.why_not())
class TerminalTest(remote_testing.RemoteCase):
    def at(self, *args, **size):
        return Terminal([RUBATO, *map(str, args)], self.environment(), self.folder, **size)

    def sessions(self, program):
        """The names of a multiplexer's sessions on the head's machine."""
        if program == "tmux":
            return self.hosts["head"].run("tmux -L rubato-lab list-sessions -F '#S' 2>/dev/null", check=False).split()
        lines = self.hosts["head"].run("screen -ls", check=False).splitlines()
        return [line.split()[0] for line in lines if ".rubato-lab." in line]

    def hide(self, program, host="head"):
        """As if it had never been installed there."""
        over = "lowerdir=/usr/bin,upperdir=/root/.bin/over,workdir=/root/.bin/work"
        self.hosts[host].run("cd /; if ! mountpoint -q /usr/bin; then mkdir -p /root/.bin/over /root/.bin/work; "
                             f"mount -t overlay overlay -o {over} /usr/bin; fi; rm /usr/bin/{program}")

    def test_a_shell_on_the_head_and_on_a_worker(self):
        self.make("head", "w1")
        self.hosts["head"].run("echo 'export FROM_PROFILE=read; PATH=/usr/bin:/bin' > .bash_profile")
        (self.folder / "cluster.yaml").write_text(self.text())
        with self.at("attach", "cluster.yaml", "--start", rows=31, columns=101) as screen:
            screen.expect("'lab' is up with 2 nodes")
            screen.expect("head:~#")
            screen.type("echo at-$(hostname)-$FROM_PROFILE-$RUBATO_CLUSTER-; stty size\r")
            screen.expect("at-head-read-lab-")
            screen.expect("31 101")
            screen.resize(40, 120)
            # The new size takes its way over the connection, the keys theirs.
            screen.type("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.1; done; echo now-$(stty size)-; "
                        "rubato get-head-ip; shopt -q expand_aliases && echo inter''active\r")
            screen.expect("now-40 120-")
            screen.expect(r"127\.0\.0\.1")  # rubato is in the PATH, and means this cluster
            screen.expect("interactive")
            screen.type("sh -c 'echo be\"\"gins; exec sleep 1000'\r")  # it says so itself: the key is its own then
            screen.expect("begins")
            screen.interrupt()
            screen.type("echo code-$?-\r")
            screen.expect("code-130-")
            screen.type("exit 7\r")
            self.assertEqual(screen.end(), 7, screen.shown)
        # A command that fills the screen sees the terminal, and Ctrl-C ends it there.
        sleeper = "stty size; sh -c 'echo be\"\"gins; exec sleep 1001'; echo not''reached"
        with self.at("exec", "lab", sleeper, rows=33) as screen:
            screen.expect("33 80")
            screen.expect("begins")
            screen.interrupt()
            self.assertEqual(screen.end(), 130, screen.shown)
            self.assertNotIn("notreached", screen.shown)
        wait_until(lambda: not [line for line in self.hosts["head"].processes() if "sleep 1001" in line],
                   "the end of the command on the head")
        for words in (["--node", "worker-1"], ["--node-ip", self.hosts["w1"].address]):
            with self.at("attach", "lab", *words, rows=35) as screen:
                screen.type("echo at-$(hostname)-; stty size; rubato version | head -c6\r")
                screen.expect("at-w1-")
                screen.expect("35 80")
                screen.expect("rubato")
                screen.type("exit 3\r")
                self.assertEqual(screen.end(), 3, screen.shown)
        port = free_port()
        with self.at("attach", "lab", "-p", f"{port}:{port}") as screen:
            screen.type(f"printf %s pa''ge > page; python3 -m http.server {port} --bind 127.0.0.1\r")
            screen.expect("Serving")
            wait_until(lambda: self.page(port) == "page", "the page through the forwarded port")
            screen.interrupt()
            screen.type("exit\r")
            screen.end()
        unknown = self.rubato("attach", "lab", "--node", "worker-9", code=1)
        self.assertIn("worker-9", unknown.stderr)
        self.assertIn("--new needs --screen or --tmux", self.rubato("attach", "lab", "--new", code=2).stderr)

    def check_sessions(self, program):
        flag, leave = f"--{program}", DETACH[program]
        with self.at("attach", "lab", flag) as screen:
            screen.type("x=17; echo is-$((x+1))-$(hostname)-\r")
            screen.expect("is-18-head-")
            screen.type(leave)
            self.assertEqual(screen.end(), 0, screen.shown)
        with self.at("attach", "lab", flag) as screen:  # the same one
            screen.type("echo again-$((x+2))-\r")
            screen.expect("again-19-")
            screen.hang_up()  # the window is closed: the session stays
        self.assertEqual(len(self.sessions(program)), 1)
        with self.at("attach", "lab", flag, "--new") as screen:
            screen.type("echo new-$((x+2))-; rubato get-head-ip\r")
            screen.expect("new-2-")
            screen.expect(r"127\.0\.0\.1")
            screen.type("exit\r")
            self.assertEqual(screen.end(), 0, screen.shown)
        wait_until(lambda: len(self.sessions(program)) == 1, lambda: f"one of {self.sessions(program)}")
        with self.at("attach", "lab", flag) as screen:
            screen.type("echo still-$((x+3))-\r")
            screen.expect("still-20-")
            screen.type("exit\r")
            screen.end()
        wait_until(lambda: self.sessions(program) == [], lambda: f"the end of {self.sessions(program)}")

        # A command goes on without whoever typed it, and its session is there to be looked at.
        started = self.rubato("exec", "lab", flag, f"touch {program}-began; read word; echo $word > {program}-said")
        self.assertIn(f"rubato attach lab {flag}", started.stderr)
        wait_until(lambda: (self.hosts["head"].home / f"{program}-began").exists(), "the command's begin")
        with self.at("attach", "lab", flag) as screen:
            screen.type("hel''lo\r")
            wait_until(lambda: (self.hosts["head"].home / f"{program}-said").exists(), "the command's end")
            screen.type("echo shell-$((40+2))-\r")  # a shell follows the command
            screen.expect("shell-42-")
            screen.type("exit\r")
            screen.end()
        wait_until(lambda: self.sessions(program) == [], lambda: f"the end of {self.sessions(program)}")

        self.hide(program)
        for words in (["attach", "lab", flag], ["exec", "lab", flag, "true"]):
            missing = self.rubato(*words, code=2)
            self.assertIn(f"there is no {program} on {self.hosts['head'].address}", missing.stderr)
            self.assertIn(f"apt-get install {program}", missing.stderr)

    def test_tmux_and_screen_sessions_are_found_again(self):
        self.make("head")
        self.up(self.text())
        # Another cluster's screen, and the person's own sessions, are none of ours.
        self.hosts["head"].run("screen -dmS rubato-lab-2. sleep 1000; tmux new-session -d sleep 1000")
        self.check_sessions("tmux")
        self.check_sessions("screen")
        self.assertIn("rubato-lab-2.", self.hosts["head"].run("ls /run/screen/*"))

    def test_a_command_in_tmux_ends_the_cluster_with_it(self):
        self.make("head", "w1")
        (self.folder / "cluster.yaml").write_text(self.text())
        gone = lambda: not self.agents_on("head") and not self.agents_on("w1")
        go_on = shlex.quote("/root/go on")
        wait = f"touch began; while ! [ -e {go_on} ]; do sleep 0.1; done"
        for flag in ("--tmux", "--screen"):
            done = self.rubato("exec", "cluster.yaml", wait, "--start", "--stop", flag)
            self.assertIn("the cluster ends with it", done.stderr)
            wait_until(lambda: (self.hosts["head"].home / "began").exists(), "the command's begin")
            self.assertTrue(self.agents_on("head") and self.agents_on("w1"))
            if flag == "--tmux":
                (self.hosts["head"].home / "go on").touch()
            else:
                self.hosts["head"].run("screen -S rubato-lab. -X quit")  # the session is killed, not the command
            wait_until(gone, lambda: f"the end of {self.hosts['head'].processes()} {self.hosts['w1'].processes()}")
            self.hosts["head"].run("rm -f began 'go on'")
            wait_until(lambda: self.rubato("status", code=None).returncode == 1, "the end of the head")
            self.assertIn("is not running", self.rubato("status", code=1).stderr)
            self.rubato("down", "cluster.yaml", "-y")
            self.assert_hosts_are_clean()
        # A session that cannot begin leaves no cluster behind.
        self.hide("tmux")
        missing = self.rubato("exec", "cluster.yaml", "true", "--start", "--stop", "--tmux", code=2)
        self.assertIn("there is no tmux on", missing.stderr)
        self.assert_hosts_are_clean()


if __name__ == "__main__":
    unittest.main(verbosity=2)
