"""Where a torchrun user would stumble: what torchrun does beside its flags and its workers' environment."""
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import harness
from harness import PYTHON, RUBATO, SCRIPTS, STEPS, TORCHRUN_STREAMS, free_port, torchrun_argv, wait_until
from terminal import Terminal

ENV_DUMP = SCRIPTS / "env_dump.py"


class Torchrun(harness.Case):
    def script(self, text, name="script.py"):
        path = self.folder / name
        path.write_text(text)
        return path

    def code_of(self, *args, stdin=subprocess.DEVNULL, env=None):
        """How `rubato run` ends, and what it says."""
        done = subprocess.run([RUBATO, "run", *map(str, args)], env=self.environment(**(env or {})), cwd=self.folder,
                              stdin=stdin, capture_output=True, text=True, timeout=2 * harness.WAIT, check=False)
        return done.returncode, done.stdout, done.stderr

    def tried(self, argv, code, **env):
        """Runs it to its end, which must be this one. torchrun now and then cannot reach its own store ("Connection
        reset by peer") and is tried again then; rubato is not."""
        for _ in range(1 if argv[0] == RUBATO else 3):
            done = subprocess.run(argv, env=self.environment(**env), cwd=self.folder, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=2 * harness.WAIT, check=False)
            if done.returncode == code and "RendezvousConnectionError" not in done.stderr:
                break
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def dumps(self, argv, *args, count=1, env=None):
        dump = self.folder / f"dump{len(os.listdir(self.folder))}"
        dump.mkdir()
        done = self.tried([*argv, *map(str, args)], 0, DUMP=str(dump), **(env or {}))
        return [json.loads((dump / f"{rank}.json").read_text()) for rank in range(count)]

    def both(self, *args, **options):
        return (self.dumps(torchrun_argv(*TORCHRUN_STREAMS, *args), **options),
                self.dumps([RUBATO, "run"], *args, **options))

    # What is typed.

    def test_macros_and_spaces(self):
        args = ["--standalone", "--role=the one", ENV_DUMP, "$local_rank", "${local_rank}", "$$", "$$local_rank",
                "$local_rank_x", "${other}", "$", "a b", "--x=c d", "$LOCAL_RANK"]
        (theirs,), (ours,) = self.both(*args)
        self.assertEqual(theirs["argv"], ours["argv"])
        self.assertEqual(ours["env"]["ROLE_NAME"], "the one")

    def test_one_node_keeps_the_master_address(self):
        args = ["--nnodes=1", "--node_rank=0", "--master_addr=localhost", f"--master_port={free_port()}", ENV_DUMP]
        (theirs,), (ours,) = self.both(*args)
        for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
            self.assertEqual(theirs["env"][name], ours["env"][name], name)
        self.assertEqual(ours["env"]["MASTER_ADDR"], "localhost")

    def test_standalone_has_an_id_of_its_own(self):
        (ours,) = self.dumps([RUBATO, "run"], "--standalone", "--rdzv-id", "mine", ENV_DUMP)
        self.assertNotIn(ours["env"]["TORCHELASTIC_RUN_ID"], ("mine", "none", ""))

    def test_an_id_that_is_a_path_leads_nowhere(self):
        """Its folder of logs was removed with what stood beside it."""
        kept = self.folder / "runs/kept"
        kept.parent.mkdir()
        kept.write_text("results")
        for ident in ("../runs/one", "a/b", "..", "x" * 400):
            for more in ([], ["--log-dir=logs", "--redirects=3"]):
                code, _, err = self.code_of("--nnodes=1", f"--rdzv-id={ident}", *more, "--no-python", "true",
                                            env={"TMPDIR": str(self.folder)})
                self.assertEqual(code, 0, err)
        self.assertTrue(kept.exists())
        self.assertEqual(list(self.folder.glob("rubato_*")), [])
        self.assertEqual(len(list((self.folder / "logs").iterdir())), 4)

    def test_any_free_port(self):
        (ours,) = self.dumps([RUBATO, "run"], "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1",
                             ENV_DUMP)
        self.assertEqual(ours["env"]["WORLD_SIZE"], "1")

    def test_rdzv_conf_as_torchs_own_tests_write_it(self):
        (ours,) = self.dumps([RUBATO, "run"], "--nnodes=1:2", "--rdzv-backend=c10d",
                             f"--rdzv-endpoint=localhost:{free_port()}",
                             "--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'", "--rdzv-id=7",
                             "--monitor-interval=1", "--start-method=spawn", ENV_DUMP)
        self.assertEqual(ours["env"]["WORLD_SIZE"], "1")
        code, _, err = self.code_of("--standalone", "--rdzv-conf", "no_such_key=1", "--no-python", "true")
        self.assertEqual((code, "no_such_key has no effect" in err), (0, True), err)

    def test_a_script_from_standard_input(self):
        text = self.script("import sys; print('from stdin', sys.argv)\n")
        with open(text) as stdin:
            code, out, err = self.code_of("--standalone", "-", "--epochs", "3", stdin=stdin)
        self.assertEqual((code, out), (0, "from stdin ['-', '--epochs', '3']\n"), err)

    def test_exit_codes_are_torchruns(self):
        for args, code in (
                (["--nproc-per-node=unknown", "--no-python", "true"], 1),
                (["--nnodes=1:2:3", "--no-python", "true"], 1),
                (["--nnodes=0", "--no-python", "true"], 1),
                (["--no-python", "--module", "true"], 1),
                (["--max-restarts=-1", "--no-python", "true"], 1),
                (["--local-ranks-filter=x", "--no-python", "true"], 1),
                (["--logs-specs=DOESNOT_EXIST", "--no-python", "true"], 1),
                (["--rdzv-backend=none-such", "--no-python", "true"], 1),
                (["--rdzv-conf=novalue", "--no-python", "true"], 1),
                (["--redirects=7", "--no-python", "true"], 1),
                (["--standalone", "no_such_script.py"], 1),
                (["--standalone", "--no-python", "no_such_program"], 1),
                (["--standalone", "--log-dir", STEPS, "--no-python", "true"], 1),
                (["--max-restarts=x", "--no-python", "true"], 2),
                (["--start-method=thread", "--no-python", "true"], 2),
                (["--no-such-flag", "x.py"], 2),
                (["--nnodes=1"], 2)):
            found, _, err = self.code_of(*args)
            self.assertEqual(found, code, f"{args}\n{err}")

    def test_torchruns_own_exit_codes(self):
        """The table above is what Debian's torchrun does, as far as it has these flags."""
        for args, code in ((["--nproc_per_node=unknown", "--no_python", "true"], 1),
                           (["--no_python", "--module", "true"], 1), (["--max_restarts=x", "true"], 2)):
            done = subprocess.run(torchrun_argv(*TORCHRUN_STREAMS, *args), env=self.environment(), cwd=self.folder,
                                  capture_output=True, text=True, timeout=2 * harness.WAIT, check=False)
            self.assertEqual(done.returncode, code, done.stderr)

    def test_flags_of_newer_versions(self):
        code, out, err = self.code_of("--standalone", "--shutdown-timeout=60",
                                      "--signals-to-handle=SIGTERM,SIGINT,SIGNONE", "--virtual-local-rank",
                                      "--event-log-handler=null", "--duplicate-stdout-filters=",
                                      "--exit-barrier-timeout=5", "--nnodes=1:2",
                                      "--no-python", "sh", "-c",
                                      "echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES $TORCHELASTIC_SIGNALS_TO_HANDLE")
        self.assertEqual((code, out), (0, "0 0 SIGTERM,SIGINT\n"), err)
        self.assertIn("there is no signal 'SIGNONE'", err)

    def test_numa_binding_needs_a_gpu(self):
        """As in PyTorch: better no run than one that is bound to nothing."""
        for args in (["--numa-binding=node"], ["--numa-binding=exclusive", "--nproc-per-node=2"]):
            code, _, err = self.code_of("--standalone", *args, "--no-python", "true",
                                        env={"CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual((code, "there is no GPU for local rank 0" in err), (1, True), err)

    def test_launch_hands_the_local_rank_to_the_script(self):
        """`rubato launch` for python -m torch.distributed.launch."""
        script = self.script("import os, sys\n"
                             "os.write(1, f\"{os.environ['LOCAL_RANK']} {sys.argv[1:]}\\n\".encode())\n")
        launchers = ([PYTHON, "-W", "ignore", "-m", "torch.distributed.launch", *TORCHRUN_STREAMS], [RUBATO, "launch"])
        for flags in ([], ["--use_env"], ["--run_path"]):
            flags = [*flags, f"--master_port={free_port()}"]  # others may test at the usual one
            outs = []
            for launcher in launchers:
                done = self.tried([*launcher, "--nproc_per_node=2", *flags, str(script), "--epochs", "3"], 0,
                                  PYTHON_EXEC=PYTHON)
                outs.append(sorted(done.stdout.splitlines()))
            self.assertEqual(*outs)
            self.assertEqual("--local_rank=1" in outs[1][1], "--use_env" not in flags, outs)

    def test_shutdown_timeout_is_the_grace(self):
        for flags, env in ((["--shutdown-timeout", 1], {}), ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}),
                           ([], {"PET_SHUTDOWN_TIMEOUT": "1"})):
            (self.folder / "ready.0").unlink(missing_ok=True)
            agent = self.agent("--standalone", *flags, SCRIPTS / "on_signal.py", self.folder, "ignore", env=env)
            wait_until(lambda: (self.folder / "ready.0").exists(), agent.story)
            agent.signal(signal.SIGTERM)
            self.assertEqual(agent.finish(), -signal.SIGTERM, agent.story())
            # By the agent's own clock, whenever this test gets to read it: 30 s is the grace that nobody has changed.
            waited = agent.wait_for("exit")["mono"] - agent.wait_for("signal")["mono"]
            self.assertLess(waited, 25, agent.story())
            self.assertEqual({line["signal"] for line in agent.events("exit")}, {signal.SIGKILL})

    # What is written.

    def test_log_line_prefix_template(self):
        code, out, err = self.code_of("--standalone", "--nproc-per-node=2", "--redirect=3", "--tee=3", "--role=r",
                                      "--no-python", "sh", "-c", "echo creating $RANK",
                                      env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE":
                                           "[$role_name-rank${rank}/$local_rank $$ $x]: "})
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(out.splitlines()),
                         [f"[r-rank{n}/{n} $ $x]: creating {n}" for n in range(2)])

    def test_a_progress_bar_is_shown_as_it_goes(self):
        script = self.script("import os, sys, time\n"
                             "for n in (10, 20, 30):\n"
                             "    sys.stderr.write(f'\\r{n}%'); sys.stderr.flush()\n"
                             "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
                             "sys.stderr.write('\\rdone\\n')\n")
        agent = self.agent("--standalone", "--tee", "3", script, self.folder / "finish")
        wait_until(lambda: "[default0]:30%" in agent.stderr, agent.story)
        self.finish([agent])
        self.assertEqual([line for line in agent.stderr.splitlines() if line.startswith("[default0]:")],
                         ["[default0]:10%", "[default0]:20%", "[default0]:30%", "[default0]:done"])

    def test_no_log_files(self):
        before = os.listdir(self.folder)
        for flags in (["--tee=3"], ["--redirects=3"], []):
            code, out, err = self.code_of("--standalone", "--log-dir=/dev/null", *flags, "--no-python", "sh", "-c",
                                          "echo out; echo \"[$TORCHELASTIC_ERROR_FILE]\"")
            self.assertEqual((code, out), (0, "out\n[]\n"), err)
        self.assertEqual(os.listdir(self.folder), before)

    def test_lines_with_a_word_go_to_a_file_of_their_own(self):
        logs = self.folder / "logs"
        code, _, err = self.code_of("--standalone", "--nproc-per-node=2", "--tee=3", f"--log-dir={logs}",
                                    "--duplicate-stdout-filters=apple,pear", "--duplicate-stderr-filters=NCCL",
                                    "--no-python", "sh", "-c",
                                    "echo an apple; echo a plum; echo pears; echo NCCL >&2; echo apple >&2")
        self.assertEqual(code, 0, err)
        (attempt,) = logs.glob("*/attempt_0")
        self.assertEqual(sorted((attempt / "filtered_stdout.log").read_text().splitlines()),
                         [f"[default{n}]:{text}" for n in range(2) for text in ("an apple", "pears")])
        self.assertEqual(sorted((attempt / "filtered_stderr.log").read_text().splitlines()),
                         ["[default0]:NCCL", "[default1]:NCCL"])
        self.assertIn("a plum", (attempt / "0/stdout.log").read_text())

    def summary(self, argv, *args):
        """The summary of a failure, without what differs from run to run."""
        done = self.tried([*argv, "--standalone", "--nproc_per_node=2", *map(str, args)], 1, PYTHON_EXEC=PYTHON)
        text = done.stderr[done.stderr.index("multiprocessing.errors.ChildFailedError:"):]
        text = text[:text.rindex("====\n")].replace("ChildFailedError: \n", "ChildFailedError:\n")
        text = re.sub(r"pid: \d+|PID \d+|(time|host|error_file) *: (?!<N/A>).*", "…", text)
        text = re.sub(r"====+|----+", "…", text)
        return [line for line in text.splitlines() if line.strip()]

    def test_the_summary_of_a_failure_is_torchruns(self):
        record = self.script("import os, time\n"
                             "from torch.distributed.elastic.multiprocessing.errors import record\n"
                             "@record\ndef main():\n"
                             "    if os.environ['RANK'] == '1': raise KeyError('no such layer')\n"
                             "    time.sleep(600)\nmain()\n")
        for args in ([record], ["--no_python", "sh", "-c", "if [ $RANK = 1 ]; then kill -9 $$$$; fi; exec sleep 600"]):
            theirs = self.summary(torchrun_argv(*TORCHRUN_STREAMS), *args)
            ours = self.summary([RUBATO, "run"], *args)
            self.assertEqual(theirs, ours)
            self.assertIn("  rank      : 1 (local_rank: 1)", ours)

    def error_file(self, *args, env=None):
        path = self.folder / "launcher_error.json"
        path.unlink(missing_ok=True)
        code, _, err = self.code_of("--standalone", *args, env={"TORCHELASTIC_ERROR_FILE": str(path)} | (env or {}))
        return code, json.loads(path.read_text()) if path.exists() else None, err

    def test_the_launchers_own_error_file(self):
        script = self.script("import os\n"
                             "from torch.distributed.elastic.multiprocessing.errors import record\n"
                             "@record\ndef main():\n    raise KeyError('no such layer')\nmain()\n")
        code, ours, err = self.error_file(script)
        self.assertEqual(code, 1, err)
        path = self.folder / "theirs.json"
        self.tried(torchrun_argv(*TORCHRUN_STREAMS, "--standalone", script), 1, TORCHELASTIC_ERROR_FILE=str(path))
        theirs = json.loads(path.read_text())
        for document in (ours, theirs):
            del document["message"]["extraInfo"]["timestamp"]
        self.assertEqual(ours, theirs)
        self.assertEqual(ours["message"]["errorCode"], 1)

    def test_run_path_records_what_the_script_does_not_catch(self):
        """torchrun calls such a script as a function of its own, with torch's @record around it."""
        script = self.script("import sys\nif len(sys.argv) > 1: sys.exit(3)\nraise KeyError('no such layer')\n")
        path = self.folder / "theirs.json"
        self.tried(torchrun_argv(*TORCHRUN_STREAMS, "--standalone", "--run_path", script), 1,
                   TORCHELASTIC_ERROR_FILE=str(path))
        theirs = json.loads(path.read_text())
        for flags in ([], ["--prewarm", "decimal", "--max-restarts", "2"]):
            code, ours, err = self.error_file("--run-path", *flags, script)
            self.assertEqual((code, ours["message"]["message"]), (1, theirs["message"]["message"]), err)
            self.assertIn("raise KeyError('no such layer')", ours["message"]["extraInfo"]["py_callstack"])
        code, ours, err = self.error_file("--run-path", script, "exit")
        self.assertEqual((code, ours["message"]["errorCode"]), (1, 3), err)

    def test_error_files_are_found_from_any_folder(self):
        script = self.script("import os\nos.chdir('/')\nraise KeyError('no such layer')\n")
        code, ours, err = self.error_file("--run-path", "--log-dir=logs", script)
        self.assertEqual((code, ours["message"]["message"]), (1, "KeyError: 'no such layer'"), err)
        self.assertEqual(len(list(self.folder.glob("logs/*/attempt_0/0/error.json"))), 1)

    def test_error_file_of_a_killed_worker(self):
        code, document, err = self.error_file("--no-python", "sh", "-c", "kill -9 $$$$")
        self.assertEqual((code, document["message"]["errorCode"]), (1, -9), err)
        code, document, err = self.error_file("--no-python", "true")
        self.assertEqual((code, document), (0, None), err)

    def test_error_file_of_what_was_never_run(self):
        """torchrun's @record: what its own code refuses is in the file, what its parser of flags refuses is not."""
        for args, message in ((["--nproc-per-node=unknown", "--no-python", "true"], "--nproc-per-node unknown"),
                              (["no_such_script.py"], "there is no script"),
                              (["--log-dir", STEPS, "--no-python", "true"], str(STEPS)),
                              (["--python=/no/such/python", ENV_DUMP], "/no/such/python")):
            code, document, err = self.error_file(*args)
            self.assertEqual(code, 1, err)
            self.assertIn(message, document["message"]["message"] + document["message"]["extraInfo"]["py_callstack"])
        code, document, err = self.error_file("--max-restarts=x", "--no-python", "true")
        self.assertEqual((code, document), (2, None), err)

    # What a worker may do.

    def test_a_worker_asks_its_person(self):
        script = self.script("name = input('name? ')\nprint('hello', name)\nbreakpoint()\nprint('after', name)\n")
        with Terminal([RUBATO, "run", "--standalone", str(script)], self.environment(), self.folder) as screen:
            screen.expect(r"name\? ")
            screen.type("bach\r")
            screen.expect("hello bach")
            screen.expect(r"\(Pdb\)")
            screen.type("p name.upper()\r")
            screen.expect("'BACH'")
            screen.type("c\r")
            screen.expect("after bach")
            self.assertEqual(screen.end(), 0)

    def test_ctrl_c_at_a_terminal(self):
        script = self.script("print('up'); input()\n")
        with Terminal([RUBATO, "run", "--standalone", "--max-restarts=3", str(script)], self.environment(),
                      self.folder) as screen:
            screen.expect("up")
            screen.interrupt()
            self.assertEqual(screen.end(), -signal.SIGINT)

    def test_one_of_several_workers_asks_its_person(self):
        script = self.script("import os\n"
                             "if os.environ['RANK'] == '1': breakpoint()\n"
                             "print('after', os.environ['RANK'])\n")
        with Terminal([RUBATO, "run", "--standalone", "--nproc-per-node=2", str(script)], self.environment(),
                      self.folder) as screen:
            screen.expect(r"(?s:after 0.*\(Pdb\)|\(Pdb\).*after 0)")  # whichever is first
            screen.type("p 'rank' + os.environ['RANK']\r")
            screen.expect("'rank1'")
            screen.type("c\r")
            screen.expect("after 1")
            self.assertEqual(screen.end(), 0)

    def test_ctrl_c_ends_several_workers_at_a_terminal(self):
        script = self.script("import os, time\nprint('up', os.environ['RANK'])\n"
                             "open(os.environ['RANK'] + '.pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
        with Terminal([RUBATO, "run", "--standalone", "--nproc-per-node=2", str(script)], self.environment(),
                      self.folder) as screen:
            for rank in range(2):
                wait_until(lambda: (self.folder / f"{rank}.pid").exists() and (self.folder / f"{rank}.pid").read_text(),
                           lambda: "the worker is not up")
            screen.interrupt()
            self.assertEqual(screen.end(), -signal.SIGINT)
        for rank in range(2):
            self.assert_gone(int((self.folder / f"{rank}.pid").read_text()))

    def test_nohup_means_what_it_says(self):
        """Not as torchrun, which catches the SIGHUP that nohup has ignored: a training must outlive its terminal."""
        up, go = self.folder / "up", self.folder / "go"
        wait = f"touch {up}; while [ ! -e {go} ]; do sleep 0.01; done"
        with subprocess.Popen(["nohup", RUBATO, "run", "--standalone", "--no-python", "sh", "-c", wait],
                              env=self.environment(), cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as agent:
            wait_until(up.exists, "the worker is not up")
            agent.send_signal(signal.SIGHUP)
            go.touch()
            out, _ = agent.communicate(timeout=harness.WAIT)
        self.assertEqual(agent.returncode, 0, out)

    def test_a_temporary_folder_that_cannot_be_written(self):
        """As Python's tempfile: the next of the usual places is taken."""
        code, out, err = self.code_of("--standalone", "--no-python", "sh", "-c", "echo $TORCHELASTIC_ERROR_FILE",
                                      env={"TMPDIR": "/proc"})
        self.assertEqual(code, 0, err)
        self.assertTrue(out.startswith("/") and not out.startswith("/proc"), out)

    def test_daemons_of_a_successful_worker_live_on(self):
        script = self.script("import subprocess, sys\n"
                             "from subprocess import DEVNULL, Popen\n"
                             "one = Popen(['sleep', '600'], stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)\n"
                             "two = Popen(['sleep', '600'], stdout=DEVNULL, stderr=DEVNULL)\n"
                             "open(sys.argv[1], 'w').write(f'{one.pid} {two.pid}')\n"
                             "sys.exit(int(sys.argv[2]))\n")
        code, _, err = self.code_of("--standalone", script, self.folder / "pids", 0)
        self.assertEqual(code, 0, err)
        pids = [int(pid) for pid in (self.folder / "pids").read_text().split()]
        time.sleep(0.5)  # whoever would kill them has done so
        for pid in pids:
            self.assertEqual(Path(f"/proc/{pid}/comm").read_text(), "sleep\n")
            os.kill(pid, signal.SIGKILL)
        code, _, err = self.code_of("--standalone", script, self.folder / "pids", 3)
        self.assertEqual(code, 1, err)
        for pid in (self.folder / "pids").read_text().split():
            self.assert_gone(int(pid))

    def test_a_failure_after_anothers_success_is_a_failure(self):
        script = self.script("import os, sys, time\n"
                             "if os.environ['RANK'] == '0':\n"
                             "    open('pid.new', 'w').write(str(os.getpid()))\n"
                             "    os.rename('pid.new', 'pid')\n"
                             "    sys.exit(0)\n"
                             "while not os.path.exists('pid'): time.sleep(0.01)\n"
                             "first = open('pid').read()\n"
                             "while os.path.exists(f'/proc/{first}'): time.sleep(0.01)\n"
                             "os.kill(os.getpid(), 9) if sys.argv[1] == 'kill' else sys.exit(3)\n")
        for how, says in (("exit", "exitcode  : 3"), ("kill", "exitcode  : -9")):
            (self.folder / "pid").unlink(missing_ok=True)
            code, _, err = self.code_of("--standalone", "--nproc-per-node=2", script, how)
            self.assertEqual((code, says in err), (1, True), err)

    def test_the_watchdog_of_file_timers(self):
        """torch.distributed.elastic.timer: a worker that does not release its timer in time is killed."""
        script = self.script("import os, sys, time\n"
                             "import torch.distributed.elastic.timer as timer\n"
                             "timer.configure(timer.FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))\n"
                             "with timer.expires(after=60, scope='fast'):\n    print('fast', flush=True)\n"
                             "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '1': sys.exit(0)\n"
                             "with timer.expires(after=1, scope='slow'):\n    time.sleep(600)\n")
        agent = self.agent("--standalone", "--max-restarts=1", script, env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
        self.assertEqual(agent.finish(), 0, agent.story())
        self.assertEqual([line["signal"] for line in agent.events("exit")], [signal.SIGKILL, 0])
        self.assertEqual([line["scope"] for line in agent.events("timer_expired")], ["slow"])

    def test_the_watchdogs_pipe_has_the_name_that_was_given(self):
        pipe = self.folder / "timers"
        code, out, err = self.code_of("--standalone", "--no-python", "sh", "-c", "ls -l $TORCHELASTIC_TIMER_FILE",
                                      env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1",
                                           "TORCHELASTIC_TIMER_FILE": str(pipe)})
        self.assertEqual((code, out[:10]), (0, "prw-------"), err)
        self.assertFalse(pipe.exists())


if __name__ == "__main__":
    harness.main()
