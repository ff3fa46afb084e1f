"""What the stand-ins for clouds share: an HTTP server whose mood a test can change.

POST /_fake/set      {"throttle": {"ec2": 3}}   changes settings
GET  /_fake/requests                            what was asked: [{"service", "operation", "parameters"}]
POST /_fake/forget                              forgets what was asked
GET  /_fake/checkip                             the public address of who asks, as checkip.amazonaws.com says it
"""
import argparse
import base64
import hashlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SETTINGS = {
    "buckets": ["bucket"], "boot_s": 0.2, "shutdown_s": 0.2, "consistency_s": 0.0,
    "stock": {},          # {"p3.2xlarge/eu-west-1a": 2}: so many at most
    "session_s": 3600,    # how long given credentials hold
    "clock_offset_s": 0,  # how far this server's clock is ahead
    "throttle": {},       # {"ec2": 3}: the next three are refused
    "fail": {},           # {"s3": 2}: the next two get an error of the server's
    "drop": {},           # {"s3": 1}: the connection ends without an answer
    "lose": {},           # {"instances.insert": 1}: it is done, and the connection ends before the answer
    "expire": {},         # {"ec2": 1}: the next one is told that its token has expired
    "refuse": {},         # {"DeleteKeyPair": ["UnauthorizedOperation", 403]}: always
    "habits": [],         # of servers that are not the cloud's own: "no filters", …, named where they are
    "corrupt": 0,         # so many objects are sent with a byte changed
    "latency_s": 0.0, "your_address": "203.0.113.9",
}


class Refused(Exception):
    """What a service answers instead of a result."""

    def __init__(self, code, message, status=400, **more):
        super().__init__(message)
        self.code, self.message, self.status, self.more = code, message, status, more


class BadToken(Exception):
    pass


def page_of(items, token, size):
    """(this page, the next one's token or None). A token is the number of the first item, and looks like nothing."""
    start = 0
    if token:
        try:
            start = int(base64.b64decode(token).decode().removeprefix("from:"))
        except ValueError:
            raise BadToken() from None
    after = start + size
    return items[start:after], base64.b64encode(f"from:{after}".encode()).decode() if after < len(items) else None


class World:
    """What all services of one account share."""

    def __init__(self, known, settings):
        self.known = SETTINGS | known
        self.settings, self.lock = {}, threading.RLock()
        self.set(self.known | settings)
        self.requests, self.notes, self.callers = [], [], []
        self.machines = None  # who boots real ones: tests/e2e/cloud_machines.py

    def set(self, given):
        unknown = sorted(set(given) - set(self.known))
        if unknown:
            raise KeyError(f"no setting {', '.join(unknown)}")
        self.settings |= given

    def now(self):
        return time.time() + self.settings["clock_offset_s"]

    def record(self, service, operation, parameters):
        self.requests.append({"service": service, "operation": operation, "parameters": parameters})

    def note(self, text):
        self.notes.append(text)

    def check_refused(self, operation):
        if operation in self.settings["refuse"]:
            code, status = self.settings["refuse"][operation]
            raise Refused(code, f"the test refuses {operation}", status)

    def has_habit(self, name):
        return name in self.settings["habits"]

    def take(self, what, service):
        """Whether one of the misfortunes that were asked for happens now."""
        with self.lock:
            left = self.settings[what].get(service, 0)
            if left > 0:
                self.settings[what] = self.settings[what] | {service: left - 1}
            return left > 0


