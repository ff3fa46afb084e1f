"""Bad input and a bad world: each gives an error that a person can act on."""
import os
import socket
import subprocess
import threading

import harness
from harness import STEPS, free_port


class Words(harness.Case):
    def refused(self, *args, code, says, **options):
        """The agent ends with the code before any worker starts, and says all of that."""
        agent = self.agent(*args, **options)
        self.assertEqual(agent.finish(), code, agent.story())
        for text in says:
            self.assertIn(text, agent.stderr, agent.story())
        self.assertFalse(agent.events("spawn"))
        self.assertNotIn("terminate called", agent.stderr)
        self.assertLess(len(agent.stderr.splitlines()), 25, "short enough to be read")
        return agent

    def command(self, *args):
        agent = self._start([harness.RUBATO, *args], f"command{len(self.agents)}", None, None)
        return agent, agent.finish()

    # Flags.

    def test_unknown_flag(self):
        self.refused("--nproc-per-mode", 2, STEPS, code=2, says=["--nproc-per-mode", "--nproc-per-node"])

    def test_bad_numbers(self):
        for flag, value in (("--nnodes", "x"), ("--nnodes", "3:1"), ("--nnodes", "0"), ("--nproc-per-node", "many"),
                            ("--nproc-per-node", "-1"), ("--max-restarts", "-2"), ("--master-port", "70000"),
                            ("--heartbeat", "soon"), ("--tee", "7"), ("--node-rank", "first")):
            with self.subTest(flag=flag, value=value):
                # As torchrun: what its parser of flags refuses ends with 2, what it refuses later with 1.
                code = 2 if flag == "--node-rank" else 1
                self.refused(f"{flag}={value}", STEPS, self.folder, code=code, says=[flag, value])

    def test_bad_variable(self):
        self.refused(STEPS, self.folder, code=1, says=["PET_NNODES", "lots"], env={"PET_NNODES": "lots"})

    def test_bad_rendezvous_settings(self):
        self.refused("--rdzv-conf", "join_timeout", STEPS, code=1, says=["join_timeout"])
        self.refused("--rdzv-conf", "join_timeout=long", STEPS, code=1, says=["join_timeout", "long"])
        self.refused("--rdzv-backend", "zookeeper", STEPS, code=1, says=["zookeeper", "etcd"])
        self.refused("--rdzv-endpoint", "host:port", "--nnodes", 2, STEPS, code=1, says=["host:port"])

    def test_no_program(self):
        self.refused(code=2, says=["no program", "rubato run"])

    def test_no_command(self):
        agent, code = self.command()
        self.assertEqual(code, 2)
        self.assertIn("run", agent.stdout + agent.stderr)
        agent, code = self.command("rum")
        self.assertEqual(code, 2)
        self.assertIn("rum", agent.stderr)

    def flags_of_torchrun(self):
        """Of the PyTorch that is installed, as its own parser has them."""
        program = ("from torch.distributed.run import get_args_parser\n"
                   "for action in get_args_parser()._actions:\n"
                   "    print(*[flag for flag in action.option_strings if flag.startswith('--')][:1])\n")
        done = subprocess.run([harness.PYTHON, "-c", program], capture_output=True, text=True, check=True)
        flags = {flag.replace("_", "-") for flag in done.stdout.split()} - {"--help"}
        self.assertIn("--nproc-per-node", flags)
        return flags

    def test_help_names_every_flag(self):
        agent, code = self.command("run", "--help")
        self.assertEqual(code, 0)
        for flag in ("nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts "
                     "monitor-interval start-method role module no-python run-path log-dir redirects tee "
                     "local-ranks-filter node-rank master-addr master-port local-addr events heartbeat grace prewarm "
                     "rdzv-key-file python").split():
            self.assertIn(f"--{flag}", agent.stdout)
        for flag in self.flags_of_torchrun():
            self.assertIn(flag, agent.stdout)
        agent, code = self.command("--help")
        self.assertEqual(code, 0)
        self.assertIn("run", agent.stdout)

    def test_doctor_speaks(self):
        agent, code = self.command("doctor")
        self.assertIn(code, (0, 1))
        for word in ("Python", "PyTorch", "port"):
            self.assertIn(word.lower(), agent.stdout.lower())

    # Files.

    def test_missing_script(self):
        self.refused("--standalone", "no_such_script.py", code=1, says=["no_such_script.py"])

    def test_missing_program(self):
        self.refused("--standalone", "--no-python", "no-such-program", code=1, says=["no-such-program"])

    def test_missing_interpreter(self):
        self.refused("--standalone", "--python", "/no/such/python", STEPS, code=1, says=["/no/such/python"])

    def test_missing_module(self):
        """Only Python knows: the worker fails, and the report shows its words."""
        agent = self.agent("--standalone", "-m", "no_such_module")
        self.assertEqual(agent.finish(), 1, agent.story())
        self.assertIn("no_such_module", agent.stderr)

    def test_log_dir_is_a_file(self):
        path = self.folder / "file"
        path.write_text("")
        self.refused("--standalone", "--log-dir", path, "-r", "3", STEPS, self.folder, code=1, says=[str(path)])

    def test_events_cannot_be_written(self):
        self.refused("--standalone", "--events", "/no/such/folder/events", STEPS, self.folder, code=1,
                     says=["/no/such/folder/events"])

    # The network.

    def test_port_of_another_program(self):
        """A server that takes connections and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.refused("--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", "join_timeout=2",
                         STEPS, self.folder, code=1, says=[f"127.0.0.1:{port}"])

    def test_port_of_a_talking_program(self):
        """A server that answers something else."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            def answer():
                while True:
                    try:
                        client, _ = server.accept()
                    except OSError:
                        return
                    with client:
                        client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

            threading.Thread(target=answer, daemon=True).start()
            port = server.getsockname()[1]
            self.refused("--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", "join_timeout=2",
                         STEPS, self.folder, code=1, says=[f"127.0.0.1:{port}"])
            server.shutdown(socket.SHUT_RDWR)

    def test_master_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.refused("--rdzv-backend", "static", "--nnodes", 1, "--node-rank", 0, "--master-addr", "127.0.0.1",
                         "--master-port", port, STEPS, self.folder, code=1, says=[str(port), "in use"])

    def test_unreachable_endpoint(self):
        """Nobody has that address: the error tells it, and where it was tried from."""
        host = self.lan(1).hosts[0]
        self.refused("--nnodes", 2, "--rdzv-endpoint", "10.77.0.9:29400", "--rdzv-conf", "join_timeout=2",
                     STEPS, self.folder, code=1, says=["10.77.0.9:29400", host.address], host=host)

    def test_no_route(self):
        host = self.lan(1).hosts[0]
        self.refused("--nnodes", 2, "--rdzv-endpoint", "10.88.0.9:29400", "--rdzv-conf", "join_timeout=2",
                     STEPS, self.folder, code=1, says=["10.88.0.9:29400"], host=host)

    def test_unknown_name(self):
        host = self.lan(1).hosts[0]  # without a way to a name server
        self.refused("--nnodes", 2, "--rdzv-endpoint", "no-such-host.invalid:29400", "--rdzv-conf", "join_timeout=2",
                     STEPS, self.folder, code=1, says=["no-such-host.invalid"], host=host)

    def test_too_few_come(self):
        """The group does not fill up: the error tells how many are there and how many are needed."""
        port = free_port()
        self.refused("--nnodes", 3, "--rdzv-endpoint", f"localhost:{port}", "--rdzv-conf", "join_timeout=2",
                     STEPS, self.folder, code=1, says=["1", "3", "join_timeout"])

    # The key.

    def test_wrong_key(self):
        port = free_port()
        for name in ("right", "wrong"):
            (self.folder / name).write_text(f"the {name} key, long enough to be one\n")
            os.chmod(self.folder / name, 0o600)
        flags = ["--nnodes", "1:2", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "job"]
        soon = ["--rdzv-conf", "join_timeout=10"]  # long enough to be told what is wrong
        first = self.agent(*flags, "--rdzv-key-file", self.folder / "right", STEPS, self.folder)
        first.wait_for("hosting")
        self.refused(*flags, *soon, "--rdzv-key-file", self.folder / "wrong", STEPS, self.folder, code=1,
                     says=[str(port), "key"])
        self.refused(*flags, *soon, STEPS, self.folder, code=1, says=[str(port), "key"])
        second = self.agent(*flags, "--rdzv-key-file", self.folder / "right", STEPS, self.folder)
        second.running(2)
        self.finish([first, second])

    def test_other_run_id(self):
        """Another job at the same endpoint is not let in."""
        port = free_port()
        flags = ["--nnodes", "1:2", "--rdzv-endpoint", f"localhost:{port}"]
        first = self.agent(*flags, "--rdzv-id", "one", STEPS, self.folder)
        first.wait_for("hosting")
        self.refused(*flags, "--rdzv-conf", "join_timeout=10", "--rdzv-id", "two", STEPS, self.folder, code=1,
                     says=[str(port), "--rdzv-id"])
        self.finish([first])

    def test_missing_key_file(self):
        self.refused("--standalone", "--rdzv-key-file", "/no/such/key", STEPS, self.folder, code=2,
                     says=["/no/such/key"])


if __name__ == "__main__":
    harness.main()
