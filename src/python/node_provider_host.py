"""Runs one of Ray's NodeProvider classes for Rubato: `provider: {type: external, module: package.Class}`.

It is a provider's program as docs/external-providers.md describes them: a JSON object a line, requests on standard
input, replies on standard output. Each of our nodes is one node of the class, marked with the tag `rubato-node`, so
that a node is found again by whoever asks next: this process, the next one, or the one on the head's machine.

Works with and without Ray. Without it, the few modules that provider classes import are stood in for. Standard library
only, Python 3.7 and later.
"""
import importlib
import json
import os
import sys
import threading
import time
import traceback
import types
from concurrent.futures import ThreadPoolExecutor

PROTOCOL = 1
NODE_TAG = "rubato-node"

# Ray's names, as in ray/autoscaler/tags.py.
TAGS = {
    "TAG_RAY_NODE_NAME": "ray-node-name",
    "TAG_RAY_NODE_KIND": "ray-node-type",
    "TAG_RAY_USER_NODE_TYPE": "ray-user-node-type",
    "TAG_RAY_NODE_STATUS": "ray-node-status",
    "TAG_RAY_CLUSTER_NAME": "ray-cluster-name",
    "TAG_RAY_LAUNCH_CONFIG": "ray-launch-config",
    "TAG_RAY_RUNTIME_CONFIG": "ray-runtime-config",
    "TAG_RAY_FILE_MOUNTS_CONTENTS": "ray-file-mounts-contents",
    "TAG_RAY_REPLICA_INDEX": "ray-replica-index",
    "NODE_KIND_HEAD": "head",
    "NODE_KIND_WORKER": "worker",
    "NODE_KIND_UNMANAGED": "unmanaged",
    "NODE_TYPE_LEGACY_HEAD": "ray-legacy-head-node-type",
    "NODE_TYPE_LEGACY_WORKER": "ray-legacy-worker-node-type",
    "STATUS_UNINITIALIZED": "uninitialized",
    "STATUS_WAITING_FOR_SSH": "waiting-for-ssh",
    "STATUS_SYNCING_FILES": "syncing-files",
    "STATUS_SETTING_UP": "setting-up",
    "STATUS_UPDATE_FAILED": "update-failed",
    "STATUS_UP_TO_DATE": "up-to-date",
}
# Names that older versions of Ray had for the same.
OLD_TAGS = {
    "TAG_RAY_NODE_TYPE": "ray-node-type",
    "NODE_TYPE_HEAD": "head",
    "NODE_TYPE_WORKER": "worker",
}

# A node that was made a moment ago may not be in the service's lists yet.
UNSEEN_MAX_S = 60.0
# Ray calls a class from several launcher threads too, unless the file says foreground_node_launch.
CALLS_MAX = 4


class Failure(Exception):
    """An answer of its own kind; `code` is one of the protocol's."""

    def __init__(self, code, message, hint=""):
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


# ---- What stands in for Ray where it is not installed. ----


class NodeProvider:
    """The base class of ray.autoscaler.node_provider, as far as classes outside of Ray use it."""

    def __init__(self, provider_config, cluster_name):
        self.provider_config = provider_config
        self.cluster_name = cluster_name
        self._internal_ip_cache = {}
        self._external_ip_cache = {}

    def is_readonly(self):
        return False

    def non_terminated_nodes(self, tag_filters):
        raise NotImplementedError

    def is_running(self, node_id):
        raise NotImplementedError

    def is_terminated(self, node_id):
        raise NotImplementedError

    def node_tags(self, node_id):
        raise NotImplementedError

    def external_ip(self, node_id):
        raise NotImplementedError

    def internal_ip(self, node_id):
        raise NotImplementedError

    def create_node(self, node_config, tags, count):
        raise NotImplementedError

    def create_node_with_resources(self, node_config, tags, count, resources):
        return self.create_node(node_config, tags, count)

    def create_node_with_resources_and_labels(self, node_config, tags, count, resources, labels):
        return self.create_node(node_config, tags, count)

    def set_node_tags(self, node_id, tags):
        raise NotImplementedError

    def terminate_node(self, node_id):
        raise NotImplementedError

    def terminate_nodes(self, node_ids):
        for node_id in node_ids:
            self.terminate_node(node_id)
        return None

    @property
    def max_terminate_nodes(self):
        return None

    @staticmethod
    def bootstrap_config(cluster_config):
        return cluster_config

    @staticmethod
    def fillout_available_node_types_resources(cluster_config):
        return cluster_config

    def prepare_for_head_node(self, cluster_config):
        return cluster_config

    def safe_to_scale(self):
        return True

    def post_process(self):
        pass


