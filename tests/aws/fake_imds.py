"""An instance's metadata service (IMDSv2): tokens, role credentials, region, spot notices."""
import json
import secrets
import time

from protocols import iso


class Imds:
    def __init__(self, world):
        self.world, self.tokens = world, {}

    def answer(self, method, path, headers, peer=None):
        """(status, text)"""
        if path == "/latest/api/token":
            if method != "PUT":
                return 405, ""
            ttl = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            if not ttl.isdigit() or not 1 <= int(ttl) <= 21600 or headers.get("x-forwarded-for"):
                return 400, ""
            token = secrets.token_urlsafe(24)
            self.tokens[token] = time.time() + int(ttl)
            return 200, token
        if self.tokens.get(headers.get("x-aws-ec2-metadata-token"), 0) < time.time():
            return 401, ""  # also without a token: version 1 is switched off
        found = self.documents(peer).get(path)
        return (200, found) if found is not None else (404, "")

    def documents(self, peer):
        settings, role, given = self.world.settings, self.world.settings["instance_role"], None
        one = self.world.instance_at(peer)
        if one is not None:  # who asks is one of our machines
            role, given = self.world.credentials_of(one)
        out = {"/latest/meta-data/placement/region": settings["region"],
               "/latest/meta-data/instance-id": one["id"] if one else "i-0fake",
               "/latest/meta-data/local-ipv4": one["address"] if one else "127.0.0.1",
               "/latest/meta-data/iam/security-credentials/": role}
        if role:
            key, secret, token = given or self.world.instance_credentials
            out[f"/latest/meta-data/iam/security-credentials/{role}"] = json.dumps(
                {"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key, "SecretAccessKey": secret, "Token": token,
                 "Expiration": iso(self.world.now() + settings["session_s"])})
        notice = one["notice"] if one else settings["spot_notice"]
        if notice:
            out["/latest/meta-data/spot/instance-action"] = json.dumps(notice)
        if settings["rebalance_notice"]:
            out["/latest/meta-data/events/recommendations/rebalance"] = json.dumps(settings["rebalance_notice"])
        return out
