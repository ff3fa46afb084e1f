"""What the API server asks of a node of a test: logs, and exec over WebSocket (v4 and v5 channels), by HTTPS.

Container output is on disk as it was written; `kubectl logs -f`, `--previous` and `--tail` work. Port-forward and SPDY
(kubectl before 1.31) do not: the product speaks WebSocket.
"""
import base64
import hashlib
import http.server
import io
import json
import os
import pty
import fcntl
import select
import selectors
import socket
import ssl
import struct
import subprocess
import termios
import threading
import time
import urllib.parse

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255


class Wire(io.RawIOBase):
    """A TLS connection that one thread reads and others write. OpenSSL's connections are for one thread at a time, and
    Python before 3.13 lets several in."""

    def __init__(self, connection):
        self._connection, self._lock = connection, threading.Lock()
        connection.setblocking(False)

    def readable(self):
        return True

    def writable(self):
        return True

    def readinto(self, buffer):
        return self._do(lambda: self._connection.recv_into(buffer))

    def write(self, data):
        """All of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._do(lambda part=rest: self._connection.send(part)):]
        return len(data)

    def _do(self, call):
        while True:
            with self._lock:
                try:
                    return call()
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
            if self._connection.fileno() < 0:
                raise EOFError
            poll = select.poll()
            poll.register(self._connection, wanted)
            poll.poll()


class KubeletServer:
    def __init__(self, kubelet):
        self.kubelet = kubelet
        self.protocols = ("v5.channel.k8s.io", "v4.channel.k8s.io")  # of exec; v4 alone before Kubernetes 1.30
        address = kubelet.network.address
        crt, key = kubelet.kube.certificate("kubelet-server", "/O=system:nodes/CN=system:node:test", f"IP:{address}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(crt, key)
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()
                wire = Wire(self.request)
                self.rfile, self.wfile = io.BufferedReader(wire), wire

            def finish(self):
                super().finish()
                self.request.close()

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
                kind, *where = url.path.strip("/").split("/")
                if kind == "containerLogs" and len(where) == 3:
                    owner.logs(self, *where, query)
                elif kind in ("exec", "attach") and len(where) == 3:
                    owner.exec(self, *where, query)
                else:
                    self.send_error(404)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # somebody closed in the middle

        self._server = Server((address, 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._open = True

    def close(self):
        self._open = False
        self._server.shutdown()
        self._server.server_close()

    # --- logs

    def logs(self, request, namespace, pod, container, query):
        kubelet = self.kubelet
        folders = sorted((kubelet.folder / "logs").glob(f"{namespace}_{pod}_*"), key=lambda path: path.stat().st_mtime)
        logs = sorted((folders[-1] / container).glob("*.log"), key=lambda path: int(path.stem)) if folders else []
        if query.get("previous") == ["true"]:
            logs = logs[:-1]
        if not logs:
            body = f'container "{container}" in pod "{pod}" is waiting to start'.encode()
            request.send_response(400)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)
            return
        self._send_log(request, logs[-1], query, lambda: self._runs(namespace, pod, container))

    @staticmethod
    def _begin_log(request):
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()

    def _send_log(self, request, path, query, runs):
        with open(path, "rb") as log:
            text = log.read()
            if "tailLines" in query:
                lines = text.splitlines(keepends=True)
                count = int(query["tailLines"][0])
                text = b"".join(lines[-count:] if count else [])
            begun = False  # a kubelet's header comes with the first line
            while True:
                if text:
                    if not begun:
                        self._begin_log(request)
                    begun = True
                    request.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
                    request.wfile.flush()
                alive = runs() and self._open  # asked before reading: the last lines are not lost
                text = log.read()
                if not text and (query.get("follow") != ["true"] or not alive):
                    break
                if not text:
                    time.sleep(0.05)
            if not begun:
                self._begin_log(request)
            request.wfile.write(b"0\r\n\r\n")

    def _container(self, namespace, pod, container):
        for one in list(self.kubelet.pods.values()):
            if (one.namespace, one.name) == (namespace, pod) and one.container(container):
                return one.container(container)
        return None

    def _runs(self, namespace, pod, container):
        return self._container(namespace, pod, container) is not None

    # --- exec

    def exec(self, request, namespace, pod, container, query):
        running = self._container(namespace, pod, container)
        offered = [one.strip() for one in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        chosen = next((one for one in self.protocols if one in offered), None)
        request.close_connection = True
        if not running:
            return request.send_error(404, f"container {container} is not running")
        if request.headers.get("Upgrade", "").lower() != "websocket" or not chosen:
            return request.send_error(400, "this kubelet speaks only WebSocket: v4.channel.k8s.io, v5.channel.k8s.io")
        digest = hashlib.sha1((request.headers["Sec-WebSocket-Key"] + MAGIC).encode()).digest()
        accept = base64.b64encode(digest).decode()
        request.wfile.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n").encode())
        request.wfile.flush()
        argv = running.enter(query.get("command", []))
        Session(request, argv, query.get("tty") in (["1"], ["true"]), query.get("input") in (["1"], ["true"])).run()


class Session:
    """One command and its WebSocket."""

    def __init__(self, request, argv, tty, wants_input):
        self._request, self._lock = request, threading.Lock()
        self._tty, self._master = tty, None
        if tty:
            self._master, slave = pty.openpty()
            self._process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
            os.close(slave)
        else:
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE if wants_input else subprocess.DEVNULL,
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    def run(self):
        threading.Thread(target=self._read, daemon=True).start()
        channels = {self._master: STDOUT} if self._tty else \
            {self._process.stdout.fileno(): STDOUT, self._process.stderr.fileno(): STDERR}
        watch = selectors.DefaultSelector()
        for fd in channels:
            watch.register(fd, selectors.EVENT_READ)
        try:
            while channels:
                for key, _ in watch.select():
                    try:
                        part = os.read(key.fd, 1 << 15)
                    except OSError:  # the other side of a terminal is closed
                        part = b""
                    if part:
                        self._send(bytes([channels[key.fd]]) + part)
                    else:
                        watch.unregister(key.fd)
                        del channels[key.fd]
            self._send(bytes([ERROR]) + json.dumps(self._status(self._process.wait())).encode())
            self._send((1000).to_bytes(2, "big"), 0x8)
        except OSError:
            self._process.kill()
        finally:
            self._process.wait()
            if self._master is not None:
                os.close(self._master)

    @staticmethod
    def _status(code):
        if code == 0:
            return {"metadata": {}, "status": "Success"}
        code = code if code > 0 else 128 - code
        return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": f"command terminated with non-zero exit code: {code}",
                "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}

    def _send(self, payload, opcode=0x2):
        size = len(payload)
        head = bytes([0x80 | opcode]) + (bytes([size]) if size < 126 else bytes([126]) + struct.pack(">H", size)
                                         if size < 1 << 16 else bytes([127]) + struct.pack(">Q", size))
        with self._lock:
            self._request.wfile.write(head + payload)
            self._request.wfile.flush()

    def _read(self):
        try:
            while True:
                opcode, payload = self._frame()
                if opcode == 0x8:
                    break
                if opcode == 0x9:
                    self._send(payload, 0xA)
                elif opcode in (0x1, 0x2) and payload:
                    self._input(payload[0], payload[1:])
        except (OSError, EOFError, ValueError):
            pass
        if self._process.poll() is None and not self._tty and self._process.stdin:
            self._close_stdin()

    def _frame(self):
        first, second = self._exactly(2)
        size = second & 0x7F
        if size == 126:
            size = struct.unpack(">H", self._exactly(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self._exactly(8))[0]
        mask = self._exactly(4) if second & 0x80 else b"\0\0\0\0"
        data = self._exactly(size)
        if size and any(mask):
            whole = int.from_bytes(data, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")
            data = whole.to_bytes(size, "big")
        return first & 0xF, data

    def _exactly(self, size):
        data = self._request.rfile.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _input(self, channel, data):
        if channel == STDIN and self._tty:
            os.write(self._master, data)
        elif channel == STDIN and self._process.stdin:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        elif channel == RESIZE and self._tty:
            size = json.loads(data)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0))
        elif channel == CLOSE and data[:1] == bytes([STDIN]):
            self._close_stdin()

    def _close_stdin(self):
        if self._process.stdin and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except OSError:
                pass