class NodeLaunchException(Exception):
    """As Ray's: a launch that failed, with a category such as InsufficientInstanceCapacity."""

    def __init__(self, category, description, src_exc_info=None):
        super().__init__("Node Launch Exception (%s): %s" % (category, description))
        self.category, self.description, self.src_exc_info = category, description, src_exc_info


class _CliLogger:
    """Any method of Ray's cli_logger: the words go to standard error."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def say(message="", *args, **_):
            try:
                words = str(message).format(*args)
            except (IndexError, KeyError, ValueError):
                words = str(message)
            print(words, file=sys.stderr)
            if name == "abort":
                raise RuntimeError(words)

        return say


class _Painter:
    """Ray's `cf`: colours, which a log has no use for."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda text, *_, **__: str(text)


def stand_in_for_ray():
    """Makes the modules that provider classes import. Nothing of them is there when Ray is installed."""

    def module(name, **members):
        made = types.ModuleType(name)
        made.__dict__.update(members)
        made.__path__ = []
        sys.modules[name] = made
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, made)

    module("ray", __version__="0.0.0+rubato")
    module("ray.autoscaler")
    module("ray.autoscaler.node_provider", NodeProvider=NodeProvider)
    module("ray.autoscaler.tags", **dict(TAGS, **OLD_TAGS))
    module("ray.autoscaler.node_launch_exception", NodeLaunchException=NodeLaunchException)
    module("ray.autoscaler._private")
    module("ray.autoscaler._private.cli_logger", cli_logger=_CliLogger(), cf=_Painter())


def ray_is_there():
    try:
        importlib.import_module("ray.autoscaler.node_provider")
        return True
    except ImportError as error:
        # No Ray is the ordinary case; a broken one is told, and stood in for all the same.
        if (error.name or "").split(".")[0] != "ray" or "ray" in sys.modules:
            print("ray cannot be imported: %s" % error, file=sys.stderr)
        for name in [each for each in sys.modules if each == "ray" or each.startswith("ray.")]:
            del sys.modules[name]
        return False


def load_class(path, folder):
    """The class that `package.module.Class` names; looked for beside the cluster file too."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    if not ray_is_there():
        stand_in_for_ray()
    name, _, attribute = path.rpartition(".")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        missing = error.name or name
        if name == missing or name.startswith(missing + "."):
            hint = "put %s.py beside the cluster file, install it for %s, or set PYTHONPATH" % (
                missing.split(".")[0], sys.executable)
        else:
            hint = "install it for %s" % sys.executable
        raise Failure("invalid", "cannot import %s: %s" % (name, error), hint)
    found = getattr(module, attribute, None)
    if found is None:
        raise Failure("invalid", "the module %s has no %s" % (name, attribute), "check provider.module")
    return found


# ---- The provider's program. ----


def overrides(provider, method):
    """True when the class itself has the method, not just Ray's base class."""
    mine = getattr(type(provider), method, None)
    if mine is None:
        return False
    base = getattr(sys.modules["ray.autoscaler.node_provider"].NodeProvider, method, None)
    return mine is not base


def as_label(tags):
    return {str(key): str(value) for key, value in tags.items()}


