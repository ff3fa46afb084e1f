"""Requests and answers by Google's published schema (compute.json, see distill.py)."""
import json
import os
import re
import urllib.parse

from cloud_server import Refused

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "compute.json")) as file:
    COMPUTE = json.load(file)
# What any call takes (Google's "standard query parameters"), and what the distilled version leaves out.
STANDARD = {"alt": "string", "fields": "string", "key": "string", "prettyPrint": "bool", "quotaUser": "string",
            "userIp": "string", "access_token": "string", "returnPartialSuccess": "bool"}
WHOLE = {"int32", "uint32", "int64", "uint64", "fixed64"}
AS_TEXT = {"int64", "uint64", "fixed64"}  # how JSON of Google's carries them


def bad_field(path, value, why=""):
    shown = value if isinstance(value, str) else json.dumps(value)
    return Refused("invalid", f"Invalid value for field '{path}': '{shown}'. {why}".rstrip())


def unknown_name(name, path):
    where = f" at '{path}'" if path else ""
    return Refused("badRequest", f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.',
                   status_text="INVALID_ARGUMENT")


def check(schema, kind, value, path, enum=None):
    """Refuses what Google's parser would; the value, with numbers for int64 as texts, as Google keeps them."""
    if kind.startswith("["):
        if not isinstance(value, list):
            raise bad_type(kind, value, path)
        return [check(schema, kind[1:-1], each, f"{path}[{number}]", enum) for number, each in enumerate(value)]
    if kind.startswith("{"):
        if not isinstance(value, dict):
            raise bad_type(kind, value, path)
        return {key: check(schema, kind[1:-1], each, f"{path}.{key}") for key, each in value.items()}
    if kind in schema["messages"]:
        if not isinstance(value, dict):
            raise bad_type(kind, value, path)
        fields, out = schema["messages"][kind], {}
        for name, each in value.items():
            if name not in fields:
                raise unknown_name(name, path)
            if each is not None:
                out[name] = check(schema, fields[name], each, f"{path}.{name}", schema["enums"].get(f"{kind}.{name}"))
        return out
    return check_scalar(kind, value, path, enum)


def bad_type(kind, value, path):
    return Refused("badRequest", f"Invalid value at '{path}' ({kind.strip('[]{}')}), {json.dumps(value)}",
                   status_text="INVALID_ARGUMENT")


def check_scalar(kind, value, path, enum):
    if kind in WHOLE:
        text = str(value)
        if isinstance(value, bool) or not re.fullmatch(r"-?\d+", text) or (kind[0] == "u" and text[0] == "-"):
            raise bad_type(kind, value, path)
        return text if kind in AS_TEXT else int(text)
    if kind == "bool":
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise bad_type(kind, value, path)
        return value
    if kind in ("float", "double"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise bad_type(kind, value, path)
        return value
    if kind in ("string", "bytes"):
        if not isinstance(value, str):
            raise bad_type(kind, value, path)
        if enum and value not in enum:
            raise bad_field(path, value, f"Must be one of {', '.join(enum)}.")
    return value


def check_answer(schema, kind, value, path=""):
    """What the stand-in answers must be right too: a field that Google does not have, a number for int64."""
    if kind.startswith("["):
        for each in value:
            check_answer(schema, kind[1:-1], each, path)
    elif kind.startswith("{"):
        for each in value.values():
            check_answer(schema, kind[1:-1], each, path)
    elif kind in schema["messages"]:
        for name, each in value.items():
            assert name in schema["messages"][kind], f"the stand-in answers {path}.{name}, which {kind} has not"
            check_answer(schema, schema["messages"][kind][name], each, f"{path}.{name}")
    elif kind in AS_TEXT | {"string", "bytes"}:
        assert isinstance(value, str), f"the stand-in answers {path} = {value!r}, which must be a text ({kind})"


def match(schema, method, path):
    """(the call's name, the names in its path, its description); None: there is no such call."""
    for name, described in schema["calls"].items():
        if described[0] != method:
            continue
        pattern = "".join(part if number % 2 == 0 else f"(?P<{part}>[^/]+)"
                          for number, part in enumerate(re.split(r"\{(\w+)\}", described[1])))
        found = re.fullmatch(pattern, path)
        if found:
            return name, {key: urllib.parse.unquote(value) for key, value in found.groupdict().items()}, described
    return None


def read(schema, name, in_path, described, raw_query, body):
    """The call's parameters: from its path, its query, and "body"."""
    query, known = {}, described[2] | STANDARD
    for key, value in urllib.parse.parse_qsl(raw_query, keep_blank_values=True):
        if key not in known:
            raise Refused("badRequest", f'Invalid JSON payload received. Unknown name "{key}": Cannot bind query '
                          f"parameter. Field '{key}' could not be found in request message.",
                          status_text="INVALID_ARGUMENT")
        query[key] = check(schema, known[key].strip("[]"), value, key)
    out = query | in_path
    if described[3]:
        try:
            given = json.loads(body or b"null")
        except ValueError:
            raise Refused("parseError", "Parse Error") from None
        if not isinstance(given, dict):
            raise Refused("required", "Required parameter is missing: resource")
        out["body"] = check(schema, described[3], given, "resource")
    elif body.strip() not in (b"", b"{}"):
        raise unknown_name(next(iter(json.loads(body)), ""), "")
    return out


# ---- fields=items(name,labels),nextPageToken ----

def parse_fields(text):
    """{"items": {"name": None}}; None: all of it. `a/b` is `a(b)`."""
    position = 0

    def taken(sign):
        nonlocal position
        found = text[position:position + 1] == sign
        position += found
        return found

    def element():
        nonlocal position
        name = re.match(r"[^,()/]*", text[position:]).group()
        position += len(name)
        if not name:
            raise Refused("invalidParameter", f"Invalid field selection {text}")
        if taken("/"):
            return name, dict([element()])
        if not taken("("):
            return name, None
        inner = elements()
        if not taken(")"):
            raise Refused("invalidParameter", f"Invalid field selection {text}")
        return name, inner

    def elements():
        out = dict([element()])
        while taken(","):
            out |= [element()]
        return out

    out = elements()
    if position != len(text):
        raise Refused("invalidParameter", f"Invalid field selection {text}")
    return out


def select_fields(value, wanted):
    if wanted is None:
        return value
    if isinstance(value, list):
        return [select_fields(each, wanted) for each in value]
    if not isinstance(value, dict):
        return value
    if "*" in wanted:
        return {key: select_fields(each, wanted["*"]) for key, each in value.items()}
    return {key: select_fields(each, wanted[key]) for key, each in value.items() if key in wanted}
