"""The store in which the members of a generation meet: keys and values in memory, outside all workers.

    python3 -m rubato._store [--host 127.0.0.1] [--port 0] [--address-file FILE]     token in $RUBATO_STORE_TOKEN

It needs no PyTorch and is there within a few hundredths of a second. Requests and replies are lines of JSON, one reply
for each request, in order; values are base64. An agent may serve the same itself: docs/training.md has the protocol.

    {"op": "hello", "token": T}                                {}          first, or the connection is closed
    {"op": "set", "key": K, "value": V}                        {}
    {"op": "get", "keys": [K…], "wait_ms": 50}                 {"values": [V…]}, or {"missing": K} after the wait
    {"op": "add", "key": K, "amount": 1}                       {"sum": n}  kept as decimal text
    {"op": "delete", "prefix": P}                              {"deleted": n}
    anything that is not understood                            {"error": why}
"""
import argparse
import asyncio
import base64
import contextlib
import hmac
import json
import os
import socket
import sys
import threading

LINE_BYTES_MAX = 4 << 20
BYTES_MAX = 64 << 20  # of all keys and values
WAIT_MS_MAX = 10_000


class StoreError(OSError):
    """The store cannot be reached, or refused a request."""


# The server -------------------------------------------------------------------------------------------------------

class Server:
    def __init__(self, token=""):
        self._token = token
        self._values = {}
        self._bytes = 0
        self._changed = asyncio.Event()  # replaced by a fresh one after each change

    async def serve(self, host, port, ready):
        server = await asyncio.start_server(self._connection, host, port, limit=LINE_BYTES_MAX)
        ready("%s:%d" % server.sockets[0].getsockname()[:2])
        async with server:
            await server.serve_forever()

    async def _connection(self, reader, writer):
        try:
            hello = json.loads(await reader.readline())
            if not isinstance(hello, dict) or hello.get("op") != "hello" \
                    or not hmac.compare_digest(str(hello.get("token", "")), self._token):
                return
            writer.write(b"{}\n")
            while line := await reader.readline():
                try:
                    reply = await self._answer(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    reply = {"error": f"{type(error).__name__}: {error}"}
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.IncompleteReadError):
            pass  # it left, or speaks something else
        finally:
            writer.close()

    async def _answer(self, request):
        kind = request["op"]
        if kind == "set":
            self._set(request["key"], base64.b64decode(request["value"], validate=True))
            return {}
        if kind == "get":
            return await self._get(request["keys"], min(int(request.get("wait_ms", 0)), WAIT_MS_MAX))
        if kind == "add":
            total = int(self._values.get(request["key"], b"0")) + int(request["amount"])
            self._set(request["key"], str(total).encode())
            return {"sum": total}
        if kind == "delete":
            doomed = [key for key in self._values if key.startswith(request["prefix"])]
            for key in doomed:
                self._bytes -= len(key) + len(self._values.pop(key))
            return {"deleted": len(doomed)}
        raise ValueError(f"unknown op {kind!r}")

    def _set(self, key, value):
        if not isinstance(key, str):
            raise TypeError("a key is a string")
        grown = len(value) + len(key) - (len(key) + len(self._values[key]) if key in self._values else 0)
        if self._bytes + grown > BYTES_MAX:
            raise ValueError(f"the store is full ({BYTES_MAX} bytes)")
        self._bytes += grown
        self._values[key] = value
        self._changed.set()
        self._changed = asyncio.Event()

    async def _get(self, keys, wait_ms):
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_ms / 1e3
        while True:
            missing = next((key for key in keys if key not in self._values), None)
            if missing is None:
                return {"values": [base64.b64encode(self._values[key]).decode() for key in keys]}
            left = end - loop.time()
            if left <= 0:
                return {"missing": missing}
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--address-file", help="gets the address, by a rename, when the store can be reached")
    options = parser.parse_args()

    def ready(address):
        if options.address_file:
            with open(options.address_file + ".new", "w", encoding="utf-8") as file:
                file.write(address)
            os.rename(options.address_file + ".new", options.address_file)
        else:
            print(address, flush=True)

    try:
        asyncio.run(Server(os.environ.get("RUBATO_STORE_TOKEN", "")).serve(options.host, options.port, ready))
    except KeyboardInterrupt:
        return 0


# The client -------------------------------------------------------------------------------------------------------

class Client:
    """A connection for each thread that asks: one that waits for a key holds up nobody else."""

    POLL_MS = 50

    def __init__(self, address, token="", timeout_s=30.0, check=lambda: None):
        """`check` is called now and then while a key is waited for, and ends the wait by throwing."""
        host, _, port = address.rpartition(":")
        self._target = (host.strip("[]"), int(port))
        self._token, self._timeout_s, self.check = token, timeout_s, check
        self._thread = threading.local()
        self._connections = []

    def set(self, key, value):
        self._ask({"op": "set", "key": key, "value": base64.b64encode(value).decode()})

    def add(self, key, amount):
        return self._ask({"op": "add", "key": key, "amount": amount})["sum"]

    def get(self, keys, timeout_s=None):
        """The values of all `keys`, as soon as they are there."""
        polls = int((timeout_s or self._timeout_s) * 1e3 / self.POLL_MS) + 1
        for _ in range(polls):
            self.check()
            reply = self._ask({"op": "get", "keys": list(keys), "wait_ms": self.POLL_MS})
            if "values" in reply:
                return [base64.b64decode(value) for value in reply["values"]]
        raise StoreError(f"nobody set {reply['missing']!r} within {timeout_s or self._timeout_s:.0f} s")

    def has(self, keys):
        return "values" in self._ask({"op": "get", "keys": list(keys)})

    def delete(self, prefix):
        return self._ask({"op": "delete", "prefix": prefix})["deleted"]

    def descriptors(self):
        return {connection[0].fileno() for connection in list(self._connections)}

    def close(self):
        for connection, file in self._connections:
            file.close()
            connection.close()
        self._connections = []
        self._thread = threading.local()

    def release(self):
        """Closes the connection of the thread that calls; another request makes a new one."""
        self._drop()

    def _file(self):
        file = getattr(self._thread, "file", None)
        if file is None:
            connection = socket.create_connection(self._target, self._timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = self._thread.file = connection.makefile("rwb")
            self._connections.append((connection, file))
            self._exchange(file, {"op": "hello", "token": self._token})
        return file

    def _ask(self, request):
        try:
            reply = self._exchange(self._file(), request)
        except (OSError, ValueError) as error:
            self._drop()
            raise StoreError(f"the store at {self._target[0]}:{self._target[1]} does not answer: {error}") from error
        if "error" in reply:
            raise StoreError(f"the store refused {request['op']}: {reply['error']}")
        return reply

    def _drop(self):
        """This thread's connection: the next request makes a new one."""
        file = getattr(self._thread, "file", None)
        self._thread.file = None
        for one in [one for one in self._connections if one[1] is file]:
            self._connections.remove(one)
            with contextlib.suppress(OSError):  # it may have something left to send
                file.close()
            one[0].close()

    def _exchange(self, file, request):
        file.write(json.dumps(request).encode() + b"\n")
        file.flush()
        line = file.readline()
        if not line:
            raise ConnectionError("it closed the connection (a wrong token?)")
        return json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
