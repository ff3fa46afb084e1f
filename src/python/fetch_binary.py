"""Fetches one object from S3 with the instance's role: what user data does before rubato is there.

    fetch_binary.py BUCKET KEY SHA256 REGION ENDPOINT TARGET      ENDPOINT '': AWS's own
"""
import datetime
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.parse
import urllib.request

METADATA = "http://169.254.169.254/latest/"
TRIES, PAUSE_S = 60, 5  # a new role is known to S3 after some seconds


def ask(path, method="GET", headers={}):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(METADATA + path, method=method, headers=headers)
    return opener.open(request, timeout=10).read().decode().strip()


def credentials():
    token = ask("api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "300"})
    headers, roles = {"X-aws-ec2-metadata-token": token}, "meta-data/iam/security-credentials/"
    return json.loads(ask(roles + ask(roles, headers=headers).splitlines()[0], headers=headers))


def service():
    """S3's name in its hosts; AWS's variables ask for others with FIPS 140, or with IPv6."""
    fips, dual = (os.environ.get("AWS_USE_%s_ENDPOINT" % name, "").lower() == "true" for name in ("FIPS", "DUALSTACK"))
    return "s3" + ("-fips" if fips else "") + (".dualstack" if dual else "")


def request_of(bucket, key, region, endpoint, given):
    path = "/" + urllib.parse.quote(key, safe="/-_.~")
    if endpoint or "." in bucket:
        path = "/" + bucket + path
        base = endpoint.rstrip("/") or "https://%s.%s.%s" % (service(), region, domain(region))
    else:
        base = "https://%s.%s.%s.%s" % (bucket, service(), region, domain(region))
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": urllib.parse.urlsplit(base).netloc, "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
               "x-amz-date": now, "x-amz-security-token": given["Token"]}
    names = ";".join(sorted(headers))
    lines = "".join("%s:%s\n" % (name, headers[name]) for name in sorted(headers))
    canonical = "\n".join(["GET", path, "", lines, names, "UNSIGNED-PAYLOAD"])
    scope = "/".join([now[:8], region, "s3", "aws4_request"])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = ("AWS4" + given["SecretAccessKey"]).encode()
    for part in scope.split("/"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    headers["authorization"] = "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s" % (
        given["AccessKeyId"], scope, names, hmac.new(secret, text.encode(), hashlib.sha256).hexdigest())
    return urllib.request.Request(base + path, headers=headers)


def domain(region):
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def fetch(bucket, key, digest, region, endpoint, target):
    found = hashlib.sha256()
    with urllib.request.urlopen(request_of(bucket, key, region, endpoint, credentials()), timeout=60) as answer, \
            open(target + ".part", "wb") as file:
        for piece in iter(lambda: answer.read(1 << 20), b""):
            found.update(piece)
            file.write(piece)
    if found.hexdigest() != digest:
        raise ValueError("s3://%s/%s is not the rubato that the job was made with" % (bucket, key))
    os.chmod(target + ".part", 0o755)
    os.rename(target + ".part", target)


for left in reversed(range(TRIES)):
    try:
        fetch(*sys.argv[1:])
        break
    except Exception as error:
        print("rubato: s3://%s/%s: %s" % (sys.argv[1], sys.argv[2], error), flush=True)
        if not left:
            sys.exit(1)
        time.sleep(PAUSE_S)
