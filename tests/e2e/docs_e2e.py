"""The commands that README.md and docs/*.md show, typed in order in a home of their own. A block says what it is in the
words after its ```:

  sh                    every line is run by bash, all blocks of a page in one shell, which stops at the first failure
  console               lines with "$ " are run; the lines below each must come, in order (numbers and ids may differ,
                        "…" stands for anything; a command above "error:" must fail)
  sh not-run: WHY       shown only: accounts, other machines, a terminal
  console not-run: WHY
  sh example            of cli.md, which src/cli/cli_test.cc parses
  text, yaml, python    not commands. A yaml or python block whose first line is "# NAME" is the file NAME of that page
"""
import os
import re
import signal
import subprocess
from pathlib import Path

import harness
from harness import ROOT, RUBATO

PAGES = ["README.md"] + sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
KINDS = {"sh", "console", "text", "yaml", "python", "json"}
FILE = re.compile(r"# ([\w./-]+\.(?:py|yaml|json))$")
FILES_OF = re.compile(r"<!-- files of (.+?) -->")


class Block:
    def __init__(self, page, line, info, lines):
        self.place, self.lines = f"{page}:{line}", lines
        self.kind, _, self.marker = info.partition(" ")
        self.runs = self.kind in ("sh", "console") and not self.marker


def blocks_of(page):
    found, start, info, lines = [], 0, "", []
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if line.startswith("```"):
            if start:
                found.append(Block(page, start, info, lines))
                start = 0
            else:
                start, info, lines = number, line[3:].strip(), []
        elif start:
            lines.append(line)
    return found


def files_of(page):
    """{name: text} of the files that the page shows, or takes over from another page."""
    files = {}
    for others in FILES_OF.findall((ROOT / page).read_text()):
        for other in others.split(", "):
            files |= files_of(other)
    for block in blocks_of(page):
        named = FILE.match(block.lines[0]) if block.lines and block.kind in ("yaml", "python", "json") else None
        if named:
            files[named.group(1)] = "\n".join(block.lines) + "\n"
    return files


def pattern_of(line):
    """A shown line as a pattern: numbers, sizes, times and ids may be others."""
    out = ""
    for part in re.split(r"(…|j-[0-9a-f]{8}|[0-9][0-9.:]*(?:ms|[smhd]|\.\.\.)?|\s+)", line.strip()):
        if part == "…":
            out += ".*"
        elif re.fullmatch(r"j-[0-9a-f]{8}", part):
            out += "j-[0-9a-f]{8}"
        elif re.match(r"[0-9]", part):
            out += r"[0-9][0-9.:smhd]*"
        elif part.isspace():
            out += r"\s+"
        else:
            out += re.escape(part)
    return re.compile(out)


class Console:
    """The commands of a console block, each with the lines that are shown below it."""

    def __init__(self, block):
        self.steps = []
        for line in block.lines:
            if line.startswith("$ "):
                self.steps.append((line[2:], []))
            elif self.steps and line.startswith("> "):
                self.steps[-1] = (self.steps[-1][0] + "\n" + line[2:], self.steps[-1][1])
            elif self.steps and line.strip():
                self.steps[-1][1].append(line)


