#!/usr/bin/env python3
"""A stand-in for AWS: see README.md. Prints one line of JSON, {"url": …, "imds": …}, when it listens.

    tests/aws/fake_aws.py [--port N] [--set '{"boot_s": 5}']

POST /_fake/set      {"throttle": {"ec2": 3}}   changes settings (SETTINGS below says which)
GET  /_fake/requests                            what was asked: [{"service", "operation", "parameters"}]
POST /_fake/forget                              forgets what was asked
"""
import argparse
import base64
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
import urllib.parse
import uuid
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import protocols
import sigv4_check
from fake_ec2 import Ec2
from fake_imds import Imds
from fake_others import AutoScaling, Efs, Iam, Ssm, Sts
from fake_s3 import S3
from protocols import Model, Refused

KEY, SECRET = "AKIAFAKE", "fake-secret"
SETTINGS = {
    "region": "eu-west-1", "buckets": ["bucket"],
    "boot_s": 0.2, "shutdown_s": 0.2, "consistency_s": 0.0, "page_max": 1000,
    "stock": {},          # {"p3.2xlarge/eu-west-1a": 2}: so many at most
    "vcpus_max": 10000, "session_s": 3600,
    "clock_offset_s": 0,  # how far this server's clock is ahead
    "throttle": {},       # {"ec2": 3}: the next three are refused
    "fail": {},           # {"s3": 2}: the next two get status 500
    "drop": {},           # {"s3": 1}: the connection ends without an answer
    "expire": {},         # {"ec2": 1}: the next one is told that its token has expired
    "corrupt": 0,         # so many answers of GetObject have a byte changed
    "latency_s": 0.0, "web_identity_token": "web-token", "parameters": {},
    "your_address": "203.0.113.9",
    "strict": False,      # security groups and instance profiles of a launch must exist
    "profile_s": 0.0,     # EC2 hears of a new instance profile so late
    "instance_role": "", "spot_notice": None, "rebalance_notice": None,
}
MODELS = {"ec2": "ec2", "iam": "iam", "sts": "sts", "autoscaling": "autoscaling", "ssm": "ssm",
          "elasticfilesystem": "efs", "s3": "s3"}
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


