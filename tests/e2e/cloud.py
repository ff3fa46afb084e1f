"""A small cloud for tests: machines of hosts.py that are made and ended by calls over HTTP, and keep tags.

    with Cloud(hosts) as cloud:         hosts: a Hosts(..., booted=False); each of its machines can be had once
        cloud.url                       POST /machines {"tags", "keys"} -> {"id", "address"}; GET /machines;
        cloud.running()                 POST /machines/ID/tags {...}; DELETE /machines/ID
        cloud.made                      how often a machine was made

PROVIDER is one of Ray's NodeProvider classes that talks to it, as its users write them.
"""
import http.server
import json
import threading

PROVIDER = '''
import json
import urllib.request

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import TAG_RAY_CLUSTER_NAME


class LabProvider(NodeProvider):
    def __init__(self, provider_config, cluster_name):
        super().__init__(provider_config, cluster_name)
        self.url = provider_config["url"]

    @staticmethod
    def bootstrap_config(config):
        config["provider"]["bootstrapped"] = True
        return config

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.loads(reply.read())

    def non_terminated_nodes(self, tag_filters):
        wanted = dict(tag_filters, **{TAG_RAY_CLUSTER_NAME: self.cluster_name})
        machines = self.call("GET", "/machines")
        return [name for name, one in machines.items()
                if all(one["tags"].get(key) == value for key, value in wanted.items())]

    def is_running(self, node_id):
        return node_id in self.call("GET", "/machines")

    def is_terminated(self, node_id):
        return not self.is_running(node_id)

    def node_tags(self, node_id):
        return self.call("GET", "/machines")[node_id]["tags"]

    def external_ip(self, node_id):
        return self.call("GET", "/machines")[node_id]["address"]

    internal_ip = external_ip

    def create_node(self, node_config, tags, count):
        print("making", count)  # what a class prints must do no harm
        keys = self.provider_config["rubato_authorized_keys"]
        assert self.provider_config["bootstrapped"]
        for _ in range(count):
            self.call("POST", "/machines", {"tags": tags, "keys": keys, "size": node_config.get("size")})

    def set_node_tags(self, node_id, tags):
        self.call("POST", "/machines/%s/tags" % node_id, tags)

    def terminate_node(self, node_id):
        self.call("DELETE", "/machines/%s" % node_id)
'''


class Cloud:
    def __init__(self, hosts):
        self.hosts, self.made = hosts, 0
        self._free = [host.name for host in hosts]
        self._machines = {}
        self._lock = threading.Lock()
        cloud = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self._answer(cloud.running())

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                parts = self.path.strip("/").split("/")
                self._answer(cloud.make(body) if len(parts) == 1 else cloud.tag(parts[1], body))

            def do_DELETE(self):
                self._answer(cloud.end(self.path.strip("/").split("/")[1]))

            def _answer(self, value):
                text = json.dumps(value).encode()
                self.send_response(200 if value is not None else 404)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        # One thread that stays: the kernel ends a machine with the thread that has booted it.
        self._server = http.server.HTTPServer((hosts.address, 0), Handler)
        self.url = f"http://{hosts.address}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def running(self):
        with self._lock:
            return json.loads(json.dumps(self._machines))

    def make(self, wanted):
        with self._lock:
            if not self._free:
                return None
            host = self.hosts[self._free.pop(0)]
            self.made += 1
            # As a cloud's first boot: only the keys of who asked for it.
            (host.home / ".ssh/authorized_keys").write_text("".join(key + "\n" for key in wanted["keys"]))
            host.boot()
            self._machines[host.name] = {"address": host.address, "tags": wanted["tags"], "size": wanted["size"]}
            return {"id": host.name, "address": host.address}

    def tag(self, name, tags):
        with self._lock:
            self._machines[name]["tags"].update(tags)
            return {}

    def end(self, name):
        with self._lock:
            if self._machines.pop(name, None) is None:
                return None
            self.hosts[name].crash()
            return {}

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