class Docs(harness.Case):
    def setUp(self):
        super().setUp()
        self.home = self.folder / "home"
        self.work = self.home / "work"
        self.work.mkdir(parents=True)
        (self.home / "bin").mkdir()
        os.symlink(RUBATO, self.home / "bin/rubato")
        os.symlink(ROOT / "examples", self.work / "examples")  # pages type from the folder of a checkout

    def environment(self, **changes):
        path = f"{self.home / 'bin'}:{os.environ['PATH']}"
        return super().environment(**({"HOME": str(self.home), "PATH": path, "XDG_STATE_HOME": None, "USER": "tester",
                                       "RUBATO_CLUSTER": None, "GLOO_SOCKET_IFNAME": None} | changes))

    def tearDown(self):
        for place in sorted(self.home.glob(".local/state/rubato/clusters/*")):
            subprocess.run([RUBATO, "down", "-y", "--purge", "--timeout", "20s", "--cluster", place.name],
                           env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
        super().tearDown()

    def run_page(self, page):
        for name, text in files_of(page).items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        port = harness.free_port()  # others may test at the usual one
        shell = Shell(self)
        with shell:
            for block in blocks_of(page):
                if not block.runs:
                    continue
                block.lines = [line.replace(":29400", f":{port}") for line in block.lines]
                if block.kind == "sh":
                    shell.type("\n".join(block.lines), block.place)
                    continue
                for command, shown in Console(block).steps:
                    refused = bool(shown) and shown[0].startswith("error:")
                    printed = shell.type(command, f"{block.place}: {command}", refused)
                    at = 0
                    for line in shown:
                        match = pattern_of(line).search(printed, at)
                        self.assertIsNotNone(match, f"{block.place}: {command}\nshows\n{line}\nbut printed\n{printed}")
                        at = match.end()

    def test_page_readme(self):
        self.run_page("README.md")

    def test_page_allocate(self):
        self.run_page("docs/allocate.md")

    def test_page_api(self):
        self.run_page("docs/api.md")

    def test_page_autoscaler(self):
        self.run_page("docs/autoscaler.md")

    def test_page_aws(self):
        self.run_page("docs/aws.md")

    def test_page_clusters(self):
        self.run_page("docs/clusters.md")

    def test_page_config(self):
        self.run_page("docs/config.md")

    def test_page_external_providers(self):
        self.run_page("docs/external-providers.md")

    def test_page_fault_tolerance(self):
        self.run_page("docs/fault-tolerance.md")

    def test_page_jobs(self):
        self.run_page("docs/jobs.md")

    def test_page_journal(self):
        self.run_page("docs/journal.md")

    def test_page_security(self):
        self.run_page("docs/security.md")

    def test_page_simulate(self):
        self.run_page("docs/simulate.md")

    def test_page_testing(self):
        self.run_page("docs/testing.md")

    def test_every_page_with_commands_is_run(self):
        run = set(re.findall(r'self.run_page\("([^"]+)"\)', Path(__file__).read_text()))
        self.assertEqual(sorted(run), sorted(page for page in PAGES if any(block.runs for block in blocks_of(page))))

    def test_every_block_says_what_it_is(self):
        wrong = []
        for page in PAGES:
            for block in blocks_of(page):
                known = block.kind in KINDS and (not block.marker or block.marker == "example"
                                                 or re.match(r"not-run: .{5}", block.marker))
                if not known:
                    wrong.append(f"{block.place}: '{block.kind} {block.marker}'")
        self.assertEqual(wrong, [])

    def test_paths_of_the_repository_are_there(self):
        missing = []
        for page in PAGES:
            for path in re.findall(r"`((?:src|tests|tools|examples|docs|python|bench|demo|cmake)/[\w./{},*-]+)",
                                   (ROOT / page).read_text()):
                head, _, rest = path.partition("{")
                choices, _, tail = rest.partition("}")
                for choice in choices.split(","):
                    if "foo" not in path and not list(ROOT.glob(head + choice + tail)):
                        missing.append(f"{page}: {head}{choice}{tail}")
        self.assertEqual(missing, [])

    def test_links_lead_somewhere(self):
        missing = []
        for page in PAGES:
            text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)", text):
                if "://" not in target and not ((ROOT / page).parent / target).exists():
                    missing.append(f"{page}: {target}")
        self.assertEqual(missing, [])


class Shell:
    """One bash for a page. Each block is typed when the one before has ended."""

    def __init__(self, case):
        self.case, self.blocks = case, 0
        self.answers = case.folder / "answers"
        self.answers.touch()

    def __enter__(self):
        self.log = open(self.case.folder / "printed", "w+b")
        words = 'set -eo pipefail; while IFS= read -r f; do . "$f"; echo "$f" >> "$0"; done'
        self.process = subprocess.Popen(["bash", "--norc", "-c", words, self.answers], env=self.case.environment(),
                                        cwd=self.case.work, stdin=subprocess.PIPE, stdout=self.log,
                                        stderr=subprocess.STDOUT, text=True, preexec_fn=harness.die_with_parent,
                                        start_new_session=True)
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # with what it left in the background
        self.process.communicate()
        self.log.close()

    def type(self, text, place, refused=False):
        """What is printed until it has ended; it must end well, or be refused."""
        self.blocks += 1
        path = self.case.folder / f"block-{self.blocks}"
        path.write_text(f"{{ {text}\n}} </dev/null{' && exit 99 || true' if refused else ''}\n")
        begin = os.fstat(self.log.fileno()).st_size
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        done = harness.wait_until(lambda: (str(path) in self.answers.read_text() and "well")
                                  or (self.process.poll() is not None and "badly"), f"the end of {place}",
                                  timeout=2 * harness.WAIT)
        printed = os.pread(self.log.fileno(), 10 << 20, begin).decode(errors="replace")
        self.case.assertEqual(done, "well", f"{place} fails:\n{text}\nprinted\n{printed}")
        return printed


if __name__ == "__main__":
    harness.main()