class World:
    """What all services of one account share."""

    def __init__(self, settings, folder):
        self.settings, self.account, self.lock = SETTINGS | settings, "123456789012", threading.RLock()
        self.accounts, self.arns = {KEY: (SECRET, None)}, {KEY: f"arn:aws:iam::{self.account}:user/tester"}
        self.instance_credentials = ("ASIAINSTANCE", "instance-secret", "instance-token")
        self.accounts["ASIAINSTANCE"] = self.instance_credentials[1:]
        self.arns["ASIAINSTANCE"] = f"arn:aws:sts::{self.account}:assumed-role/instance/i-0fake"
        self.requests, self.notes, self.caller, self.callers = [], [], KEY, []
        self.roles = {}         # of an instance's access key
        self.machines = None    # who boots real ones for EC2's instances: tests/e2e/aws_machines.py
        self.models = {}
        ec2 = Ec2(self)
        self.services = {"ec2": ec2, "iam": Iam(self), "sts": Sts(self), "autoscaling": AutoScaling(self, ec2),
                         "ssm": Ssm(self), "elasticfilesystem": Efs(self), "s3": S3(self, folder)}
        self.imds = Imds(self)

    def now(self):
        return time.time() + self.settings["clock_offset_s"]

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

    def record(self, service, operation, parameters):
        self.requests.append({"service": service, "operation": operation, "parameters": parameters})

    def note(self, text):
        self.notes.append(text)

    def take(self, what, service):
        """Whether one of the misfortunes that were asked for happens now."""
        left = self.settings[what].get(service, 0)
        if left > 0:
            self.settings[what] = self.settings[what] | {service: left - 1}
        return left > 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    @property
    def world(self):
        return self.server.world

    def handle_any(self):
        self.method, self.request_id = self.command, str(uuid.uuid4())
        self.raw_path, _, self.raw_query = self.path.partition("?")
        self.read_body()
        try:
            self.route()
        finally:
            if self.body_file and os.path.exists(self.body_file):
                os.unlink(self.body_file)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any

    def read_body(self):
        """To a file when it is long, with its hashes on the way."""
        left = int(self.headers.get("content-length") or 0)
        sha, md5, self.body_size = hashlib.sha256(), hashlib.md5(), left
        self.body, self.body_file = b"", None
        is_object = self.method == "PUT"
        if is_object or left > 1 << 20:
            handle, self.body_file = tempfile.mkstemp(dir=self.server.folder)
        while left > 0:
            piece = self.rfile.read(min(left, 1 << 20))
            if not piece:
                break
            left -= len(piece)
            sha.update(piece)
            md5.update(piece)
            if self.body_file:
                os.write(handle, piece)
            else:
                self.body += piece
        if self.body_file:
            os.close(handle)
        self.body_sha256, self.body_md5 = sha.hexdigest(), md5.digest()

    def whole_body(self):
        if not self.body_file:
            return self.body
        with open(self.body_file, "rb") as file:
            return file.read()

    def route(self):
        if self.raw_path.startswith("/_fake/"):
            return self.control()
        if self.server.is_imds:
            with self.world.lock:
                status, text = self.world.imds.answer(self.method, self.raw_path, self.headers, self.client_address[0])
            return self.reply(status, text)
        if self.world.settings["latency_s"]:
            time.sleep(self.world.settings["latency_s"])
        service = self.service_of()
        model = self.world.model(service) if service in MODELS else None
        if self.world.take("drop", service):
            self.close_connection = True
            return None
        try:
            return self.serve(service, model)
        except Refused as refused:
            kind, headers, text = protocols.refusal_body(model, refused, self.request_id)
            return self.reply(refused.status, "" if self.method == "HEAD" else text, headers | {"content-type": kind})

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
            return self.serve_s3(model)
        operation, parameters = self.read_request(model)
        if scope is None and operation.name not in UNSIGNED:
            raise Refused("MissingAuthenticationToken", "Request is missing Authentication Token", 403)
        with self.world.lock:
            self.world.caller = scope.access_key if scope else None
            self.world.record(service, operation.name, parameters)
            self.world.callers.append((operation.name, self.world.caller))
            self.world.check_allowed(service, operation.name)
            handler = getattr(self.world.services[service], operation.name, None)
            if handler is None:
                raise Refused("InvalidAction", f"the fake has no {operation.name}")
            result = handler(parameters)
        return self.write_result(model, operation, result or {})

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

    def serve_s3(self, model):
        with self.world.lock:
            _, answer = self.world.services["s3"].answer(model, self)
            file = open(answer.file, "rb") if answer.file and self.method != "HEAD" else None
        headers = answer.headers | {"x-amz-request-id": self.request_id}
        if answer.file is None:
            return self.reply(answer.status, answer.text, headers | ({"content-type": "application/xml"} if answer.text
                                                                    else {}))
        self.start(answer.status, headers | {"content-length": str(answer.length)})
        if file is not None:
            with file:
                self.send_range(file, answer.start, answer.length)
        return None

    def send_range(self, file, start, length):
        file.seek(start)
        corrupt = length > 0 and self.world.settings["corrupt"] > 0
        if corrupt:
            self.world.settings["corrupt"] -= 1
        while length > 0:
            piece = file.read(min(length, 1 << 20))
            length -= len(piece)
            if corrupt:
                piece, corrupt = bytes([piece[0] ^ 1]) + piece[1:], False
            self.wfile.write(piece)

    def serve_sso(self):
        if self.headers.get("x-amz-sso_bearer_token") != "sso-token":
            raise Refused("UnauthorizedException", "Session token not found or invalid", 401)
        query = urllib.parse.parse_qs(self.raw_query)
        given = Sts(self.world)._give(query["role_name"][0], "sso")["Credentials"]
        return self.reply(200, json.dumps({"roleCredentials": {
            "accessKeyId": given["AccessKeyId"], "secretAccessKey": given["SecretAccessKey"],
            "sessionToken": given["SessionToken"], "expiration": int(given["Expiration"] * 1000)}}))

    def control(self):
        with self.world.lock:
            if self.raw_path == "/_fake/set":
                given = json.loads(self.body)
                unknown = set(given) - set(SETTINGS)
                if unknown:
                    return self.reply(400, f"no setting {unknown}")
                self.world.settings |= given
                return self.reply(200, "{}")
            if self.raw_path == "/_fake/checkip":  # as checkip.amazonaws.com, for AWS_ENDPOINT_URL_CHECKIP
                return self.reply(200, self.world.settings["your_address"] + "\n")
            if self.raw_path == "/_fake/forget":
                self.world.requests.clear()
                return self.reply(200, "{}")
            if self.raw_path == "/_fake/requests":
                encode = lambda value: base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
                return self.reply(200, json.dumps(self.world.requests, default=encode))
        return self.reply(404, "")

    def start(self, status, headers):
        self.send_response_only(status)
        self.send_header("date", formatdate(self.world.now(), usegmt=True))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, status, text="", headers=None):
        body = text.encode()
        self.start(status, (headers or {}) | {"content-length": str(len(body))})
        if self.method != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, world, folder, is_imds, address="127.0.0.1"):
        self.world, self.folder, self.is_imds = world, folder, is_imds
        super().__init__((address, port), Handler)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, BrokenPipeError)):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--set", default="{}", metavar="JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fake-aws-") as folder:
        world = World(json.loads(options.set), folder)
        server, imds = Server(options.port, world, folder, False), Server(0, world, folder, True)
        threading.Thread(target=imds.serve_forever, daemon=True).start()
        print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}",
                          "imds": f"http://127.0.0.1:{imds.server_port}"}), flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
