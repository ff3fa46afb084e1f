#!/usr/bin/env python3
"""tests/gcp/fake_gcp.py itself: what it refuses, what takes time, what it runs out of. Without our binary."""
import base64
import json
import shutil
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse
import urllib.request
import uuid

import gcp_machines
import harness
import hosts as machines
from harness import ROOT, wait_until

sys.path[:0] = [str(ROOT / "tests/gcp"), str(ROOT / "tests/clouds")]
import cloud_server  # noqa: E402
import fake_gcp  # noqa: E402
from fake_oauth import CLOUD, GRANT_JWT  # noqa: E402

ZONE = "us-west1-a"
IMAGE = "projects/debian-cloud/global/images/family/debian-12"


def encoded(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=")


class Gone(urllib.request.HTTPErrorProcessor):
    """Answers as they are, errors and 308 too."""

    def http_response(self, request, response):
        return response

    https_response = http_response


ASK_NAME = """import urllib.request as u
print(u.urlopen(u.Request("http://metadata.google.internal/computeMetadata/v1/instance/name",
                          headers={"Metadata-Flavor": "Google"})).read().decode())"""
QUICK = {"operation_s": 0.1, "boot_s": 0.1, "delete_s": 0.1, "shutdown_s": 0.1}


class Client(harness.Case):
    def setUp(self):
        super().setUp()
        self.serve()
        self.token = self.world.oauth.give(f"serviceAccount:{self.world.tester}", [CLOUD])[0]

    def serve(self):
        self.world = fake_gcp.World(QUICK, str(self.folder))
        self.servers = [cloud_server.Server(fake_gcp.Handler, 0, self.world, str(self.folder), is_metadata)
                        for is_metadata in (False, True)]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
        self.url, self.metadata = (f"http://127.0.0.1:{server.server_port}" for server in self.servers)

    # --- asking

    def ask(self, method, path, body=None, headers=None, base=None):
        """(status, headers, bytes)"""
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        known = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"} | (headers or {})
        request = urllib.request.Request((base or self.url) + path, data, known, method=method)
        with urllib.request.build_opener(Gone).open(request, timeout=harness.WAIT) as answer:
            return answer.status, answer.headers, answer.read()

    def call(self, method, path, body=None, code=200, **query):
        """A call of Compute, below the project; the JSON."""
        path = f"/compute/v1/projects/fake-project/{path}" + ("?" + urllib.parse.urlencode(query) if query else "")
        status, _, text = self.ask(method, path, body)
        self.assertEqual(status, code, text.decode())
        return json.loads(text)

    def insert(self, name="one", zone=ZONE, code=200, request_id=None, **more):
        body = {"name": name, "machineType": f"zones/{zone}/machineTypes/n1-standard-2", "labels": {"of": "test"},
                "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": IMAGE}}],
                "networkInterfaces": [{"network": "global/networks/default",
                                       "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}]} | more
        query = {"requestId": request_id} if request_id else {}
        return self.call("POST", f"zones/{zone}/instances", body, code, **query)

    def done(self, operation):
        """Waits for an operation; the whole of it."""
        where = operation["selfLink"].partition("/projects/fake-project/")[2]
        out = self.call("POST", f"{where}/wait")
        self.assertEqual(out["status"], "DONE")
        return out

    def reason(self, answer):
        return answer["error"]["errors"][0]["reason"], answer["error"]["message"]


class StandIn(Client):
    # --- tokens

    def jwt(self, key=None, **changes):
        credentials = self.world.oauth.credentials(self.world.tester, f"{self.url}/token")
        claims = {"iss": credentials["client_email"], "scope": CLOUD, "aud": credentials["token_uri"],
                  "iat": int(time.time()), "exp": int(time.time()) + 3600} | changes
        text = encoded(b'{"alg":"RS256","typ":"JWT"}') + b"." + encoded(json.dumps(claims).encode())
        path = self.folder / "key.pem"
        path.write_text(key or credentials["private_key"])
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", path], input=text, check=True,
                                capture_output=True)
        form = urllib.parse.urlencode({"grant_type": GRANT_JWT, "assertion": text + b"." + encoded(signed.stdout)})
        status, _, out = self.ask("POST", "/token", form.encode(),
                                  {"Content-Type": "application/x-www-form-urlencoded"})
        return status, json.loads(out)

    def test_signatures_and_claims_are_checked(self):
        status, given = self.jwt()
        self.assertEqual((status, given["token_type"], given["expires_in"]), (200, "Bearer", 3600))
        self.token = given["access_token"]
        self.assertEqual(self.call("GET", "zones/us-west1-a")["status"], "UP")
        other = subprocess.run(["openssl", "genrsa", "2048"], capture_output=True, text=True, check=True).stdout
        now = int(time.time())
        for text, changes in (("Invalid JWT Signature", {"key": other}), ("account not found", {"iss": "a@b.c"}),
                              ("audience", {"aud": "https://example.com"}), ("OAuth scope", {"scope": ""}),
                              ("short-lived", {"exp": now + 7200}),
                              ("short-lived", {"iat": now - 9000, "exp": now - 8000})):
            status, refused = self.jwt(**changes)
            self.assertEqual(status, 400)
            self.assertIn(text, refused["error_description"])
        self.world.settings["clock_offset_s"] = 3700
        self.assertEqual(self.call("GET", "zones", code=401)["error"]["status"], "UNAUTHENTICATED")

    def test_impersonation_and_missing_permissions(self):
        worker = self.world.iam.add_account("worker")["email"]
        path = f"/v1/projects/-/serviceAccounts/{worker}:generateAccessToken"
        status, _, text = self.ask("POST", path, {"scope": [CLOUD], "lifetime": "600s"})
        self.assertEqual(status, 200)
        self.token = json.loads(text)["accessToken"]
        self.assertEqual(self.reason(self.insert(code=403))[0], "forbidden")
        status, _, text = self.ask("GET", "/v1/projects/fake-project")
        self.assertEqual((status, json.loads(text)["error"]["details"][0]["reason"]), (403, "IAM_PERMISSION_DENIED"))
        self.token = self.world.oauth.give("user:tester@example.com", [CLOUD])[0]
        policy = json.loads(self.ask("POST", "/v1/projects/fake-project:getIamPolicy", {})[2])
        policy["bindings"].append({"role": "roles/compute.viewer", "members": [f"serviceAccount:{worker}"]})
        changed = {"policy": policy}
        self.assertEqual(self.ask("POST", "/v1/projects/fake-project:setIamPolicy", changed)[0], 200)
        self.assertEqual(self.ask("POST", "/v1/projects/fake-project:setIamPolicy", changed)[0], 409, "an old etag")
        self.token = self.world.oauth.give(f"serviceAccount:{worker}", [CLOUD])[0]
        self.call("GET", "aggregated/instances")
        tested = json.loads(self.ask("POST", "/v1/projects/fake-project:testIamPermissions", {
            "permissions": ["compute.instances.list", "compute.instances.create"]})[2])
        self.assertEqual(tested, {"permissions": ["compute.instances.list"]})
        # A condition: only machines of this name.
        self.world.iam.set_policy("projects/fake-project", [{
            "role": "roles/compute.admin", "members": [f"serviceAccount:{worker}"], "condition": {
                "title": "some", "expression": 'resource.type != "compute.googleapis.com/Instance" || '
                                               'resource.name.extract("/instances/{name}").startsWith("ours-")'}}])
        self.insert("ours-1")
        self.assertIn("compute.instances.create", self.insert("theirs", code=403)["error"]["message"])

    # --- instances

    def test_requests_are_checked_by_the_schema(self):
        for changes, text in (({"spot": True}, 'Unknown name "spot" at \'resource\''),
                              ({"scheduling": [{"preemptible": True}]}, "resource.scheduling"),
                              ({"scheduling": {"provisioningModel": "CHEAP"}}, "provisioningModel"),
                              ({"machineType": "n1-standard-2"}, "malformed"),
                              ({"labels": {"Upper": "x"}}, "Label keys"), ({"name": "UPPER"}, "regex"),
                              ({"networkInterfaces": []}, "network interface"),
                              ({"guestAccelerators": [{"acceleratorCount": 1, "acceleratorType":
                                                       f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4"}]},
                               "live migration")):
            self.assertIn(text, self.insert(code=400, **changes)["error"]["message"])
        self.assertIn("Unknown name", self.call("GET", "zones", code=400, colour="red")["error"]["message"])
        self.assertEqual(self.world.instances.made, 0)

    def test_an_instance_lives_and_ends(self):
        self.world.settings |= {"consistency_s": 0.2}
        operation = self.insert()
        self.assertIn(operation["status"], ("PENDING", "RUNNING"))
        self.assertNotIn("error", self.done(operation))
        wait_until(lambda: self.call("GET", f"zones/{ZONE}/instances/one")["status"] == "RUNNING", "it runs")
        one = self.call("GET", f"zones/{ZONE}/instances/one")
        self.assertIn("natIP", one["networkInterfaces"][0]["accessConfigs"][0])
        wait_until(lambda: "items" in self.call("GET", f"zones/{ZONE}/instances"), "the list has heard of it")
        where = f"zones/{ZONE}/instances/one"
        body = {"labels": {"of": "test", "is": "up"}, "labelFingerprint": one["labelFingerprint"]}
        self.done(self.call("POST", f"{where}/setLabels", body))
        self.assertEqual(self.reason(self.call("POST", f"{where}/setLabels", body, 412))[0], "conditionNotMet")
        listed = self.call("GET", "aggregated/instances", filter="(labels.of = test) AND (labels.is = up)",
                           fields="items/*/instances(name,labels),nextPageToken")
        self.assertEqual(listed["items"][f"zones/{ZONE}"]["instances"],
                         [{"name": "one", "labels": {"of": "test", "is": "up"}}])
        self.assertNotIn("items", self.call("GET", f"zones/{ZONE}/instances", filter="labels.of = other"))
        self.done(self.call("POST", f"{where}/stop"))
        self.assertEqual(self.call("GET", where)["status"], "TERMINATED")
        self.done(self.call("POST", f"{where}/start"))
        self.done(self.call("DELETE", where))
        self.assertEqual(self.reason(self.call("GET", where, code=404))[0], "notFound")
        self.assertEqual(self.world.instances.disks, {})

    def test_a_request_id_is_one_request(self):
        wanted = str(uuid.uuid4())
        first, again = self.insert(request_id=wanted), self.insert(request_id=wanted)
        self.assertEqual(first["name"], again["name"])
        self.assertEqual(self.world.instances.made, 1)
        self.insert("two", request_id=wanted, code=400)
        self.assertEqual(self.reason(self.insert(code=409))[0], "alreadyExists")
        self.insert("two", request_id="no-uuid", code=400)

    def test_stock_and_quota_end(self):
        self.world.settings |= {"stock": {f"n1-standard-2/{ZONE}": 1}, "quota": {"CPUS": 5}}
        self.done(self.insert())
        failed = self.done(self.insert("two"))
        self.assertEqual(failed["error"]["errors"][0]["code"], "ZONE_RESOURCE_POOL_EXHAUSTED")
        self.call("GET", f"zones/{ZONE}/instances/two", code=404)
        self.done(self.insert("two", "us-west1-b"))
        self.assertEqual(self.reason(self.insert("three", "us-west1-c", 403))[0], "quotaExceeded")
        self.world.settings |= {"quota_in_operation": True}
        self.assertEqual(self.done(self.insert("three", "us-west1-c"))["error"]["errors"][0]["code"], "QUOTA_EXCEEDED")

    def test_pages_and_misfortunes(self):
        for number in range(5):
            self.insert(f"n{number}")
        found, token = [], None
        while True:
            page = self.call("GET", f"zones/{ZONE}/instances", maxResults=2, **({"pageToken": token} if token else {}))
            found += [one["name"] for one in page.get("items", ())]
            token = page.get("nextPageToken")
            if not token:
                break
        self.assertEqual(found, [f"n{number}" for number in range(5)])
        self.ask("POST", "/_fake/set", {"throttle": {"compute": 1}, "fail": {"compute": 1}, "expire": {"compute": 1}})
        for code in (429, 503, 401):
            self.call("GET", "zones", code=code)
        self.call("GET", "zones")
        self.world.settings["disabled"] = ["compute"]
        self.assertEqual(self.reason(self.call("GET", "zones", code=403))[0], "accessNotConfigured")

    def test_firewalls_and_metadata_of_the_project(self):
        rule = {"name": "rule", "network": "global/networks/default", "sourceRanges": ["203.0.113.9/32"],
                "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]}
        self.done(self.call("POST", "global/firewalls", rule))
        self.done(self.call("PATCH", "global/firewalls/rule", {"sourceRanges": ["0.0.0.0/0"]}))
        self.assertEqual(self.world.notes, ["firewall rule is open to 0.0.0.0/0"])
        self.done(self.call("DELETE", "global/firewalls/rule"))
        found = self.project()["commonInstanceMetadata"]
        keys = {"fingerprint": found["fingerprint"],
                "items": [{"key": "ssh-keys", "value": "ann:ssh-ed25519 AAAA ann"}]}
        self.done(self.call("POST", "setCommonInstanceMetadata", keys))
        self.call("POST", "setCommonInstanceMetadata", keys, 412)
        self.insert()
        one, = self.world.instances.known()
        self.assertEqual(self.world.instances.users_of(one), {"ann": ["ssh-ed25519 AAAA ann"]})

    def project(self):
        return json.loads(self.ask("GET", "/compute/v1/projects/fake-project")[2])

    # --- the metadata server

    def ask_metadata(self, path, **headers):
        status, told, text = self.ask("GET", f"/computeMetadata/v1/{path}", None,
                                      {"Metadata-Flavor": "Google"} | headers, self.metadata)
        return status, told, text.decode()

    def test_the_metadata_server(self):
        self.assertEqual(self.ask("GET", "/computeMetadata/v1/instance/id", base=self.metadata)[0], 403)
        account = self.world.iam.add_account("worker")["email"]
        self.done(self.insert(serviceAccounts=[{"email": account, "scopes": [CLOUD]}],
                              scheduling={"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"},
                              metadata={"items": [{"key": "colour", "value": "red"}]}))
        self.world.settings["metadata_instance"] = "one"
        self.assertEqual(self.ask_metadata("instance/name")[2], "one")
        self.assertEqual(self.ask_metadata("instance/attributes/colour")[2], "red")
        self.assertEqual(self.ask_metadata("instance/zone")[2], f"projects/123456789012/zones/{ZONE}")
        self.assertEqual(self.ask_metadata("instance/attributes/none")[0], 404)
        token = json.loads(self.ask_metadata("instance/service-accounts/default/token")[2])
        self.assertEqual(self.world.oauth.tokens[token["access_token"]].email, account)
        _, before, text = self.ask_metadata("instance/preempted")
        self.assertEqual(text, "FALSE")
        heard = []
        waits = threading.Thread(target=lambda: heard.append(
            self.ask_metadata(f"instance/preempted?wait_for_change=true&last_etag={before['etag']}")[2]))
        waits.start()
        self.world.settings["delete_s"] = 30  # it still runs while it is told
        self.ask("POST", "/_fake/preempt", {"instance": "one"})
        waits.join(harness.WAIT)
        self.assertEqual(heard, ["TRUE"])
        status, told, _ = self.ask_metadata("instance/maintenance-event")
        self.world.instances.known()[0]["maintenance"] = "TERMINATE_ON_HOST_MAINTENANCE"
        changed = self.ask_metadata(f"instance/maintenance-event?wait_for_change=true&last_etag={told['etag']}")
        self.assertEqual(changed[2], "TERMINATE_ON_HOST_MAINTENANCE")

    # --- Cloud Storage

    def upload(self, path, data=b"", method="POST", **headers):
        return self.ask(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})

    def test_objects_with_checksums_and_ranges(self):
        where = "/upload/storage/v1/b/bucket/o?uploadType=media&name="
        status, _, text = self.upload(where + "a/b", b"123456789")
        self.assertEqual((status, json.loads(text)["crc32c"], json.loads(text)["size"]), (200, "4waSgw==", "9"))
        self.assertEqual(self.upload(where + "a/b", b"123456789", X_Goog_Hash="crc32c=AAAAAA==")[0], 400)
        self.assertEqual(self.upload(where + "a/b&ifGenerationMatch=0", b"1")[0], 412)
        status, told, data = self.ask("GET", "/storage/v1/b/bucket/o/a%2Fb?alt=media", headers={"Range": "bytes=2-4"})
        self.assertEqual((status, data, told["content-range"]), (206, b"345", "bytes 2-4/9"))
        self.assertIn("crc32c=4waSgw==", told["x-goog-hash"])
        self.upload(where + "c", b"")
        listed = json.loads(self.ask("GET", "/storage/v1/b/bucket/o?delimiter=/")[2])
        self.assertEqual((listed["prefixes"], [one["name"] for one in listed["items"]]), (["a/"], ["c"]))
        self.assertEqual(self.ask("DELETE", "/storage/v1/b/bucket/o/c")[0], 204)
        self.assertEqual(self.ask("GET", "/storage/v1/b/bucket/o/c")[0], 404)

    def test_resumable_uploads_go_on_where_they_were(self):
        data = bytes(range(256)) * 4096  # 1 MiB
        status, told, _ = self.upload("/upload/storage/v1/b/bucket/o?uploadType=resumable&name=big", b"{}")
        session = told["location"].removeprefix(self.url)
        self.world.settings["upload_short"] = 1
        half = len(data) // 2
        status, told, _ = self.upload(session, data[:half], "PUT", Content_Range=f"bytes 0-{half - 1}/{len(data)}")
        self.assertEqual((status, told["range"]), (308, f"bytes=0-{half // 2 - 1}"))
        self.assertEqual(self.upload(session, data[:100], "PUT", Content_Range=f"bytes 0-99/{len(data)}")[0], 400)
        status, told, _ = self.upload(session, b"", "PUT", Content_Range=f"bytes */{len(data)}")
        self.assertEqual((status, told["range"]), (308, f"bytes=0-{half // 2 - 1}"))
        status, _, text = self.upload(session, data[half // 2:], "PUT",
                                      Content_Range=f"bytes {half // 2}-{len(data) - 1}/{len(data)}")
        self.assertEqual((status, json.loads(text)["size"]), (200, str(len(data))))
        self.assertEqual(self.ask("GET", "/storage/v1/b/bucket/o/big?alt=media")[2], data)


@unittest.skipUnless(shutil.which("gcloud"), "gcloud is not installed; Debian has none")
class RealGcloud(Client):
    def gcloud(self, *args):
        paths = {"COMPUTE": "compute/v1/", "STORAGE": "storage/v1/", "IAM": "", "CLOUDRESOURCEMANAGER": ""}
        env = {f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}": f"{self.url}/{path}" for name, path in paths.items()} | {
            "CLOUDSDK_AUTH_TOKEN_HOST": f"{self.url}/token", "CLOUDSDK_CORE_PROJECT": "fake-project",
            "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE": self.files["service_account"],
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true", "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1"}
        done = subprocess.run(["gcloud", *args], env=self.environment(**env), cwd=self.folder, capture_output=True,
                              text=True, timeout=harness.WAIT)
        self.assertEqual(done.returncode, 0, f"{args}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def test_the_stand_in_with_the_real_gcloud(self):
        self.files = fake_gcp.write_credentials(self.world, self.url, str(self.folder))
        self.gcloud("compute", "instances", "create", "one", "--zone", ZONE, "--image-family", "debian-12",
                    "--image-project", "debian-cloud", "--machine-type", "n1-standard-2", "--labels", "a=b",
                    "--provisioning-model=SPOT", "--instance-termination-action=DELETE")
        one, = json.loads(self.gcloud("compute", "instances", "list", "--filter=labels.a=b", "--format=json"))
        self.assertEqual((one["name"], one["status"]), ("one", "RUNNING"))
        self.gcloud("compute", "instances", "add-labels", "one", "--zone", ZONE, "--labels", "c=d")
        self.assertEqual(self.world.instances.known()[0]["labels"], {"a": "b", "c": "d"})
        self.gcloud("compute", "instances", "delete", "one", "--zone", ZONE)
        self.gcloud("iam", "service-accounts", "create", "workers1")
        self.gcloud("projects", "add-iam-policy-binding", "fake-project", "--role", "roles/compute.viewer", "--member",
                    "serviceAccount:workers1@fake-project.iam.gserviceaccount.com", "--condition=None")
        (self.folder / "there").write_bytes(bytes(range(256)) * 40000)
        self.gcloud("storage", "cp", "there", "gs://bucket/it")
        self.gcloud("storage", "cp", "gs://bucket/it", "back")
        self.assertEqual((self.folder / "back").read_bytes(), (self.folder / "there").read_bytes())


class Machines(Client):
    def serve(self):
        reason = machines.why_not()
        if reason:
            self.skipTest(reason)
        self.hosts = machines.Hosts(self.folder / "hosts", ["m1"], booted=False)
        self.addCleanup(self.hosts.close)
        self.cloud = gcp_machines.GcpMachines(self.hosts, self.folder / "gcp", QUICK)
        self.addCleanup(self.cloud.close)
        self.world, self.url = self.cloud.world, self.cloud.url

    def ssh(self, script):
        words = self.hosts.ssh_command("m1")
        return subprocess.run([*words[:-1], words[-1].replace("root@", "ann@"), script], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)

    def test_an_instance_is_a_machine_with_users_and_metadata(self):
        key = self.hosts.key.with_suffix(".pub").read_text().strip()
        self.done(self.insert(metadata={"items": [
            {"key": "ssh-keys", "value": f"ann:{key}"},
            {"key": "startup-script", "value": "#!/bin/bash\necho started >/run/told"}]}))
        wait_until(lambda: self.ssh("true").returncode == 0, lambda: f"ann to be let in: {self.ssh('true').stderr}")
        told = self.ssh(f"whoami; pwd; {harness.PYTHON} -c '{ASK_NAME}'").stdout
        self.assertEqual(told.split(), ["ann", "/home/ann", "one"])
        wait_until(lambda: self.ssh("cat /run/told").stdout == "started\n", "the startup script")
        self.assertIn("error", self.done(self.insert("two")), "there is one machine")
        self.ssh("echo kept >file")
        self.done(self.call("POST", f"zones/{ZONE}/instances/one/stop"))
        self.done(self.call("POST", f"zones/{ZONE}/instances/one/start"))
        wait_until(lambda: self.ssh("cat file").stdout == "kept\n", "the same disk")
        self.done(self.call("DELETE", f"zones/{ZONE}/instances/one"))
        self.assertEqual(self.cloud.leftovers(), [])


if __name__ == "__main__":
    harness.main()
