"""What tests of commands against a cloud's stand-in share: the stand-in is a process, without machines."""
import json
import os
import subprocess
import urllib.request

import harness
from harness import PYTHON, ROOT, RUBATO


class CloudClientCase(harness.Case):
    stand_in = ""  # below tests/

    def environment_for(self, told):
        """What a command needs to find the stand-in, which has printed `told`."""
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen([PYTHON, str(ROOT / "tests" / self.stand_in)], stdout=subprocess.PIPE, text=True,
                                       preexec_fn=harness.die_with_parent)
        self.addCleanup(self.end_server)
        told = json.loads(self.server.stdout.readline())
        self.url = told["url"]
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home)} | self.environment_for(told)

    def end_server(self):
        self.server.terminate()
        self.server.wait()
        self.server.stdout.close()

    def control(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/_fake/{path}", data)) as answer:
            return json.load(answer)

    def asked(self):
        """The operations of all requests, in order."""
        return [each["operation"] for each in self.control("requests")]

    def run_it(self, program, *args, code=0, env=()):
        done = subprocess.run([program, *map(str, args)], env=self.env | dict(env), capture_output=True, text=True,
                              cwd=self.folder, timeout=harness.WAIT)
        self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}\n{done.stderr}")
        return done

    def rubato(self, *args, **more):
        return self.run_it(RUBATO, *args, **more)

    def make_file(self, name, size):
        path = self.folder / name
        with open(path, "wb") as file:
            while size > 0:
                size -= file.write(os.urandom(min(size, 1 << 20)))
        return path

    def make_tree(self, names):
        """A folder with files that hold their names."""
        for name in names:
            path = self.folder / "tree" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)

    def memory_of(self, *args):
        """The most that a command had in its memory, in bytes."""
        process = subprocess.Popen([RUBATO, *args], env=self.env, cwd=self.folder, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(status, 0, args)
        return usage.ru_maxrss * 1024
