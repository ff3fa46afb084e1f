"""The metadata services of two clouds, as their machines see them: EC2's IMDSv2 and Google's.

    service = MetadataService()
    service.reclaim(service.clients()[-1], seconds=120)   # EC2: the machine that has this token
    service.preempt()                                     # Google: whoever waits for a change now

All machines of a test ask one server. On EC2 each has a token of its own; Google's wait in long polls.
"""
import datetime
import http.server
import json
import threading
import urllib.parse

PREFIX = "/latest/meta-data/"


class MetadataService:
    def __init__(self):
        self.lock = threading.Condition()
        self.tokens = []
        self.actions = {}      # token: the instance's action
        self.asked = []        # (token, path), of EC2's
        self.preempted = 0     # so often
        self.waiting = 0
        self.closed = False
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle(self):
                try:
                    super().handle()
                except OSError:
                    pass  # whoever waited has gone

            def answer(self, status, text="", headers=None):
                body = text.encode()
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_PUT(self):
                lifetime = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
                if self.path != "/latest/api/token" or not lifetime.isdigit() or not 1 <= int(lifetime) <= 21600:
                    return self.answer(400)
                with service.lock:
                    service.tokens.append(f"token-{len(service.tokens)}")
                    token = service.tokens[-1]
                    service.lock.notify_all()
                self.answer(200, token)

            def do_GET(self):
                if self.path.startswith("/computeMetadata/v1/"):
                    return self.answer(*service.google(self.path, self.headers.get("Metadata-Flavor")))
                self.answer(*service.ec2(self.path, self.headers.get("X-aws-ec2-metadata-token")))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        with self.lock:
            self.closed = True
            self.lock.notify_all()
        self.server.shutdown()
        self.server.server_close()

    # --- EC2

    def ec2(self, path, token):
        with self.lock:
            if token not in self.tokens:
                return 401, "Unauthorized"
            self.asked.append((token, path))
            self.lock.notify_all()
            action = self.actions.get(token)
        if path == PREFIX + "spot/instance-action" and action:
            return 200, json.dumps(action)
        return 404, "not found"

    def clients(self):
        """The tokens that have asked for an action; last the one that has asked last. A machine whose question was not
        answered in time has got another one: then its older one is nobody's any more."""
        with self.lock:
            asked = [token for token, path in self.asked if path.endswith("spot/instance-action")]
            return sorted(set(asked), key=lambda token: len(asked) - asked[::-1].index(token))

    def reclaim(self, token, seconds):
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        with self.lock:
            self.actions[token] = {"action": "terminate", "time": end.strftime("%Y-%m-%dT%H:%M:%SZ")}

    # --- Google

    def google(self, path, flavor):
        if flavor != "Google":
            return 403, "Missing Metadata-Flavor:Google header."
        url = urllib.parse.urlsplit(path)
        query = urllib.parse.parse_qs(url.query)
        if url.path.endswith("/instance/maintenance-event"):
            if "wait_for_change" in query:
                self.hold(float(query["timeout_sec"][0]), lambda: False)
            return 200, "NONE", {"ETag": "m0"}
        if not url.path.endswith("/instance/preempted"):
            return 404, "not found"
        with self.lock:
            before = self.preempted
        known = query.get("last_etag", [""])[0]
        if "wait_for_change" in query and known.startswith("p") and int(known[1:]) < before:
            return 200, "TRUE", {"ETag": f"p{before}"}  # it has changed between two questions of this machine
        if "wait_for_change" not in query or known != f"p{before}":
            return 200, "FALSE", {"ETag": f"p{before}"}
        changed = self.hold(float(query["timeout_sec"][0]), lambda: self.preempted > before)
        return 200, "TRUE" if changed else "FALSE", {"ETag": f"p{self.preempted}"}

    def hold(self, seconds, condition):
        with self.lock:
            self.waiting += 1
            self.lock.notify_all()
            try:
                self.lock.wait_for(lambda: condition() or self.closed, seconds)
            finally:
                self.waiting -= 1
            return condition()

    def preempt(self):
        with self.lock:
            self.preempted += 1
            self.lock.notify_all()
