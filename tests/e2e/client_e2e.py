"""The commands against a head that is made here: what goes over the wire, and what a person sees when it breaks."""
import hashlib
import http.server
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import tarfile
import tempfile
import threading
import unittest
from pathlib import Path

import harness

TOKEN = "0123456789abcdef" * 4
CHUNK_MAX = 4 << 20


def job(phase="running", **more):
    return {"id": "j-00c0ffee", "name": "train", "phase": phase, "workers": 2, "workers_min": 2, "workers_max": 4,
            "restarts_used": 0, "max_restarts": 3, "submitted": "2026-11-15T03:00:00.000Z", "spec": {}, **more}


def zstd_stored(data):
    """A zstd frame of raw blocks (RFC 8878): nothing here has to compress."""
    out = struct.pack("<I", 0xFD2FB528) + bytes([0x00, 0x58])
    blocks = [data[i:i + 65536] for i in range(0, len(data), 65536)] or [b""]
    for i, block in enumerate(blocks):
        header = (len(block) << 3) | (1 if i + 1 == len(blocks) else 0)
        out += struct.pack("<I", header)[:3] + block
    return out


class Head:
    """Answers by a table: (method, path) to a function of (handler, query, body)."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.routes = {}
        self.asked = []
        self.server = None

    def start(self):
        head = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                path, _, query = self.path.partition("?")
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                head.asked.append((self.command, self.path, body))
                if path != "/healthz" and self.headers.get("authorization") != "Bearer " + TOKEN:
                    return self.reply({"error": {"code": "unauthorized", "message": "wrong token"}}, 401)
                route = head.routes.get((self.command, path))
                if route is None:
                    return self.reply({"error": {"code": "not_found", "message": "there is no " + path}}, 404)
                values = dict(part.split("=", 1) for part in query.split("&") if part)
                answer = route(self, values, body)
                if answer is not None:
                    self.reply(answer)

            do_GET = do_POST = do_PUT = do_DELETE = serve

            def reply(self, document, status=200, headers=()):
                data = json.dumps(document).encode()
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def begin_stream(self):
                self.send_response(200)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()

            def chunk(self, data):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

            def drop(self):
                """As a head that was killed."""
                self.close_connection = True
                self.connection.shutdown(2)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        (self.folder / "head").mkdir(parents=True, exist_ok=True)
        token = self.folder / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)
        file = self.folder / "head/head.json"
        port = self.server.server_address[1]
        draft = file.with_suffix(".draft")  # as a head does: a client may be waiting for it
        draft.write_text(json.dumps({"pid": os.getpid(), "api": {"host": "127.0.0.1", "port": port}}))
        draft.rename(file)

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


class Client(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)
        self.env = {**os.environ, "XDG_STATE_HOME": self.home.name, "USER": "me", "TERM": "xterm"}
        self.env.pop("RUBATO_CLUSTER", None)
        self.head = Head(Path(self.home.name) / "rubato/clusters/local")
        self.head.start()
        self.addCleanup(self.head.stop)

    def start(self, *args, **options):
        return subprocess.Popen([harness.RUBATO, *map(str, args)], env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, preexec_fn=harness.die_with_parent, **options)

    def type(self, *args, code=0, **options):
        process = self.start(*args, **options)
        out, err = process.communicate(timeout=harness.WAIT)
        self.assertEqual(process.returncode, code, out + err)
        return out, err

    # Finding the head.

    def test_status_is_asked_with_the_token(self):
        self.head.routes["GET", "/api/v1/status"] = lambda *_: {"cluster": {"name": "local"}, "nodes": [], "jobs": []}
        out, _ = self.type("status")
        self.assertIn("cluster local", out)
        self.assertEqual(json.loads(self.type("status", "--json")[0])["cluster"]["name"], "local")

    def test_a_token_that_others_can_read_is_not_sent(self):
        (self.head.folder / "token").chmod(0o644)
        _, err = self.type("status", code=2)
        self.assertIn("can be read by others", err)
        self.assertEqual(self.head.asked, [])

    def test_a_wrong_token_is_an_error(self):
        (self.head.folder / "token").write_text("wrong\n")
        self.assertIn("wrong token", self.type("status", code=1)[1])

    def test_a_dead_head_is_said_with_the_cure(self):
        self.head.stop()
        _, err = self.type("status", code=1)
        self.assertIn("the head of 'local' is not running (its agents and workers may be)", err)
        self.assertIn("restart it with: rubato up", err)

    def test_no_cluster_is_said_with_the_cure(self):
        (self.head.folder / "head/head.json").unlink()
        self.assertEqual(self.type("jobs", code=1)[1].splitlines()[0], "error: no cluster is running")
        self.assertIn("rubato up", self.type("jobs", code=1)[1])

    def test_usage_errors_of_the_head_exit_with_two(self):
        def refuse(handler, *_):
            handler.reply({"error": {"code": "usage", "message": "which?", "where": "a.yaml:1:2", "hint": "say"}}, 400)

        self.head.routes["GET", "/api/v1/jobs/x"] = refuse
        self.assertEqual(self.type("job", "show", "x", code=2)[1], "error: which?\n  at  a.yaml:1:2\n  fix say\n")

    # A head that is busy.

    def busy(self, times, status, headers=(("Retry-After", "0"),)):
        """A route that refuses so many times before it answers."""
        left = [times]

        def answer(handler, *_):
            if left[0] == 0:
                return {"cluster": {"name": "local"}, "nodes": [], "jobs": []}
            left[0] -= 1
            handler.reply({"error": {"code": "unavailable", "message": "too many"}}, status, headers)

        return answer

    def test_a_busy_head_is_asked_again_as_it_says(self):
        for status in (429, 503):
            self.head.asked.clear()
            self.head.routes["GET", "/api/v1/status"] = self.busy(3, status)
            self.type("status")
            self.assertEqual(len(self.head.asked), 4)

    def test_a_failure_without_a_hint_is_not_asked_again(self):
        self.head.routes["GET", "/api/v1/status"] = self.busy(1, 503, ())
        self.assertIn("too many", self.type("status", code=1)[1])

    def test_a_busy_head_is_not_asked_for_ever(self):
        self.head.routes["GET", "/api/v1/status"] = self.busy(1000, 429, (("Retry-After", "3600"),))
        self.assertIn("too many", self.type("status", code=1)[1])
        self.assertLess(len(self.head.asked), 40)

    def test_a_submission_is_asked_again_with_the_same_id(self):
        refuse = self.busy(2, 429)
        self.head.routes["POST", "/api/v1/jobs"] = lambda *args: refuse(*args) and job()
        self.type("submit", "--no-python", "/bin/true")
        ids = {json.loads(body)["request_id"] for method, path, body in self.head.asked if path == "/api/v1/jobs"}
        self.assertEqual(len(ids), 1)

    # Logs.

    def lines(self, *texts):
        return "".join(json.dumps({"time": f"2026-11-15T03:00:0{t[0]}.000Z", "rank": 0, "node": "n-1", "stream": "out",
                                   "text": t}) + "\n" for t in texts).encode()

    def test_following_survives_a_head_that_comes_back_elsewhere(self):
        self.head.routes["GET", "/api/v1/jobs/train"] = lambda *_: job()
        broken = threading.Event()

        def first(handler, *_):
            handler.begin_stream()
            handler.chunk(self.lines("1 one", "2 two"))
            broken.wait(harness.WAIT)
            handler.drop()

        self.head.routes["GET", "/api/v1/jobs/j-00c0ffee/logs"] = first
        process = self.start("logs", "train", "-f")
        self.assertEqual(process.stdout.readline(), "[0@n-1] 1 one\n")
        self.assertEqual(process.stdout.readline(), "[0@n-1] 2 two\n")
        self.head.stop()
        broken.set()
        self.assertIn("waiting for it", process.stderr.readline())

        def second(handler, query, _):
            handler.begin_stream()
            handler.chunk(self.lines("2 two", "3 three"))
            handler.chunk(b"\n")  # keep-alive
            handler.wfile.write(b"0\r\n\r\n")

        self.head.routes["GET", "/api/v1/jobs/j-00c0ffee/logs"] = second
        self.head.routes["GET", "/api/v1/jobs/j-00c0ffee"] = lambda *_: job(phase="succeeded")
        self.head.start()
        out, err = process.communicate(timeout=harness.WAIT)
        self.assertEqual((process.returncode, out), (0, "[0@n-1] 3 three\n"), err)
        self.assertIn("since=2026-11-15T03%3A00%3A02.000Z", [a[1] for a in self.head.asked if "/logs" in a[1]][-1])
        self.assertIn("train (j-00c0ffee) succeeded", err)

    def test_ctrl_c_detaches(self):
        self.head.routes["GET", "/api/v1/jobs/train"] = lambda *_: job()
        done = threading.Event()
        self.addCleanup(done.set)

        def stream(handler, *_):
            handler.begin_stream()
            handler.chunk(self.lines("1 one"))
            done.wait(harness.WAIT)

        self.head.routes["GET", "/api/v1/jobs/j-00c0ffee/logs"] = stream
        process = self.start("logs", "train", "-f")
        self.assertEqual(process.stdout.readline(), "[0@n-1] 1 one\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=harness.WAIT)
        self.assertEqual(process.returncode, 130)
        self.assertIn("detached; the job goes on", err)
        self.assertIn("rubato logs j-00c0ffee -f", err)

    # Submitting.

    def package_routes(self):
        """Takes a package as a real head does: in order, chunk by chunk."""
        store = {}

        def put(handler, query, body, hash):
            have = store.setdefault(hash, b"")
            self.assertLessEqual(len(body), CHUNK_MAX)
            self.assertEqual(int(query["offset"]), len(have))
            store[hash] = have + body
            complete = len(store[hash]) == int(query["size"])
            if complete:
                self.assertEqual(hashlib.sha256(store[hash]).hexdigest(), hash)
            return {"have_bytes": len(store[hash]), "complete": complete}

        class Routes(dict):
            def get(inner, key, default=None):
                method, path = key
                hash = path.rpartition("/")[2]
                if path.startswith("/api/v1/packages/"):
                    if method == "PUT":
                        return lambda handler, query, body: put(handler, query, body, hash)
                    have = store.get(hash, b"")
                    return lambda *_: {"present": bool(have), "have_bytes": len(have)}
                return super().get(key, default)

        self.head.routes = Routes(self.head.routes)
        return store

    def project(self, size):
        folder = Path(self.home.name) / "project"
        folder.mkdir()
        (folder / "train.py").write_text("import helper\n")
        (folder / "helper.py").write_text("")
        (folder / ".gitignore").write_text("*.tmp\n")
        (folder / "junk.tmp").write_text("x")
        (folder / "weights.bin").write_bytes(os.urandom(size))
        return folder

    def test_a_package_goes_in_chunks_and_only_once(self):
        store = self.package_routes()
        self.head.routes["POST", "/api/v1/jobs"] = lambda *_: job("queued")
        folder = self.project(9 << 20)
        out, err = self.type("submit", "--workers", "2:4", folder, "train.py", "--lr", "1")
        self.assertEqual(out, "j-00c0ffee\n")
        self.assertIn("rubato logs j-00c0ffee", err)
        puts = [path for method, path, _ in self.head.asked if method == "PUT"]
        self.assertGreaterEqual(len(puts), 3)
        spec = json.loads(self.head.asked[-1][2])
        self.assertEqual((spec["program"], spec["args"]), ("train.py", ["--lr", "1"]))
        self.assertEqual([spec["package"]], list(store))
        self.type("submit", folder, "train.py")
        self.assertEqual(len([path for method, path, _ in self.head.asked if method == "PUT"]), len(puts))

    def test_a_lost_answer_does_not_submit_twice(self):
        ids = []

        def submit(handler, query, body):
            ids.append(json.loads(body)["request_id"])
            if len(ids) == 1:
                return handler.drop()
            return job("queued")

        self.head.routes["POST", "/api/v1/jobs"] = submit
        out, _ = self.type("submit", "--no-python", "/bin/true")
        self.assertEqual(out, "j-00c0ffee\n")
        self.assertEqual(len(ids), 2)
        self.assertEqual(ids[0], ids[1])

    def test_wait_exits_with_the_jobs_result(self):
        phases = ["queued", "running", "failed"]
        self.head.routes["POST", "/api/v1/jobs"] = lambda *_: job("queued")
        failure = {"host": "n-1", "rank": 1, "exit_code": 3, "message": "boom"}
        self.head.routes["GET", "/api/v1/jobs/j-00c0ffee"] = lambda *_: job(
            phases.pop(0), exit="rank 1 failed", failures=[failure])
        _, err = self.type("submit", "--wait", "--no-python", "/bin/false", code=1)
        self.assertIn("train (j-00c0ffee) failed: rank 1 failed", err)
        self.assertIn("boom", err)

    # Fetching.

    def test_fetch_unpacks_the_output_and_overwrites_nothing(self):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo("model/weights.bin")
            info.size = 300_000
            tar.addfile(info, io.BytesIO(b"w" * info.size))

        def stream(handler, *_):
            handler.begin_stream()
            frame = zstd_stored(data.getvalue())
            handler.chunk(frame[:1000])
            handler.chunk(frame[1000:])
            handler.wfile.write(b"0\r\n\r\n")

        self.head.routes["GET", "/api/v1/jobs/train"] = lambda *_: job("succeeded")
        self.head.routes["GET", "/api/v1/jobs/j-00c0ffee/output"] = stream
        target = Path(self.home.name) / "results"
        self.type("fetch", "train", target)
        self.assertEqual((target / "model/weights.bin").read_bytes(), b"w" * 300_000)
        self.assertIn("is there already", self.type("fetch", "train", target, code=1)[1])
        (target / "mine").write_text("kept")
        self.type("fetch", "train", target, "--force")
        self.assertEqual((target / "mine").read_text(), "kept")

    # The live screen.

    def screen(self):
        self.head.routes["GET", "/api/v1/status"] = lambda *_: {
            "cluster": {"name": "local"}, "nodes": [{"id": "small-1", "phase": "up"}], "jobs": [job()]}
        self.head.routes["GET", "/api/v1/jobs/j-00c0ffee/why"] = lambda *_: {"subject": "job train", "wanted": "more"}
        self.head.routes["POST", "/api/v1/jobs/j-00c0ffee/stop"] = lambda *_: job("stopping")
        pid, master = pty.fork()
        if pid == 0:
            os.execve(harness.RUBATO, [harness.RUBATO, "top"], self.env)
        self.addCleanup(os.close, master)
        self.seen = ""

        def see(text):
            def found():
                if select.select([master], [], [], 0.05)[0]:
                    try:
                        self.seen += os.read(master, 65536).decode(errors="replace")
                    except OSError:
                        pass
                return text in self.seen
            harness.wait_until(found, lambda: f"{text!r} on the screen: {self.seen[-2000:]!r}")
            self.seen = self.seen.rpartition(text)[2]

        return pid, master, see

    def ended(self, pid):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_top_shows_asks_and_leaves_the_terminal_as_it_was(self):
        pid, master, see = self.screen()
        see("\x1b[?1049h")
        see("j-00c0ffee")
        os.write(master, b"y")
        see("wanted: more")
        os.write(master, b"\x1b")
        os.write(master, b":no\r")
        see("small-1")
        os.write(master, b":jobs\r")
        see("j-00c0ffee")
        os.write(master, b"\x04")
        see("stop j-00c0ffee? y/n")
        os.write(master, b"y")
        see("stopping j-00c0ffee")
        os.write(master, b"q")
        see("\x1b[?1049l")
        self.assertEqual(self.ended(pid), 0)
        self.assertIn(("POST", "/api/v1/jobs/j-00c0ffee/stop"), [a[:2] for a in self.head.asked])

    def test_top_restores_the_terminal_when_it_is_killed(self):
        pid, _, see = self.screen()
        see("j-00c0ffee")
        os.kill(pid, signal.SIGTERM)
        see("\x1b[?1049l")
        self.assertEqual(self.ended(pid), -signal.SIGTERM)

    def test_top_needs_a_terminal(self):
        self.assertIn("needs a terminal", self.type("top", code=2)[1])


if __name__ == "__main__":
    unittest.main()