class Host:
    def __init__(self):
        self.provider = None
        self.cluster = ""
        self.config = {}
        self.at_head = False
        self.unseen = {}  # node -> (id or None, when it was made): not in the service's lists yet

    # Each method is one of the protocol's.

    def hello(self, params):
        provider = dict(params.get("provider") or {})
        self.cluster = params["cluster"]
        self.at_head = params.get("place") == "head"
        if not provider.get("module"):
            raise Failure("invalid", "provider.module names no class", "write module: package.Class")
        found = load_class(provider["module"], params.get("folder"))
        if params.get("look"):  # bootstrap_config may make key pairs, roles and networks: nobody asked for those
            return {"protocol": PROTOCOL, "name": provider["module"]}
        carry = params.get("carry") or {}
        if carry.get("config"):
            self.config = carry["config"]
        else:
            self.config = self.bootstrap(found, params.get("config") or {})
        provider_config = dict(self.config.get("provider") or provider)
        # For classes that can put a key on a machine; Ray's own copy the person's private key to the head instead.
        provider_config.setdefault("rubato_authorized_keys", params.get("authorized_keys") or [])
        self.provider = found(provider_config, self.cluster)
        result = {
            "protocol": PROTOCOL,
            "name": provider["module"],
            "version": str(getattr(sys.modules.get("ray"), "__version__", "")),
            "methods": ["create", "remove", "list", "describe", "failed"],
            "parallel": 1 if provider.get("foreground_node_launch") else CALLS_MAX,
        }
        if not self.at_head:
            # As Ray does: what the head works with was bootstrapped where the person's credentials are.
            prepared = self.config
            if overrides(self.provider, "prepare_for_head_node"):
                prepared = self.provider.prepare_for_head_node(json.loads(json.dumps(self.config)))
            result["carry"] = {"config": prepared}
        return result

    @staticmethod
    def bootstrap(found, config):
        for step in ("bootstrap_config", "fillout_available_node_types_resources"):
            function = getattr(found, step, None)
            if function is None:
                continue
            config = function(config)
            if not isinstance(config, dict):
                raise Failure("invalid", "%s returned %s instead of the configuration" % (step, type(config).__name__))
        return config

    def create(self, params):
        node = params["node"]
        machine = self.describe(params)
        if machine is not None:
            return machine
        kind = TAGS["NODE_KIND_HEAD"] if params.get("head") else TAGS["NODE_KIND_WORKER"]
        tags = {
            TAGS["TAG_RAY_CLUSTER_NAME"]: self.cluster,
            TAGS["TAG_RAY_NODE_NAME"]: "ray-%s-%s" % (self.cluster, kind),
            TAGS["TAG_RAY_NODE_KIND"]: kind,
            TAGS["TAG_RAY_USER_NODE_TYPE"]: params.get("type") or "",
            TAGS["TAG_RAY_NODE_STATUS"]: TAGS["STATUS_UNINITIALIZED"],
            TAGS["TAG_RAY_LAUNCH_CONFIG"]: params.get("launch_hash") or "",
            NODE_TAG: node,
        }
        made = self.launch(params, as_label(tags))
        ids = list(made) if isinstance(made, dict) else []
        self.unseen[node] = (ids[0] if len(ids) == 1 else None, time.monotonic())
        machine = self.describe(params)
        return machine if machine is not None else {"node": node}

    def launch(self, params, tags):
        """create_node in the form that the class has, with the node_config that bootstrap_config left."""
        types_known = self.config.get("available_node_types") or {}
        bootstrapped = types_known.get(params.get("type")) or {}
        node_config = json.loads(json.dumps(bootstrapped.get("node_config", params.get("node_config") or {})))
        resources = bootstrapped.get("resources") or params.get("resources") or {}
        labels = params.get("labels") or {}
        if overrides(self.provider, "create_node_with_resources_and_labels"):
            return self.provider.create_node_with_resources_and_labels(node_config, tags, 1, resources, labels)
        if overrides(self.provider, "create_node_with_resources"):
            return self.provider.create_node_with_resources(node_config, tags, 1, resources)
        return self.provider.create_node(node_config, tags, 1)

    def find(self, node):
        """The id of the node's machine, or None."""
        found = self.provider.non_terminated_nodes({NODE_TAG: node})
        # Some classes ignore the filter.
        ids = [each for each in found if self.tags_of(each).get(NODE_TAG) == node]
        if not ids:
            return None
        # Two of one node can only come from a class that is not of one mind with its service: all but one go.
        ids.sort(key=str)
        for extra in ids[1:]:
            print("node %s has two machines; %s is ended" % (node, extra), file=sys.stderr)
            self.provider.terminate_node(extra)
        return ids[0]

    def tags_of(self, node_id):
        tags = self.provider.node_tags(node_id) or {}
        return as_label(tags)

    def describe(self, params):
        node = params["node"]
        node_id = self.find(node)
        if node_id is None:
            made_id, since = self.unseen.get(node, (None, None))
            if since is None or time.monotonic() - since > UNSEEN_MAX_S:
                self.unseen.pop(node, None)
                return None
            return {"node": node, "id": str(made_id or "")}
        self.unseen.pop(node, None)
        return self.machine(node, node_id)

    def machine(self, node, node_id):
        machine = {"node": node, "id": str(node_id)}
        if not self.provider.is_running(node_id):
            return machine
        internal = self.provider.internal_ip(node_id)
        host = internal if self.reached_inside(node_id) else self.provider.external_ip(node_id)
        if host:
            machine["host"] = str(host)
        if internal:
            machine["address"] = str(internal)
        return machine

    def reached_inside(self, node_id):
        """As Ray: the head goes to private addresses; a person's machine where the file says so."""
        config = self.config.get("provider") or {}
        if self.at_head:
            return True
        if config.get("use_external_head_ip"):
            return self.tags_of(node_id).get(TAGS["TAG_RAY_NODE_KIND"]) != TAGS["NODE_KIND_HEAD"]
        return bool(config.get("use_internal_ips"))

    def remove(self, params):
        node_id = self.find(params["node"])
        self.unseen.pop(params["node"], None)
        if node_id is None:
            raise Failure("not-found", "no machine has the tag %s=%s" % (NODE_TAG, params["node"]))
        self.provider.terminate_node(node_id)
        return {"pending": True}

    def list(self, _):
        nodes = []
        for node_id in self.provider.non_terminated_nodes({}):
            tags = self.tags_of(node_id)
            cluster = tags.get(TAGS["TAG_RAY_CLUSTER_NAME"], self.cluster)
            if tags.get(NODE_TAG) and cluster == self.cluster:
                nodes.append({"node": tags[NODE_TAG], "id": str(node_id)})
        return {"nodes": nodes}

    def failed(self, params):
        node_id = self.find(params["node"])
        if node_id is not None:
            self.provider.set_node_tags(node_id, {TAGS["TAG_RAY_NODE_STATUS"]: TAGS["STATUS_UPDATE_FAILED"]})
        return {}

    def answer(self, method, params):
        if method not in ("hello", "create", "remove", "list", "describe", "failed"):
            raise Failure("unsupported", "no method %r" % (method,))
        if self.provider is None and method != "hello":
            raise Failure("invalid", "the first request must be hello")
        return getattr(self, method)(params)


