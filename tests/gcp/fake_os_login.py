"""OS Login v1: users of machines and their SSH keys, kept for accounts. Each account sees and changes its own only.

npm's @google-cloud/compute does not carry this service's schema: its few fields are written down here by hand.
"""
import hashlib
import re
import urllib.parse

from cloud_server import Refused

FIELDS = {"SshPublicKey": {"key": "string", "expirationTimeUsec": "int64", "fingerprint": "string", "name": "string"}}
SCHEMA = {"messages": FIELDS, "enums": {}}
LOGIN = ("compute.instances.osAdminLogin", "compute.instances.osLogin")


class OsLogin:
    def __init__(self, world):
        self.world, self.profiles = world, {}  # {email: {"user": name or None, "keys": {fingerprint: SshPublicKey}}}

    ROUTES = [  # method, pattern, handler, type of the body
        ("GET", r"/v1/users/([^/:]+)/loginProfile", "get_profile", None),
        ("POST", r"/v1/users/([^/:]+):importSshPublicKey", "import_key", "SshPublicKey"),
        ("DELETE", r"/v1/users/([^/:]+)/sshPublicKeys/([^/:]+)", "delete_key", None),
    ]

    @classmethod
    def find(cls, method, path):
        """(handler's name, type of the body, the path's parts); None: not ours."""
        for verb, pattern, name, kind in cls.ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                return name, kind, [urllib.parse.unquote(each) for each in found.groups()]
        return None

    def user_of(self, email):
        """As Google makes it: of a person's address, or of a service account's number."""
        account = self.world.iam.accounts.get(email)
        if account is not None:
            return f"sa_{account['uniqueId']}"
        return re.sub(r"[^a-z0-9]", "_", email.lower())[:32]

    def _profile(self, caller, email):
        if email != caller.email:
            raise Refused("forbidden", "The caller does not have permission", 403, status_text="PERMISSION_DENIED")
        return self.profiles.setdefault(email, {"user": None, "keys": {}})

    def _show(self, email, profile):
        out = {"name": email}
        if profile["user"]:
            out["posixAccounts"] = [{
                "primary": True, "username": profile["user"], "uid": "123456", "gid": "123456", "shell": "/bin/bash",
                "homeDirectory": f"/home/{profile['user']}", "operatingSystemType": "LINUX",
                "accountId": self.world.project, "name": f"users/{email}/projects/{self.world.project}"}]
        if profile["keys"]:
            out["sshPublicKeys"] = profile["keys"]
        return out

    def get_profile(self, caller, parts, body):
        return self._show(parts[0], self._profile(caller, parts[0]))

    def import_key(self, caller, parts, body):
        profile = self._profile(caller, parts[0])
        key = body.get("key", "")
        if not re.fullmatch(r"(ssh-|ecdsa-)[a-z0-9-]+ [A-Za-z0-9+/=]+( .*)?", key):
            raise Refused("badRequest", "Invalid SSH public key", status_text="INVALID_ARGUMENT")
        fingerprint = hashlib.sha256(" ".join(key.split()[:2]).encode()).hexdigest()
        profile["keys"][fingerprint] = body | {"fingerprint": fingerprint,
                                               "name": f"users/{parts[0]}/sshPublicKeys/{fingerprint}"}
        profile["user"] = profile["user"] or self.user_of(parts[0])
        self.world.instances.keys_changed()
        return {"loginProfile": self._show(parts[0], profile), "details": ""}

    def delete_key(self, caller, parts, body):
        profile = self._profile(caller, parts[0])
        if profile["keys"].pop(parts[1], None) is None:
            raise Refused("notFound", "The key was not found", 404, status_text="NOT_FOUND")
        self.world.instances.keys_changed()
        return {}

    def users_on(self, path):
        """{user: [keys]} of the instance at that path: of accounts that may log in there."""
        out = {}
        for email, profile in self.profiles.items():
            kind = "serviceAccount" if email in self.world.iam.accounts else "user"
            patterns = list(self.world.iam.patterns_of(f"{kind}:{email}", f"projects/{self.world.project}/{path}"))
            if profile["user"] and any(self.world.iam.matches(one, patterns) for one in LOGIN):
                out[profile["user"]] = [each["key"] for each in profile["keys"].values()]
        return out
