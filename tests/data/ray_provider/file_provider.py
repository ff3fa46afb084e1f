"""Machines that are entries of a JSON file, in the shape of Ray's NodeProvider classes outside of Ray."""
import fcntl
import json
import logging
import os
import subprocess

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import (NODE_KIND_HEAD, TAG_RAY_CLUSTER_NAME, TAG_RAY_NODE_KIND, TAG_RAY_NODE_STATUS,
                                 TAG_RAY_USER_NODE_TYPE)

logger = logging.getLogger(__name__)


class Service:
    """The cloud: a file and a lock."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.lock = open(self.path + ".lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            with open(self.path) as file:
                self.state = json.load(file)
        except FileNotFoundError:
            self.state = {"next": 1, "nodes": {}, "calls": []}
        return self.state

    def __exit__(self, *_):
        with open(self.path + ".new", "w") as file:
            json.dump(self.state, file)
        os.rename(self.path + ".new", self.path)
        self.lock.close()


class FileNodeProvider(NodeProvider):
    def __init__(self, provider_config, cluster_name):
        NodeProvider.__init__(self, provider_config, cluster_name)
        self.service = Service(provider_config["file"])
        print("FileNodeProvider is here")  # people leave such lines in
        subprocess.run(["echo", "and so is its child"], check=True)

    def non_terminated_nodes(self, tag_filters):
        with self.service as state:
            found = []
            for node_id, node in state["nodes"].items():
                if node["hidden"] > 0:
                    node["hidden"] -= 1
                    continue
                if node["ending"]:
                    node["ending"] -= 1
                    if node["ending"] == 0:
                        node["state"] = "terminated"
                if node["state"] == "terminated":
                    continue
                if all(node["tags"].get(key) == value for key, value in tag_filters.items()):
                    found.append(node_id)
            return found

    def is_running(self, node_id):
        with self.service as state:
            node = state["nodes"][node_id]
            node["boot"] = max(0, node["boot"] - 1)
            return node["boot"] == 0 and node["state"] == "running"

    def is_terminated(self, node_id):
        with self.service as state:
            return state["nodes"][node_id]["state"] == "terminated"

    def node_tags(self, node_id):
        with self.service as state:
            return state["nodes"][node_id]["tags"]

    def external_ip(self, node_id):
        return "203.0.113." + node_id.split("-")[1]

    def internal_ip(self, node_id):
        return "10.1.0." + node_id.split("-")[1]

    def create_node(self, node_config, tags, count):
        fails = self.provider_config.get("fails")
        if fails:
            raise RuntimeError(fails)
        made = {}
        with self.service as state:
            state["calls"].append({"node_config": node_config, "tags": tags, "count": count})
            for _ in range(count):
                node_id = "m-%d" % state["next"]
                state["next"] += 1
                state["nodes"][node_id] = {
                    "tags": dict(tags, **{TAG_RAY_CLUSTER_NAME: self.cluster_name}),
                    "state": "running",
                    "boot": self.provider_config.get("boot", 0),
                    "hidden": self.provider_config.get("hidden", 0),
                    "ending": 0,
                }
                made[node_id] = {}
        if self.provider_config.get("dies_once") and not os.path.exists(self.provider_config["dies_once"]):
            open(self.provider_config["dies_once"], "w").close()
            os._exit(7)  # after the machine was made, before anybody is told
        return made

    def set_node_tags(self, node_id, tags):
        with self.service as state:
            state["nodes"][node_id]["tags"].update(tags)

    def terminate_node(self, node_id):
        with self.service as state:
            state["nodes"][node_id]["ending"] = 2

    @staticmethod
    def bootstrap_config(cluster_config):
        for node_type in cluster_config["available_node_types"].values():
            node_type["node_config"]["bootstrapped"] = True
        return cluster_config

    def prepare_for_head_node(self, cluster_config):
        cluster_config["provider"]["prepared"] = True
        return cluster_config


class WithResources(FileNodeProvider):
    """As classes do that choose the machine by what it is to have."""

    def create_node_with_resources_and_labels(self, node_config, tags, count, resources, labels):
        return self.create_node(dict(node_config, got=[resources, labels]), tags, count)


assert NODE_KIND_HEAD == "head" and TAG_RAY_NODE_KIND and TAG_RAY_NODE_STATUS and TAG_RAY_USER_NODE_TYPE