class Handler(BaseHTTPRequestHandler):
    """One request. A cloud's own handler has route()."""
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    @property
    def world(self):
        return self.server.world

    def handle_any(self):
        self.method, self.request_id = self.command, str(uuid.uuid4())
        self.raw_path, _, self.raw_query = self.path.partition("?")
        self.loses = False  # its answer gets lost
        self.read_body()
        try:
            if self.raw_path.startswith("/_fake/"):
                self.control()
            else:
                self.route()
        finally:
            if self.body_file and os.path.exists(self.body_file):
                os.unlink(self.body_file)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = handle_any

    def is_object(self):
        """Whether the body is to be kept as a file, however short it is."""
        return self.method == "PUT"

    def read_body(self):
        """To a file when it is long, with its hashes on the way."""
        announced = int(self.headers.get("content-length") or 0)
        chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        sha, md5, self.body_size = hashlib.sha256(), hashlib.md5(), 0
        self.body, self.body_file = b"", None
        if self.is_object() or chunked or announced > 1 << 20:
            handle, self.body_file = tempfile.mkstemp(dir=self.server.folder)
        for piece in self.chunks() if chunked else self.pieces(announced):
            self.body_size += len(piece)
            sha.update(piece)
            md5.update(piece)
            if self.body_file:
                os.write(handle, piece)
            else:
                self.body += piece
        if self.body_file:
            os.close(handle)
        self.body_left = 0 if chunked else announced - self.body_size  # above 0: the client went away in the middle
        self.body_sha256, self.body_md5 = sha.hexdigest(), md5.digest()

    def pieces(self, left):
        while left > 0:
            piece = self.rfile.read(min(left, 1 << 20))
            if not piece:
                return
            left -= len(piece)
            yield piece

    def chunks(self):
        while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
            yield from self.pieces(size)
            self.rfile.readline()
        while self.rfile.readline().strip():  # what follows the last one
            pass

    def whole_body(self):
        if not self.body_file:
            return self.body
        with open(self.body_file, "rb") as file:
            return file.read()

    def misfortune(self, service):
        """What happens to any request: it waits; True: its connection ends."""
        if self.world.settings["latency_s"]:
            time.sleep(self.world.settings["latency_s"])
        if self.world.take("drop", service):
            self.close_connection = True
            return True
        return False

    def control(self):
        with self.world.lock:
            if self.raw_path == "/_fake/set":
                try:
                    self.world.set(json.loads(self.body))
                except KeyError as unknown:
                    return self.reply(400, unknown.args[0])
                return self.reply(200, "{}")
            if self.raw_path == "/_fake/checkip":
                return self.reply(200, self.world.settings["your_address"] + "\n")
            if self.raw_path == "/_fake/forget":
                self.world.requests.clear()
                return self.reply(200, "{}")
            if self.raw_path == "/_fake/requests":
                encode = lambda value: base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
                return self.reply(200, json.dumps(self.world.requests, default=encode))
        return self.reply(404, "")

    def lose(self, operation):
        """For a cloud's handler, when it knows what is asked for."""
        self.loses = self.world.take("lose", operation)

    def start(self, status, headers):
        if self.loses:
            raise ConnectionAbortedError("as the test has asked for")
        self.send_response_only(status)
        self.send_header("date", formatdate(self.world.now(), usegmt=True))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, status, text="", headers=None):
        body = text.encode()
        self.start(status, (headers or {}) | {"content-length": str(len(body))})
        if self.method != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def reply_file(self, answer, file, headers):
        """`file` is open already, for the object may be gone meanwhile; None: without the body."""
        self.start(answer.status, headers | {"content-length": str(answer.length)})
        if file is not None:
            with file:
                self.send_range(file, answer.start, answer.length)

    def send_range(self, file, start, length):
        file.seek(start)
        corrupt = length > 0 and self.world.settings["corrupt"] > 0
        if corrupt:
            self.world.settings["corrupt"] -= 1
        while length > 0:
            piece = file.read(min(length, 1 << 20))
            length -= len(piece)
            if corrupt:
                piece, corrupt = bytes([piece[0] ^ 1]) + piece[1:], False
            self.wfile.write(piece)


class Server(ThreadingHTTPServer):
    """`is_metadata`: it answers as the metadata service of an instance."""
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler, port, world, folder, is_metadata, address="127.0.0.1"):
        self.world, self.folder, self.is_metadata = world, folder, is_metadata
        super().__init__((address, port), handler)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, BrokenPipeError)):
            super().handle_error(request, client_address)


def main(description, name, make_world, handler, describe):
    """Serves until it is killed. describe(world, api's port, metadata's port, folder): the line of JSON to print."""
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1", help="where it listens")
    parser.add_argument("--set", default="{}", metavar="JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=f"fake-{name}-") as folder:
        world = make_world(json.loads(options.set), folder)
        server, metadata = (Server(handler, port, world, folder, is_metadata, options.host)
                            for port, is_metadata in ((options.port, False), (0, True)))
        threading.Thread(target=metadata.serve_forever, daemon=True).start()
        # Its folder goes with it, however it is ended.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print(json.dumps(describe(world, server.server_port, metadata.server_port, folder)), flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
