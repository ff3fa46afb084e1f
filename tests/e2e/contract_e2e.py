"""torchrun's contract: what a worker sees, where its output goes, how the launcher ends."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import harness
from harness import PYTHON, SCRIPTS, TORCHRUN_STREAMS, free_port, wait_until

ENV_DUMP = SCRIPTS / "env_dump.py"


class Contract(harness.Case):
    def dumps(self, launch, *args, count, env=None, agents=1):
        """Runs env_dump.py under the launcher; what each rank saw."""
        dump = self.folder / f"dump{len(self.agents)}"
        dump.mkdir()
        self.finished(launch, *args, agents=agents, env={"DUMP": str(dump)} | (env or {}))
        found = [json.loads((dump / f"{rank}.json").read_text()) for rank in range(count)]
        for rank in found:
            del rank["env"]["DUMP"]
        return found

    def both(self, *args, streams=TORCHRUN_STREAMS, **options):
        """The same under torchrun and under rubato."""
        return self.dumps(self.torchrun, *streams, *args, **options), self.dumps(self.agent, *args, **options)

    def assert_same_env(self, theirs, ours, may_differ):
        """All names and values equal but those that may differ, which must be there on both sides."""
        for rank, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            a, b = a["env"], b["env"]
            # What rubato sets besides: the name that newer versions of PyTorch read, and names of its own.
            self.assertEqual(b.pop("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "1")
            b = {name: value for name, value in b.items() if not name.startswith(("RUBATO_", "ADAPTDL_")) or name in a}
            # The training library comes last: what the user has on the path stays, and stays first.
            before, added = a.pop("PYTHONPATH", ""), b.pop("PYTHONPATH")
            self.assertRegex(added, f"^{re.escape(before + ':' if before else '')}[^:]*/rubato/python-[0-9a-f]+(:|$)")
            # rank 0's process hosts the store, whatever the backend: that is right for every version of PyTorch.
            self.assertEqual(b["TORCHELASTIC_USE_AGENT_STORE"], "False")
            self.assertEqual(sorted(a), sorted(b), f"names, rank {rank}")
            differ = set(may_differ) | {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE"}
            self.assertEqual({k: v for k, v in a.items() if k not in differ},
                             {k: v for k, v in b.items() if k not in differ}, f"values, rank {rank}")
            self.assertEqual(a["TORCHELASTIC_ERROR_FILE"].split("/")[-3:],
                             b["TORCHELASTIC_ERROR_FILE"].split("/")[-3:])

    def assert_one_master(self, dumps):
        """All ranks were told of one address, and it has a meaning here."""
        masters = {(rank["env"]["MASTER_ADDR"], rank["env"]["MASTER_PORT"]) for rank in dumps}
        self.assertEqual(len(masters), 1)
        (host, port), = masters
        self.assertTrue(socket.getaddrinfo(host, int(port)))

    def test_without_a_folder_for_the_training_library_workers_are_told_that_they_lack_it(self):
        refusal = "cannot import the training library: neither HOME nor XDG_CACHE_HOME"
        (rank,) = self.dumps(self.agent, "--standalone", ENV_DUMP, count=1, env={"HOME": None})
        self.assertNotIn("PYTHONPATH", rank["env"])
        self.assertIn(refusal, self.agents[-1].stderr)
        cache = {"HOME": None, "XDG_CACHE_HOME": str(self.folder)}
        (rank,) = self.dumps(self.agent, "--standalone", ENV_DUMP, count=1, env=cache)
        self.assertIn(f"{self.folder}/rubato/python-", rank["env"]["PYTHONPATH"])
        self.assertNotIn(refusal, self.agents[-1].stderr)

    def test_standalone_environment(self):
        theirs, ours = self.both("--standalone", "--nproc_per_node=2", "--max_restarts=3", ENV_DUMP, count=2)
        self.assert_same_env(theirs, ours, ["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"])
        self.assert_one_master(ours)

    def test_static_environment(self):
        """Without a backend's name, as most people type it."""
        theirs, ours = self.both("--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1",
                                 f"--master_port={free_port()}", "--nproc_per_node=2", "--role=trainer",
                                 "--rdzv_id=abc", ENV_DUMP, count=2)
        self.assert_same_env(theirs, ours, [])

    def test_two_nodes_environment(self):
        theirs, ours = (
            self.dumps(launch, *streams, "--nnodes=2", "--nproc_per_node=2", "--rdzv_backend=c10d",
                       f"--rdzv_endpoint=localhost:{free_port()}", "--rdzv_id=abc", ENV_DUMP, count=4, agents=2)
            for launch, streams in ((self.torchrun, TORCHRUN_STREAMS), (self.agent, [])))
        self.assert_same_env(theirs, ours, ["MASTER_ADDR", "MASTER_PORT"])
        self.assert_one_master(ours)

    def test_static_two_nodes(self):
        """--node-rank decides the ranks, in whatever order the agents come."""
        port = free_port()
        agents = []
        for node in (1, 0):
            agents.append(self.agent("--nnodes", 2, "--nproc-per-node", 2, "--node-rank", node,
                                     "--rdzv-backend", "static", "--master-addr", "127.0.0.1", "--master-port", port,
                                     "--heartbeat", "15s", harness.STEPS, self.folder))
        lines = self.wait_for_workers(4)
        self.assertEqual(sorted((line["rank"], line["group_rank"], line["local_rank"]) for line in lines),
                         [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)])
        self.assertEqual({line["master"] for line in lines}, {f"127.0.0.1:{port}"})
        first, second = agents[1].running(4), agents[0].running(4)
        self.assertEqual((first["group_rank"], second["group_rank"]), (0, 1))
        self.finish(agents)

    def assert_same_program(self, *args, env=None):
        (theirs,), (ours,) = self.both("--standalone", *args, "one", "--two", "--nnodes=9", count=1, env=env)
        for what in ("argv", "name", "file", "path0", "main_is_this", "unbuffered", "executable"):
            self.assertEqual(theirs[what], ours[what], what)

    def test_script_sees_the_same(self):
        self.assert_same_program(ENV_DUMP)

    def test_module_sees_the_same(self):
        self.assert_same_program("-m", "env_dump", env={"PYTHONPATH": str(SCRIPTS)})

    def test_program_sees_the_same(self):
        self.assert_same_program("--no_python", ENV_DUMP)

    def test_run_path_sees_the_same(self):
        (theirs,), (ours,) = self.both("--standalone", "--run_path", ENV_DUMP, "one", count=1)
        for what in ("argv", "name", "file"):
            self.assertEqual(theirs[what], ours[what], what)

    def test_python_flag_chooses_the_interpreter(self):
        (found,) = self.dumps(self.agent, "--standalone", "--python", PYTHON, ENV_DUMP, count=1,
                              env={"PYTHON_EXEC": "/bin/false"})
        self.assertEqual(found["executable"], os.path.realpath(PYTHON))

    def test_omp_num_threads(self):
        def threads(nproc, **env):
            dumps = self.dumps(self.agent, "--standalone", "--nproc-per-node", nproc, ENV_DUMP, count=nproc, env=env)
            return [rank["env"].get("OMP_NUM_THREADS") for rank in dumps]

        self.assertEqual(threads(1), [None])
        self.assertNotIn("OMP_NUM_THREADS", self.agents[-1].stderr)
        self.assertEqual(threads(2), ["1", "1"])
        self.assertIn("OMP_NUM_THREADS", self.agents[-1].stderr)
        self.assertEqual(threads(2, OMP_NUM_THREADS="5"), ["5", "5"])
        self.assertNotIn("OMP_NUM_THREADS", self.agents[-1].stderr)

    def test_flags_from_the_environment(self):
        env = {"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1", "PET_ROLE": "teacher"}
        first, second = self.dumps(self.agent, ENV_DUMP, count=2, env=env)
        self.assertEqual(first["env"]["ROLE_NAME"], "teacher")
        self.assertEqual(second["env"]["LOCAL_WORLD_SIZE"], "2")
        (only,) = self.dumps(self.agent, "--nproc-per-node", 1, ENV_DUMP, count=1, env=env)
        self.assertEqual(only["env"]["WORLD_SIZE"], "1", "a flag is stronger than the variable")

    def test_counts_processors(self):
        for word in ("cpu", "auto"):
            if word == "auto" and os.path.exists("/dev/nvidia0"):
                continue  # that counts the GPUs
            dumps = self.dumps(self.agent, "--standalone", "--nproc-per-node", word, ENV_DUMP, count=os.cpu_count())
            self.assertEqual(dumps[0]["env"]["LOCAL_WORLD_SIZE"], str(os.cpu_count()))

    def streams(self, launch, *args):
        return self.finished(launch, "--standalone", "--nproc_per_node=2", *args, SCRIPTS / "streams.py")

    def tree(self, folder):
        """The files below a log folder; the run's own folder has a random name, which is cut off."""
        files = [path for path in folder.rglob("*.*") if path.is_file()]
        return sorted({"/".join(path.relative_to(folder).parts[1:]) for path in files})

    def test_output_goes_through(self):
        agent = self.streams(self.agent)
        self.assertEqual(sorted(re.findall(r"out of \d|half of \d", agent.stdout)),
                         ["half of 0", "half of 1", "out of 0", "out of 1"])
        self.assertEqual(sorted(re.findall(r"err of \d", agent.stderr)), ["err of 0", "err of 1"])

    def test_log_layout(self):
        for flags in (["-r", "1", "-t", "9:1"], ["-r", "9:1", "-t", "2"], ["-r", "0:1,1:2", "-t", "9:1"]):
            logs = []
            for launch in (self.torchrun, self.agent):
                logs.append(self.folder / f"logs{len(self.agents)}")
                self.streams(launch, "--log_dir", logs[-1], "--rdzv_id", "abc", *flags)
                self.assertRegex(os.listdir(logs[-1])[0], "^[^/]+_[^/]+$")
            self.assertEqual(self.tree(logs[0]), self.tree(logs[1]), flags)

    def test_redirected_output_is_in_the_files_only(self):
        logs = self.folder / "logs"
        agent = self.streams(self.agent, "--log-dir", logs, "--rdzv-id", "abc", "-r", "3")
        self.assertNotIn("of 0", agent.stdout + agent.stderr)
        (run,) = logs.iterdir()
        self.assertEqual((run / "attempt_0/0/stdout.log").read_text(), "out of 0\nhalf of 0")
        self.assertEqual((run / "attempt_0/1/stderr.log").read_text(), "err of 1\n")

    def test_tee_writes_to_both(self):
        logs = self.folder / "logs"
        agent = self.streams(self.agent, "--log-dir", logs, "-t", "3", "--role", "trainer")
        for rank in range(2):
            self.assertIn(f"[trainer{rank}]:out of {rank}\n", agent.stdout)
            self.assertIn(f"[trainer{rank}]:half of {rank}", agent.stdout)
            self.assertIn(f"[trainer{rank}]:err of {rank}\n", agent.stderr)
        (run,) = logs.iterdir()
        self.assertEqual((run / "attempt_0/1/stdout.log").read_text(), "out of 1\nhalf of 1")
        self.assertEqual((run / "attempt_0/0/stderr.log").read_text(), "err of 0\n")

    def test_tee_prefix_is_torchruns(self):
        theirs, ours = self.streams(self.torchrun, "-r", "9:1", "-t", "1"), self.streams(self.agent, "-t", "1")
        prefixed = r"\[default\d\]:\w+ of \d"  # torchrun lets half lines run together
        self.assertEqual(sorted(re.findall(prefixed, theirs.stdout)), sorted(re.findall(prefixed, ours.stdout)))

    def test_tee_keeps_every_byte(self):
        """A worker that writes faster than anybody reads, and not only text."""
        script = self.folder / "flood.py"
        script.write_text("import sys\n"
                          "for n in range(20000):\n"
                          "    sys.stdout.buffer.write(b'%d \\xff\\x00 ' % n + b'x' * 100 + b'\\n')\n")
        logs = self.folder / "logs"
        agent = self.agent("--standalone", "--log-dir", logs, "-t", "1", script)
        self.assertEqual(agent.finish(), 0, agent.story())
        wanted = [b"%d \xff\x00 " % n + b"x" * 100 for n in range(20000)]
        (log,) = logs.rglob("stdout.log")
        self.assertEqual(log.read_bytes().splitlines(), wanted)
        shown = (self.folder / f"{agent.name}.out").read_bytes().splitlines()
        self.assertEqual(shown, [b"[default0]:" + line for line in wanted])

    def test_events_on_stdout(self):
        agent = self._start([harness.RUBATO, "run", "--standalone", "--events", "-", "-r", "3",
                             str(SCRIPTS / "streams.py")], "stdout_events", None, None)
        self.assertEqual(agent.finish(), 0, agent.story())
        events = [json.loads(line)["event"] for line in agent.stdout.splitlines()]
        self.assertEqual((events[0], events[-1]), ("agent_start", "end"))

    def test_local_ranks_filter(self):
        agent = self.streams(self.agent, "-t", "3", "--local-ranks-filter", "1")
        self.assertIn("out of 1", agent.stdout)
        self.assertNotIn("of 0", agent.stdout + agent.stderr)

    def test_each_attempt_has_its_logs(self):
        logs = self.folder / "logs"
        agent = self.agent("--standalone", "--max-restarts", 1, "--log-dir", logs, "-r", "3",
                           SCRIPTS / "fail.py", 0, "record")
        self.assertEqual(agent.finish(), 1, agent.story())
        self.assertEqual(self.tree(logs), [f"attempt_{n}/0/{name}" for n in (0, 1)
                                           for name in ("error.json", "stderr.log", "stdout.log")])

    def test_nothing_is_left_after_success(self):
        before = set(os.listdir(self.folder))
        agent = self.streams(self.agent)
        left = set(os.listdir(self.folder)) - before
        self.assertEqual({name for name in left if not name.startswith(agent.name)}, set())

    # How it ends.

    def failed_run(self, how):
        agent = self.agent("--standalone", "--nproc-per-node", 2, SCRIPTS / "fail.py", 1, how)
        self.assertEqual(agent.finish(), 1, agent.story())
        end = agent.wait_for("end")
        self.assertEqual((end["outcome"], end["exit_code"]), ("failed", 1))
        self.assertRegex(agent.stderr, r"rank\W+1\b")
        self.assertRegex(agent.stderr, rf"on {re.escape(socket.gethostname())}\b")
        return agent

    def test_report_shows_the_traceback(self):
        report = self.failed_run("record").stderr
        self.assertIn("ValueError: the weights are gone", report)
        self.assertIn("in lose_the_weights", report)
        self.assertRegex(report, r"(?i)exit ?code\W+1\b")

    def test_report_of_a_quiet_failure(self):
        self.assertRegex(self.failed_run("quiet").stderr, r"(?i)exit ?code\W+7\b")

    def test_report_of_a_signal(self):
        self.assertIn("SIGKILL", self.failed_run("signal").stderr)

    def test_report_with_a_torn_error_file(self):
        report = self.failed_run("torn").stderr
        self.assertRegex(report, r"(?i)exit ?code\W+1\b")
        self.assertIn("error.json", report, "the person is told which file cannot be read")

    def test_report_of_a_recorded_exception(self):
        """PyTorch's own @record writes the file."""
        script = self.folder / "recorded.py"
        script.write_text("import os, time\n"
                          "from torch.distributed.elastic.multiprocessing.errors import record\n"
                          "@record\ndef main():\n"
                          "    if os.environ['RANK'] == '1':\n        raise KeyError('no such layer')\n"
                          "    time.sleep(600)\nmain()\n")
        agent = self.agent("--standalone", "--nproc-per-node", 2, script)
        self.assertEqual(agent.finish(), 1, agent.story())
        self.assertRegex(agent.stderr, r"rank\W+1\b")
        report = agent.stderr[agent.stderr.index("oot cause" if "oot cause" in agent.stderr else "oot Cause"):]
        self.assertIn("KeyError: 'no such layer'", report)

    def test_success_is_zero(self):
        agent = self.streams(self.agent)
        end = agent.wait_for("end")
        self.assertEqual((end["outcome"], end["exit_code"], end["restarts"]), ("succeeded", 0, 0))

    def signalled(self, number, how, *args):
        agent = self.agent("--standalone", "--nproc-per-node", 2, *args, SCRIPTS / "on_signal.py", self.folder, how)
        wait_until(lambda: all((self.folder / f"ready.{rank}").exists() for rank in range(2)), agent.story)
        agent.signal(number)
        self.assertEqual(agent.finish(), -number, agent.story())
        self.assertEqual(agent.wait_for("end")["outcome"], "signal")
        self.assert_nothing_left()
        return agent

    def test_sigterm_lets_workers_save(self):
        self.signalled(signal.SIGTERM, "save")
        self.assertEqual((self.folder / "saved.0").read_text(), "SIGTERM")
        self.assertEqual((self.folder / "saved.1").read_text(), "SIGTERM")

    def test_sigint_lets_workers_save(self):
        self.signalled(signal.SIGINT, "save")
        self.assertEqual((self.folder / "saved.1").read_text(), "SIGINT")

    def test_sigterm_while_waiting_for_others(self):
        (agent,) = self.group(1, "2")
        agent.wait_for("joined")
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.finish(), -signal.SIGTERM, agent.story())

    def test_second_sigint_does_not_wait(self):
        agent = self.agent("--standalone", SCRIPTS / "on_signal.py", self.folder, "ignore")
        wait_until(lambda: (self.folder / "ready.0").exists(), agent.story)
        agent.signal(signal.SIGINT)
        agent.wait_for("signal")
        agent.signal(signal.SIGINT)
        self.assertEqual(agent.finish(), -signal.SIGINT, agent.story())

    def test_grace_ends_with_a_kill(self):
        agent = self.signalled(signal.SIGTERM, "ignore", "--grace", "1s")
        self.assertEqual({line["signal"] for line in agent.events("exit")}, {signal.SIGKILL})

    def noticing(self):
        """An agent whose worker takes three seconds to save, which is more than its grace."""
        return self.agent("--standalone", "--grace", "1s", "--notice", self.folder / "notice",
                          SCRIPTS / "on_signal.py", self.folder, "save", 3)

    def test_notice_gives_the_time_until_its_deadline(self):
        agent = self.noticing()
        wait_until(lambda: (self.folder / "ready.0").exists(), agent.story)
        deadline = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
        self.order("notice", json.dumps({"action": "terminate", "time": deadline}))
        self.assertEqual(agent.finish(), -signal.SIGTERM, agent.story())
        self.assertEqual((self.folder / "saved.0").read_text(), "SIGTERM")
        notice = agent.wait_for("notice")
        self.assertEqual((notice["deadline"][:19] + "Z", notice["problem"]), (deadline, ""))
        self.assertGreater(notice["grace"], 10)
        self.assertIn(f"notice in {self.folder}/notice: this machine goes away at", agent.stderr)

    def test_notice_that_is_there_before_the_start(self):
        self.order("notice", "90s")
        agent = self.noticing()
        self.assertEqual(agent.finish(), -signal.SIGTERM, agent.story())
        self.assertEqual(agent.events("spawn"), [])
        self.assertIn("not starting", agent.stderr)

    def test_empty_chroot(self):
        """The release binary needs nothing of the system it runs on."""
        if os.geteuid() != 0:
            self.skipTest("chroot needs root; tests/chroot.sh does without")
        libraries = subprocess.run(["ldd", harness.RUBATO], capture_output=True, text=True)
        if libraries.returncode == 0 and "statically linked" not in libraries.stdout:
            self.skipTest("not the static release binary")
        root = self.folder / "root"
        root.mkdir()
        shutil.copy(harness.RUBATO, root / "rubato")
        agent = self._start(["chroot", str(root), "/rubato", "version"], "chroot", None, None)
        self.assertEqual(agent.finish(), 0, agent.story())


if __name__ == "__main__":
    harness.main()
