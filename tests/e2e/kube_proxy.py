"""A proxy in front of a real API server that does what real networks and loaded API servers do to their clients.

    with KubeProxy(kube) as proxy:
        proxy.kubeconfig                        of the administrator, through the proxy
        proxy.kubeconfig_for(path)              another one, through the proxy
        proxy.fail(429, count=3, retry_after=1) the next three requests that match get this answer instead
        proxy.fail(500, method="PATCH", path="/pods")         409, 410, 500, 503; path: a part of it
        proxy.gone()                            watches: each gets an ERROR event 410 as its next event, once
        proxy.cut()                             every open connection is reset now
        proxy.refuse(True)                      new connections are closed at once, until refuse(False)
        proxy.hold_watches(True)                events of watches stay here; hold_watches(False) lets them through
        proxy.drop_watches(True)                events of watches are lost (a half-dead connection), until False
        proxy.delay_s = 0.2                     before each request goes on
        proxy.lose_reply(method="POST", path="/pods")         the server does it, and the client's connection is reset
        proxy.on_reply("POST", "/pods", function)             called once, after the server has done it and before the
                                                              client knows: the place to kill the client
        proxy.requests                          [(method, path with query, status)] in the order of their answers
        proxy.matching("POST", "/pods")         those of them

A client is known by its certificate or token: the proxy has the API server's name, and presents the client's bearer
token; a client certificate cannot be passed on, so that users with one appear as the administrator.
"""
import collections
import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass

import yaml

LIMIT = 64 << 20  # of a request or a reply without a stream


@dataclass
class Fault:
    code: int
    method: str
    path: str
    left: int
    retry_after: object = None
    after: bool = False  # the server has done it, only the reply is lost

    def matches(self, method, path):
        return self.left > 0 and self.method in ("", method) and self.path in path


class Closed(Exception):
    pass


class Stream:
    """HTTP/1.1 on a socket, as much as is needed to pass it on."""

    def __init__(self, sock):
        self.sock, self._file = sock, sock.makefile("rb")

    def head(self):
        """First line, and headers as a list; Closed at the end."""
        line = self._file.readline(1 << 16)
        if not line:
            raise Closed
        headers = []
        while (each := self._file.readline(1 << 16)) not in (b"\r\n", b""):
            name, _, value = each.decode("latin-1").partition(":")
            headers.append((name.strip(), value.strip()))
        return line.decode("latin-1").rstrip("\r\n"), headers

    def body(self, headers):
        length = header(headers, "content-length")
        if header(headers, "transfer-encoding") == "chunked":
            return b"".join(self.chunks())
        return self._file.read(int(length)) if length else b""

    def chunks(self):
        while True:
            line = self._file.readline(1 << 16)
            if not line:
                raise Closed
            size = int(line.split(b";")[0], 16)
            data = self._file.read(size)
            self._file.readline()
            if size == 0:
                return
            yield data

    def read1(self):
        return self._file.read1(1 << 16)

    def send(self, line, headers, body=b""):
        head = "\r\n".join([line, *(f"{name}: {value}" for name, value in headers)]) + "\r\n\r\n"
        self.sock.sendall(head.encode("latin-1") + body)


def header(headers, name):
    return next((value for key, value in headers if key.lower() == name), "")


