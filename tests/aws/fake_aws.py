#!/usr/bin/env python3
"""A stand-in for AWS: see README.md. Prints one line of JSON, {"url": …, "imds": …}, when it listens.

    tests/aws/fake_aws.py [--port N] [--set '{"boot_s": 5}']

The settings are SETTINGS below and those of tests/clouds/cloud_server.py, which says how to change them.
"""
import json
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clouds"))
import cloud_server  # noqa: E402
import protocols  # noqa: E402
import sigv4_check  # noqa: E402
from cloud_server import Refused  # noqa: E402
from fake_ec2 import Ec2  # noqa: E402
from fake_imds import Imds  # noqa: E402
from fake_others import AutoScaling, Efs, Iam, ServiceQuotas, Ssm, Sts  # noqa: E402
from fake_s3 import S3  # noqa: E402
from protocols import Model  # noqa: E402

KEY, SECRET = "AKIAFAKE", "fake-secret"
SETTINGS = {
    "region": "eu-west-1", "page_max": 1000, "copy_max": 5 << 30,
    "vcpus_max": 10000, "web_identity_token": "web-token", "parameters": {},
    "strict": False,      # security groups and instance profiles of a launch must exist
    "unknown": {},        # {"InvalidGroup.NotFound": 2}: so many times EC2 has not heard of what was made just before
    "profile_s": 0.0,     # EC2 hears of a new instance profile so late
    "bucket_regions": {}, # {"far": "us-east-2"}: buckets that are not in `region`; others are told so
    "quotas": {},         # {"L-1216C47A": 64}: vCPUs; others are vcpus_max
    "instance_role": "", "spot_notice": None, "rebalance_notice": None,
}
MODELS = {"ec2": "ec2", "iam": "iam", "sts": "sts", "autoscaling": "autoscaling", "ssm": "ssm",
          "elasticfilesystem": "efs", "servicequotas": "service-quotas", "s3": "s3"}
# What each protocol makes of a signature that is not right.
SIGNATURE_CODES = {
    "ec2": {"skewed": ("RequestExpired", 400), "unknown-key": ("AuthFailure", 401), "mismatch": ("AuthFailure", 401)},
    "s3": {"skewed": ("RequestTimeTooSkewed", 403), "unknown-key": ("InvalidAccessKeyId", 403),
           "mismatch": ("SignatureDoesNotMatch", 403), "body": ("XAmzContentSHA256Mismatch", 400),
           "expired": ("AccessDenied", 403)},
    "query": {"skewed": ("SignatureDoesNotMatch", 403), "unknown-key": ("InvalidClientTokenId", 403),
              "mismatch": ("SignatureDoesNotMatch", 403)},
    "json": {"skewed": ("InvalidSignatureException", 400), "unknown-key": ("UnrecognizedClientException", 400),
             "mismatch": ("InvalidSignatureException", 400)},
}
THROTTLED = {"ec2": ("RequestLimitExceeded", 503), "s3": ("SlowDown", 503), "query": ("Throttling", 400),
             "json": ("ThrottlingException", 400)}
UNSIGNED = {"AssumeRoleWithWebIdentity"}


def family(protocol):
    return {"rest-xml": "s3", "rest-json": "json"}.get(protocol, protocol)


class World(cloud_server.World):
    def __init__(self, settings, folder):
        super().__init__(SETTINGS, settings)
        self.account = "123456789012"
        self.accounts, self.arns = {KEY: (SECRET, None)}, {KEY: f"arn:aws:iam::{self.account}:user/tester"}
        self.instance_credentials = ("ASIAINSTANCE", "instance-secret", "instance-token")
        self.accounts["ASIAINSTANCE"] = self.instance_credentials[1:]
        self.arns["ASIAINSTANCE"] = f"arn:aws:sts::{self.account}:assumed-role/instance/i-0fake"
        self.caller, self.models = KEY, {}
        self.roles = {}         # of an instance's access key
        ec2 = Ec2(self)
        self.services = {"ec2": ec2, "iam": Iam(self), "sts": Sts(self), "autoscaling": AutoScaling(self, ec2),
                         "ssm": Ssm(self), "elasticfilesystem": Efs(self), "servicequotas": ServiceQuotas(self),
                         "s3": S3(self, folder)}
        self.imds = Imds(self)

    def instance_at(self, address):
        """The running instance that has this address; None: nobody's."""
        if self.machines is None:
            return None
        ec2 = self.services["ec2"]
        return next((one for one in ec2.instances.values()
                     if one["address"] == address and ec2._state(one) in ("pending", "running")), None)

    def credentials_of(self, one):
        """(role, (key, secret, token)) of an instance; ("", None) without a profile."""
        roles = self.services["iam"].profiles.get(one["profile"], [])
        if not roles:
            return "", None
        key = f"ASIA{one['id'][-12:].upper()}"
        self.accounts[key] = (f"secret-of-{key}", f"token-of-{key}")
        self.arns[key] = f"arn:aws:sts::{self.account}:assumed-role/{roles[0]}/{one['id']}"
        self.roles[key] = roles[0]
        return roles[0], (key, *self.accounts[key])

    def check_allowed(self, service, operation):
        role = self.roles.get(self.caller)
        if role and f"{service}:{operation}" not in self.services["iam"].allowed(role):
            raise Refused("UnauthorizedOperation", f"{role} is not authorized to perform {service}:{operation}", 403)

    def arn_of(self, key):
        return self.arns[key]

    def model(self, service):
        if service not in self.models:
            self.models[service] = Model(MODELS[service])
        return self.models[service]


