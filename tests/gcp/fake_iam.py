"""Projects, who may do what in them, and service accounts: Cloud Resource Manager v1 and v3, IAM v1, IAM Credentials.

@google-cloud/compute does not carry these services' schemas: their few fields are written down here by hand.
"""
import base64
import datetime
import fnmatch
import hashlib
import itertools
import json
import re
import urllib.parse

import conditions
from cloud_server import Refused

ANY = 'resource.name != ""'
ROLES = {  # as far as Rubato and its users name them; patterns of permissions
    "roles/owner": ["*"], "roles/editor": ["compute.*", "storage.*", "iam.serviceAccounts.actAs",
                                           "iam.serviceAccounts.get", "resourcemanager.projects.get"],
    "roles/viewer": ["*.get", "*.list"],
    "roles/compute.admin": ["compute.*", "resourcemanager.projects.get"],
    "roles/compute.instanceAdmin.v1": [
        "compute.instances.*", "compute.disks.*", "compute.images.get", "compute.images.list",
        "compute.images.useReadOnly", "compute.machineTypes.*", "compute.acceleratorTypes.*", "compute.zones.*",
        "compute.regions.*", "compute.networks.get", "compute.networks.list", "compute.subnetworks.get",
        "compute.subnetworks.list", "compute.subnetworks.use", "compute.subnetworks.useExternalIp",
        "compute.projects.get", "compute.zoneOperations.*", "compute.regionOperations.*",
        "compute.globalOperations.*", "resourcemanager.projects.get"],
    "roles/compute.osLogin": ["compute.instances.osLogin", "compute.projects.get"],
    "roles/compute.osAdminLogin": ["compute.instances.osAdminLogin", "compute.instances.osLogin",
                                   "compute.projects.get"],
    "roles/compute.viewer": ["compute.*.get", "compute.*.list", "resourcemanager.projects.get"],
    "roles/iam.serviceAccountUser": ["iam.serviceAccounts.actAs", "iam.serviceAccounts.get"],
    "roles/iam.serviceAccountAdmin": [
        *(f"iam.serviceAccounts.{verb}" for verb in ("create", "delete", "disable", "enable", "get", "getIamPolicy",
                                                     "list", "setIamPolicy", "undelete", "update")),
        "resourcemanager.projects.get"],
    "roles/iam.roleAdmin": ["iam.roles.*", "resourcemanager.projects.get", "resourcemanager.projects.getIamPolicy"],
    "roles/resourcemanager.projectIamAdmin": [
        f"resourcemanager.projects.{verb}" for verb in ("get", "getIamPolicy", "setIamPolicy")],
    "roles/iam.serviceAccountTokenCreator": ["iam.serviceAccounts.getAccessToken"],
    "roles/iam.roleViewer": ["iam.roles.get", "iam.roles.list", "resourcemanager.projects.get"],
    "roles/storage.admin": ["storage.*"], "roles/storage.objectAdmin": ["storage.objects.*"],
    "roles/storage.objectViewer": ["storage.objects.get", "storage.objects.list"],
    "roles/storage.objectUser": ["storage.objects.*"],
}
FIELDS = {
    "Policy": {"version": "int32", "bindings": "[Binding]", "etag": "bytes", "auditConfigs": "[AuditConfig]"},
    "Binding": {"role": "string", "members": "[string]", "condition": "Expr"},
    "Expr": {"expression": "string", "title": "string", "description": "string", "location": "string"},
    "AuditConfig": {"service": "string"},
    "GetPolicy": {"options": "GetPolicyOptions"}, "GetPolicyOptions": {"requestedPolicyVersion": "int32"},
    "SetPolicy": {"policy": "Policy", "updateMask": "string"}, "TestPermissions": {"permissions": "[string]"},
    "CreateServiceAccount": {"accountId": "string", "serviceAccount": "ServiceAccount"},
    "ServiceAccount": {"displayName": "string", "description": "string", "name": "string"},
    "CreateRole": {"roleId": "string", "role": "Role"},
    "Role": {"name": "string", "title": "string", "description": "string", "includedPermissions": "[string]",
             "stage": "string", "etag": "bytes", "deleted": "bool"},
    "GenerateToken": {"scope": "[string]", "lifetime": "string", "delegates": "[string]"},
}
SCHEMA = {"messages": FIELDS, "enums": {}}


