#!/usr/bin/env python3
"""Writes src/aws/run_instances_shape.cc: how EC2's query API calls the parameters of RunInstances, and their types.

    tools/aws_shapes.py           write it
    tools/aws_shapes.py --check   exit 1 when a wire name differs from botocore's; a newer model may know more

People give `node_config` with the names of AWS's SDKs (BlockDeviceMappings); on the wire they are others
(BlockDeviceMapping.1). The model of Debian's python3-botocore knows both.
"""
import argparse
import re
import sys
from pathlib import Path

import botocore.loaders
import botocore.model

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "src/aws/run_instances_shape.cc"
KINDS = {"string": "kText", "integer": "kInteger", "long": "kInteger", "boolean": "kBoolean", "timestamp": "kText",
         "float": "kNumber", "double": "kNumber", "blob": "kText", "structure": "kStructure"}


def wire_name(shape, name):
    described = shape.serialization
    if "queryName" in described:
        return described["queryName"]
    if "name" in described:
        return described["name"][0].upper() + described["name"][1:]
    return name


def rows():
    loader = botocore.loaders.Loader()
    service = botocore.model.ServiceModel(loader.load_service_model("ec2", "service-2"), "ec2")
    first = service.operation_model("RunInstances").input_shape
    todo, seen, out = [("", first)], {""}, []
    while todo:
        owner, shape = todo.pop(0)
        for name, member in sorted(shape.members.items()):
            inner, is_list = member, member.type_name == "list"
            if is_list:
                inner = member.member
            of = inner.name if inner.type_name == "structure" else ""
            if of and of not in seen:
                seen.add(of)
                todo.append((of, inner))
            out.append((owner, name, wire_name(member, name), KINDS[inner.type_name], is_list, of))
    return out


def text():
    lines = ["// Made by tools/aws_shapes.py from botocore's model of EC2; do not edit.",
             '#include "aws/run_instances_shape.h"', "", "namespace rubato::aws {", "",
             "std::span<const ShapeMember> run_instances_shape() {", "  using enum ShapeKind;",
             "  // tidy: long: a table", "  static constexpr ShapeMember kMembers[] = {"]
    for owner, name, wire, kind, is_list, of in rows():
        row = f'      {{"{owner}", "{name}", "{wire}", {kind}, {"true" if is_list else "false"}, "{of}"}},'
        cut = row.rfind(" ", 0, 110) if len(row) > 118 else len(row)
        lines += [row[:cut]] + ([f"       {row[cut + 1:]}"] if row[cut + 1:] else [])
    lines += ["  };", "  return kMembers;", "}", "", "}  // namespace rubato::aws", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        TARGET.write_text(text())
        return 0
    written, made = (set(re.findall(r"\{\"[^{}]*\}", " ".join(each.split()))) for each in (TARGET.read_text(), text()))
    for line in sorted(written - made):
        print(f"{TARGET.relative_to(ROOT)}: not in botocore's model: {line}")
    return 1 if written - made else 0


if __name__ == "__main__":
    sys.exit(main())
