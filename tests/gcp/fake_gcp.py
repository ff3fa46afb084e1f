#!/usr/bin/env python3
"""A stand-in for Google Cloud: see README.md. Prints one line of JSON when it listens:

    {"url": …, "metadata": "host:port", "project": …, "credentials": {"service_account": path, "authorized_user": path}}

    tests/gcp/fake_gcp.py [--port N] [--set '{"operation_s": 5}']

The settings are SETTINGS below and those of tests/clouds/cloud_server.py, which says how to change them. Besides:

POST /_fake/preempt {"instance": name}    Google takes a Spot machine back
POST /_fake/end {"instance": name}        it is deleted
POST /_fake/instances                     {name: {"zone", "status", "labels", …}} of those that there are
"""
import json
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clouds"))
import cloud_server  # noqa: E402
import schema  # noqa: E402
from cloud_server import Refused  # noqa: E402
from fake_gcs import Gcs  # noqa: E402
from fake_iam import SCHEMA as IAM_SCHEMA, Iam, read_body  # noqa: E402
from fake_instances import Instances  # noqa: E402
from fake_metadata import Metadata  # noqa: E402
from fake_os_login import SCHEMA as LOGIN_SCHEMA, OsLogin  # noqa: E402
from fake_oauth import CLOUD, Caller, OAuth  # noqa: E402

SETTINGS = {
    "project": "fake-project", "page_max": 500,
    "operation_s": 0.2,       # how long an operation takes
    "delete_s": 0.2,          # how long an instance is STOPPING before it is unknown
    "stock_details": False,   # which of the two codes for no stock
    "quota": {},              # {"CPUS": 8, "NVIDIA_T4_GPUS": 0}: of each region
    "quota_in_operation": False,  # told by the operation, not at once
    "operation_errors": [],   # [{"type": "insert", "code": "INTERNAL_ERROR"}]: the next ones end so
    "throttle_status": 429,   # or 403 with rateLimitExceeded
    "deny": {},               # {"*" or an e-mail address: ["compute.instances.create"]}: permissions that are missing
    "disabled": [],           # ["compute"]: APIs that the project has not enabled
    "grant_s": 0.0,           # a new binding of a policy takes so long to count
    "account_s": 0.0,         # a new service account is unknown for so long
    "project_metadata": {},   # beside what is set by the API: {"enable-oslogin": "TRUE"}
    "keys_s": 0.0,            # a machine that has booted lets nobody in for so long (machines of gcp_machines.py)
    "project_state": "ACTIVE", "zones_down": [],
    "metadata_instance": "",  # who asks the metadata server from 127.0.0.1
    "preempted": False, "maintenance_event": "NONE",  # what it tells who is nobody's instance
    "upload_short": 0,        # so many pieces of uploads are kept only by half
}
TITLES = {"compute": "Compute Engine API", "iam": "Identity and Access Management (IAM) API",
          "cloudresourcemanager": "Cloud Resource Manager API", "oslogin": "Cloud OS Login API",
          "storage": "Cloud Storage API"}


class World(cloud_server.World):
    def __init__(self, settings, folder):
        super().__init__(SETTINGS, settings)
        self.project, self.project_number = self.settings["project"], "123456789012"
        self.oauth = OAuth(self)
        self.iam = Iam(self)
        self.os_login = OsLogin(self)
        self.instances = Instances(self)
        self.gcs = Gcs(self, folder)
        self.metadata = Metadata(self)

    @property
    def tester(self):
        return f"tester@{self.project}.iam.gserviceaccount.com"


def service_of(method, path):
    if path.startswith("/compute/"):
        return "compute"
    if Gcs.is_mine(path):
        return "storage"
    if path in ("/token", "/oauth2/v4/token", "/tokeninfo", "/oauth2/v3/tokeninfo"):
        return "oauth2"
    if OsLogin.find(method, path):
        return "oslogin"
    found = Iam.find(method, path)
    if found is None:
        return None
    return "iam" if "/serviceAccounts" in path or "/roles" in path else "cloudresourcemanager"


