"""`rubato completion SHELL`, in the shells themselves."""
import os
import pty
import re
import select
import shutil
import subprocess
import time
import unittest

import harness
from harness import RUBATO


class Completion(harness.Case):
    def setUp(self):
        super().setUp()
        os.symlink(RUBATO, self.folder / "rubato")

    def script(self, shell):
        path = self.folder / f"_{shell}"
        path.write_bytes(subprocess.run([RUBATO, "completion", shell], check=True, capture_output=True).stdout)
        return path

    def run_in(self, *argv):
        done = subprocess.run(argv, capture_output=True, text=True, cwd=self.folder, timeout=harness.WAIT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split("\n")

    def bash(self, *words):
        """The answers to a Tab at the end of the last word."""
        quoted = " ".join(f"'{word}'" for word in words)
        return self.run_in("bash", "--norc", "-c", f"source {self.script('bash')}; COMP_WORDS=({quoted}); "
                           f"COMP_CWORD={len(words) - 1}; _rubato; printf '%s\\n' \"${{COMPREPLY[@]}}\"")[:-1]

    def fish(self, line):
        """{answer: its explanation}"""
        answers = self.run_in("fish", "--no-config", "-c", f"source {self.script('fish')}; complete -C '{line}'")
        return dict((answer + "\t").split("\t")[:2] for answer in answers if answer)

    def test_bash(self):
        self.assertEqual(self.bash("rubato", "ex"), ["exec"])
        self.assertEqual(self.bash("rubato", "config", "m"), ["migrate"])
        self.assertEqual(self.bash("rubato", "up", "--no-r"), ["--no-restart"])
        self.assertEqual(self.bash("rubato", "config", "check", "--j"), ["--json"])
        self.assertEqual(self.bash("rubato", "completion", "z"), ["zsh"])

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        self.assertIn("run a command", self.fish("rubato ex")["exec"])
        self.assertEqual(sorted(self.fish("rubato config ")), ["check", "explain", "migrate", "schema", "show"])
        self.assertEqual(list(self.fish("rubato confi")), ["config"])
        self.assertIn("--no-restart", self.fish("rubato up --no"))
        self.assertNotIn("--no-restart", self.fish("rubato down --no"))
        self.assertEqual(list(self.fish("rubato completion z")), ["zsh"])

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        script = self.script("zsh")
        self.assertEqual(self.run_in("zsh", "-n", script), [""])
        with Zsh(self.folder, script) as zsh:
            self.assertIn("rubato exec ", zsh.tab("rubato exe"))
            self.assertIn("rubato config migrate ", zsh.tab("rubato config mi"))
            self.assertIn("rubato up --no-restart ", zsh.tab("rubato up --no-r"))
            self.assertIn("rubato completion fish ", zsh.tab("rubato completion fi"))
            listed = zsh.listing("rubato c", "clusters")
            self.assertEqual(len(re.findall(r"^config\b", listed, re.M)), 1, listed)


# zsh asks for pasted text to be marked when its line editor begins; keys before that are the kernel's, Tab and all.
EDITING = "\x1b[?2004h"


class Zsh:
    """A shell at a terminal of ours."""

    def __init__(self, folder, script, env=None):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            own = {"PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(folder), "PS1": "",
                   "ZDOTDIR": str(folder)}
            os.execvpe("zsh", ["zsh", "-f", "-i"], own | (env or {}))
        self.pid, self._asked = pid, 0
        self.tell(f"unsetopt prompt_sp; setopt no_beep; autoload -U compinit; compinit -u -D; source {script}; "
                  "PS1='zsh''> '\n", "zsh> ", EDITING)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.terminal)  # hangs up
        os.waitpid(self.pid, 0)

    def tell(self, keys, until, then=""):
        """What is shown until the words are there, and those that come after them."""
        os.write(self.terminal, keys.encode())
        shown, deadline = "", time.monotonic() + harness.WAIT
        while until not in shown or then not in shown.partition(until)[2]:
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"waited for {until!r}, saw {shown!r}")
            shown += os.read(self.terminal, 65536).decode(errors="replace")
        return shown.replace("\r", "\n")

    def tab(self, line):
        """What is shown after a Tab; the line is taken back. The prompt may be drawn twice: each answer has its end."""
        self._asked += 1
        return self.tell(f"{line}\t\x15print 'end''-of-{self._asked}'\n", f"end-of-{self._asked}", EDITING)

    def listing(self, line, word):
        """The list that a Tab brings, with this word in it. zsh draws none while keys are waiting for it."""
        shown = self.tell(f"{line}\t", word)
        self._asked += 1
        return shown + self.tell(f"\x15print 'end''-of-{self._asked}'\n", f"end-of-{self._asked}", EDITING)


if __name__ == "__main__":
    harness.main()
