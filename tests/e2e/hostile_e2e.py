"""Another user of the machine who crowds every port, and requests that are far too big: neither hurts anybody."""
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cluster_harness
import harness
import inplace_testing
from cluster_harness import cluster_text
from harness import RUBATO, SCRIPTS, wait_until
from inplace_testing import PACE, TRAIN

TOOL = SCRIPTS / "job_tool.py"
TEXT = cluster_text(small=(2, 2, 2))
MANY = 1_000_000
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def crowd(case, *places):
    """Another user's program that crowds these ports to the end of the test; returns when it holds what it wants."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise unittest.SkipTest("needs root, to become another user")
    # It may read neither the sources nor the test's folder, and is ended after the test's own processes.
    folder = Path(tempfile.mkdtemp(prefix="neighbour-"))
    case.addCleanup(shutil.rmtree, folder)
    folder.chmod(0o755)
    script = Path(shutil.copy(SCRIPTS / "neighbour.py", folder))
    script.chmod(0o644)
    process = subprocess.Popen([*NOBODY, "/usr/bin/python3", str(script), *places], cwd="/", env={},
                               stdout=subprocess.PIPE, text=True, preexec_fn=harness.die_with_parent)

    def end():
        process.kill()
        process.communicate()

    case.addCleanup(end)
    case.assertEqual(process.stdout.readline(), "ready\n")
    return process


def resident_kib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


class Neighbour(cluster_harness.ClusterCase):
    def places(self):
        told = json.loads((self.place / "head/head.json").read_text())
        api, agents = told["api"]["port"], told["agents"]["port"]
        return [f"half:{api}", f"flood:{api}", f"tls:{agents}"]

    def test_costs_only_his_own_connections(self):
        self.up(TEXT)
        steps = self.submit_steps("--workers", 2)
        generation = self.wait_for_workers_of(steps, 2)["generation"]
        agents, places = self.node_pids(), self.places()
        hostile = crowd(self, *places)
        for _ in range(5):
            self.rubato("status")
            self.assertEqual(self.api("GET", "/api/v1/status")[0], 200)
        self.wait_for_job(self.submit(TOOL, "say", 2), "succeeded")
        self.kill_head()
        self.up()
        self.assertEqual(self.places(), places, "the neighbour crowds the new head's ports, too")
        self.wait_for_job(self.submit(TOOL, "say", 2), "succeeded")
        self.order("finish")
        job = self.wait_for_job(steps, "succeeded")
        self.assertEqual((job["generation"], job["restarts_used"]), (generation, 0))
        self.assertEqual(self.node_pids(), agents)
        self.assertIsNone(hostile.poll())


class Crowded(cluster_harness.ClusterCase):
    def test_forty_commands_at_once(self):
        self.up(TEXT)
        with ThreadPoolExecutor(40) as pool:
            ends = list(pool.map(lambda _: self.rubato("status", code=None), range(40)))
        self.assertEqual({end.returncode for end in ends}, {0}, [end.stderr for end in ends if end.returncode])

    def test_a_folder_with_a_long_path(self):
        self.state = self.folder / ("long-" * 30)
        self.state.mkdir()
        self.up(TEXT)
        self.assertGreater(len(str(self.place / "head/api.sock")), 108)
        self.wait_for_job(self.submit(TOOL, "say", 2), "succeeded")
        for name in ("api.sock", "agents.sock"):
            self.assertEqual((self.place / "head" / name).stat().st_mode & 0o777, 0o600)


class TooBig(cluster_harness.ClusterCase):
    def bodies(self):
        """A million of each thing that a request has a list or a mapping of: (method, path, text)."""
        names = "{" + ",".join(f'"r{i}":1' for i in range(MANY)) + "}"
        many = "[" + '"x",' * MANY + '"x"]'
        job = '{"name": "big", "kind": "binary", "program": "true", '
        for field, value in (("per_worker", names), ("args", many), ("env", names), ("prewarm", many)):
            yield "POST", "/api/v1/jobs", f'{job}"{field}": {value}}}'
        yield "POST", "/api/v1/jobs", job + names[1:]
        yield "POST", "/api/v1/requests", '{"bundles": [{"resources": %s, "count": 1}]}' % names
        yield "POST", "/api/v1/requests", '{"bundles": %s}' % many
        for method, path in (("PUT", "/api/v1/cluster"), ("POST", "/api/v1/plan")):
            yield method, path, '{"text": "", "x": %s}' % names
            yield method, path, json.dumps({"text": TEXT + "# x\n" * MANY, "file": "c.yaml"})
            resources = ", ".join(f"r{i}: 1" for i in range(30_000))
            yield method, path, json.dumps({"text": TEXT.replace("{CPU: 2}", "{" + resources + "}"), "file": "c.yaml"})
        for path in ("/api/v1/shutdown", "/api/v1/jobs/j-1/stop", "/api/v1/jobs/j-1/rerun"):
            yield "POST", path, names

    def send(self, method, path, text):
        """(status, body); the head may answer before it has been sent all of it."""
        at = self.api_place()
        connection = http.client.HTTPConnection(at["host"], at["port"], timeout=harness.WAIT)
        try:
            connection.request(method, path, text, {"Authorization": f"Bearer {self.token()}"})
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def test_no_request_is_fatal(self):
        self.up(TEXT)
        pid, before = self.head_pid(), resident_kib(self.head_pid())
        for method, path, text in self.bodies():
            status, reply = self.send(method, path, text)
            self.assertIn(status, (400, 413), f"{method} {path} {text[:80]}: {reply}")
            self.assertTrue(json.loads(reply)["error"]["message"], reply)
            self.assertEqual(self.api("GET", "/api/v1/status")[0], 200)
        # Small enough to be read, and all brackets or all entries.
        for text in ("[" * 60_000, '{"a":' * 10_000, '{"bundles":[' + "{}," * 300_000 + "{}]}"):
            self.assertIn(self.send("POST", "/api/v1/requests", text)[0], (400, 413))
        self.assertEqual(self.head_pid(), pid)
        self.assertLess(resident_kib(pid) - before, 256 << 10, "KiB more than before")
        self.wait_for_job(self.submit(TOOL, "say", 2), "succeeded")

    def test_what_the_client_would_not_get_through_is_said_first(self):
        self.up(TEXT)
        file = self.folder / "many.env"
        file.write_text("".join(f"V{i}=x\n" for i in range(100_000)))
        end = self.rubato("submit", "--env-file", file, TOOL, "say", 2, code=2)
        self.assertIn("10000 variables", end.stderr)


class Rendezvous(harness.Case):
    def test_agents_meet_at_a_crowded_port(self):
        port = harness.free_port()
        first = self.group(1, "2", port=port)
        wait_until(lambda: subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True).stdout,
                   "the first agent to listen")
        crowd(self, f"tls:{port}")
        second = self.group(1, "2", port=port)
        self.wait_for_workers(2)
        self.finish(first + second)


class MeetingPlace(inplace_testing.Trainings, harness.Case):
    """Where the workers of a group that changes in place meet: a store in each agent."""

    def ports_of(self, pid):
        """The TCP ports at which a process listens."""
        listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
        return [int(line.split()[3].rpartition(":")[2]) for line in listening.splitlines() if f"pid={pid}," in line]

    def start(self, port):
        return self.group(1, "1:3", script=(TRAIN, self.folder, PACE), port=port,
                          env={"XDG_CACHE_HOME": str(self.folder / "cache"), "OMP_NUM_THREADS": "1"})

    def test_a_group_grows_and_shrinks_in_a_crowd(self):
        port = harness.free_port()
        agents = self.start(port)
        self.training(1)
        ports = {number for agent in agents for number in self.ports_of(agent.process.pid)}
        plan = json.loads(next(self.folder.glob("rubato_plan_*/plan.json")).read_text())
        self.assertIn(int(plan["store"]["address"].rpartition(":")[2]), ports)
        crowd(self, *[f"{kind}:{number}" for number in ports - {port} for kind in ("half", "hello")], f"tls:{port}")
        agents += self.start(port)
        two = self.training(2)
        agents += self.start(port)
        self.assertLess(two, self.training(3))
        agents[2].signal(signal.SIGTERM)
        self.assertEqual(self.training(2, since=len(self.steps())), two)
        agents.pop().finish()
        self.finish(agents)
        self.assert_counts()


if __name__ == "__main__":
    cluster_harness.main()
