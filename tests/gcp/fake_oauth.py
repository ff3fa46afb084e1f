"""Google's token endpoints: service accounts' JWTs (RS256), refresh tokens; and who a token belongs to."""
import base64
import hashlib
import itertools
import json
import subprocess
import urllib.parse

from cloud_server import Refused

GOOGLES = "https://oauth2.googleapis.com/token"
OLD = "https://www.googleapis.com/oauth2/v4/token"  # Google's own library for Node.js still writes it
SCOPES = "https://www.googleapis.com/auth/"
CLOUD = SCOPES + "cloud-platform"
GRANT_JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SKEW_S = 300
# DER of AlgorithmIdentifier and OCTET STRING around a SHA-256 (RFC 8017, 9.2).
SHA256_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")


def unbase64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Key:
    """An RSA key, made by openssl; checked here with plain arithmetic."""

    def __init__(self, bits=2048):
        made = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", f"rsa_keygen_bits:{bits}"],
                              check=True, capture_output=True, text=True)
        self.pem = made.stdout
        told = subprocess.run(["openssl", "rsa", "-noout", "-modulus"], input=self.pem, check=True, text=True,
                              capture_output=True)
        self.modulus = int(told.stdout.strip().partition("=")[2], 16)
        self.id = hashlib.sha256(told.stdout.encode()).hexdigest()[:40]

    def has_signed(self, message, signature):
        """RSASSA-PKCS1-v1_5 with SHA-256."""
        size = (self.modulus.bit_length() + 7) // 8
        if len(signature) != size:
            return False
        tail = SHA256_PREFIX + hashlib.sha256(message).digest()
        wanted = b"\x00\x01" + b"\xff" * (size - len(tail) - 3) + b"\x00" + tail
        return pow(int.from_bytes(signature, "big"), 65537, self.modulus).to_bytes(size, "big") == wanted


class Caller:
    def __init__(self, member, scopes, until):
        self.member, self.scopes, self.until = member, scopes, until  # member: "user:…" or "serviceAccount:…"

    @property
    def email(self):
        return self.member.partition(":")[2]