def denied(permission, resource, service="iam"):
    return Refused("forbidden", f"Permission '{permission}' denied on resource '{resource}' (or it may not exist).",
                   403, status_text="PERMISSION_DENIED", detail="IAM_PERMISSION_DENIED", permission=permission,
                   resource=resource, service=f"{service}.googleapis.com")


def not_found(message):
    return Refused("notFound", message, 404, status_text="NOT_FOUND")


class Iam:
    def __init__(self, world):
        self.world, self.numbers, self.changes = world, itertools.count(1), itertools.count(1)
        project = world.project
        self.accounts = {}
        self.add_account("tester", "who runs the tests")
        self.default_account = f"{world.project_number}-compute@developer.gserviceaccount.com"
        self._keep(self.default_account, "Compute Engine default service account")
        self.custom = {}                     # {"projects/p/roles/x": Role}
        self.policies = {}                   # {"projects/p": Policy, "projects/p/serviceAccounts/e": Policy}
        self.set_policy(f"projects/{project}", [
            {"role": "roles/owner", "members": ["user:tester@example.com",
                                                f"serviceAccount:tester@{project}.iam.gserviceaccount.com"]}])

    # ---- who may what ----

    def set_policy(self, resource, bindings):
        etag = base64.b64encode(hashlib.sha256(f"{resource}{next(self.changes)}".encode()).digest()[:8]).decode()
        self.policies[resource] = {"version": 1, "etag": etag, "bindings": bindings,
                                   "since": self.world.now()}

    def patterns_of(self, member, resource):
        """Patterns of permissions that the resource's policy, and its project's, give."""
        late = self.world.settings["grant_s"]
        project = "/".join(resource.split("/")[:2])
        for where in {resource, project} & set(self.policies):
            policy = self.policies[where]
            for binding in policy["bindings"]:
                counts = member in binding["members"] and self.world.now() >= binding.get("since", 0) + late
                if counts and conditions.holds(binding.get("condition", {}).get("expression", ANY), resource):
                    role = binding["role"]
                    yield from ROLES.get(role) or self.custom.get(role, {}).get("includedPermissions", ())

    def is_allowed(self, caller, permission, resource):
        if permission in self.world.settings["deny"].get(caller.email, ()) \
                or permission in self.world.settings["deny"].get("*", ()):
            return False
        return self.matches(permission, self.patterns_of(caller.member, resource))

    @staticmethod
    def matches(permission, patterns):
        return any(fnmatch.fnmatchcase(permission, each) for each in patterns)

    def demand(self, caller, permission, resource, service="iam"):
        if not self.is_allowed(caller, permission, resource):
            raise denied(permission, f"//{service}.googleapis.com/{resource}", service)

    # ---- routes ----

    ROUTES = [  # method, pattern, handler, type of the body
        ("GET", r"/v[13]/projects/([^/:]+)", "get_project", None),
        ("POST", r"/v[13]/projects/([^/:]+):getIamPolicy", "get_iam_policy", "GetPolicy"),
        ("POST", r"/v[13]/projects/([^/:]+):setIamPolicy", "set_iam_policy", "SetPolicy"),
        ("POST", r"/v[13]/projects/([^/:]+):testIamPermissions", "test_permissions", "TestPermissions"),
        ("POST", r"/v1/projects/([^/]+)/serviceAccounts", "create_account", "CreateServiceAccount"),
        ("GET", r"/v1/projects/([^/]+)/serviceAccounts", "list_accounts", None),
        ("GET", r"/v1/projects/([^/]+)/serviceAccounts/([^/:]+)", "get_account", None),
        ("DELETE", r"/v1/projects/([^/]+)/serviceAccounts/([^/:]+)", "delete_account", None),
        ("POST", r"/v1/projects/([^/]+)/serviceAccounts/([^/:]+):getIamPolicy", "get_account_policy", None),
        ("POST", r"/v1/projects/([^/]+)/serviceAccounts/([^/:]+):setIamPolicy", "set_account_policy", "SetPolicy"),
        ("POST", r"/v1/projects/([^/]+)/serviceAccounts/([^/:]+):testIamPermissions", "test_account_permissions",
         "TestPermissions"),
        ("POST", r"/v1/projects/([^/]+)/serviceAccounts/([^/:]+):generateAccessToken", "generate_token",
         "GenerateToken"),
        ("POST", r"/v1/projects/([^/]+)/roles", "create_role", "CreateRole"),
        ("GET", r"/v1/projects/([^/]+)/roles/([^/:]+)", "get_role", None),
        ("PATCH", r"/v1/projects/([^/]+)/roles/([^/:]+)", "patch_role", "Role"),
        ("DELETE", r"/v1/projects/([^/]+)/roles/([^/:]+)", "delete_role", None),
        ("POST", r"/v1/projects/([^/]+)/roles/([^/:]+):undelete", "undelete_role", "Role"),
    ]

    @classmethod
    def find(cls, method, path):
        """(handler's name, type of the body, the path's parts); None: not ours."""
        for verb, pattern, name, kind in cls.ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                return name, kind, [urllib.parse.unquote(each) for each in found.groups()]
        return None

    # ---- projects ----

    def _project(self, caller, project, permission):
        """Its resource's name; one that does not exist is not told from one that is not yours."""
        if project not in (self.world.project, self.world.project_number):
            raise denied(permission, f"//cloudresourcemanager.googleapis.com/projects/{project}",
                         "cloudresourcemanager")
        name = f"projects/{self.world.project}"
        self.demand(caller, permission, name, "cloudresourcemanager")
        return name

    def get_project(self, caller, parts, body, version):
        self._project(caller, parts[0], "resourcemanager.projects.get")
        state = self.world.settings["project_state"]
        if version == "v3":
            return {"name": f"projects/{self.world.project_number}", "projectId": self.world.project, "state": state,
                    "displayName": "Fake Project", "parent": "organizations/1", "etag": "W/\"1\""}
        return {"projectNumber": self.world.project_number, "projectId": self.world.project, "lifecycleState": state,
                "name": "Fake Project", "createTime": "2024-01-01T00:00:00Z"}

    @staticmethod
    def _shown(policy):
        return {"version": policy["version"], "etag": policy["etag"],
                "bindings": [{key: each for key, each in one.items() if key != "since"}
                             for one in policy["bindings"]]}

    def get_iam_policy(self, caller, parts, body, version):
        return self._shown(self.policies[self._project(caller, parts[0], "resourcemanager.projects.getIamPolicy")])

    def set_iam_policy(self, caller, parts, body, version):
        name = self._project(caller, parts[0], "resourcemanager.projects.setIamPolicy")
        return self._set(name, body.get("policy", {}))

    def _set(self, name, policy):
        before = self.policies[name]
        if not policy.get("etag"):
            self.world.note(f"the policy of {name} was set without an etag: another's change may be lost")
        elif policy["etag"] != before["etag"]:
            raise Refused("aborted", "There were concurrent policy changes. Please retry the whole read-modify-write "
                          "with exponential backoff.", 409, status_text="ABORTED")
        bindings = policy.get("bindings", [])
        for binding in bindings:
            role = binding.get("role", "")
            if role not in ROLES and role not in self.custom:
                raise Refused("badRequest", f"Role {role} is not supported for this resource.",
                              status_text="INVALID_ARGUMENT")
            if binding.get("condition") and policy.get("version") != 3:
                raise Refused("badRequest", "Specifying a policy with a condition needs version 3.",
                              status_text="INVALID_ARGUMENT")
            if binding.get("condition"):
                conditions.holds(binding["condition"].get("expression", ""), name)
                if not binding["condition"].get("title"):
                    raise Refused("badRequest", "A condition needs a title.", status_text="INVALID_ARGUMENT")
            self._check_members(binding)
            same = [one for one in before["bindings"] if one["role"] == role
                    and set(one["members"]) >= set(binding["members"])]
            binding["since"] = same[0].get("since", 0) if same else self.world.now()
        self.set_policy(name, bindings)
        self.policies[name]["version"] = policy.get("version", 1)
        return self._shown(self.policies[name])

    def _check_members(self, binding):
        for member in binding.get("members", ()):
            kind, _, email = member.partition(":")
            if kind not in ("user", "serviceAccount", "group", "domain", "deleted"):
                raise Refused("badRequest", f"Invalid member {member}", status_text="INVALID_ARGUMENT")
            if kind == "serviceAccount" and email not in self.accounts:
                raise Refused("badRequest", f"Service account {email} does not exist.",
                              status_text="INVALID_ARGUMENT")

    def test_permissions(self, caller, parts, body, version):
        if parts[0] not in (self.world.project, self.world.project_number):
            raise denied("resourcemanager.projects.get", f"projects/{parts[0]}", "cloudresourcemanager")
        return self._test(caller, f"projects/{self.world.project}", body)

    def _test(self, caller, name, body):
        wanted = body.get("permissions", [])
        for each in wanted:
            if "*" in each or each.count(".") < 2:
                raise Refused("badRequest", f"Permission {each} is not valid for this resource.",
                              status_text="INVALID_ARGUMENT")
        given = [each for each in wanted if self.is_allowed(caller, each, name)]
        return {"permissions": given} if given else {}

    # ---- service accounts ----

    def _keep(self, email, text, description=""):
        self.accounts[email] = {
            "name": f"projects/{self.world.project}/serviceAccounts/{email}", "projectId": self.world.project,
            "uniqueId": str(100000000000000000000 + next(self.numbers)), "email": email, "displayName": text,
            "description": description, "etag": "MDEwMjE5MjA=", "oauth2ClientId": "1", "since": self.world.now()}
        return self.accounts[email]

    def add_account(self, name, text="", description=""):
        return self._keep(f"{name}@{self.world.project}.iam.gserviceaccount.com", text, description)

    def _account(self, parts):
        project, email = parts
        found = self.accounts.get(email)
        if found is None:
            found = next((one for one in self.accounts.values() if one["uniqueId"] == email), None)
        if project not in ("-", self.world.project) or found is None \
                or self.world.now() < found["since"] + self.world.settings["account_s"]:
            raise not_found(f"Unknown service account: projects/{project}/serviceAccounts/{email}")
        return found

    @staticmethod
    def _told(account):
        return {key: each for key, each in account.items() if key != "since" and each != ""}

    def create_account(self, caller, parts, body, version):
        name = self._project(caller, parts[0], "iam.serviceAccounts.create")
        wanted = body.get("accountId", "")
        if not re.fullmatch(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])", wanted):
            raise Refused("badRequest", f"Invalid account id {wanted!r}: it must be 6 to 30 characters of "
                          "[a-z]([-a-z0-9]*[a-z0-9])", status_text="INVALID_ARGUMENT")
        if f"{wanted}@{name.partition('/')[2]}.iam.gserviceaccount.com" in self.accounts:
            raise Refused("alreadyExists", f"Service account {wanted} already exists within project {name}.", 409,
                          status_text="ALREADY_EXISTS")
        given = body.get("serviceAccount", {})
        return self._told(self.add_account(wanted, given.get("displayName", ""), given.get("description", "")))

    def list_accounts(self, caller, parts, body, version):
        self._project(caller, parts[0], "iam.serviceAccounts.list")
        return {"accounts": [self._told(one) for one in self.accounts.values()]}

    def get_account(self, caller, parts, body, version):
        account = self._account(parts)
        self.demand(caller, "iam.serviceAccounts.get", account["name"])
        return self._told(account)

    def delete_account(self, caller, parts, body, version):
        account = self._account(parts)
        self.demand(caller, "iam.serviceAccounts.delete", account["name"])
        del self.accounts[account["email"]]
        self.policies.pop(account["name"], None)
        for policy in self.policies.values():  # Google keeps them, as members that are deleted
            for binding in policy["bindings"]:
                binding["members"] = [f"deleted:{one}?uid={account['uniqueId']}"
                                      if one == f"serviceAccount:{account['email']}" else one
                                      for one in binding["members"]]
        return {}

    def _account_policy(self, caller, parts, permission):
        name = self._account(parts)["name"]
        self.demand(caller, permission, name)
        if name not in self.policies:
            self.set_policy(name, [])
        return name

    def get_account_policy(self, caller, parts, body, version):
        return self._shown(self.policies[self._account_policy(caller, parts, "iam.serviceAccounts.getIamPolicy")])

    def set_account_policy(self, caller, parts, body, version):
        return self._set(self._account_policy(caller, parts, "iam.serviceAccounts.setIamPolicy"),
                         body.get("policy", {}))

    def test_account_permissions(self, caller, parts, body, version):
        return self._test(caller, self._account(parts)["name"], body)

    def generate_token(self, caller, parts, body, version):
        account = self._account(parts)
        self.demand(caller, "iam.serviceAccounts.getAccessToken", account["name"])
        scopes, lifetime = body.get("scope", []), body.get("lifetime", "3600s")
        if not scopes or not re.fullmatch(r"\d+s", lifetime) or not 0 < int(lifetime[:-1]) <= 3600:
            raise Refused("badRequest", "Invalid scope or lifetime", status_text="INVALID_ARGUMENT")
        token, seconds = self.world.oauth.give(f"serviceAccount:{account['email']}", scopes, int(lifetime[:-1]))
        until = datetime.datetime.fromtimestamp(self.world.now() + seconds, datetime.timezone.utc)
        return {"accessToken": token, "expireTime": until.strftime("%Y-%m-%dT%H:%M:%SZ")}

    # ---- roles of the project's own ----

    def _role(self, parts, with_deleted=False):
        name = f"projects/{parts[0]}/roles/{parts[1]}"
        if name not in self.custom or (self.custom[name].get("deleted") and not with_deleted):
            raise not_found(f"The role named {name} was not found.")
        return self.custom[name]

    def create_role(self, caller, parts, body, version):
        project = self._project(caller, parts[0], "iam.roles.create")
        wanted = body.get("roleId", "")
        if not re.fullmatch(r"[a-zA-Z0-9_.]{3,64}", wanted):
            raise Refused("badRequest", f"The role_id {wanted!r} is invalid: [a-zA-Z0-9_.]{{3,64}}",
                          status_text="INVALID_ARGUMENT")
        name = f"{project}/roles/{wanted}"
        if name in self.custom:
            raise Refused("alreadyExists", f"A role named {wanted} in {project} already exists.", 409,
                          status_text="ALREADY_EXISTS")
        self.custom[name] = body.get("role", {}) | {"name": name, "etag": "BwXTwuLPVbk="}
        return self.custom[name]

    def get_role(self, caller, parts, body, version):
        self._project(caller, parts[0], "iam.roles.get")
        return self._role(parts, with_deleted=True)

    def patch_role(self, caller, parts, body, version):
        self._project(caller, parts[0], "iam.roles.update")
        self._role(parts).update({key: each for key, each in body.items() if key not in ("name", "etag")})
        return self._role(parts)

    def delete_role(self, caller, parts, body, version):
        self._project(caller, parts[0], "iam.roles.delete")
        self._role(parts)["deleted"] = True
        return self._role(parts, with_deleted=True)

    def undelete_role(self, caller, parts, body, version):
        self._project(caller, parts[0], "iam.roles.undelete")
        self._role(parts, with_deleted=True).pop("deleted", None)
        return self._role(parts)


def read_body(raw):
    try:
        given = json.loads(raw or b"{}")
    except ValueError:
        raise Refused("parseError", "Parse Error", status_text="INVALID_ARGUMENT") from None
    return given