class KubeProxy:
    def __init__(self, kube, name="proxy"):
        self._kube, self.delay_s = kube, 0.0
        self.requests = collections.deque(maxlen=100000)
        self._faults, self._hooks, self._lock = [], [], threading.Condition()
        self._connections, self._refusing = set(), False
        self._holding = self._dropping = False
        self._gone = 0  # the watches that began before this count get one 410
        crt, key = kube.certificate(name, "/CN=kube-apiserver", f"IP:{kube.address},DNS:localhost,IP:127.0.0.1")
        self._server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server_tls.load_cert_chain(crt, key)
        admin = yaml.safe_load(kube.kubeconfig.read_text())["users"][0]["user"]
        self._admin_tls = ssl.create_default_context(cafile=kube.ca)
        self._admin_tls.load_cert_chain(admin["client-certificate"], admin["client-key"])
        self._plain_tls = ssl.create_default_context(cafile=kube.ca)
        self._listener = socket.create_server((kube.address, 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        self.server = f"https://{kube.address}:{self.port}"
        self.kubeconfig = kube.kubeconfig_through(self.server, name)
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def kubeconfig_for(self, path):
        """A kubeconfig of the same user that leads here."""
        config = yaml.safe_load(path.read_text())
        config["clusters"][0]["cluster"]["server"] = self.server
        target = path.with_name(f"{path.stem}-proxied.kubeconfig")
        target.write_text(yaml.safe_dump(config))
        target.chmod(0o600)
        return target

    # --- faults

    def fail(self, code, count=1, method="", path="", retry_after=None):
        with self._lock:
            self._faults.append(Fault(code, method, path, count, retry_after))

    def lose_reply(self, count=1, method="", path=""):
        with self._lock:
            self._faults.append(Fault(0, method, path, count, after=True))

    def on_reply(self, method, path, function):
        with self._lock:
            self._hooks.append((method, path, function))

    def pending_faults(self):
        with self._lock:
            return sum(fault.left for fault in self._faults)

    def heal(self):
        with self._lock:
            self._faults.clear()
        self.refuse(False)
        self.hold_watches(False)
        self.drop_watches(False)
        self.delay_s = 0.0

    def gone(self):
        with self._lock:
            self._gone += 1
            self._lock.notify_all()

    def cut(self):
        with self._lock:
            connections = list(self._connections)
        for one in connections:
            reset(one)

    def refuse(self, on):
        self._refusing = on

    def hold_watches(self, on):
        with self._lock:
            self._holding = on
            self._lock.notify_all()

    def drop_watches(self, on):
        self._dropping = on

    def matching(self, method, path=""):
        return [one for one in list(self.requests) if one[0] == method and path in one[1]]

    def watches(self):
        return [one for one in list(self.requests) if "watch=" in one[1]]

    # --- connections

    def _accept(self):
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                reset(client)
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, raw):
        upstream = None
        try:
            raw.settimeout(30)
            client = self._server_tls.wrap_socket(raw, server_side=True)
            client.settimeout(None)
            self._keep(client)
            stream = Stream(client)
            while True:
                line, headers = stream.head()
                if upstream is None:
                    tls = self._plain_tls if header(headers, "authorization") else self._admin_tls
                    address = (self._kube.address, self._kube.port)
                    upstream = tls.wrap_socket(socket.create_connection(address, 30), server_hostname=address[0])
                    upstream.settimeout(None)
                    self._keep(upstream)
                    server = Stream(upstream)
                if not self._one(stream, server, line, headers):
                    return
        except (OSError, Closed, ValueError):
            pass
        finally:
            for sock in (locals().get("client") or raw, upstream):
                if sock is not None:
                    with self._lock:
                        self._connections.discard(sock)
                    sock.close()

    def _keep(self, sock):
        with self._lock:
            self._connections.add(sock)

    def _one(self, client, server, line, headers):
        """One request and its answer; whether the connection goes on."""
        method, path, _ = line.split(" ", 2)
        body = client.body(headers)
        if self.delay_s:
            time.sleep(self.delay_s)
        fault = self._take(method, path)
        if fault and not fault.after:
            self.requests.append((method, path, fault.code))
            self._answer(client, fault)
            return True
        kept = [(name, value) for name, value in headers if name.lower() not in ("transfer-encoding", "content-length")]
        if body or method in ("POST", "PUT", "PATCH"):
            kept.append(("Content-Length", str(len(body))))
        server.send(line, kept, body)
        status, reply = server.head()
        code = int(status.split(" ")[1])
        if fault:
            server.body(reply)
            self.requests.append((method, path, code))
            reset(client.sock)
            return False
        self.requests.append((method, path, code))
        self._call_hook(method, path)
        if code == 101:
            client.send(status, reply)
            self._pipe(client, server)
            return False
        if "watch=" in path and code == 200:
            return self._watch(client, server, status, reply)
        if header(reply, "transfer-encoding") == "chunked":
            client.send(status, reply)
            for chunk in server.chunks():
                send_chunk(client.sock, chunk)
            client.sock.sendall(b"0\r\n\r\n")
        else:
            client.send(status, reply, b"" if method == "HEAD" or code in (204, 304) else server.body(reply))
        return True

    def _call_hook(self, method, path):
        with self._lock:
            found = next((hook for hook in self._hooks if hook[0] == method and hook[1] in path), None)
            if found:
                self._hooks.remove(found)
        if found:
            found[2]()

    def _take(self, method, path):
        with self._lock:
            for fault in self._faults:
                if fault.matches(method, path):
                    fault.left -= 1
                    return fault
        return None

    @staticmethod
    def _answer(client, fault):
        reasons = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError",
                   503: "ServiceUnavailable", 403: "Forbidden", 401: "Unauthorized"}
        body = json.dumps(failure(fault.code, reasons.get(fault.code, ""), f"{fault.code} by the proxy")).encode()
        more = [("Retry-After", fault.retry_after)] if fault.retry_after is not None else []
        client.send(f"HTTP/1.1 {fault.code} {reasons.get(fault.code, 'Error')}",
                    [("Content-Type", "application/json"), ("Content-Length", len(body)), *more], body)

    def _watch(self, client, server, status, headers):
        with self._lock:
            begun = self._gone
        client.send(status, headers)
        done = threading.Event()
        sending = threading.Lock()
        threading.Thread(target=self._say_gone, args=(client, begun, done, sending), daemon=True).start()
        try:
            for chunk in server.chunks():
                with self._lock:
                    while self._holding and self._gone == begun and self._open:
                        self._lock.wait(0.5)
                if self._gone != begun:
                    return False
                if not self._dropping:
                    with sending:
                        send_chunk(client.sock, chunk)
            with sending:
                client.sock.sendall(b"0\r\n\r\n")
            return True
        finally:
            done.set()

    def _say_gone(self, client, begun, done, sending):
        """Tells a watch that its version is too old, once gone() was called, and ends its connection."""
        with self._lock:
            while self._gone == begun and not done.is_set() and self._open:
                self._lock.wait(0.5)
            if done.is_set() or self._gone == begun:
                return
        event = {"type": "ERROR", "object": failure(410, "Expired", "too old resource version: 1 (2)")}
        try:
            with sending:
                send_chunk(client.sock, json.dumps(event).encode() + b"\n")
                client.sock.sendall(b"0\r\n\r\n")
            client.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    @staticmethod
    def _pipe(client, server):
        """Both ways, until either side ends: exec and port-forward."""

        def pump(source, target):
            try:
                while part := source.read1():
                    target.sock.sendall(part)
            except (OSError, ValueError):
                pass
            for each in (source, target):
                try:
                    each.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        back = threading.Thread(target=pump, args=(server, client), daemon=True)
        back.start()
        pump(client, server)
        back.join()

    def close(self):
        self._open = False
        self._listener.close()
        self.hold_watches(False)
        self.cut()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def failure(code, reason, message):
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
            "message": message}


def send_chunk(sock, data):
    sock.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def reset(sock):
    """RST instead of an orderly end; a thread that waits on the socket wakes up."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
