"""Requests to parameters, and results to answers, by the service models that botocore ships.

What a client sends is checked as AWS checks it: a parameter that the model does not know, a missing one, one of the
wrong type, an enumeration's value that is none. Handlers see plain dictionaries with the model's names.
"""
import base64
import datetime
import json
import re
import urllib.parse
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import botocore.loaders
import botocore.model
import botocore.validate
from cloud_server import Refused


class Model:
    """One service: its operations and its protocol (ec2, query, json, rest-json, rest-xml)."""

    def __init__(self, name):
        described = botocore.loaders.Loader().load_service_model(name, "service-2")
        self.service = botocore.model.ServiceModel(described, name)
        self.name, self.protocol = name, self.service.metadata["protocol"]
        self.version = self.service.metadata["apiVersion"]

    def operation(self, name):
        try:
            return self.service.operation_model(name)
        except botocore.model.OperationNotFoundError:
            raise Refused("InvalidAction", f"The action {name} is not valid for this web service.")


def validate(operation, parameters):
    shape = operation.input_shape
    if shape is None:
        return parameters
    report = botocore.validate.ParamValidator().validate(parameters, shape)
    if report.has_errors():
        text = report.generate_report()
        code = "MissingParameter" if "Missing required" in text else "InvalidParameterValue"
        raise Refused(code, text)
    check_enums(shape, parameters, "")
    return parameters


def check_enums(shape, value, path):
    """botocore does not look at enumerations and patterns; AWS does."""
    if shape.type_name == "structure":
        for name, each in value.items():
            check_enums(shape.members[name], each, f"{path}.{name}")
    elif shape.type_name == "list":
        for each in value:
            check_enums(shape.member, each, path)
    elif shape.type_name == "map":
        for each in value.values():
            check_enums(shape.value, each, path)
    elif shape.type_name == "string" and getattr(shape, "enum", None) and value not in shape.enum:
        raise Refused("InvalidParameterValue", f"{path[1:]}: {value!r} is none of {', '.join(shape.enum[:8])}…")


# ---- Query: flat names with dots ----

def query_name(shape, name, ec2):
    """How a member is called on the wire."""
    described = shape.serialization
    if ec2 and "queryName" in described:
        return described["queryName"]
    if "name" in described:
        return described["name"][0].upper() + described["name"][1:] if ec2 else described["name"]
    return name


class QueryReader:
    def __init__(self, fields, ec2):
        self.fields, self.ec2, self.used = fields, ec2, {"Action", "Version"}

    def read(self, shape):
        value = self._structure(shape, "") if shape is not None else {}
        unknown = sorted(set(self.fields) - self.used)
        if unknown:
            raise Refused("UnknownParameter", f"The parameter {unknown[0]} is not recognized")
        return value or {}

    def _any(self, shape, prefix):
        kind = shape.type_name
        if kind == "structure":
            return self._structure(shape, prefix)
        if kind == "list":
            return self._list(shape, prefix)
        if kind == "map":
            return self._map(shape, prefix)
        if prefix not in self.fields:
            return None
        self.used.add(prefix)
        return scalar(shape, self.fields[prefix], prefix)

    def _structure(self, shape, prefix):
        out = {}
        for name, member in shape.members.items():
            wire = query_name(member, name, self.ec2)
            value = self._any(member, f"{prefix}.{wire}" if prefix else wire)
            if value is not None:
                out[name] = value
        known = out or any(field.startswith(prefix + ".") for field in self.fields)
        return out if known or not prefix else None

    def _list(self, shape, prefix):
        if not self.ec2:
            if shape.serialization.get("flattened"):
                name = shape.member.serialization.get("name")
                prefix = ".".join(prefix.split(".")[:-1] + [name]) if name else prefix
            else:
                prefix = f"{prefix}.{shape.member.serialization.get('name', 'member')}"
        out = []
        while True:
            value = self._any(shape.member, f"{prefix}.{len(out) + 1}")
            if value is None:
                return out or None
            out.append(value)

    def _map(self, shape, prefix):
        out, number = {}, 1
        while f"{prefix}.entry.{number}.key" in self.fields:
            key = f"{prefix}.entry.{number}.key"
            self.used.add(key)
            out[self.fields[key]] = self._any(shape.value, f"{prefix}.entry.{number}.value")
            number += 1
        return out or None


