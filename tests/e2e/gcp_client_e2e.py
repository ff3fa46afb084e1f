#!/usr/bin/env python3
"""Commands against tests/gcp/fake_gcp.py alone: credentials of all kinds, a bad server, what Google refuses."""
import filecmp
import json
import subprocess
import urllib.parse
import urllib.request

import harness
from cloud_client_testing import CloudClientCase
from harness import ROOT

FILE = """cluster_name: lab
provider: {type: gcp, project_id: fake-project, region: us-west1, ssh_from: 203.0.113.0/24%s}
available_node_types:
  head: {node_config: {machineType: %s}, resources: {CPU: 1}, max_workers: 0}
head_node_type: head
"""
MEMORY_MAX = 100 << 20
SECRETS = ("PRIVATE KEY", "client-secret-fake", "refresh-fake", "ya29.")


class GcpClient(CloudClientCase):
    stand_in = "gcp/fake_gcp.py"

    def environment_for(self, told):
        self.files, self.metadata = told["credentials"], told["metadata"]
        self.home_adc = self.home / ".config/gcloud/application_default_credentials.json"
        return {"RUBATO_GCP_ENDPOINT": told["url"], "XDG_STATE_HOME": str(self.folder / "state"), "USER": "tester",
                "GCE_METADATA_HOST": "127.0.0.1:9", "GOOGLE_APPLICATION_CREDENTIALS": self.files["service_account"]}

    def read(self, name):
        with open(self.files[name]) as file:
            return json.load(file)

    def ask(self, text=None, env=(), provider="", code=2):
        """`up` with a machine type that Google does not have: who is told so has come past credentials and permissions.

        Text: what is to be printed instead.
        """
        (self.folder / "cluster.yaml").write_text(FILE % (provider, "n9-none-1"))
        done = self.rubato("up", "-y", "cluster.yaml", env=env, code=code)
        self.assertIn(text or "there is no machine type 'n9-none-1'", done.stderr)
        for secret in SECRETS:
            self.assertNotIn(secret, done.stdout + done.stderr)
        return done.stderr

    def with_file(self, value):
        path = self.folder / "credentials.json"
        path.write_text(json.dumps(value))
        return {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}

    # Who we are.

    def test_whoami_tells_who_we_are_and_what_we_may_not(self):
        told = json.loads(self.rubato("gcp", "whoami", "--project", "fake-project", "--json").stdout)
        self.assertIn("@", told["account"])
        self.assertIn("GOOGLE_APPLICATION_CREDENTIALS", told["credentials_from"])
        self.assertEqual((told["project"], told["missing_permissions"]), ("fake-project", []))
        self.control("set", {"deny": {told["account"]: ["compute.instances.create"]}})
        plain = self.rubato("gcp", "whoami", env={"GOOGLE_CLOUD_PROJECT": "fake-project"}).stdout
        self.assertIn("missing      compute.instances.create\n", plain)
        self.assertIn("project      fake-project, from GOOGLE_CLOUD_PROJECT", plain)
        for secret in SECRETS:
            self.assertNotIn(secret, plain)
        self.assertIn("project      none", self.rubato("gcp", "whoami").stdout)
        self.rubato("gcp", "whoami", env={"GOOGLE_APPLICATION_CREDENTIALS": ""}, code=1)

    def test_policy_prints_a_role_for_each(self):
        mine, head = self.rubato("gcp", "policy").stdout, self.rubato("gcp", "policy", "--for", "head").stdout
        self.assertIn("- iam.serviceAccounts.actAs\n", mine)
        self.assertIn("- compute.instances.create\n", head)
        self.assertNotIn("iam.", head)
        self.assertLess(set(head.split("includedPermissions:")[1].split()), set(mine.split()))
        self.assertIn("user or head", self.rubato("gcp", "policy", "--for", "nobody", code=2).stderr)

    def test_credentials_are_found_where_googles_tools_find_them(self):
        self.ask()
        self.ask(env=self.with_file(self.read("authorized_user")))
        nobody = {"GOOGLE_APPLICATION_CREDENTIALS": ""}
        self.ask("no Google credentials were found", nobody, code=1)
        self.home_adc.parent.mkdir(parents=True)
        self.home_adc.write_text(json.dumps(self.read("authorized_user")))
        self.ask(env=nobody)
        self.home_adc.unlink()
        # A machine of Google's: its account may do nothing here.
        refused = self.ask("permission", nobody | {"GCE_METADATA_HOST": self.metadata}, code=1)
        self.assertIn("resourcemanager.projects.get", refused)

    def test_credentials_of_the_file(self):
        token = self.buy_token()
        nobody = {"GOOGLE_APPLICATION_CREDENTIALS": ""}
        self.ask(env=nobody, provider=f", gcp_credentials: {{type: credentials_token, credentials: {token}}}")
        key = json.dumps(json.dumps(self.read("service_account")))
        self.ask(env=nobody, provider=f", gcp_credentials: {{type: service_account, credentials: {key}}}")

    def buy_token(self):
        user = self.read("authorized_user")
        form = {key: user[key] for key in ("client_id", "client_secret", "refresh_token")}
        form = urllib.parse.urlencode(form | {"grant_type": "refresh_token"}).encode()
        with urllib.request.urlopen(f"{self.url}/token", form) as answer:
            return json.load(answer)["access_token"]

    def test_impersonation(self):
        account = "tester@fake-project.iam.gserviceaccount.com"
        value = {"type": "impersonated_service_account", "delegates": [],
                 "service_account_impersonation_url":
                 f"{self.url}/v1/projects/-/serviceAccounts/{account}:generateAccessToken",
                 "source_credentials": self.read("authorized_user")}
        self.ask(env=self.with_file(value))
        self.assertIn("generate_token", self.asked())
        self.control("set", {"deny": {"tester@example.com": ["iam.serviceAccounts.getAccessToken"]}})
        refused = self.ask("PERMISSION_DENIED", self.with_file(value), code=1)
        self.assertIn("roles/iam.serviceAccountTokenCreator", refused)

    def test_wrong_credentials_are_told_without_secrets(self):
        user, key = self.read("authorized_user"), self.read("service_account")
        self.ask("expired or revoked", self.with_file(user | {"refresh_token": "old"}), code=1)
        self.ask("invalid_client", self.with_file(user | {"client_secret": "other"}), code=1)
        self.ask("account not found", self.with_file(key | {"client_email": "gone@fake-project.iam"}), code=1)
        self.ask('lack "private_key"', self.with_file({"type": "service_account", "client_email": "a@b.c"}), code=1)
        self.ask("not supported", self.with_file({"type": "gdch_service_account"}), code=1)
        self.ask('lack "credential_source"', self.with_file({"type": "external_account"}), code=1)
        self.ask("no JSON", {"GOOGLE_APPLICATION_CREDENTIALS": __file__}, code=1)
        self.ask("cannot be read", {"GOOGLE_APPLICATION_CREDENTIALS": "/none"}, code=1)

    # A bad server.

    def test_a_bad_server_is_outlived(self):
        self.control("set", {"throttle": {"compute": 2, "cloudresourcemanager": 1}, "fail": {"compute": 2, "oauth2": 1},
                             "drop": {"iam": 1, "oauth2": 1}, "expire": {"compute": 1}})
        self.ask()
        self.control("set", {"throttle": {"compute": 2}, "throttle_status": 403})
        self.ask()
        # An old clock: what is signed with it is refused, and Google's answers have the time.
        self.control("set", {"clock_offset_s": 7200})
        self.ask()

    def test_what_a_project_lacks_is_named(self):
        self.control("set", {"disabled": ["cloudresourcemanager"]})
        self.ask("gcloud services enable cloudresourcemanager.googleapis.com", code=1)
        self.control("set", {"disabled": [], "deny": {"*": ["compute.firewalls.create", "iam.roles.create"]}})
        self.assertIn("iam.roles.create", self.ask("compute.firewalls.create", code=1))
        self.control("set", {"deny": {}, "project_state": "DELETE_REQUESTED"})
        self.ask("is not active (DELETE_REQUESTED)")
        self.control("set", {"project_state": "ACTIVE", "zones_down": [f"us-west1-{each}" for each in "abc"]})
        self.ask("has no zones")

    # Ray's files.

    def head_of(self, name):
        """The head's machine, as Compute has it, of one of Ray's files; its person has filled in the project."""
        text = (ROOT / "tests/data/ray-yaml" / name).read_text()
        text = text.replace("project_id: null", "project_id: fake-project").replace("<project_id>", "fake-project")
        (self.folder / "cluster.yaml").write_text(text)
        env = self.env | {"XDG_STATE_HOME": str(self.folder / name), "RUBATO_CHECKIP": f"{self.url}/_fake/checkip"}
        with open(self.folder / "told", "wb") as told:
            up = subprocess.Popen([harness.RUBATO, "up", "-y", "cluster.yaml"], env=env, cwd=self.folder, stdout=told,
                                  stderr=told, preexec_fn=harness.die_with_parent)
        try:
            harness.wait_until(lambda: self.control("instances") or up.poll() is not None,
                               lambda: f"a machine of {name}: {(self.folder / 'told').read_text()}")
        finally:
            up.kill()  # it would wait for its sshd, which nobody has
            up.wait()
        found = self.control("instances")
        self.assertEqual(len(found), 1, (self.folder / "told").read_text())
        self.control("end", {"instance": next(iter(found))})
        harness.wait_until(lambda: not self.control("instances"), "the end of the machine")
        return next(iter(found.values()))

    def test_rays_files_ask_for_machines_that_google_has(self):
        for name in ("ray-0.6.6/gcp/example-full.yaml", "head/gcp/example-full.yaml", "head/gcp/defaults.yaml"):
            self.assertTrue(self.head_of(name)["machineType"].endswith("/n1-standard-2"))
        old = self.head_of("ray-0.6.6/gcp/example-gpu-docker.yaml")
        self.assertTrue(old["machineType"].endswith("us-west1-b/machineTypes/custom-6-16384"), old["machineType"])
        self.assertEqual(old["scheduling"]["onHostMaintenance"], "TERMINATE")
        self.assertTrue(old["guestAccelerators"][0]["acceleratorType"].endswith("/nvidia-tesla-k80"))
        new = self.head_of("head/gcp/example-gpu-docker.yaml")
        self.assertTrue(new["guestAccelerators"][0]["acceleratorType"].endswith("/nvidia-tesla-t4"))
        self.assertIn("install-nvidia-driver", [item["key"] for item in new["metadata"]["items"]])

    # Files.

    def test_cp_there_and_back(self):
        source = self.make_file("model.pt", (20 << 20) + 17)
        up = self.rubato("cp", "model.pt", "gs://bucket/models/")
        self.assertIn("gs://bucket/models/model.pt", up.stderr)
        self.assertEqual(up.stdout, "")
        down = self.rubato("cp", "--json", "gs://bucket/models/model.pt", "back.pt")
        self.assertEqual(json.loads(down.stdout)[0]["checked_by"], "CRC32C")
        self.assertTrue(filecmp.cmp(source, self.folder / "back.pt", shallow=False))
        self.assertEqual(sorted(path.name for path in self.folder.glob("*rubato-part*")), [])
        self.assertEqual(self.asked().count("upload_piece"), 3)
        (self.folder / "empty").touch()
        self.rubato("cp", "empty", "gs://bucket/empty")
        self.rubato("cp", "gs://bucket/empty", "empty.back")
        self.assertEqual((self.folder / "empty.back").read_bytes(), b"")
        self.assertIn("there is no gs://bucket/none", self.rubato("cp", "gs://bucket/none", ".", code=1).stderr)
        self.assertIn("bucket", self.rubato("cp", "model.pt", "gs://other/x", code=1).stderr)
        self.control("set", {"deny": {"*": ["storage.objects.create"]}})
        self.assertIn("storage.objects.create", self.rubato("cp", "model.pt", "gs://bucket/x", code=1).stderr)

    def test_cp_of_folders(self):
        names = ("a", "sub/b c", "sub/deep/ü", "sub/per%cent?#")
        self.make_tree(names)
        self.control("set", {"page_max": 2})
        self.rubato("cp", "-r", "tree", "gs://bucket/tree/")
        self.rubato("cp", "-r", "gs://bucket/tree/", "copy")
        for name in names:
            self.assertEqual((self.folder / "copy" / name).read_text(), name)
        self.rubato("cp", "tree/a", "gs://bucket/evil/../../x")
        refused = self.rubato("cp", "-r", "gs://bucket/evil/", "copy/inner", code=1)
        self.assertIn("leads out of the folder", refused.stderr)
        self.assertFalse((self.folder / "x").exists())

    def test_cp_between_buckets(self):
        names = ("a", "sub/b c", "sub/per%cent?#")
        self.make_tree(names)
        source = self.make_file("large", (3 << 20) + 5)
        self.rubato("cp", "-r", "tree", "gs://bucket/tree")
        self.rubato("cp", "large", "gs://bucket/tree/large")
        self.rubato("cp", "-r", "gs://bucket/tree", "gs://bucket/copy/of/")
        self.assertEqual(self.asked().count("rewrite"), 3 + 4, "a megabyte at a time")
        self.rubato("cp", "-r", "gs://bucket/copy/of", "back")
        for name in names:
            self.assertEqual((self.folder / "back" / name).read_text(), name)
        self.assertTrue(filecmp.cmp(source, self.folder / "back/large", shallow=False))

    def test_cp_outlives_a_bad_server(self):
        source = self.make_file("file", 12 << 20)
        self.control("set", {"fail": {"storage": 1}, "throttle": {"storage": 1}, "drop": {"storage": 1},
                             "lose": {"upload_piece": 2}, "upload_short": 2, "expire": {"storage": 1}})
        self.rubato("cp", "file", "gs://bucket/file")
        self.control("set", {"drop": {"storage": 2}, "clock_offset_s": -1200})
        self.rubato("cp", "gs://bucket/file", "back")
        self.assertTrue(filecmp.cmp(source, self.folder / "back", shallow=False))
        (self.folder / "back").unlink()
        self.control("set", {"corrupt": 1})
        self.assertIn("is damaged", self.rubato("cp", "gs://bucket/file", "back", code=1).stderr)
        self.assertFalse((self.folder / "back").exists())

    def test_a_broken_upload_goes_on_where_it_ended(self):
        self.make_file("file", 40 << 20)
        self.control("set", {"latency_s": 2})  # three pieces are left when it is killed
        broken = subprocess.Popen([harness.RUBATO, "cp", "file", "gs://bucket/file"], env=self.env, cwd=self.folder,
                                  stderr=subprocess.DEVNULL)
        harness.wait_until(lambda: self.asked().count("upload_piece") >= 2, "two pieces")
        broken.kill()
        broken.wait()
        self.control("set", {"latency_s": 0})
        self.control("forget", {})
        self.rubato("cp", "file", "gs://bucket/file")
        asked = self.control("requests")
        self.assertNotIn("upload", [one["operation"] for one in asked], "no new upload")
        self.assertLess(sum(one["operation"] == "upload_piece" for one in asked), 6)
        self.rubato("cp", "gs://bucket/file", "back")
        self.assertTrue(filecmp.cmp(self.folder / "file", self.folder / "back", shallow=False))

    def test_cp_needs_little_memory(self):
        self.make_file("large", 101 << 20)
        for args in (("large", "gs://bucket/large"), ("gs://bucket/large", "back")):
            self.assertLess(self.memory_of("cp", *args), MEMORY_MAX, args)


if __name__ == "__main__":
    harness.main()