def code_of(error):
    """Clouds tell the same in many words; these are of AWS, GCP, Azure and Ray's NodeLaunchException."""
    words = ("%s %s" % (getattr(error, "category", ""), error)).lower().replace(" ", "").replace("_", "")
    table = (
        ("no-capacity", ("insufficientinstancecapacity", "insufficienthostcapacity", "insufficientcapacity",
                         "zoneresourcepoolexhausted", "skunotavailable", "allocationfailed", "outofcapacity",
                         "nocapacity", "stockout")),
        ("quota", ("quotaexceeded", "exceededquota", "instancelimitexceeded", "vcpulimitexceeded",
                   "maxspotinstancecountexceeded", "limitexceeded")),
        ("throttled", ("requestlimitexceeded", "throttl", "toomanyrequests", "ratelimit")),
        ("auth", ("unauthorized", "authfailure", "accessdenied", "invalidclienttokenid", "expiredtoken",
                  "nocredentials", "unabletolocatecredentials", "permissiondenied", "forbidden")),
    )
    for code, signs in table:
        if any(sign in words for sign in signs):
            # EC2's RequestLimitExceeded is about calls, not about machines.
            if code == "quota" and "requestlimitexceeded" in words:
                return "throttled"
            return code
    if isinstance(error, NotImplementedError):
        return "unsupported"
    if isinstance(error, (ConnectionError, TimeoutError)):
        return "unavailable"
    return "internal"


def reply_to(host, line):
    request_id = 0
    try:
        request = json.loads(line)
        request_id = request["id"]
        result = host.answer(request["method"], request.get("params") or {})
        return {"id": request_id, "result": result}
    except Failure as failure:
        error = {"code": failure.code, "message": failure.message}
        if failure.hint:
            error["hint"] = failure.hint
        return {"id": request_id, "error": error}
    except Exception as failure:  # a class may raise anything; the person gets all of it in the log
        traceback.print_exc(file=sys.stderr)
        message = "%s: %s" % (type(failure).__name__, failure)
        return {"id": request_id, "error": {"code": code_of(failure), "message": message}}
    except SystemExit as failure:  # Ray's cli_logger.abort, and classes that think they are a program
        traceback.print_exc(file=sys.stderr)
        return {"id": request_id, "error": {"code": "internal", "message": "the class ended the program: %s" % failure}}


def main():
    # Replies have standard output for themselves: what a class prints, and what its children print, goes to the log.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    # Children must not read our requests.
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    host = Host()
    writing = threading.Lock()

    def serve(line):
        reply = reply_to(host, line)
        try:
            text = json.dumps(reply)
        except (TypeError, ValueError) as error:
            problem = {"code": "invalid", "message": "the class gave what JSON cannot hold: %s" % error}
            text = json.dumps({"id": reply["id"], "error": problem})
        with writing:
            replies.write(text + "\n")
            replies.flush()

    serve(requests.readline())  # hello, alone: it makes the provider
    with ThreadPoolExecutor(CALLS_MAX) as threads:
        for line in requests:
            if line.strip():
                threads.submit(serve, line)


if __name__ == "__main__":
    main()
