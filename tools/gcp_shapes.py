#!/usr/bin/env python3
"""Writes src/gcp/instance_shape.cc: what Compute's instances.insert takes, by Google's own published schema.

    tools/gcp_shapes.py           write it
    tools/gcp_shapes.py --check   exit 1 when it holds what the schema does not know

tests/gcp/compute.json is that schema, as npm's @google-cloud/compute carries it (tests/gcp/distill.py).
"""
import json
import sys

import shape_table
from shape_table import ROOT

SCHEMA = ROOT / "tests/gcp/compute.json"
TARGET = ROOT / "src/gcp/instance_shape.cc"
KINDS = {"string": "kText", "bytes": "kText", "bool": "kBoolean", "float": "kNumber", "double": "kNumber"}
WRITTEN = {"cpuPlatform", "creationTimestamp", "fingerprint", "id", "kind", "labelFingerprint", "lastStartTimestamp",
           "lastStopTimestamp", "lastSuspendedTimestamp", "resourceStatus", "satisfiesPzi", "satisfiesPzs", "selfLink",
           "startRestricted", "status", "statusMessage"}  # by Google, never by people


def kind_of(text, messages):
    """(kind, is_list, structure)"""
    if text.startswith("{"):
        return ("kTextMap" if text == "{string}" else "kAny"), False, ""
    is_list, inner = text.startswith("["), text.strip("[]")
    if inner in messages:
        return "kStructure", is_list, inner
    return KINDS.get(inner, "kInteger" if "int" in inner else "kAny"), is_list, ""


def rows():
    messages = json.loads(SCHEMA.read_text())["messages"]
    todo, seen, out = [("", "Instance")], {"Instance"}, []
    while todo:
        owner, message = todo.pop(0)
        for name, text in sorted(messages[message].items()):
            if name in WRITTEN and (not owner or name in ("kind", "fingerprint")):
                continue
            kind, is_list, of = kind_of(text, messages)
            if of and of not in seen:
                seen.add(of)
                todo.append((of, of))
            out.append((owner, name, kind, is_list, of))
    return out


def text():
    lines = ["// Made by tools/gcp_shapes.py from Google's schema of Compute; do not edit.",
             '#include "gcp/instance_shape.h"', "", "namespace rubato::gcp {", "", "rest::Shape instance_shape() {",
             "  using enum rest::ShapeKind;", "  // tidy: long: a table",
             "  static constexpr rest::ShapeMember kMembers[] = {"]
    lines += shape_table.lines_of((owner, name, "", *rest) for owner, name, *rest in rows())
    lines += ["  };", "  return kMembers;", "}", "", "}  // namespace rubato::gcp", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(shape_table.main(__doc__, TARGET, text, "Google's schema"))