class Handler(cloud_server.Handler):
    def is_object(self):
        return self.raw_path.startswith(("/upload/", "/resumable/upload/"))

    def route(self):
        if self.server.is_metadata:
            status, text, headers = self.world.metadata.answer(self)
            return self.reply(status, text, headers)
        service = service_of(self.method, self.raw_path)
        if self.misfortune(service):
            return None
        try:
            return self.serve(service)
        except Refused as refused:
            return self.refuse(service, refused)

    def refuse(self, service, refused):
        if service == "oauth2":
            body = {"error": refused.code, "error_description": refused.message}
            return self.reply_json(refused.status, body)
        more = refused.more
        error = {"code": refused.status, "message": refused.message, "errors": [
            {"message": refused.message, "domain": more.get("domain", "global"), "reason": refused.code}]}
        if "status_text" in more:
            error["status"] = more["status_text"]
        if "detail" in more:
            known = {key: more[key] for key in ("permission", "resource", "service", "consumer") if key in more}
            known = {"service": f"{service}.googleapis.com"} | known
            error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": more["detail"],
                                 "domain": "googleapis.com", "metadata": known}]
        headers = {"retry-after": str(more["retry_after"])} if "retry_after" in more else {}
        if service == "storage" and refused.status == 404 and "alt=media" in self.raw_query:
            return self.reply(refused.status, refused.message, headers)
        return self.reply_json(refused.status, {"error": error}, headers)

    def reply_json(self, status, value, headers=None):
        indent = None if "prettyPrint=false" in self.raw_query else 1
        self.reply(status, json.dumps(value, indent=indent) + "\n",
                   {"content-type": "application/json; charset=UTF-8"} | (headers or {}))

    def serve(self, service):
        world = self.world
        if service is None:
            raise Refused("notFound", f"The requested URL {self.raw_path} was not found on this server.", 404)
        if world.take("throttle", service):
            if world.settings["throttle_status"] == 403:
                raise Refused("rateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per "
                              "minute' of service 'compute.googleapis.com'.", 403, domain="usageLimits")
            raise Refused("rateLimitExceeded", "Resource has been exhausted (e.g. check quota).", 429,
                          status_text="RESOURCE_EXHAUSTED", retry_after=1)
        if world.take("fail", service):
            raise Refused("backendError", "Backend Error", 503, status_text="UNAVAILABLE")
        if service == "oauth2":
            return self.serve_oauth()
        with world.lock:
            caller = self.caller(service)
            if world.take("expire", service):
                raise Refused("authError", "Request had invalid authentication credentials.", 401,
                              status_text="UNAUTHENTICATED", detail="ACCESS_TOKEN_EXPIRED")
            world.oauth.check_scope(caller, service, self.method == "GET")
            if service in world.settings["disabled"]:
                raise Refused("accessNotConfigured", f"{TITLES[service]} has not been used in project "
                              f"{world.project_number} before or it is disabled. Enable it by visiting "
                              f"https://console.developers.google.com/apis/api/{service}.googleapis.com/overview?project="
                              f"{world.project_number} then retry.", 403, status_text="PERMISSION_DENIED",
                              detail="SERVICE_DISABLED", consumer=f"projects/{world.project_number}",
                              domain="usageLimits")
        if service == "compute":
            return self.serve_compute(caller)
        if service == "storage":
            return self.serve_storage(caller)
        if service == "oslogin":
            return self.serve_os_login(caller)
        return self.serve_iam(service, caller)

    def caller(self, service):
        """Who asks. The address of a begun upload is as good as a token."""
        if service == "storage" and self.method in ("PUT", "DELETE"):
            begun = self.world.gcs.uploads.get(dict(urllib.parse.parse_qsl(self.raw_query)).get("upload_id"))
            if begun is not None:
                return begun["caller"]
        if service == "storage" and "authorization" not in self.headers and self.world.has_habit("anonymous"):
            return Caller(f"serviceAccount:{self.world.tester}", [CLOUD], self.world.now() + 60)
        return self.world.oauth.caller_of(self.headers)

    def serve_oauth(self):
        with self.world.lock:
            if self.raw_path.endswith("token"):
                if self.method != "POST":
                    raise Refused("invalid_request", "Only POST", 405)
                return self.reply_json(200, self.world.oauth.token(self))
            query = dict(urllib.parse.parse_qsl(self.raw_query))
            return self.reply_json(200, self.world.oauth.tokeninfo(query.get("access_token", "")))

    def serve_compute(self, caller):
        found = schema.match(schema.COMPUTE, self.method, self.raw_path)
        if found is None:
            raise Refused("notFound", f"The requested URL {self.raw_path} was not found on this server.", 404)
        call, in_path, described = found
        parameters = schema.read(schema.COMPUTE, call, in_path, described, self.raw_query, self.whole_body())
        wanted = parameters.pop("fields", None)
        wanted = schema.parse_fields(wanted) if wanted else None
        for name in schema.STANDARD:
            parameters.pop(name, None)
        with self.world.lock:
            self.lose(call)
            self.world.record("compute", call, parameters)
            self.world.callers.append((call, caller.email))
        self.world.check_refused(call)
        if call.endswith(".wait") and not self.world.has_habit("impatient"):
            self.world.instances.wait_for(call, parameters)
        with self.world.lock:
            result = self.world.instances.answer(caller, call, parameters, described)
            return self.reply_json(200, schema.select_fields(result, wanted))

    def serve_iam(self, service, caller):
        name, kind, parts = Iam.find(self.method, self.raw_path)
        body = read_body(self.whole_body())
        body = schema.check(IAM_SCHEMA, kind, body, "") if kind else {}
        with self.world.lock:
            self.lose(name)
            self.world.record(service, name, {"parts": parts, "body": body})
            self.world.callers.append((name, caller.email))
            self.world.check_refused(name)
            result = getattr(self.world.iam, name)(caller, parts, body, self.raw_path.split("/")[1])
        return self.reply_json(200, result)

    def serve_os_login(self, caller):
        name, kind, parts = OsLogin.find(self.method, self.raw_path)
        body = schema.check(LOGIN_SCHEMA, kind, read_body(self.whole_body()), "") if kind else {}
        with self.world.lock:
            self.lose(name)
            self.world.record("oslogin", name, {"parts": parts, "body": body})
            self.world.callers.append((name, caller.email))
            self.world.check_refused(name)
            return self.reply_json(200, getattr(self.world.os_login, name)(caller, parts, body))

    def serve_storage(self, caller):
        with self.world.lock:
            answer = self.world.gcs.answer(caller, self)
            file = open(answer.file, "rb") if answer.file else None
        if file is not None:
            return self.reply_file(answer, file, answer.headers)
        kind = {"content-type": "application/json; charset=UTF-8"} if answer.text else {}
        return self.reply(answer.status, answer.text, answer.headers | kind)

    def control(self):
        world = self.world
        if self.raw_path in ("/_fake/preempt", "/_fake/end"):
            wanted = json.loads(self.body)["instance"]
            with world.lock:
                found = [one for one in world.instances.known() if one["name"] == wanted]
                for one in found:
                    (world.instances.preempt if self.raw_path.endswith("preempt") else world.instances.end)(one)
            return self.reply(200 if found else 404, "{}")
        if self.raw_path == "/_fake/instances":
            with world.lock:
                return self.reply_json(200, {one["name"]: world.instances.show(one) for one in world.instances.known()})
        return super().control()


def write_credentials(world, url, folder):
    """The two files that people have: of a service account, and of `gcloud auth application-default login`."""
    out = {}
    for name, value in (("service_account", world.oauth.credentials(world.tester, f"{url}/token")),
                        ("authorized_user", world.oauth.user_credentials())):
        out[name] = os.path.join(folder, f"{name}.json")
        with open(out[name], "w") as file:
            json.dump(value, file, indent=1)
        os.chmod(out[name], 0o600)
    return out


def describe(world, port, metadata_port, folder):
    url = f"http://127.0.0.1:{port}"
    return {"url": url, "metadata": f"127.0.0.1:{metadata_port}", "project": world.project,
            "credentials": write_credentials(world, url, folder)}


if __name__ == "__main__":
    cloud_server.main(__doc__, "gcp", World, Handler, describe)
