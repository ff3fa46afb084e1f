#!/usr/bin/env python3
"""Writes src/aws/run_instances_shape.cc: how EC2's query API calls the parameters of RunInstances, and their types.

    tools/aws_shapes.py           write it
    tools/aws_shapes.py --check   exit 1 when a wire name differs from botocore's; a newer model may know more

People give `node_config` with the names of AWS's SDKs (BlockDeviceMappings); on the wire they are others
(BlockDeviceMapping.1). The model of Debian's python3-botocore knows both.
"""
import sys

import botocore.loaders
import botocore.model

import shape_table
from shape_table import ROOT

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
    lines += shape_table.lines_of(rows())
    lines += ["  };", "  return kMembers;", "}", "", "}  // namespace rubato::aws", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(shape_table.main(__doc__, TARGET, text, "botocore's model"))
