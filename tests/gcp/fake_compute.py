"""Compute v1: operations, lists, and what surrounds instances. Instances are in fake_instances.py."""
import base64
import datetime
import hashlib
import ipaddress
import itertools
import json
import re
import time
import uuid

import compute_data
import resource_filter
import schema
from cloud_server import BadToken, Refused, page_of
from compute_data import IMAGES, REGIONS, region_of

ROOT = "https://www.googleapis.com/compute/v1"
HOST = r"https?://[^/]+/compute/v1/"  # gcloud writes links with the endpoint that it was told
NAME = r"(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
WAIT_S_MAX = 120  # of operations.wait
VERBS = {"insert": "create", "aggregatedList": "list", "patch": "update", "wait": "get"}


def iso(seconds):
    """As Compute writes times: with Pacific time's offset."""
    when = datetime.datetime.fromtimestamp(seconds, datetime.timezone(datetime.timedelta(hours=-8)))
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}-08:00"


def fingerprint(value):
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()


def not_found(path):
    return Refused("notFound", f"The resource '{path}' was not found", 404)


def in_use(path, by):
    return Refused("resourceInUseByAnotherResource", f"The resource '{path}' is already being used by '{by}'")


def check_name(name):
    if not name:
        raise Refused("required", "Required field 'resource.name' not specified")
    if not re.fullmatch(NAME, name):
        raise schema.bad_field("resource.name", name, f"Must be a match of regex '{NAME}'")


def check_labels(labels, path="resource.labels"):
    if len(labels) > 64:
        raise schema.bad_field(path, "", "Too many labels: at most 64")
    for key, value in labels.items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key):
            raise schema.bad_field(path, key, "Label keys must be a match of regex '[a-z][a-z0-9_-]{0,62}'")
        if not re.fullmatch(r"[a-z0-9_-]{0,63}", value):
            raise schema.bad_field(path, value, "Label values must be a match of regex '[a-z0-9_-]{0,63}'")


def check_metadata(metadata):
    keys = [each.get("key", "") for each in metadata.get("items", ())]
    for key in keys:
        if not re.fullmatch(r"[a-zA-Z0-9-_]{1,128}", key):
            raise schema.bad_field("resource.metadata.items.key", key,
                                   "Must be a match of regex '[a-zA-Z0-9-_]{1,128}'")
    if len(set(keys)) != len(keys):
        raise schema.bad_field("resource.metadata", "", "Duplicate metadata keys")
    if any(len(each.get("value", "")) > 262144 for each in metadata.get("items", ())):
        raise schema.bad_field("resource.metadata.items.value", "…", "Value is too large: at most 262144 characters")


