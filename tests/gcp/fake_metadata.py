"""An instance's metadata server: who it is, its attributes, its account's tokens, notices that can be waited for."""
import hashlib
import json
import time
import urllib.parse

from fake_oauth import CLOUD

HEADERS = {"metadata-flavor": "Google", "server": "Metadata Server for VM", "content-type": "application/text"}
WAIT_S_MAX = 300


def camel(name):
    first, *rest = name.split("-")
    return first + "".join(each.title() for each in rest)


class Metadata:
    def __init__(self, world):
        self.world = world

    def instance_at(self, address):
        """The running instance that has this address; else the one that the test names, or one that is nobody's."""
        instances = self.world.instances
        alive = [one for one in instances.all.values() if instances.state(one) not in (None, "TERMINATED")]
        wanted = self.world.settings["metadata_instance"]
        return next((one for one in alive if one["address"] == address or one["name"] == wanted), None)

    def tree(self, address):
        """Folders are dictionaries; everything else is text. None: this machine is no instance of ours."""
        world, one = self.world, self.instance_at(address)
        if one is None and world.machines is not None:
            return None
        number = world.project_number
        project = {"project-id": world.project, "numeric-project-id": number,
                   "attributes": {each["key"]: each.get("value", "") for each in world.instances.metadata["items"]}}
        body = one["body"] if one else {}
        zone = one["zone"] if one else "us-west1-a"
        name = one["name"] if one else "nobody"
        instance = {
            "id": one["id"] if one else "1", "name": name, "zone": f"projects/{number}/zones/{zone}",
            "hostname": f"{name}.{zone}.c.{world.project}.internal", "image": "", "description": "",
            "machine-type": f"projects/{number}/machineTypes/{body.get('machineType', 'e2-micro').rpartition('/')[2]}",
            "tags": json.dumps(one["tags"] if one else []),
            "preempted": "TRUE" if (one["preempted"] if one else world.settings["preempted"]) else "FALSE",
            "maintenance-event": one["maintenance"] if one and one["maintenance"] != "NONE"
            else world.settings["maintenance_event"],
            "attributes": {each["key"]: each.get("value", "") for each in one["metadata"]["items"]} if one else {},
            "scheduling": {"preemptible": "TRUE" if world.instances.is_spot(body) else "FALSE",
                           "automatic-restart": "FALSE" if world.instances.is_spot(body) else "TRUE",
                           "on-host-maintenance": body.get("scheduling", {}).get("onHostMaintenance", "MIGRATE")},
            "network-interfaces": {"0": {"ip": one["address"] if one else "10.0.0.2", "access-configs": {"0": {
                "external-ip": one["public"] if one else "", "type": "ONE_TO_ONE_NAT"}}}},
            "service-accounts": self._accounts(one)}
        return {"project": project, "instance": instance}

    def _accounts(self, one):
        given = one["body"].get("serviceAccounts", []) if one else [
            {"email": self.world.iam.default_account, "scopes": [CLOUD]}]
        out = {}
        for each in given:
            folder = {"aliases": "default\n", "email": each["email"], "scopes": "\n".join(each["scopes"]) + "\n",
                      "token": each, "identity": ""}
            out |= {"default": folder, each["email"]: folder}
        return out

    def answer(self, request):
        """(status, text, headers)"""
        path, query = urllib.parse.unquote(request.raw_path), dict(urllib.parse.parse_qsl(request.raw_query))
        if path == "/":
            return 200, "computeMetadata/\n", HEADERS
        if request.headers.get("metadata-flavor") != "Google" or request.headers.get("x-forwarded-for"):
            return 403, "<title>Error 403 (Forbidden)</title>Missing Metadata-Flavor:Google header.", HEADERS
        if not path.startswith("/computeMetadata/v1"):
            return 404, "", HEADERS
        if request.method != "GET":
            return 405, "", HEADERS
        return self._wait(path, query, request.client_address[0])

    def _wait(self, path, query, address):
        """At once, or when the answer is another one."""
        wanted = query.get("last_etag") if query.get("wait_for_change") == "true" else None
        waits = query.get("wait_for_change") == "true"
        end = time.monotonic() + float(query.get("timeout_sec", WAIT_S_MAX))
        while True:
            with self.world.lock:
                status, text, headers, etag = self._now(path, query, address)
            if waits and wanted is None:
                wanted = etag
            if not waits or status != 200 or etag != wanted or time.monotonic() >= end:
                return status, text, HEADERS | headers | {"etag": etag}
            time.sleep(0.05)

    def _now(self, path, query, address):
        """(status, text, headers, etag)"""
        found = self.tree(address)
        if found is None:
            return 404, "", {}, "0"
        parts = [each for each in path.removeprefix("/computeMetadata/v1").split("/") if each]
        for name in parts:
            if not isinstance(found, dict) or name not in found:
                return 404, "", {}, "0"
            found = found[name]
        if parts[-1:] == ["token"] and isinstance(found, dict):
            return self._token(found, query)
        etag = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
        if not isinstance(found, dict):
            if query.get("alt") == "json":
                return 200, json.dumps(found), {"content-type": "application/json"}, etag
            return 200, found, {}, etag
        if query.get("recursive") == "true":
            return 200, json.dumps(self._json(found)), {"content-type": "application/json"}, etag
        if not path.endswith("/"):
            return 301, "", {"location": path + "/"}, etag
        names = [name + ("/" if isinstance(each, dict) and name != "token" else "") for name, each in found.items()]
        return 200, "\n".join(names) + "\n", {}, etag

    def _json(self, value):
        if not isinstance(value, dict):
            return value
        if value and all(key.isdigit() for key in value):
            return [self._json(each) for each in value.values()]
        return {camel(key): self._json(each) for key, each in value.items() if key not in ("token", "identity")}

    def _token(self, account, query):
        scopes = query["scopes"].split(",") if query.get("scopes") else account["scopes"]
        token, seconds = self.world.oauth.give(f"serviceAccount:{account['email']}", scopes)
        return 200, json.dumps({"access_token": token, "expires_in": seconds, "token_type": "Bearer"}), {
            "content-type": "application/json"}, "0"
