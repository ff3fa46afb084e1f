#!/usr/bin/env python3
"""Writes compute.json: what Google's published schema of Compute says of the calls in CALLS.

    npm pack @google-cloud/compute@7.8.0 && tar xzf google-cloud-compute-*.tgz
    tests/gcp/distill.py package/build/protos/protos.json

The package is Google's own client (Apache-2.0); the schema in it is 12 MB, what is kept of it 60 kB.

    calls     {"instances.insert": [method, path, {query: type}, type of the body or null, type of the answer]}
    messages  {"Instance": {"disks": "[AttachedDisk]", "labels": "{string}", "status": "string"}}
    enums     {"Instance.status": ["RUNNING", …]}
"""
import json
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent / "compute.json"
OPERATIONS = ("get", "wait", "list")
CALLS = {
    "AcceleratorTypes": ("get", "list", "aggregatedList"),
    "Disks": ("get", "list", "insert", "delete", "setLabels", "aggregatedList"),
    "Firewalls": ("insert", "get", "list", "patch", "update", "delete"),
    "GlobalOperations": OPERATIONS, "RegionOperations": OPERATIONS, "ZoneOperations": OPERATIONS,
    "Images": ("get", "getFromFamily", "list"),
    "Instances": ("insert", "get", "list", "aggregatedList", "delete", "stop", "start", "setLabels",
                  "setMetadata", "setTags", "setScheduling", "getSerialPortOutput"),
    "MachineTypes": ("get", "list", "aggregatedList"),
    "Networks": ("get", "list"),
    "Projects": ("get", "setCommonInstanceMetadata"),
    "Regions": ("get", "list"),
    "Subnetworks": ("get", "list", "aggregatedList"),
    "Zones": ("get", "list"),
}
SCALARS = {"string", "bool", "int32", "uint32", "int64", "uint64", "fixed64", "float", "double", "bytes",
           "google.protobuf.Any"}


def snake(name):
    return "".join("_" + each.lower() if each.isupper() else each for each in name)


def main():
    tree = json.loads(Path(sys.argv[1]).read_text())["nested"]["google"]["nested"]["cloud"]["nested"]
    types = tree["compute"]["nested"]["v1"]["nested"]
    calls, messages, enums, wanted = {}, {}, {}, []

    def named(field, nested=()):
        kind = "string" if field["type"] in nested else field["type"]  # an enumeration of its own
        if kind not in SCALARS:
            wanted.append(kind)
        return f"{{{kind}}}" if "keyType" in field else f"[{kind}]" if field.get("rule") == "repeated" else kind

    for service, methods in CALLS.items():
        for name in methods:
            described = types[service]["methods"][name[0].upper() + name[1:]]
            options = described["options"]
            verb = next(each for each in ("get", "post", "put", "patch", "delete")
                        if f"(google.api.http).{each}" in options)
            path = options[f"(google.api.http).{verb}"]
            body = options.get("(google.api.http).body")
            fields = types[described["requestType"]]["fields"]
            query = {each: named(field) for each, field in fields.items()
                     if snake(each) != body and f"{{{snake(each)}}}" not in path}
            body_type = next((named(field) for each, field in fields.items() if snake(each) == body), None)
            wanted.append(described["responseType"])
            calls[f"{service[0].lower() + service[1:]}.{name}"] = [verb.upper(), path, query, body_type,
                                                                 described["responseType"]]
    while wanted:
        name = wanted.pop()
        if name in messages or name in SCALARS:
            continue
        nested = types[name].get("nested", {})
        messages[name] = {each: named(field, nested) for each, field in types[name].get("fields", {}).items()}
        for inner, values in nested.items():
            field = inner[0].lower() + inner[1:]
            # An open enumeration: its field is a string. Some belong to lists of strings.
            if messages[name].get(field) in ("string", "[string]") and "values" in values:
                enums[f"{name}.{field}"] = sorted(each for each, number in values["values"].items() if number)
    lines = ["{"]
    for title, table in (("calls", calls), ("messages", messages), ("enums", enums)):
        rows = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(table.items())]
        lines += [f" {json.dumps(title)}: {{", ",\n".join(rows), " }" + ("," if title != "enums" else "")]
    TARGET.write_text("\n".join(lines + ["}", ""]))
    print(f"{len(calls)} calls, {len(messages)} messages, {len(enums)} enumerations, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
