"""Who may come in, what is kept secret, and what a head endures from its clients."""
import hashlib
import io
import json
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import tarfile
from pathlib import Path

import cluster_harness
import harness
from cluster_harness import cluster_text
from harness import SCRIPTS, wait_until

TOOL = SCRIPTS / "job_tool.py"
TEXT = cluster_text(small=(1, 2, 2))


def zstd_frame(data):
    """A valid zstd frame of these bytes, not compressed."""
    blocks = [data[at:at + 65536] for at in range(0, len(data), 65536)]
    frame = b"\x28\xb5\x2f\xfd\xa0" + len(data).to_bytes(4, "little")
    for n, block in enumerate(blocks):
        frame += (len(block) << 3 | (n == len(blocks) - 1)).to_bytes(3, "little") + block
    return frame


def tar_bytes(*members):
    """A tar file of (TarInfo, bytes)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def read_if_there(path):
    """Processes end and files go while they are looked at: those hold nothing any more."""
    try:
        return path.read_bytes() if path.parts[1] == "proc" or path.is_file() else b""
    except (FileNotFoundError, ProcessLookupError):
        return b""


def mode_if_there(path):
    """Of a plain file; 0 when it is gone, or something else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else 0


class Access(cluster_harness.ClusterCase):
    def setUp(self):
        super().setUp()
        self.up(TEXT)

    def raw(self, data, read=65536):
        """What the API answers to these bytes."""
        at = self.api_place()
        with socket.create_connection((at["host"], at["port"]), timeout=harness.WAIT) as connection:
            connection.sendall(data)
            return connection.recv(read).decode(errors="replace")

    def request(self, line, *headers):
        return "\r\n".join([line, "Host: x", f"Authorization: Bearer {self.token()}", *headers, "", ""]).encode()

    def test_no_token_and_wrong_tokens(self):
        right = self.token()
        for token in ("", "wrong", right[:-1], right + "x", right.swapcase(), "\u00e9"):
            for method, path in (("GET", "/api/v1/status"), ("POST", "/api/v1/shutdown"), ("GET", "/metrics"),
                                 ("PUT", "/api/v1/packages/" + "0" * 64), ("GET", "/api/v1/jobs/x/logs?follow=1")):
                status, _, body = self.api(method, path, token=token.encode().decode("latin-1"))
                self.assertEqual(status, 401, (method, path, token))
                self.assertEqual(json.loads(body)["error"]["code"], "unauthorized")
                self.assertNotIn(right.encode(), body)
        for header in ("Basic " + right, right, "Bearer", "bearer"):
            self.assertEqual(self.api("GET", "/api/v1/status", headers={"Authorization": header}, token="")[0], 401)
        self.assertEqual(self.api("GET", "/api/v1/status")[0], 200)

    def test_a_wrong_or_open_token_file(self):
        path = self.place / "token"
        right = path.read_text()
        try:
            path.chmod(0o644)
            said = self.rubato("status", code=2).stderr
            self.assertIn("chmod 600", said)
            self.assertNotIn(right.strip(), said)
            path.chmod(0o600)
            path.write_text("0" * len(right.strip()) + "\n")
            said = self.rubato("status", code=1).stderr
            self.assertIn("the token in the cluster's folder is not the head's", said)
        finally:
            path.chmod(0o600)
            path.write_text(right)
        self.rubato("status")

    def recipe(self, number):
        """The commands of docs/security.md under "Change them"."""
        page = (Path(__file__).parents[2] / "docs/security.md").read_text()
        block = page.split("## Change them")[1].split("## Bounds")[0].split("```")[2 * number + 1]
        block = block.split("\n", 1)[1]  # the line of ``` says what kind of block it is
        program = self.folder / "bin/rubato"
        program.parent.mkdir(exist_ok=True)
        program.unlink(missing_ok=True)
        program.symlink_to(Path(harness.RUBATO).resolve())
        text = block.replace("~/.local/state", str(self.state))
        done = subprocess.run(["bash", "-ec", text], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=200,
                              env=self.environment(PATH=f"{program.parent}:{os.environ['PATH']}"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_recipes_for_new_secrets(self):
        old, pids = self.token(), self.node_pids()
        job = self.submit_steps()
        self.wait_for_job(job, "running")
        self.recipe(0)
        self.assertNotEqual(self.token(), old)
        self.assertEqual(self.api("GET", "/api/v1/status", token=old)[0], 401)
        self.assertEqual(self.node_pids(), pids)
        self.order("finish")
        self.assertEqual(self.wait_for_job(job, "succeeded")["generation"], 1)
        ca = (self.place / "ca.pem").read_text()
        self.recipe(1)
        self.assertNotEqual((self.place / "ca.pem").read_text(), ca)
        self.wait_for_nodes(2)

    def test_keys_and_tokens_are_private(self):
        secret = [path for pattern in ("token", "*.key", "nodes/*/*.key") for path in self.place.glob(pattern)]
        self.assertEqual(len(secret), 1 + 2 + 2)
        for path in secret:
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)
        for path in (self.place, self.place / "head", *self.place.glob("nodes/*")):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o700, path)
        # os.walk, not rglob: files and folders go while they are looked at.
        paths = [Path(folder, name) for folder, _, names in os.walk(self.place) for name in names]
        self.assertEqual([path for path in paths if path.name != "cluster.yaml" and mode_if_there(path) & 0o022], [])
        self.assertGreater(len(paths), 10)

    def test_no_secret_is_shown(self):
        job = self.submit_steps()
        self.wait_for_workers(1)
        key = (self.place / "ca.key").read_text().splitlines()[1]
        needles = [self.token().encode(), key.encode()]
        for pid in self.leftovers():
            for name in ("cmdline", "environ"):
                text = read_if_there(Path(f"/proc/{pid}/{name}"))
                for needle in needles:
                    self.assertNotIn(needle, text, f"{name} of {pid}")
        self.order("finish")
        self.wait_for_job(job, "succeeded")
        private = {"token", "ca.key", "head.key", "node.key"}
        # os.walk, not rglob: the agent empties its trash meanwhile, and a folder that is gone is no error there.
        looked_at = 0
        for folder, _, names in os.walk(self.place):
            for name in set(names) - private:
                text = read_if_there(Path(folder, name))
                looked_at += len(text) > 0
                for needle in needles:
                    self.assertNotIn(needle, text, Path(folder, name))
        self.assertGreater(looked_at, 5, "the journal, logs and settings at least")

    def tls_says(self, patience=harness.WAIT, **identity):
        """What happens to a client of the agents' port with this certificate: the refusal, or "quiet" so long."""
        at = json.loads((self.place / "head/head.json").read_text())["agents"]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if identity:
            context.load_cert_chain(identity["certificate"], identity["key"])
        with socket.create_connection((at["host"], at["port"]), timeout=harness.WAIT) as connection:
            try:
                with context.wrap_socket(connection) as tls:
                    tls.settimeout(patience)
                    try:
                        return "closed" if tls.recv(1) == b"" else "words"
                    except TimeoutError:
                        return "quiet"
            except (ssl.SSLError, ConnectionError) as error:
                return f"refused: {error}"

    def test_agents_without_the_right_certificate(self):
        node = self.place / "nodes/small-1"
        self.assertIn(self.tls_says(patience=1, certificate=node / "node.pem", key=node / "node.key"),
                      ("quiet", "words"))
        self.assertRegex(self.tls_says(), "refused|closed")
        self.up(cluster_text("other", small=(1, 1, 1)))
        other = self.state / "rubato/clusters/other/nodes/small-1"
        self.assertRegex(self.tls_says(certificate=other / "node.pem", key=other / "node.key"), "refused|closed")
        # A person's own: signed by itself.
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", self.folder / "own.key", "-out", self.folder / "own.pem", "-subj",
                        "/CN=node%2fsmall-1", "-days", "1"], check=True, capture_output=True)
        self.assertRegex(self.tls_says(certificate=self.folder / "own.pem", key=self.folder / "own.key"),
                         "refused|closed")
        self.rubato("down", "-y", "--purge", "--cluster", "other")

    def test_an_agent_under_another_name(self):
        """With the certificate of one node nobody can be another."""
        before = self.node_pids()
        journal = self.status()["cluster"]["journal"]["offset"]
        fake = self.folder / "fake"
        shutil.copytree(self.place / "nodes/small-1", fake, ignore=shutil.ignore_patterns("daemon.*"))
        settings = json.loads((fake / "agent.json").read_text())
        settings["node"] = "small-2"
        (fake / "agent.json").write_text(json.dumps(settings).replace(str(self.place / "nodes/small-1"), str(fake)))
        agent = self.follow("agent", "--dir", fake)
        log = self.place / "head/daemon.log"
        wait_until(lambda: agent.poll() is not None or re.search("refuse|small-2", log.read_text()),
                   lambda: f"a refusal in {log.read_text()}")
        agent.kill()
        job = self.submit("--wait", "--workers", "2", TOOL, "env", "RUBATO_NODE")
        self.assertEqual(sorted(self.log_texts(job)), ["RUBATO_NODE=small-1", "RUBATO_NODE=small-2"])
        self.assertEqual(self.node_pids(), before)
        events = [event for event in self.json_lines("events", "--limit", 1000) if event["offset"] > journal]
        self.assertEqual([event for event in events if event["type"].startswith("node-")], [])

    def test_only_loopback_is_listened_on(self):
        ours = {self.head_pid(), *self.node_pids().values()}
        listed = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
        found = 0
        for line in listed.splitlines():
            if any(int(pid) in ours for pid in re.findall(r"pid=(\d+)", line)):
                found += 1
                self.assertRegex(line.split()[3], r"^(127\.\d+\.\d+\.\d+|\[::1\]):\d+$", line)
        self.assertGreaterEqual(found, 2)

    def test_oversize_requests(self):
        self.assertIn(" 413 ", self.raw(self.request("POST /api/v1/jobs HTTP/1.1", "Content-Length: 99999999999")))
        large = 17 << 20
        self.assertIn(" 413 ", self.raw(self.request("POST /api/v1/jobs HTTP/1.1", f"Content-Length: {large}")))
        self.assertRegex(self.raw(self.request("GET /api/v1/status HTTP/1.1", "X: " + "y" * 40000)), " 4[03]1 | 400 ")
        chunk = bytes((4 << 20) + 1)
        status, _, _ = self.api("PUT", f"/api/v1/packages/{'0' * 64}?offset=0&size={len(chunk)}", chunk)
        self.assertEqual(status, 413)
        for junk in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 5000,
                     b"GET /api/v1/status HTTP/1.1\r\nContent-Length: -1\r\n\r\n"):
            self.assertNotIn(" 200 ", self.raw(junk + b"\r\n\r\n"))
        self.rubato("status")

    def test_slow_clients_hold_nobody_up(self):
        at = self.api_place()
        job = self.submit("--wait", TOOL, "say", 200)
        slow = []
        try:
            for n in range(60):
                connection = socket.create_connection((at["host"], at["port"]), timeout=harness.WAIT)
                slow.append(connection)
                # Half a request, a body that never comes, a stream that is never read.
                connection.sendall([b"GET /api/v1/sta", self.request("POST /api/v1/jobs HTTP/1.1", "Content-Length: 9"),
                                    self.request("GET /api/v1/events?follow=1 HTTP/1.1")][n % 3])
            for _ in range(5):
                self.assertEqual(len(self.nodes()), 2)
            self.assertEqual(len(self.log_texts(job)), 200)
            self.submit("--wait", TOOL, "say", 1)
        finally:
            for connection in slow:
                connection.close()

    def test_paths_do_not_lead_out(self):
        secret = self.token()
        for path in ("/api/v1/packages/..%2f..%2ftoken", "/api/v1/packages/../../token", "/api/v1/jobs/..%2f..%2ftoken",
                     "/api/v1/jobs/../../../token/logs", "/api/v1/jobs/%2e%2e/output", "/api/v1/jobs/..%00/logs",
                     "/api/v1/nodes/..%2f..", "/../../token", "//token", "/api/v1/packages/" + "Z" * 64,
                     "/api/v1/jobs/.%2e/logs", "/api/v1/jobs/%252e%252e/logs"):
            reply = self.raw(self.request(f"GET {path} HTTP/1.1"))
            self.assertRegex(reply, r"^HTTP/1\.1 4(00|04) ", path)
            self.assertNotIn(secret, reply)
        for name in ("../../token", "..%2fevil", "0" * 63 + "/"):
            reply = self.raw(self.request(f"PUT /api/v1/packages/{name}?offset=0&size=1 HTTP/1.1",
                                          "Content-Length: 1") + b"x")
            self.assertRegex(reply, r"^HTTP/1\.1 4(00|04) ", name)
        for ref in ("../../token", "..", "a/b", "j-\n", "%2e%2e", "-" * 300):
            for command in (["job", "show", "--", ref], ["logs", "--", ref], ["fetch", "--", ref, "out"],
                            ["why", "--", ref], ["stop", "--", ref]):
                done = self.rubato(*command, code=None)
                self.assertIn(done.returncode, (1, 2), (command, done.stderr))
                self.assertNotIn(secret, done.stdout + done.stderr)
        for name in ("../x", "a/b", "", "x" * 100, "-x", "a b", "a\nb"):
            self.assertEqual(self.rubato("submit", "--name", name, TOOL, code=None).returncode, 2, name)

    BAD_MEMBERS = {
        "up": [(member("../evil.py"), b"x")],
        "deep-up": [(member("a/../../evil.py"), b"x")],
        "absolute": [(member("/tmp/evil.py"), b"x")],
        "device": [(member("null", tarfile.CHRTYPE), b"")],
        "block": [(member("disk", tarfile.BLKTYPE), b"")],
        "fifo": [(member("pipe", tarfile.FIFOTYPE), b"")],
        "link-out": [(member("out", tarfile.SYMTYPE, "../../../token"), b"")],
        "link-absolute": [(member("out", tarfile.SYMTYPE, "/etc/passwd"), b"")],
        "hard-link-out": [(member("out", tarfile.LNKTYPE, "../../token"), b"")],
        "through-a-link": [(member("d", tarfile.SYMTYPE, "."), b""), (member("d/../../evil.py"), b"x")],
    }

    def test_packages_that_lead_out_are_not_submitted(self):
        for name, members in self.BAD_MEMBERS.items():
            path = self.folder / f"{name}.tar"
            path.write_bytes(tar_bytes((member("job.py"), b"print(1)"), *members))
            said = self.rubato("submit", path, "job.py", code=2).stderr
            self.assertIn(path.name, said)
        self.assertEqual(self.json("jobs", "--all")["jobs"], [])

    def test_packages_that_lead_out_are_not_unpacked(self):
        """One that was sent past the CLI does nothing outside of its folder, and its job tells why."""
        spec = self.job(self.submit("--wait", TOOL, "say", 1))["spec"]
        for name in ("up", "absolute", "link-out"):
            package = zstd_frame(tar_bytes((member("job.py"), b"print('ran')"), *self.BAD_MEMBERS[name]))
            digest = hashlib.sha256(package).hexdigest()
            status, _, body = self.api("PUT", f"/api/v1/packages/{digest}?offset=0&size={len(package)}", package)
            self.assertEqual(status, 200, body)
            changes = {"package": digest, "program": "job.py", "name": name, "args": []}
            status, _, body = self.api("POST", "/api/v1/jobs", json.dumps(spec | changes))
            self.assertEqual(status, 201, body)
            job = json.loads(body)["id"]
            said = wait_until(lambda: self.log_texts(job), "the node's refusal in the log")[0]  # or it has tried again
            self.assertIn("rubato: ", said)
            self.rubato("stop", job, "--wait")
        self.submit("--wait", TOOL, "say", 1)
        found = [folder for folder, _, names in os.walk(self.state) if "evil.py" in names]
        self.assertEqual(found, [])
        self.assertFalse(os.path.exists("/tmp/evil.py"))

    def test_a_package_that_is_not_what_it_says(self):
        data = zstd_frame(tar_bytes((member("job.py"), b"print(1)")))
        wrong = hashlib.sha256(data + b"x").hexdigest()
        status, _, body = self.api("PUT", f"/api/v1/packages/{wrong}?offset=0&size={len(data)}", data)
        self.assertEqual(status, 400, body)
        self.assertFalse(json.loads(self.api("GET", f"/api/v1/packages/{wrong}")[2])["present"])
        self.assertEqual([path.name for path in self.place.glob("packages/*.tar.zst")], [])


if __name__ == "__main__":
    cluster_harness.main()
