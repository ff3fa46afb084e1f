#!/usr/bin/env python3
"""A provider's program: hands out machines from a list in the cluster file. The protocol: docs/external-providers.md.

    provider:
      type: external
      command: [./static.py]
      head: 10.0.0.5                                   # the head's machine
      machines:
        - 10.0.0.6
        - {host: ubuntu@10.0.0.7, types: [gpu], address: 192.168.0.7}

Who has which machine is kept in a file, so that a node finds its machine again after a crash of anybody. A copy of this
program may be killed at any time, and two may run at once for a moment: each request takes a lock, and the file is
replaced as a whole.
"""
import contextlib
import fcntl
import json
import os
import sys


class Failure(Exception):
    def __init__(self, code, message, hint=""):
        super().__init__(message)
        self.code, self.hint = code, hint


class Static:
    def hello(self, params):
        provider = params["provider"]
        self.head = self.machine_of(provider.get("head"))
        self.machines = [self.machine_of(each) for each in provider.get("machines") or []]
        if not self.machines and not self.head:
            raise Failure("invalid", "provider has no machines", "add machines: [host, host]")
        self.path = os.path.join(params["state_folder"], "taken.json")
        return {"protocol": 1, "name": "static", "machines_stay": True, "methods": ["failed", "cleaned"],
                "hosts": [self.ssh_name(each) for each in self.machines]}

    @staticmethod
    def machine_of(entry):
        if entry is None:
            return None
        if isinstance(entry, str):
            return {"host": entry}
        if isinstance(entry, dict) and isinstance(entry.get("host"), str):
            return entry
        raise Failure("invalid", "not a machine: %r" % (entry,), "write a host, or {host: HOST, types: [TYPE]}")

    @staticmethod
    def ssh_name(machine):
        name = machine["host"]
        if "user" in machine:
            name = "%s@%s" % (machine["user"], name)
        return "%s:%d" % (name, machine["port"]) if "port" in machine else name

    @contextlib.contextmanager
    def taken(self):
        """{"nodes": {node: host}, "leftovers": {host: [node]}, "failed": {host: count}}, saved when it was changed."""
        with open(self.path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                with open(self.path) as file:
                    before = file.read()
            except FileNotFoundError:
                before = '{"nodes": {}, "leftovers": {}, "failed": {}}'
            state = json.loads(before)
            yield state
            after = json.dumps(state)
            if after != before:
                with open(self.path + ".new", "w") as file:
                    file.write(after)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(self.path + ".new", self.path)

    def answer_for(self, node, host, state):
        for machine in self.machines:
            if machine["host"] == host:
                answer = {key: machine[key] for key in ("host", "user", "port", "address") if key in machine}
                answer.update(node=node, id=host, leftovers=state["leftovers"].get(host, []))
                return answer
        return {"node": node, "id": host, "host": host}  # it was taken off the list meanwhile

    def create(self, params):
        node = params["node"]
        if params.get("head"):
            # The same on the person's machine and on the head's: no file is needed to agree on it.
            if not self.head:
                raise Failure("invalid", "provider names no machine for the head", "add head: HOST")
            return dict(self.head, node=node, id=self.head["host"])
        with self.taken() as state:
            if node not in state["nodes"]:
                free = [m for m in self.machines if m["host"] not in state["nodes"].values()]
                free = [m for m in free if params["type"] in m.get("types", [params["type"]])]
                if not free:
                    raise Failure("no-capacity", "all machines for %s are taken" % params["type"],
                                  "add machines to the file, or lower max_workers")
                # Those that failed less often first, then in the order of the file.
                best = min(free, key=lambda m: state["failed"].get(m["host"], 0))
                state["nodes"][node] = best["host"]
            return self.answer_for(node, state["nodes"][node], state)

    def describe(self, params):
        node = params["node"]
        with self.taken() as state:
            host = state["nodes"].get(node)
            return self.answer_for(node, host, state) if host else None

    def remove(self, params):
        node = params["node"]
        with self.taken() as state:
            host = state["nodes"].pop(node, None)
            if host is None:
                raise Failure("not-found", "node %s has no machine" % node)
            others = [each for each in state["leftovers"].pop(host, []) if each != node]
            if not params.get("cleaned"):  # nobody could reach it: the next one cleans up first
                state["leftovers"][host] = others + [node]
        return {}

    def list(self, _):
        with self.taken() as state:
            return {"nodes": [self.answer_for(node, host, state) for node, host in state["nodes"].items()]}

    def cleaned(self, params):
        with self.taken() as state:
            state["leftovers"].pop(state["nodes"].get(params["node"]), None)
        return {}

    def failed(self, params):
        with self.taken() as state:
            host = state["nodes"].get(params["node"])
            if host:
                state["failed"][host] = state["failed"].get(host, 0) + 1
        return {}


def main():
    static = Static()
    for line in sys.stdin:
        request = json.loads(line)
        reply = {"id": request["id"]}
        try:
            if request["method"] not in ("hello", "create", "describe", "remove", "list", "failed", "cleaned"):
                raise Failure("unsupported", "no method " + request["method"])
            reply["result"] = getattr(static, request["method"])(request["params"])
        except Failure as failure:
            reply["error"] = {"code": failure.code, "message": str(failure), "hint": failure.hint}
        except OSError as failure:
            reply["error"] = {"code": "unavailable", "message": str(failure)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
