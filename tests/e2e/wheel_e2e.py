"""`make wheel`: one file, and `pip install` of it into a fresh environment gives the program and the library."""
import subprocess
import sys
import venv
from pathlib import Path

import harness
from harness import RUBATO, ROOT

sys.path.insert(0, str(ROOT / "tools"))
import wheel  # noqa: E402

SCRIPT = """import os, sys, rubato.torch
# One write: what two workers print at once may be mixed otherwise.
sys.stdout.write(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} {rubato.__file__}\\n")
"""


class Wheel(harness.Case):
    def run_in(self, *argv, **kwargs):
        # The environment's own program and interpreter, as after `source bin/activate`.
        path = f"{self.folder}/venv/bin:/usr/bin:/bin"
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, cwd=self.folder,
                              env={"PATH": path, "HOME": str(self.folder)}, **kwargs)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def make(self, name):
        wheel.main([RUBATO, str(self.folder / name)])
        [path] = (self.folder / name).iterdir()
        return path

    def test_one_file_gives_program_and_library(self):
        path = self.make("dist")
        self.assertEqual(path.read_bytes(), self.make("again").read_bytes())
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", self.folder / "venv"], check=True)
        pip = ["venv/bin/python", "-m", "pip", "--disable-pip-version-check"]
        self.run_in(*pip, "install", "--no-index", "--no-deps", path)
        program = self.folder / "venv/bin/rubato"
        self.assertEqual(self.run_in(program, "--version"), subprocess.check_output([RUBATO, "--version"], text=True))
        ask = "import importlib.metadata as m; print(m.version('rubato'))"
        self.assertEqual(self.run_in("venv/bin/python", "-c", ask), wheel.version() + "\n")
        (self.folder / "train.py").write_text(SCRIPT)
        alone = self.run_in("venv/bin/python", "-c", "import rubato; print(rubato.__file__)")
        self.assertTrue(Path(alone.strip()).is_relative_to(self.folder / "venv"), alone)
        out = self.run_in("rubato", "run", "--standalone", "--nproc-per-node", 2, "train.py")
        self.assertEqual({line.split(" /")[0] for line in out.splitlines()}, {"rank 0 of 2", "rank 1 of 2"})
        self.run_in(*pip, "uninstall", "-y", "rubato")
        left = [each for each in (self.folder / "venv").rglob("*rubato*")]
        self.assertEqual(left, [])

    def test_a_binary_that_would_not_run_elsewhere_is_refused(self):
        with self.assertRaises(SystemExit) as refused:
            wheel.main(["/bin/ls", str(self.folder / "dist")])
        self.assertIn("is not static", str(refused.exception))
        with self.assertRaises(SystemExit) as refused:
            wheel.main([str(self.folder / "none"), str(self.folder / "dist")])
        self.assertIn("make build", str(refused.exception))
        self.assertFalse((self.folder / "dist").exists())


if __name__ == "__main__":
    harness.main()
