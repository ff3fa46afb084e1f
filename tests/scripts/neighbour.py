#!/usr/bin/env python3
"""A hostile user of the same machine: neighbour.py KIND:PORT...

Opens connections to each port and holds them, opens new ones for those that are closed, and says "ready" once each
port has seen its number. Kinds: `half` (an HTTP request that never ends, or nothing), `tls` (a handshake that never
ends, or nothing), `hello` (a wrong token for the store where workers meet, or a line that never ends), `flood` (whole
requests of /healthz, as fast as it can).
"""
import selectors
import socket
import sys
import time

HELD = {"half": 400, "tls": 400, "hello": 400, "flood": 20}
WORDS = {"half": [b"", b"GET /heal"], "tls": [b"", b"\x16\x03\x01\x02\x00\x01"],
         "hello": [b'{"op": "hello", "token": "guess"}\n', b"x" * 4000], "flood": [b""]}
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
PER_TURN = 40  # it leaves some of a small machine to the test itself

held = {}
opened = {}
selector = selectors.DefaultSelector()


def knock(kind, port):
    sock = socket.socket()
    try:
        sock.connect(("127.0.0.1", port))
        sock.setblocking(False)
        words = WORDS[kind][opened[kind, port] % len(WORDS[kind])]
        sock.send(REQUEST if kind == "flood" else words or b"")
    except OSError:
        sock.close()
        return
    opened[kind, port] += 1
    held[kind, port].add(sock)
    selector.register(sock, selectors.EVENT_READ, (kind, port))


def drop(sock, place):
    selector.unregister(sock)
    held[place].discard(sock)
    sock.close()


def turn():
    for (kind, port), socks in held.items():
        for _ in range(min(PER_TURN, HELD[kind] - len(socks))):
            knock(kind, port)
    for key, _ in selector.select(0.01):
        try:
            told = key.fileobj.recv(4096)
            if told and key.data[0] == "flood":
                key.fileobj.send(REQUEST)
            if not told:
                drop(key.fileobj, key.data)
        except OSError:
            drop(key.fileobj, key.data)


def main():
    for word in sys.argv[1:]:
        kind, _, port = word.partition(":")
        held[kind, int(port)], opened[kind, int(port)] = set(), 0
    told = False
    while True:
        turn()
        if not told and all(opened[place] >= HELD[place[0]] for place in held):
            told = True
            print("ready", flush=True)
        time.sleep(0.005)


if __name__ == "__main__":
    main()