def scalar(shape, text, name):
    kind = shape.type_name
    try:
        if kind in ("integer", "long"):
            return int(text)
        if kind in ("float", "double"):
            return float(text)
        if kind == "boolean":
            return {"true": True, "false": False}[text]
        if kind == "timestamp":
            return parse_timestamp(text)
        if kind == "blob":
            return base64.b64decode(text, validate=True)
    except (ValueError, KeyError):
        raise Refused("InvalidParameterValue", f"Value ({text}) for parameter {name} is invalid: not a {kind}")
    return text


def parse_timestamp(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def read_query(model, body):
    fields = {}
    for name, value in urllib.parse.parse_qsl(body.decode(), keep_blank_values=True):
        if name in fields:
            raise Refused("InvalidParameterCombination", f"{name} comes twice")
        fields[name] = value
    if fields.get("Version") != model.version:
        raise Refused("NoSuchVersion", f"The API version {fields.get('Version')!r} is not {model.version}")
    operation = model.operation(fields.get("Action", ""))
    parameters = QueryReader(fields, model.protocol == "ec2").read(operation.input_shape)
    return operation, validate(operation, parameters)


# ---- JSON ----

def from_json(shape, value, path):
    kind = shape.type_name
    if kind == "structure":
        named = {member.serialization.get("name", name): (name, member) for name, member in shape.members.items()}
        unknown = sorted(set(value) - set(named))
        if unknown:
            raise Refused("ValidationException", f"{path}.{unknown[0]} is not known")
        return {named[wire][0]: from_json(named[wire][1], each, f"{path}.{wire}") for wire, each in value.items()}
    if kind == "list":
        return [from_json(shape.member, each, path) for each in value]
    if kind == "map":
        return {key: from_json(shape.value, each, path) for key, each in value.items()}
    return value


def read_json(model, target, body):
    prefix, _, name = target.partition(".")
    if prefix != model.service.metadata["targetPrefix"]:
        raise Refused("UnknownOperationException", f"no service {prefix}")
    operation = model.operation(name)
    return operation, validate(operation, from_json(operation.input_shape, json.loads(body or b"{}"), ""))


# ---- REST ----

def match_path(pattern, path):
    """{name: decoded value} of a model's requestUri; None when it does not fit."""
    pattern = pattern.partition("?")[0]
    expression, names = "", []
    for part in re.split(r"(\{[^}]+\})", pattern):
        if part.startswith("{"):
            names.append(part[1:-1].rstrip("+"))
            expression += "(.+)" if part.endswith("+}") else "([^/]+)"
        else:
            expression += re.escape(part)
    match = re.fullmatch(expression + "/?", path)
    return dict(zip(names, map(urllib.parse.unquote, match.groups()))) if match else None


def read_rest(operation, uri, query, headers, body_value):
    """Parameters from the four places that a REST model knows. What is left over in the query is refused."""
    shape, out, used = operation.input_shape, {}, set()
    for name, member in (shape.members if shape else {}).items():
        place, wire = member.serialization.get("location"), member.serialization.get("name", name)
        value = None
        if place == "uri":
            value = uri.get(wire)
        elif place == "querystring":
            value = query.get(wire)
            used.add(wire)
        elif place == "header":
            value = headers.get(wire)
        elif place == "headers":
            value = {key[len(wire):]: each for key, each in headers.items() if key.lower().startswith(wire)} or None
        if value is not None:
            out[name] = value if isinstance(value, dict) else scalar_rest(member, value, wire)
    fixed = {part.partition("=")[0] for part in operation.http["requestUri"].partition("?")[2].split("&")}
    unknown = sorted(set(query) - used - fixed - {"x-id"})
    if unknown:
        raise Refused("InvalidArgument", f"the query's {unknown[0]} is not known to {operation.name}")
    out.update(body_value or {})
    return validate(operation, out)


def scalar_rest(shape, text, name):
    if shape.type_name == "timestamp":
        return text
    return scalar(shape, text, name)


# ---- Answers ----

def iso(value):
    if isinstance(value, (int, float)):
        value = datetime.datetime.fromtimestamp(value, datetime.timezone.utc)
    return value.strftime("%Y-%m-%dT%H:%M:%S.000Z") if isinstance(value, datetime.datetime) else str(value)


def xml_of(shape, value, name):
    kind = shape.type_name
    if kind == "structure":
        inner = ""
        for member_name, member in shape.members.items():
            if member.serialization.get("location") in ("header", "headers", "statusCode"):
                continue
            if value.get(member_name) is not None:
                inner += xml_of(member, value[member_name], member.serialization.get("name", member_name))
        unknown = set(value) - set(shape.members)
        assert not unknown, f"the fake answers {unknown}, which {shape.name} has not"
        return f"<{name}>{inner}</{name}>"
    if kind == "list":
        item = shape.member.serialization.get("name", "member")
        if shape.serialization.get("flattened"):
            return "".join(xml_of(shape.member, each, name) for each in value)
        return f"<{name}>" + "".join(xml_of(shape.member, each, item) for each in value) + f"</{name}>"
    if kind == "boolean":
        text = "true" if value else "false"
    elif kind == "timestamp":
        text = iso(value)
    elif kind == "blob":
        text = base64.b64encode(value).decode()
    else:
        text = escape(str(value))
    return f"<{name}>{text}</{name}>"


def answer_query(model, operation, result, request_id):
    shape, inner = operation.output_shape, ""
    if shape is not None:
        whole = xml_of(shape, result or {}, "x")
        inner = whole[3:-4]
    name = operation.name
    if model.protocol == "ec2":
        if shape is None or not shape.members:
            inner += "<return>true</return>"
        return f"<{name}Response><requestId>{request_id}</requestId>{inner}</{name}Response>"
    wrapper = (shape.serialization.get("resultWrapper") if shape is not None else None) or f"{name}Result"
    return (f"<{name}Response><{wrapper}>{inner}</{wrapper}>"
            f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{name}Response>")


def json_of(shape, value):
    kind = shape.type_name
    if kind == "structure":
        unknown = set(value) - set(shape.members)
        assert not unknown, f"the fake answers {unknown}, which {shape.name} has not"
        return {shape.members[name].serialization.get("name", name): json_of(shape.members[name], each)
                for name, each in value.items() if each is not None}
    if kind == "list":
        return [json_of(shape.member, each) for each in value]
    if kind == "map":
        return {key: json_of(shape.value, each) for key, each in value.items()}
    return value


def refusal_body(model, refused, request_id):
    """(content type, headers, text) of an error in the service's protocol."""
    code, message = escape(refused.code), escape(refused.message)
    if model is None or model.protocol == "ec2":
        return "text/xml", {}, (f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>"
                                f"</Errors><RequestID>{request_id}</RequestID></Response>")
    if model.protocol == "query":
        return "text/xml", {}, (f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code>"
                                f"<Message>{message}</Message></Error><RequestId>{request_id}</RequestId>"
                                "</ErrorResponse>")
    if model.protocol == "json":
        return "application/x-amz-json-1.1", {}, json.dumps({"__type": refused.code, "message": refused.message})
    if model.protocol == "rest-json":
        return ("application/json", {"x-amzn-errortype": refused.code},
                json.dumps({"ErrorCode": refused.code, "Message": refused.message}))
    return "application/xml", {}, (f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code>'
                                   f"<Message>{message}</Message><RequestId>{request_id}</RequestId></Error>")


def xml_to_dict(shape, element):
    """A REST request's XML body as parameters."""
    def local(tag):
        return tag.rpartition("}")[2]
    kind = shape.type_name
    if kind == "structure":
        out = {}
        for name, member in shape.members.items():
            wire = member.serialization.get("name", name)
            found = [each for each in element if local(each.tag) == wire]
            if not found:
                continue
            if member.type_name == "list" and member.serialization.get("flattened"):
                out[name] = [xml_to_dict(member.member, each) for each in found]
            else:
                out[name] = xml_to_dict(member, found[0])
        return out
    if kind == "list":
        return [xml_to_dict(shape.member, each) for each in element]
    return scalar(shape, element.text or "", local(element.tag))


def parse_xml(text):
    return ElementTree.fromstring(text)