class Handler(cloud_server.Handler):
    def route(self):
        if self.server.is_metadata:
            with self.world.lock:
                status, text = self.world.imds.answer(self.method, self.raw_path, self.headers, self.client_address[0])
            return self.reply(status, text)
        service = self.service_of()
        model = self.world.model(service) if service in MODELS else None
        if self.misfortune(service):
            return None
        try:
            return self.serve(service, model)
        except Refused as refused:
            kind, headers, text = protocols.refusal_body(model, refused, self.request_id)
            return self.reply(refused.status, "" if self.method == "HEAD" else text,
                              headers | refused.more.get("headers", {}) | {"content-type": kind})

    def service_of(self):
        credential = urllib.parse.parse_qs(self.raw_query).get("X-Amz-Credential", [""])[0]
        given = credential or (self.headers.get("authorization") or "").partition("Credential=")[2].partition(",")[0]
        parts = given.split("/")
        if len(parts) == 5:
            return parts[3]
        return "sso" if self.raw_path.startswith("/federation") else "sts"

    def serve(self, service, model):
        if service == "sso":
            return self.serve_sso()
        if model is None:
            raise Refused("InvalidAction", f"no service {service}")
        misfortunes = family(model.protocol)
        if self.world.take("throttle", service):
            code, status = THROTTLED[misfortunes]
            raise Refused(code, "Rate exceeded", status)
        if self.world.take("fail", service):
            raise Refused("InternalError", "We encountered an internal error. Please try again.", 500)
        scope = self.check_signature(model)
        if self.world.take("expire", service):
            raise Refused("ExpiredToken", "The security token included in the request is expired")
        if service == "s3":
            return self.serve_s3(model, scope)
        operation, parameters = self.read_request(model)
        if scope is None and operation.name not in UNSIGNED:
            raise Refused("MissingAuthenticationToken", "Request is missing Authentication Token", 403)
        with self.world.lock:
            self.world.caller = scope.access_key if scope else None
            self.lose(operation.name)
            self.world.record(service, operation.name, parameters)
            self.world.callers.append((operation.name, self.world.caller))
            self.world.check_allowed(service, operation.name)
            self.world.check_refused(operation.name)
            self.check_dry_run(service, operation.name, parameters)
            handler = getattr(self.world.services[service], operation.name, None)
            if handler is None:
                raise Refused("InvalidAction", f"the fake has no {operation.name}")
            result = handler(parameters)
        return self.write_result(model, operation, result or {})

    def check_dry_run(self, service, operation, parameters):
        """RunInstances looks at all its parameters first."""
        if self.world.has_habit("no dry runs"):
            parameters.pop("DryRun", None)
        if service == "ec2" and parameters.get("DryRun") and operation != "RunInstances":
            raise Refused("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)

    def check_signature(self, model):
        try:
            return sigv4_check.check(self, self.world.accounts, self.world.now())
        except sigv4_check.BadSignature as bad:
            code, status = SIGNATURE_CODES[family(model.protocol)].get(bad.kind, ("IncompleteSignature", 400))
            raise Refused(code, str(bad), status)

    def read_request(self, model):
        if model.protocol in ("ec2", "query"):
            return protocols.read_query(model, self.body)
        if model.protocol == "json":
            return protocols.read_json(model, self.headers.get("x-amz-target", ""), self.body)
        query = dict(urllib.parse.parse_qsl(self.raw_query, keep_blank_values=True))
        for name in model.service.operation_names:
            operation = model.operation(name)
            uri = protocols.match_path(operation.http["requestUri"], self.raw_path)
            if operation.http["method"] == self.method and uri is not None:
                shape = operation.input_shape
                body = protocols.from_json(shape, json.loads(self.body), "") if self.body else {}
                return operation, protocols.read_rest(operation, uri, query, self.headers, body)
        raise Refused("UnknownOperationException", f"{self.method} {self.raw_path}", 404)

    def write_result(self, model, operation, result):
        headers = {"x-amzn-requestid": self.request_id}
        if model.protocol in ("ec2", "query"):
            text = protocols.answer_query(model, operation, result, self.request_id)
            return self.reply(200, text, headers | {"content-type": "text/xml"})
        shape = operation.output_shape
        text = json.dumps(protocols.json_of(shape, result)) if shape is not None else ""
        return self.reply(operation.http.get("responseCode", 200), text, headers | {"content-type": "application/json"})

    def serve_s3(self, model, scope):
        with self.world.lock:
            self.world.caller = scope.access_key if scope else None
            _, answer = self.world.services["s3"].answer(model, self, scope.region if scope else None)
            file = open(answer.file, "rb") if answer.file and self.method != "HEAD" else None
        headers = answer.headers | {"x-amz-request-id": self.request_id}
        if answer.file is None:
            return self.reply(answer.status, answer.text, headers | ({"content-type": "application/xml"} if answer.text
                                                                    else {}))
        return self.reply_file(answer, file, headers)

    def serve_sso(self):
        if self.headers.get("x-amz-sso_bearer_token") != "sso-token":
            raise Refused("UnauthorizedException", "Session token not found or invalid", 401)
        query = urllib.parse.parse_qs(self.raw_query)
        given = Sts(self.world)._give(query["role_name"][0], "sso")["Credentials"]
        return self.reply(200, json.dumps({"roleCredentials": {
            "accessKeyId": given["AccessKeyId"], "secretAccessKey": given["SecretAccessKey"],
            "sessionToken": given["SessionToken"], "expiration": int(given["Expiration"] * 1000)}}))


def describe(world, port, metadata_port, folder):
    return {"url": f"http://127.0.0.1:{port}", "imds": f"http://127.0.0.1:{metadata_port}"}


if __name__ == "__main__":
    cloud_server.main(__doc__, "aws", World, Handler, describe)
