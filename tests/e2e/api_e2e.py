#!/usr/bin/env python3
"""The answers of a real head are what docs/openapi.yaml promises: each field is described, none that it promises is
missing."""
import datetime
import json

import cluster_harness
from cluster_harness import cluster_text
from harness import wait_until


class Schema:
    """As much of OpenAPI 3.0 as ours needs, and stricter: a field that is not described is an error."""

    def __init__(self, document):
        self.document = document

    def of(self, method, path, status):
        answers = self.document["paths"][path][method.lower()]["responses"]
        return answers[str(status)]["content"]["application/json"]["schema"]

    def faults(self, value, schema, at="$"):
        if "$ref" in schema:
            return self.faults(value, self.document["components"]["schemas"][schema["$ref"].split("/")[-1]], at)
        if value is None:
            return [] if schema.get("nullable") or "type" not in schema else [f"{at} is null"]
        kinds = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "object": dict, "array": list}
        kind = schema.get("type")
        if kind and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean")):
            return [f"{at} is {value!r}, not of type {kind}"]
        if "enum" in schema and value not in schema["enum"]:
            return [f"{at} is {value!r}, none of {schema['enum']}"]
        if schema.get("format") == "date-time":
            datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        if kind == "array":
            return [fault for i, item in enumerate(value) for fault in self.faults(item, schema["items"], f"{at}[{i}]")]
        if kind != "object" or not ("properties" in schema or "additionalProperties" in schema):
            return []
        described, others = schema.get("properties", {}), schema.get("additionalProperties")
        found = [f"{at}.{name} is missing" for name in schema.get("required", []) if name not in value]
        for name, item in value.items():
            if name in described:
                found += self.faults(item, described[name], f"{at}.{name}")
            elif others:
                found += self.faults(item, others, f"{at}.{name}")
            else:
                found.append(f"{at}.{name} is not described")
        return found


class Answers(cluster_harness.ClusterCase):
    def setUp(self):
        super().setUp()
        self.schema = Schema(json.loads(self.rubato("docs", "--openapi", "--json").stdout))
        self.asked = set()

    def check(self, method, path, status=200, body=None, **parts):
        """Asks, and compares the answer with what is promised of it."""
        query = parts.pop("query", "")
        code, _, bytes_ = self.api(method, path.format(**parts) + query, json.dumps(body) if body else None)
        answer = json.loads(bytes_)
        self.assertEqual(code, status, f"{method} {path}: {answer}")
        self.asked.add(f"{method} {path}")
        self.assertEqual(self.schema.faults(answer, self.schema.of(method, path, status)), [], f"{method} {path}")
        return answer

    def test_every_document_is_as_promised(self):
        self.up(cluster_text(small=(1, 2, 2)))
        one = self.submit("--name", "one", "--workers", "1:2", "--no-python", "sleep", "600")
        waits = self.submit("--name", "waits", "--workers", "90", "--no-python", "true")
        fails = self.submit("--name", "fails", "--workers", "1", "--max-restarts", "0", "--no-python", "sh", "-c",
                            "echo out > $RUBATO_OUTPUT/file; exit 3")
        self.wait_for_job(fails, "failed")
        self.wait_for_job(one, "running")
        status = self.check("GET", "/api/v1/status")
        node = status["nodes"][0]["id"]
        for path in ("/healthz", "/api/v1/nodes", "/api/v1/audit", "/api/v1/replay", "/api/v1/jobs", "/api/v1/events"):
            self.check("GET", path)
        self.check("GET", "/api/v1/jobs", query="?all=1")
        self.check("GET", "/api/v1/decisions", query="?limit=100")
        self.check("GET", "/api/v1/events", query="?limit=5000&after=0")
        self.check("GET", "/api/v1/nodes/{id}", id=node)
        self.check("GET", "/api/v1/nodes/{id}/why", id=node)
        for job in (one, waits, fails):
            self.check("GET", "/api/v1/jobs/{ref}", ref=job)
            self.check("GET", "/api/v1/jobs/{ref}/why", ref=job)
        text = cluster_text(small=(1, 3, 3))
        self.check("POST", "/api/v1/plan", body={"text": text})
        self.check("PUT", "/api/v1/cluster", body={"text": text, "apply": False})
        self.check("POST", "/api/v1/requests", 202, body={"bundles": [{"resources": {"CPU": 1}, "count": 64}]})
        self.check("GET", "/api/v1/status")
        self.check("POST", "/api/v1/requests", 202, body={"bundles": []})
        self.check("GET", "/api/v1/packages/{hash}", hash="0" * 64)
        self.check("POST", "/api/v1/jobs", 201, body=self.job(fails)["spec"])
        self.check("POST", "/api/v1/jobs/{ref}/rerun", 201, ref=fails)
        self.check("POST", "/api/v1/jobs/{ref}/stop", 202, ref=one)
        # What is refused has a form as well.
        self.check("GET", "/api/v1/jobs/{ref}", 404, ref="nothing")
        self.check("GET", "/api/v1/nodes/{id}", 404, id="nothing")
        self.check("PUT", "/api/v1/cluster", 400, body={"text": "max_workers: x"})
        self.check("GET", "/api/v1/replay", 404, query="?offset=1000000")
        self.check("POST", "/api/v1/nodes/{id}/lost", 409, id=node)  # it is connected
        for method in ("POST", "DELETE"):
            self.check(method, "/api/v1/nodes/{id}/drain", 404, id="nothing")
        self.check("POST", "/api/v1/nodes/{id}/drain", 202, body={"deadline_s": 600}, id=node)
        self.check("DELETE", "/api/v1/nodes/{id}", 202, id=node)
        wait_until(lambda: node not in [n["id"] for n in self.status()["nodes"]], "the node's end")
        self.check("GET", "/api/v1/nodes/{id}/why", id=node)
        self.check("POST", "/api/v1/shutdown", 202)
        streams = {"GET /metrics", "GET /api/v1/nodes/{id}/log", "GET /api/v1/jobs/{ref}/logs",
                   "GET /api/v1/jobs/{ref}/output", "PUT /api/v1/packages/{hash}"}
        described = {f"{method.upper()} {path}" for path, methods in self.schema.document["paths"].items()
                     for method in methods}
        self.assertEqual(described - self.asked, streams, "asked for, or no JSON")


class TheCheckItself(cluster_harness.ClusterCase):
    def test_it_finds_what_is_wrong(self):
        schema = Schema({"components": {"schemas": {"A": {"type": "object", "required": ["a"], "properties": {
            "a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string", "enum": ["x"]}}}}}}})
        at = {"$ref": "#/components/schemas/A"}
        self.assertEqual(schema.faults({"a": 1, "b": ["x"]}, at), [])
        for wrong in ({}, {"a": "1"}, {"a": True}, {"a": 1, "b": ["y"]}, {"a": 1, "c": 1}, {"a": None}, []):
            self.assertEqual(len(schema.faults(wrong, at)), 1, wrong)


if __name__ == "__main__":
    cluster_harness.main()
