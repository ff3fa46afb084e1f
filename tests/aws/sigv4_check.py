"""Checks AWS signatures, version 4, as the server's side: from AWS's reference, independent of our C++ signer."""
import datetime
import hashlib
import hmac
import re
import urllib.parse

UNSIGNED = "UNSIGNED-PAYLOAD"
SKEW_MAX_S = 300
_HEADER = re.compile(r"AWS4-HMAC-SHA256 Credential=(?P<credential>[^,]+),\s*SignedHeaders=(?P<headers>[^,]+),\s*"
                     r"Signature=(?P<signature>[0-9a-f]{64})$")


class BadSignature(Exception):
    """`kind` is what a service makes its code of: malformed, unknown-key, mismatch, skewed, expired, body."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Scope:
    def __init__(self, credential):
        parts = credential.split("/")
        if len(parts) != 5 or parts[4] != "aws4_request":
            raise BadSignature("malformed", f"the credential {credential!r} has not five parts")
        self.access_key, self.date, self.region, self.service, _ = parts

    @property
    def text(self):
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def encode(text, keep=""):
    return urllib.parse.quote(text, safe="-_.~" + keep)


def signing_key(secret, scope):
    key = ("AWS4" + secret).encode()
    for part in (scope.date, scope.region, scope.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def canonical_path(raw_path, service):
    """`raw_path` as it came over the wire. S3: as it is; others: encoded once more."""
    if service == "s3":
        return raw_path or "/"
    parts = []
    for part in raw_path.split("/"):
        if part == "..":
            parts and parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    path = "/" + "/".join(parts) + ("/" if raw_path.endswith("/") and parts else "")
    return encode(path, "/")


def canonical_query(raw_query, leave_out=()):
    pairs = urllib.parse.parse_qsl(raw_query, keep_blank_values=True)
    return "&".join(sorted(f"{encode(name)}={encode(value)}" for name, value in pairs if name not in leave_out))


def canonical_headers(headers, names):
    lines = []
    for name in names:
        values = [re.sub(r"\s+", " ", value.strip()) for value in headers.get_all(name) or []]
        if not values:
            raise BadSignature("mismatch", f"the signed header {name!r} did not come")
        lines.append(f"{name}:{','.join(values)}\n")
    return "".join(lines)


def signature(method, raw_path, query, headers, names, payload, timestamp, scope, secret):
    canonical = "\n".join([method, canonical_path(raw_path, scope.service), query, canonical_headers(headers, names),
                           ";".join(names), payload])
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{timestamp}\n{scope.text}\n{hashed}"
    return hmac.new(signing_key(secret, scope), text.encode(), hashlib.sha256).hexdigest(), canonical


def check_time(timestamp, now, valid_s=None):
    try:
        signed = datetime.datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        raise BadSignature("malformed", f"the date {timestamp!r} is not YYYYMMDDTHHMMSSZ")
    age = now - signed.timestamp()
    if valid_s is not None and -SKEW_MAX_S <= age <= valid_s:
        return
    if valid_s is not None and age > valid_s:
        raise BadSignature("expired", "Request has expired")
    if abs(age) > SKEW_MAX_S:
        raise BadSignature("skewed", f"Signature expired: {timestamp} is {age:.0f} s before our time")


def check(request, accounts, now):
    """The Scope of a signed request, its secret known to `accounts` (key -> (secret, session token or None)).

    `request` has method, raw_path, raw_query, headers (email.message), body_sha256. None for one without a signature.
    """
    query = dict(urllib.parse.parse_qsl(request.raw_query, keep_blank_values=True))
    if "X-Amz-Signature" in query:
        return _check_presigned(request, query, accounts, now)
    given = request.headers.get("authorization")
    if given is None:
        return None
    match = _HEADER.match(given)
    if not match:
        raise BadSignature("malformed", f"cannot read the Authorization header {given!r}")
    scope = Scope(match["credential"])
    secret = _secret(scope, request.headers.get("x-amz-security-token"), accounts)
    timestamp = request.headers.get("x-amz-date", "")
    check_time(timestamp, now)
    names = match["headers"].split(";")
    _check_names(names, request.headers)
    payload = request.headers.get("x-amz-content-sha256") or request.body_sha256
    if payload not in (UNSIGNED, request.body_sha256):
        raise BadSignature("body", "The provided x-amz-content-sha256 does not match what came")
    if scope.service == "s3" and "x-amz-content-sha256" not in names:
        raise BadSignature("malformed", "x-amz-content-sha256 is not signed")
    expected, canonical = signature(request.method, request.raw_path, canonical_query(request.raw_query),
                                    request.headers, names, payload, timestamp, scope, secret)
    if not hmac.compare_digest(expected, match["signature"]):
        raise BadSignature("mismatch", "The request signature we calculated does not match; canonical request:\n"
                           + canonical)
    return scope


def _check_presigned(request, query, accounts, now):
    scope = Scope(query.get("X-Amz-Credential", ""))
    secret = _secret(scope, query.get("X-Amz-Security-Token"), accounts)
    valid_s = int(query.get("X-Amz-Expires", "0"))
    if not 1 <= valid_s <= 604800:
        raise BadSignature("malformed", "X-Amz-Expires must be between one second and a week")
    check_time(query.get("X-Amz-Date", ""), now, valid_s)
    names = query.get("X-Amz-SignedHeaders", "").split(";")
    _check_names(names, request.headers, presigned=True)
    payload = UNSIGNED if scope.service == "s3" else request.body_sha256
    expected, canonical = signature(request.method, request.raw_path,
                                    canonical_query(request.raw_query, {"X-Amz-Signature"}), request.headers, names,
                                    payload, query["X-Amz-Date"], scope, secret)
    if not hmac.compare_digest(expected, query["X-Amz-Signature"]):
        raise BadSignature("mismatch", "The request signature we calculated does not match; canonical request:\n"
                           + canonical)
    return scope


def _secret(scope, token, accounts):
    if scope.access_key not in accounts:
        raise BadSignature("unknown-key", f"the access key {scope.access_key} is not known")
    secret, wanted_token = accounts[scope.access_key]
    if wanted_token is not None and token != wanted_token:
        raise BadSignature("unknown-key", "the security token is not the one that was given out")
    return secret


def _check_names(names, headers, presigned=False):
    """Host and everything that AWS gives a meaning must be under the signature."""
    if names != sorted(names):
        raise BadSignature("malformed", "the signed headers are not in order")
    if "host" not in names:
        raise BadSignature("malformed", "Host is not signed")
    unsigned = {name.lower() for name in headers if name.lower().startswith("x-amz-")} - set(names)
    if unsigned and not presigned:
        raise BadSignature("malformed", f"not signed: {', '.join(sorted(unsigned))}")