class OAuth:
    def __init__(self, world):
        self.world, self.numbers = world, itertools.count(1)
        self.tokens = {}
        self.keys = {}       # of a service account: {email: Key}
        self.token_uris = {GOOGLES, OLD}
        self.refreshes = {"refresh-fake": ("client-fake", "client-secret-fake", "user:tester@example.com")}

    def credentials(self, email, token_uri):
        """The file that Google gives out for a key of a service account."""
        if email not in self.keys:
            self.keys[email] = Key()
        self.token_uris.add(token_uri)
        return {"type": "service_account", "project_id": self.world.project, "private_key_id": self.keys[email].id,
                "private_key": self.keys[email].pem, "client_email": email, "client_id": "1" * 21,
                "auth_uri": "https://accounts.google.com/o/oauth2/auth", "token_uri": token_uri,
                "universe_domain": "googleapis.com"}

    @staticmethod
    def user_credentials(**more):
        """~/.config/gcloud/application_default_credentials.json of a person; it names no token endpoint."""
        return {"type": "authorized_user", "client_id": "client-fake", "client_secret": "client-secret-fake",
                "refresh_token": "refresh-fake", "quota_project_id": "fake-project"} | more

    def give(self, member, scopes, seconds=None):
        seconds = self.world.settings["session_s"] if seconds is None else seconds
        token = f"ya29.fake-{next(self.numbers)}-{hashlib.sha256(member.encode()).hexdigest()[:12]}"
        self.tokens[token] = Caller(member, list(scopes), self.world.now() + seconds)
        return token, seconds

    # ---- POST /token ----

    def token(self, request):
        """The answer, or Refused with OAuth's own codes."""
        if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            raise Refused("invalid_request", "Content-Type must be application/x-www-form-urlencoded")
        form = dict(urllib.parse.parse_qsl(request.whole_body().decode(), keep_blank_values=True))
        kind = form.get("grant_type", "")
        self.world.record("oauth2", "token", {"grant_type": kind})
        if kind == GRANT_JWT:
            member, scopes = self._by_jwt(form.get("assertion", ""))
        elif kind == "refresh_token":
            member, scopes = self._by_refresh(form)
        else:
            raise Refused("unsupported_grant_type", f"Invalid grant_type: {kind}")
        token, seconds = self.give(member, scopes)
        return {"access_token": token, "expires_in": seconds, "token_type": "Bearer", "scope": " ".join(scopes)}

    def _by_jwt(self, assertion):
        try:
            head, body, signature = assertion.split(".")
            header, claims, signed = json.loads(unbase64(head)), json.loads(unbase64(body)), unbase64(signature)
        except ValueError:
            raise Refused("invalid_grant", "Invalid JWT: malformed") from None
        if header.get("alg") != "RS256" or header.get("typ", "JWT") != "JWT":
            raise Refused("invalid_grant", "Invalid JWT: alg must be RS256")
        key = self.keys.get(claims.get("iss"))
        if key is None:
            raise Refused("invalid_grant", "Invalid grant: account not found")
        if header.get("kid", key.id) != key.id or not key.has_signed(f"{head}.{body}".encode(), signed):
            raise Refused("invalid_grant", "Invalid JWT Signature.")
        if claims.get("aud") not in self.token_uris:
            raise Refused("invalid_grant", f"Invalid JWT: Failed audience check. The right audience is {GOOGLES}")
        now, begin, end = self.world.now(), claims.get("iat"), claims.get("exp")
        if not isinstance(begin, int) or not isinstance(end, int) or end - begin > 3600 or end <= begin \
                or begin > now + SKEW_S or end < now - SKEW_S:
            raise Refused("invalid_grant", "Invalid JWT: Token must be a short-lived token (60 minutes) and in a "
                          "reasonable timeframe. Check your iat and exp values in the JWT claim.")
        scopes = claims.get("scope", "").split()
        if not scopes or not all(each.startswith(SCOPES) or each in ("openid", "email") for each in scopes):
            raise Refused("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
        return f"serviceAccount:{claims['iss']}", scopes

    def _by_refresh(self, form):
        client, secret, member = self.refreshes.get(form.get("refresh_token"), (None, None, None))
        if member is None:
            raise Refused("invalid_grant", "Token has been expired or revoked.")
        if form.get("client_id") != client:
            raise Refused("invalid_client", "The OAuth client was not found.", 401)
        if form.get("client_secret") != secret:
            raise Refused("invalid_client", "Unauthorized", 401)
        return member, [CLOUD]

    # ---- who asks ----

    def caller_of(self, headers):
        kind, _, token = (headers.get("authorization") or "").partition(" ")
        caller = self.tokens.get(token.strip())
        if kind.lower() != "bearer" or not token:
            raise Refused("required", "Request is missing required authentication credential. Expected OAuth 2 access "
                          "token, login cookie or other valid authentication credential.", 401,
                          status_text="UNAUTHENTICATED", detail="CREDENTIALS_MISSING")
        if caller is None or caller.until < self.world.now():
            raise Refused("authError", "Request had invalid authentication credentials. Expected OAuth 2 access token, "
                          "login cookie or other valid authentication credential.", 401,
                          status_text="UNAUTHENTICATED", detail="ACCESS_TOKEN_EXPIRED")
        return caller

    def check_scope(self, caller, service, is_read):
        """A machine's token may be good for less than its account."""
        good = {CLOUD}
        if service == "compute":
            good |= {SCOPES + "compute"} | ({SCOPES + "compute.readonly"} if is_read else set())
        elif service == "storage":
            good |= {SCOPES + "devstorage.full_control", SCOPES + "devstorage.read_write"}
            good |= {SCOPES + "devstorage.read_only"} if is_read else set()
        if not good & set(caller.scopes):
            raise Refused("insufficientPermissions", "Request had insufficient authentication scopes.", 403,
                          status_text="PERMISSION_DENIED", detail="ACCESS_TOKEN_SCOPE_INSUFFICIENT")

    def tokeninfo(self, token):
        caller = self.tokens.get(token)
        if caller is None or caller.until < self.world.now():
            raise Refused("invalid_token", "Invalid Value")
        return {"email": caller.email, "scope": " ".join(caller.scopes), "email_verified": "true",
                "expires_in": str(int(caller.until - self.world.now()))}
