"""Conditions of IAM's bindings, as far as Rubato writes them: || and && of comparisons of resource.type and .name."""
import re

from cloud_server import Refused

TYPES = {"instances": "compute.googleapis.com/Instance", "disks": "compute.googleapis.com/Disk",
         "firewalls": "compute.googleapis.com/Firewall", "operations": "compute.googleapis.com/Operation"}
PROJECT = "cloudresourcemanager.googleapis.com/Project"
ATTRIBUTE = r'resource\.(type|name|service)(?:\.extract\("([^"]*)\{\w+\}([^"]*)"\))?'
COMPARISON = re.compile(rf'{ATTRIBUTE}\s*(==|!=)\s*"([^"]*)"')
PREFIX = re.compile(rf'{ATTRIBUTE}\.startsWith\("([^"]*)"\)')


def _attribute(kind, before, after, resource):
    parts = resource.split("/")
    value = {"name": resource, "service": "compute.googleapis.com",
             "type": TYPES.get(parts[-2] if len(parts) > 2 else "", PROJECT)}[kind]
    if before is None:
        return value
    _, found, rest = value.partition(before)
    if not found:
        return ""
    return rest.partition(after)[0] if after else rest


def _atom(text, resource):
    if found := COMPARISON.fullmatch(text):
        kind, before, after, operator, wanted = found.groups()
        return (_attribute(kind, before, after, resource) == wanted) == (operator == "==")
    if found := PREFIX.fullmatch(text):
        kind, before, after, wanted = found.groups()
        return _attribute(kind, before, after, resource).startswith(wanted)
    raise Refused("badRequest", f"Condition expression compilation failed: {text}", status_text="INVALID_ARGUMENT")


def holds(expression, resource):
    """Whether the condition lets the binding count for this resource: projects/p/zones/z/instances/n."""
    return any([all([_atom(each.strip(), resource) for each in part.split("&&")]) for part in expression.split("||")])
