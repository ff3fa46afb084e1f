"""A small client of the Kubernetes API for the tests' own parts: kubelet, proxy and assertions. Not what is tested.

    api = Api(kubeconfig)
    api.get("/api/v1/nodes")                         the decoded reply; ApiError for 4xx and 5xx
    api.post(path, body)  api.put(...)  api.delete(path)  api.merge(path, patch)      merge: a JSON merge patch
    for event in api.watch(path, stop): ...          lists, then watches for ever; {"type", "object"}
"""
import contextlib
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from pathlib import Path

import yaml


class ApiError(Exception):
    def __init__(self, code, reply):
        super().__init__(f"{code}: {reply.get('message', reply) if isinstance(reply, dict) else reply}")
        self.code, self.reply = code, reply


class Api:
    def __init__(self, kubeconfig):
        config = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        url = urllib.parse.urlsplit(cluster["server"])
        self.host, self.port = url.hostname, url.port
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        if "client-certificate" in user:
            self._tls.load_cert_chain(user["client-certificate"], user["client-key"])
        self._headers = {"Accept": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        self._local = threading.local()
        self._streams, self._connections = set(), set()

    def connect(self, timeout=60):
        return http.client.HTTPSConnection(self.host, self.port, context=self._tls, timeout=timeout)

    def call(self, method, path, body=None, content="application/json", raw=False):
        headers = self._headers | ({"Content-Type": content} if body is not None else {})
        data = None if body is None else json.dumps(body)
        for attempt in range(3):
            connection = getattr(self._local, "connection", None) or self.connect()
            self._local.connection = connection
            self._connections.add(connection)
            try:
                connection.request(method, path, data, headers)
                reply = connection.getresponse()
                text = reply.read()
                break
            except (OSError, http.client.HTTPException):  # a kept connection that the server has closed meanwhile
                connection.close()
                self._connections.discard(connection)
                self._local.connection = None
                if attempt == 2:
                    raise
        value = text.decode(errors="replace")
        if not raw and "json" in reply.headers.get("Content-Type", ""):
            value = json.loads(value)
        if reply.status >= 400:
            raise ApiError(reply.status, value)
        return value

    def get(self, path, raw=False):
        return self.call("GET", path, raw=raw)

    def post(self, path, body):
        return self.call("POST", path, body)

    def put(self, path, body):
        return self.call("PUT", path, body)

    def delete(self, path, body=None):
        return self.call("DELETE", path, body)

    def merge(self, path, patch):
        return self.call("PATCH", path, patch, "application/merge-patch+json")

    def strategic(self, path, patch):
        return self.call("PATCH", path, patch, "application/strategic-merge-patch+json")

    def watch(self, path, stop):
        """Objects of a list path as they are and as they change, until `stop` is set. A gap is filled by a new list:
        {"type": "LISTED", "object": {whole list}} comes first, and again after a gap."""
        joint = "&" if "?" in path else "?"
        while not stop.is_set():
            try:
                listed = self.get(path)
                yield {"type": "LISTED", "object": listed}
                version = listed["metadata"]["resourceVersion"]
                while not stop.is_set():
                    query = f"watch=1&timeoutSeconds=120&resourceVersion={version}"
                    for event in self._stream(path + joint + query, stop):
                        if event["type"] == "ERROR":
                            raise ApiError(event["object"].get("code", 500), event["object"])
                        version = event["object"]["metadata"]["resourceVersion"]
                        yield event
            except (ApiError, OSError, http.client.HTTPException, ValueError):
                stop.wait(0.2)

    def _stream(self, path, stop):
        connection = self.connect(timeout=30)
        try:
            connection.request("GET", path, headers=self._headers)
            reply = connection.getresponse()
            if reply.status >= 400:
                raise ApiError(reply.status, reply.read().decode(errors="replace"))
            connection.sock.settimeout(None)
            self._streams.add(connection.sock)
            while not stop.is_set():
                line = reply.readline()  # close() ends a wait in here
                if not line:
                    return
                yield json.loads(line)
        finally:
            self._streams.discard(connection.sock)
            connection.close()

    def close(self):
        """Ends the watches of all threads whose `stop` is set, and all connections. A later call makes a new one."""
        for stream in list(self._streams):
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        for connection in list(self._connections):
            connection.close()