class Compute:
    def __init__(self, world):
        self.world, self.project = world, world.project
        self.numbers = itertools.count(1)
        self.operations, self.by_request = {}, {}
        self.firewalls, self.disks = {}, {}
        self.own_metadata = {"items": []}  # of the project
        self.networks = {"default": sorted(REGIONS)}  # network: the regions in which it has a subnet of its name
        for name, allowed, ranges in (
                ("default-allow-ssh", [{"IPProtocol": "tcp", "ports": ["22"]}], ["0.0.0.0/0"]),
                ("default-allow-internal", [{"IPProtocol": "tcp", "ports": ["0-65535"]}, {"IPProtocol": "icmp"}],
                 ["10.128.0.0/9"])):
            self._keep_firewall({"name": name, "network": "global/networks/default", "allowed": allowed,
                                 "sourceRanges": ranges})

    def id(self):
        return str(1000000000000000000 + next(self.numbers))

    def link(self, path):
        return f"{ROOT}/projects/{self.project}/{path}"

    def parse_link(self, text, path, kind):
        """(project, scope, name) of a full or partial address, as `zones/z/machineTypes/x`."""
        given = re.sub(f"^{HOST}", "", text)
        found = re.fullmatch(rf"(?:projects/([^/]+)/)?(global|zones/[^/]+|regions/[^/]+)/{kind}/(.+)", given)
        if not found:
            raise schema.bad_field(path, text, "The URL is malformed.")
        return found[1] or self.project, found[2], found[3]

    # ---- calls ----

    def permission(self, call):
        resource, verb = call.split(".")
        return f"compute.{resource}.{VERBS.get(verb, verb)}"

    def answer(self, caller, call, parameters, described):
        """Under the world's lock, but for the wait of operations."""
        if parameters["project"] not in (self.project, self.world.project_number) and not call.startswith("images."):
            raise Refused("forbidden", f"Required '{self.permission(call)}' permission for 'projects/"
                          f"{parameters['project']}'", 403)
        for name in ("zone", "region"):
            places = compute_data.zones() if name == "zone" else REGIONS
            if name in parameters and parameters[name] not in places:
                raise Refused("invalid", f"Invalid value for field '{name}': '{parameters[name]}'. Unknown {name}.")
        if not call.startswith("images."):  # anyone may read the public ones
            self.demand(caller, self.permission(call), "/".join(
                f"{key}s/{parameters[key]}" for key in ("zone", "region", "instance", "disk", "firewall")
                if key in parameters))
        result = self._once(caller, call, parameters) if described[4] == "Operation" and described[0] != "GET" \
            and not call.endswith(".wait") else self.handler(call)(caller, parameters)
        schema.check_answer(schema.COMPUTE, described[4], result)
        return result

    def handler(self, call):
        found = getattr(self, call.replace(".", "_"), None)
        if found is None:
            raise Refused("notImplemented", f"the stand-in has no {call}", 501)
        return found

    def demand(self, caller, permission, path):
        if not self.world.iam.is_allowed(caller, permission, f"projects/{self.project}/{path}".rstrip("/")):
            raise Refused("forbidden", f"Required '{permission}' permission for 'projects/{self.project}/{path}'"
                          .replace("/'", "'"), 403)

    def _once(self, caller, call, parameters):
        """A request that comes again with its requestId is the same request."""
        wanted = parameters.get("requestId")
        if wanted is None:
            return self.handler(call)(caller, parameters)
        try:
            if uuid.UUID(wanted).int == 0:
                raise ValueError
        except ValueError:
            raise schema.bad_field("requestId", wanted, "Must be a valid UUID that is not zero.") from None
        printed = json.dumps([call, parameters], sort_keys=True)
        if wanted in self.by_request:
            before, operation = self.by_request[wanted]
            if before != printed:
                self.world.note(f"requestId {wanted} came again with another request: {call}")
                raise schema.bad_field("requestId", wanted, "It was used for another request.")
            return self.show_operation(self.operations[operation])
        result = self.handler(call)(caller, parameters)
        self.by_request[wanted] = (printed, result["name"])
        return result

    # ---- operations ----

    def operate(self, caller, kind, scope, target, target_id, seconds=None, error=None):
        """A new operation, as it is shown. error: (code, message, status)"""
        planned = self.world.settings["operation_errors"]
        if error is None and planned and planned[0]["type"] == kind:
            error = (planned[0]["code"], planned[0].get("message", planned[0]["code"]), planned[0].get("status", 400))
            self.world.settings["operation_errors"] = planned[1:]
        number = next(self.numbers)
        name = f"operation-{int(self.world.now() * 1000)}-{number:013x}-{number * 2654435761 % 2**32:08x}"
        one = {"name": name, "scope": scope, "type": kind, "target": target, "target_id": target_id, "id": self.id(),
               "begun": self.world.now(), "user": caller.email, "error": error,
               "seconds": self.world.settings["operation_s"] if seconds is None else seconds}
        self.operations[name] = one
        return self.show_operation(one)

    def show_operation(self, one):
        now, end = self.world.now(), one["begun"] + one["seconds"]
        status = "DONE" if now >= end else "RUNNING" if now >= one["begun"] + one["seconds"] / 4 else "PENDING"
        scope = one["scope"]
        out = {"kind": "compute#operation", "id": one["id"], "name": one["name"], "operationType": one["type"],
               "targetLink": self.link(one["target"]), "targetId": one["target_id"], "status": status,
               "user": one["user"], "progress": 100 if status == "DONE" else 0, "insertTime": iso(one["begun"]),
               "startTime": iso(one["begun"]), "selfLink": self.link(f"{scope}/operations/{one['name']}")}
        if scope != "global":
            kind, _, place = scope.partition("/")
            out[kind.rstrip("s")] = self.link(f"{kind}/{place}")
        if self.world.has_habit("no target id"):
            del out["targetId"]
        if status == "DONE":
            out["endTime"] = iso(end)
            if one["error"]:
                code, message, http = one["error"]
                out |= {"error": {"errors": [{"code": code, "message": message}]}, "httpErrorStatusCode": http,
                        "httpErrorMessage": {403: "FORBIDDEN", 503: "SERVICE UNAVAILABLE"}.get(http, "BAD REQUEST")}
        return out

    def _operation(self, scope, parameters):
        one = self.operations.get(parameters["operation"])
        if one is None or one["scope"] != scope:
            raise not_found(f"projects/{self.project}/{scope}/operations/{parameters['operation']}")
        return self.show_operation(one)

    def zoneOperations_get(self, caller, parameters):
        return self._operation(f"zones/{parameters['zone']}", parameters)

    def regionOperations_get(self, caller, parameters):
        return self._operation(f"regions/{parameters['region']}", parameters)

    def globalOperations_get(self, caller, parameters):
        return self._operation("global", parameters)

    zoneOperations_wait, regionOperations_wait = zoneOperations_get, regionOperations_get
    globalOperations_wait = globalOperations_get

    def wait_for(self, call, parameters):
        """Without the lock: returns when the operation is done, or after two minutes."""
        end = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < end:
            with self.world.lock:
                one = self.operations.get(parameters["operation"])
                left = one["begun"] + one["seconds"] - self.world.now() if one else 0
            if left <= 0:
                return
            time.sleep(min(left, 0.05))

    def _list_operations(self, scope, parameters):
        found = [self.show_operation(one) for one in self.operations.values() if one["scope"] == scope]
        return self.page(found, parameters, "operation")

    def zoneOperations_list(self, caller, parameters):
        return self._list_operations(f"zones/{parameters['zone']}", parameters)

    def globalOperations_list(self, caller, parameters):
        return self._list_operations("global", parameters)

    def regionOperations_list(self, caller, parameters):
        return self._list_operations(f"regions/{parameters['region']}", parameters)

    # ---- lists ----

    def _cut(self, items, parameters):
        size = parameters.get("maxResults", 500)
        if not 0 <= size <= 500:
            raise schema.bad_field("maxResults", size, "Values must be within the range: [0, 500]")
        wanted = resource_filter.matcher(parameters.get("filter"))
        if self.world.has_habit("no filters"):
            wanted = resource_filter.matcher(None)
        found = [each for each in items if wanted(each)]
        try:
            return page_of(found, parameters.get("pageToken"), min(size or 500, self.world.settings["page_max"]))
        except BadToken:
            raise schema.bad_field("pageToken", parameters["pageToken"]) from None

    def page(self, items, parameters, kind):
        page, token = self._cut(items, parameters)
        out = {"kind": f"compute#{kind}List", "id": f"projects/{self.project}/{kind}s"}
        if page:
            out["items"] = page
        if token:
            out["nextPageToken"] = token
        return out

    def aggregate(self, items, parameters, kind, scopes):
        """{scope: {"instances": [...]}}; Google names empty scopes too, with a warning."""
        page, token = self._cut(items, parameters)
        by_scope = {scope: [] for scope in scopes}
        for each in page:
            where = "zone" if "zone" in each else "region"
            by_scope[f"{where}s/{each[where].rpartition('/')[2]}"].append(each)
        out = {"kind": f"compute#{kind}AggregatedList", "id": f"projects/{self.project}/aggregated/{kind}s",
               "items": {}}
        for scope, found in by_scope.items():
            out["items"][scope] = {f"{kind}s": found} if found else {"warning": {
                "code": "NO_RESULTS_ON_PAGE", "message": f"There are no results for scope '{scope}' on this page.",
                "data": [{"key": "scope", "value": scope}]}}
        if token:
            out["nextPageToken"] = token
        return out

    # ---- places ----

    def _zone(self, name):
        down = name in self.world.settings["zones_down"]
        return {"kind": "compute#zone", "id": str(2000 + compute_data.zones().index(name)), "name": name,
                "description": name, "status": "DOWN" if down else "UP", "selfLink": self.link(f"zones/{name}"),
                "region": self.link(f"regions/{region_of(name)}"), "availableCpuPlatforms": ["Intel Broadwell"]}

    def zones_get(self, caller, parameters):
        return self._zone(parameters["zone"])

    def zones_list(self, caller, parameters):
        return self.page([self._zone(name) for name in compute_data.zones()], parameters, "zone")

    def _region(self, name):
        usage = self.world.instances.usage(name)
        quotas = [{"metric": metric, "limit": float(self.world.settings["quota"].get(metric, 10000)),
                   "usage": float(used)} for metric, used in usage.items()]
        return {"kind": "compute#region", "id": str(1000 + sorted(REGIONS).index(name)), "name": name, "status": "UP",
                "zones": [self.link(f"zones/{name}-{each}") for each in REGIONS[name]], "quotas": quotas,
                "selfLink": self.link(f"regions/{name}")}

    def regions_get(self, caller, parameters):
        return self._region(parameters["region"])

    def regions_list(self, caller, parameters):
        return self.page([self._region(name) for name in sorted(REGIONS)], parameters, "region")

    # ---- what machines are made of ----

    def _machine_type(self, name, zone):
        found = compute_data.machine_type(name)
        if found is None:
            raise not_found(f"projects/{self.project}/zones/{zone}/machineTypes/{name}")
        count, memory, accelerator, cards = found
        out = {"kind": "compute#machineType", "id": "3" + str(sum(name.encode())), "name": name, "guestCpus": count,
               "memoryMb": memory, "description": f"{count} vCPUs", "zone": zone, "maximumPersistentDisks": 128,
               "maximumPersistentDisksSizeGb": "263168", "isSharedCpu": name in compute_data.SHARED,
               "selfLink": self.link(f"zones/{zone}/machineTypes/{name}"), "architecture": "X86_64"}
        if accelerator:
            out["accelerators"] = [{"guestAcceleratorType": accelerator, "guestAcceleratorCount": cards}]
        return out

    def machineTypes_get(self, caller, parameters):
        return self._machine_type(parameters["machine_type"], parameters["zone"])

    def machineTypes_list(self, caller, parameters):
        return self.page([self._machine_type(name, parameters["zone"]) for name in compute_data.machine_types()],
                         parameters, "machineType")

    def machineTypes_aggregatedList(self, caller, parameters):
        found = [self._machine_type(name, zone) for zone in compute_data.zones()
                 for name in compute_data.machine_types()]
        return self.aggregate(found, parameters, "machineType", [f"zones/{zone}" for zone in compute_data.zones()])

    def _accelerator(self, name, zone):
        found = compute_data.accelerators_in(zone)
        if name not in found:
            raise not_found(f"projects/{self.project}/zones/{zone}/acceleratorTypes/{name}")
        return {"kind": "compute#acceleratorType", "id": "4" + str(sum(name.encode())), "name": name,
                "description": name, "maximumCardsPerInstance": found[name], "zone": self.link(f"zones/{zone}"),
                "selfLink": self.link(f"zones/{zone}/acceleratorTypes/{name}")}

    def acceleratorTypes_get(self, caller, parameters):
        return self._accelerator(parameters["accelerator_type"], parameters["zone"])

    def acceleratorTypes_list(self, caller, parameters):
        zone = parameters["zone"]
        return self.page([self._accelerator(name, zone) for name in compute_data.accelerators_in(zone)], parameters,
                         "acceleratorType")

    def acceleratorTypes_aggregatedList(self, caller, parameters):
        found = [self._accelerator(name, zone) for zone in compute_data.zones()
                 for name in compute_data.accelerators_in(zone)]
        return self.aggregate(found, parameters, "acceleratorType", [f"zones/{zone}" for zone in compute_data.zones()])

    def show_image(self, project, name):
        family, size, made, deprecated = IMAGES[project, name]
        out = {"kind": "compute#image", "id": "5" + str(sum(name.encode())), "name": name, "family": family,
               "status": "READY", "diskSizeGb": str(size), "archiveSizeBytes": str(size << 28),
               "creationTimestamp": f"{made}T00:00:00.000-08:00", "architecture": "X86_64",
               "selfLink": f"{ROOT}/projects/{project}/global/images/{name}"}
        if deprecated:
            out["deprecated"] = {"state": "DEPRECATED"}
        return out

    def image_of(self, project, name):
        """By its name, or `family/x`: the newest that is not deprecated."""
        if name.startswith("family/"):
            found = [key for key, (family, _, _, deprecated) in IMAGES.items()
                     if key[0] == project and family == name[7:] and not deprecated]
            key = max(found, key=lambda each: IMAGES[each][2], default=None)
        else:
            key = (project, name) if (project, name) in IMAGES else None
        if key is None:
            raise not_found(f"projects/{project}/global/images/{name}")
        return self.show_image(*key)

    def images_get(self, caller, parameters):
        return self.image_of(parameters["project"], parameters["image"])

    def images_getFromFamily(self, caller, parameters):
        return self.image_of(parameters["project"], "family/" + parameters["family"])

    def images_list(self, caller, parameters):
        return self.page([self.show_image(*key) for key in IMAGES if key[0] == parameters["project"]], parameters,
                         "image")

    # ---- networks ----

    def _network(self, name):
        if name not in self.networks:
            raise not_found(f"projects/{self.project}/global/networks/{name}")
        return {"kind": "compute#network", "id": "6" + str(sum(name.encode())), "name": name,
                "autoCreateSubnetworks": name == "default", "selfLink": self.link(f"global/networks/{name}"),
                "subnetworks": [self.link(f"regions/{each}/subnetworks/{name}") for each in self.networks[name]]}

    def networks_get(self, caller, parameters):
        return self._network(parameters["network"])

    def networks_list(self, caller, parameters):
        return self.page([self._network(name) for name in self.networks], parameters, "network")

    def _subnetwork(self, region, name):
        if region not in self.networks.get(name, ()):
            raise not_found(f"projects/{self.project}/regions/{region}/subnetworks/{name}")
        number = sorted(REGIONS).index(region)
        return {"kind": "compute#subnetwork", "id": f"7{number}{sum(name.encode())}", "name": name,
                "network": self.link(f"global/networks/{name}"), "region": self.link(f"regions/{region}"),
                "ipCidrRange": f"10.{128 + number * 2}.0.0/20", "gatewayAddress": f"10.{128 + number * 2}.0.1",
                "privateIpGoogleAccess": False, "purpose": "PRIVATE", "stackType": "IPV4_ONLY",
                "selfLink": self.link(f"regions/{region}/subnetworks/{name}")}

    def subnetworks_get(self, caller, parameters):
        return self._subnetwork(parameters["region"], parameters["subnetwork"])

    def subnetworks_list(self, caller, parameters):
        region = parameters["region"]
        return self.page([self._subnetwork(region, name) for name, where in self.networks.items() if region in where],
                         parameters, "subnetwork")

    def subnetworks_aggregatedList(self, caller, parameters):
        found = [self._subnetwork(region, name) for name, where in self.networks.items() for region in where]
        return self.aggregate(found, parameters, "subnetwork", [f"regions/{each}" for each in sorted(REGIONS)])

    # ---- firewalls ----

    def _keep_firewall(self, body):
        name = body["name"]
        _, scope, network = self.parse_link(body.get("network", "global/networks/default"), "resource.network",
                                            "networks")
        if scope != "global" or network not in self.networks:
            raise not_found(f"projects/{self.project}/global/networks/{network}")
        before = self.firewalls.get(name, {"id": self.id(), "creationTimestamp": iso(self.world.now())})
        self.firewalls[name] = {"kind": "compute#firewall", "direction": "INGRESS", "priority": 1000,
                                "disabled": False} | before | body | {
            "network": self.link(f"global/networks/{network}"), "selfLink": self.link(f"global/firewalls/{name}")}
        return self.firewalls[name]

    def _check_firewall(self, body):
        if bool(body.get("allowed")) == bool(body.get("denied")):
            raise Refused("invalid", "Exactly one of 'allowed' and 'denied' must be specified.")
        for each in body.get("allowed", []) + body.get("denied", []):
            if not each.get("IPProtocol"):
                raise Refused("required", "Required field 'resource.allowed[0].IPProtocol' not specified")
            for port in each.get("ports", ()):
                if not re.fullmatch(r"\d+(-\d+)?", port):
                    raise schema.bad_field("resource.allowed[0].ports[0]", port, "Ports must be numbers or ranges.")
        for each in body.get("sourceRanges", ()):
            try:
                network = ipaddress.ip_network(each)
            except ValueError:
                raise schema.bad_field("resource.sourceRanges[0]", each, "Must be a CIDR address range.") from None
            if network.prefixlen == 0 and body.get("allowed"):
                self.world.note(f"firewall {body['name']} is open to {each}")
        for key in ("sourceTags", "targetTags"):
            for each in body.get(key, ()):
                if not re.fullmatch(NAME, each):
                    raise schema.bad_field(f"resource.{key}[0]", each, f"Must be a match of regex '{NAME}'")
        if body.get("direction", "INGRESS") == "INGRESS" and not any(
                body.get(key) for key in ("sourceRanges", "sourceTags", "sourceServiceAccounts")):
            self.world.note(f"firewall {body['name']} has no source: it is open to everybody")

    def _firewall(self, name):
        if name not in self.firewalls:
            raise not_found(f"projects/{self.project}/global/firewalls/{name}")
        return self.firewalls[name]

    def _changed_firewall(self, caller, kind, one):
        return self.operate(caller, kind, "global", f"global/firewalls/{one['name']}", one["id"])

    def firewalls_insert(self, caller, parameters):
        body = parameters["body"]
        check_name(body.get("name"))
        if body["name"] in self.firewalls:
            raise Refused("alreadyExists", f"The resource 'projects/{self.project}/global/firewalls/{body['name']}' "
                          "already exists", 409)
        self._check_firewall(body)
        return self._changed_firewall(caller, "insert", self._keep_firewall(body))

    def firewalls_get(self, caller, parameters):
        return self._firewall(parameters["firewall"])

    def firewalls_list(self, caller, parameters):
        return self.page(list(self.firewalls.values()), parameters, "firewall")

    def firewalls_patch(self, caller, parameters):
        before = self._firewall(parameters["firewall"])
        body = before | parameters["body"] | {"name": before["name"]}
        self._check_firewall(body)
        return self._changed_firewall(caller, "patch", self._keep_firewall(body))

    def firewalls_update(self, caller, parameters):
        name = self._firewall(parameters["firewall"])["name"]
        self._check_firewall(parameters["body"] | {"name": name})
        return self._changed_firewall(caller, "update", self._keep_firewall(parameters["body"] | {"name": name}))

    def firewalls_delete(self, caller, parameters):
        one = self._firewall(parameters["firewall"])
        del self.firewalls[one["name"]]
        return self._changed_firewall(caller, "delete", one)

    # ---- the project ----

    @property
    def metadata(self):
        more = self.world.settings["project_metadata"]
        return {"items": [{"key": key, "value": each} for key, each in more.items()] + self.own_metadata["items"]}

    def show_metadata(self, metadata):
        return {"kind": "compute#metadata", "fingerprint": fingerprint(metadata["items"]), "items": metadata["items"]}

    def replace_metadata(self, before, body):
        """The new metadata; who changes it must have read what there is."""
        check_metadata(body)
        if body.get("fingerprint") != fingerprint(before["items"]):
            raise Refused("conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint.", 412)
        return {"items": body.get("items", [])}

    def projects_get(self, caller, parameters):
        return {"kind": "compute#project", "id": self.world.project_number, "name": self.project,
                "creationTimestamp": "2024-01-01T00:00:00.000-08:00", "selfLink": f"{ROOT}/projects/{self.project}",
                "commonInstanceMetadata": self.show_metadata(self.metadata), "xpnProjectStatus":
                "UNSPECIFIED_XPN_PROJECT_STATUS", "defaultServiceAccount": self.world.iam.default_account,
                "quotas": [{"metric": "FIREWALLS", "limit": 200.0, "usage": float(len(self.firewalls))}]}

    def projects_setCommonInstanceMetadata(self, caller, parameters):
        self.own_metadata = self.replace_metadata(self.metadata, parameters["body"])
        self.world.instances.keys_changed()
        return self.operate(caller, "setMetadata", "global", "", self.world.project_number)
