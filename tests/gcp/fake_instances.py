"""Instances and their disks: PROVISIONING -> STAGING -> RUNNING -> STOPPING -> TERMINATED -> (deleted)."""
import re

import compute_data
import schema
from cloud_server import Refused
from compute_data import region_of
from fake_compute import (NAME, Compute, check_labels, check_metadata, check_name, fingerprint, in_use, iso, not_found)

ALIVE = ("PROVISIONING", "STAGING", "RUNNING")


class Instances(Compute):
    """Compute with instances."""

    def __init__(self, world):
        world.instances = self
        super().__init__(world)
        self.all = {}  # (zone, name): instance
        self.made = 0

    # ---- lives ----

    def state(self, one):
        """By the clock. None: deleted, and unknown."""
        settings, now = self.world.settings, self.world.now()
        if one["ended"] is not None:
            return "STOPPING" if now < one["ended"] + settings["delete_s"] else None
        if one["stopped"] is not None:
            return "STOPPING" if now < one["stopped"] + settings["shutdown_s"] else "TERMINATED"
        if now >= one["begun"] + settings["boot_s"]:
            return "RUNNING"
        return "STAGING" if now >= one["begun"] + settings["boot_s"] / 2 else "PROVISIONING"

    def known(self, in_list=False):
        """Those that there are; a list hears of new ones, and of new labels, late."""
        late = self.world.settings["consistency_s"] if in_list else 0
        return [one for one in self.all.values()
                if self.state(one) and self.world.now() >= one["made"] + late]

    def _one(self, zone, name):
        one = self.all.get((zone, name))
        if one is None:  # ids are names too
            one = next((each for each in self.all.values() if each["id"] == name and each["zone"] == zone), None)
        if one is None or self.state(one) is None:
            raise not_found(f"projects/{self.project}/zones/{zone}/instances/{name}")
        return one

    def usage(self, region):
        """What is used of a region's quotas."""
        used = {"CPUS": 0, "PREEMPTIBLE_CPUS": 0, "INSTANCES": 0, "IN_USE_ADDRESSES": 0}
        for one in self.all.values():
            if region_of(one["zone"]) == region and self.state(one) in ALIVE:
                for metric, count in self.needs(one["body"]).items():
                    used[metric] = used.get(metric, 0) + count
        return used

    def needs(self, body):
        """{metric: how much} of quotas."""
        cpus, _, own, own_cards = compute_data.machine_type(body["machineType"].rpartition("/")[2])
        spot = self.is_spot(body)
        out = {"PREEMPTIBLE_CPUS" if spot and "PREEMPTIBLE_CPUS" in self.world.settings["quota"] else "CPUS": cpus,
               "INSTANCES": 1}
        cards = [(own, own_cards)] if own else []
        cards += [(each["acceleratorType"].rpartition("/")[2], each.get("acceleratorCount", 1))
                  for each in body.get("guestAccelerators", ())]
        for name, count in cards:
            metric = name.replace("-tesla", "").replace("-", "_").upper() + "_GPUS"
            out[("PREEMPTIBLE_" if spot else "") + metric] = count
        if any(each.get("accessConfigs") for each in body.get("networkInterfaces", ())):
            out["IN_USE_ADDRESSES"] = 1
        return out

    @staticmethod
    def is_spot(body):
        scheduling = body.get("scheduling", {})
        return scheduling.get("provisioningModel") == "SPOT" or bool(scheduling.get("preemptible"))

    # ---- shown ----

    def show(self, one):
        state, body, zone = self.state(one), one["body"], one["zone"]
        cards = [dict(each, name=f"nic{number}", kind="compute#networkInterface", networkIP=one["address"],
                      fingerprint=fingerprint(each)) for number, each in enumerate(body["networkInterfaces"])]
        for card in cards:
            configs = [{"kind": "compute#accessConfig", "networkTier": "PREMIUM", "name": "External NAT",
                        "type": "ONE_TO_ONE_NAT"} | each for each in card.pop("accessConfigs", ())]
            if configs:
                if state in ALIVE:
                    configs[0]["natIP"] = one["public"]
                card["accessConfigs"] = configs
        spot = self.is_spot(body)
        scheduling = {"onHostMaintenance": "TERMINATE" if spot else "MIGRATE", "automaticRestart": not spot,
                      "preemptible": spot, "provisioningModel": "SPOT" if spot else "STANDARD"}
        out = {key: each for key, each in body.items() if key not in ("disks", "networkInterfaces", "metadata", "tags")}
        out |= {"kind": "compute#instance", "id": one["id"], "status": state, "zone": self.link(f"zones/{zone}"),
                "creationTimestamp": iso(one["made"]), "lastStartTimestamp": iso(one["begun"]),
                "machineType": self.link(f"zones/{zone}/machineTypes/{body['machineType'].rpartition('/')[2]}"),
                "selfLink": self.link(f"zones/{zone}/instances/{one['name']}"), "networkInterfaces": cards,
                "disks": self._attached(one), "metadata": self.show_metadata(one["metadata"]),
                "tags": {"items": one["tags"], "fingerprint": fingerprint(one["tags"])} if one["tags"]
                else {"fingerprint": fingerprint([])}, "labelFingerprint": fingerprint(one["labels"]),
                "scheduling": scheduling | body.get("scheduling", {}), "cpuPlatform": "Intel Broadwell",
                "fingerprint": fingerprint([one["id"], one["labels"], one["metadata"]]), "startRestricted": False,
                "deletionProtection": body.get("deletionProtection", False)}
        out.pop("labels", None)
        if one["labels"]:
            out["labels"] = dict(one["labels"])
        if one["stopped"] is not None:
            out["lastStopTimestamp"] = iso(one["stopped"])
        return out

    def _attached(self, one):
        return [{"kind": "compute#attachedDisk", "type": each.get("type", "PERSISTENT"), "mode": "READ_WRITE",
                 "source": self.link(f"zones/{one['zone']}/disks/{each['disk']}"), "index": number,
                 "deviceName": each.get("deviceName", f"persistent-disk-{number}"), "boot": each.get("boot", False),
                 "autoDelete": each.get("autoDelete", False), "interface": "SCSI", "diskSizeGb": each["size"]}
                for number, each in enumerate(one["disks"])]

    # ---- insert ----

    def instances_insert(self, caller, parameters):
        body, zone = parameters["body"], parameters["zone"]
        if parameters.get("sourceInstanceTemplate") or parameters.get("sourceMachineImage"):
            raise Refused("notImplemented", "the stand-in has no templates", 501)
        check_name(body.get("name"))
        path = f"zones/{zone}/instances/{body['name']}"
        self.demand(caller, "compute.disks.create", f"zones/{zone}/disks/{body['name']}")
        self.demand(caller, "compute.subnetworks.use", f"regions/{region_of(zone)}/subnetworks/default")
        for key, verb in (("name", "create"), ("metadata", "setMetadata"), ("labels", "setLabels"), ("tags", "setTags"),
                          ("serviceAccounts", "setServiceAccount")):
            if body.get(key):
                self.demand(caller, f"compute.instances.{verb}", path)
        if (zone, body["name"]) in self.all and self.state(self.all[zone, body["name"]]):
            raise Refused("alreadyExists", f"The resource 'projects/{self.project}/{path}' already exists", 409)
        self._check_machine(body, zone)
        self._check_scheduling(body)
        disks = self._plan_disks(body, zone)
        self._check_networks(caller, body, zone, path)
        self._check_accounts(caller, body, path)
        check_labels(body.get("labels", {}))
        check_metadata(body.get("metadata", {}))
        for each in body.get("tags", {}).get("items", ()):
            if not re.fullmatch(NAME, each):
                raise schema.bad_field("resource.tags.items[0]", each, f"Must be a match of regex '{NAME}'")
        error = self._no_quota(body, zone) or self._no_stock(body, zone)
        if error:
            return self.operate(caller, "insert", f"zones/{zone}", path, self.id(), error=error)
        operation = self.operate(caller, "insert", f"zones/{zone}", path, self.id())
        if self.operations[operation["name"]]["error"] is None:
            self._make(caller, body, zone, disks, self.operations[operation["name"]]["target_id"])
        return operation

    def _check_machine(self, body, zone):
        if not body.get("machineType"):
            raise Refused("required", "Required field 'resource.machineType' not specified")
        _, scope, kind = self.parse_link(body["machineType"], "resource.machineType", "machineTypes")
        if scope != f"zones/{zone}" or compute_data.machine_type(kind) is None:
            raise schema.bad_field("resource.machineType", body["machineType"],
                                   f"Machine type with name '{kind}' does not exist in zone '{zone}'.")
        for each in body.get("guestAccelerators", ()):
            _, scope, name = self.parse_link(each.get("acceleratorType", ""),
                                             "resource.guestAccelerators[0].acceleratorType", "acceleratorTypes")
            most = compute_data.accelerators_in(zone).get(name)
            if scope != f"zones/{zone}" or most is None:
                raise not_found(f"projects/{self.project}/{scope}/acceleratorTypes/{name}")
            if not 1 <= each.get("acceleratorCount", 0) <= most:
                raise schema.bad_field("resource.guestAccelerators[0].acceleratorCount", each.get("acceleratorCount"),
                                       f"Number of accelerators must be between 1 and {most}.")

    def _check_scheduling(self, body):
        given, spot = body.get("scheduling", {}), self.is_spot(body)
        with_cards = body.get("guestAccelerators") or compute_data.machine_type(
            body["machineType"].rpartition("/")[2])[2]
        if given.get("preemptible") and given.get("provisioningModel") == "STANDARD":
            raise Refused("invalid", "Scheduling must have provisioning model be SPOT when preemptible is true.")
        if spot and given.get("automaticRestart"):
            raise Refused("invalid", "Scheduling must have automatic restart be false when preemptible is true.")
        if spot and given.get("onHostMaintenance") == "MIGRATE":
            raise Refused("invalid", "Scheduling must have on host maintenance be TERMINATE when preemptible is true.")
        if with_cards and not spot and given.get("onHostMaintenance") != "TERMINATE":
            raise schema.bad_field("resource.scheduling.onHostMaintenance", given.get("onHostMaintenance", "MIGRATE"),
                                   "Instances with guest accelerators do not support live migration.")
        if given.get("instanceTerminationAction") and given.get("provisioningModel") != "SPOT" \
                and not given.get("maxRunDuration"):
            raise Refused("invalid", "Instance termination action is only supported for Spot instances and instances "
                          "with a limited run time.")

    def _plan_disks(self, body, zone):
        """What disks the machine will have: [{"disk": name, "size": GB, ...}]"""
        given, out = body.get("disks", []), []
        if not given or not given[0].get("boot"):
            raise schema.bad_field("resource.disks[0]", "",
                                   "Boot disk must be the first disk attached to the instance.")
        for number, each in enumerate(given):
            if "source" in each:
                _, scope, name = self.parse_link(each["source"], f"resource.disks[{number}].source", "disks")
                if (zone, name) not in self.disks:
                    raise not_found(f"projects/{self.project}/{scope}/disks/{name}")
                out.append(dict(each, disk=name, size=self.disks[zone, name]["sizeGb"]))
                continue
            wanted = each.get("initializeParams", {})
            name = wanted.get("diskName") or (body["name"] if number == 0 else f"{body['name']}-{number}")
            if (zone, name) in self.disks:
                raise Refused("alreadyExists", f"The resource 'projects/{self.project}/zones/{zone}/disks/{name}' "
                              "already exists", 409)
            out.append(dict(each, disk=name, size=self._size_of(wanted, each, number, zone)))
        return out

    def _size_of(self, wanted, disk, number, zone):
        least, size = 10, wanted.get("diskSizeGb", disk.get("diskSizeGb"))
        if wanted.get("diskType"):
            self.parse_link(wanted["diskType"], f"resource.disks[{number}].initializeParams.diskType", "diskTypes")
        if wanted.get("sourceImage"):
            where = f"resource.disks[{number}].initializeParams.sourceImage"
            link = re.sub("zones/[^/]+/imageFamilyViews/", "global/images/family/", wanted["sourceImage"])  # gcloud's
            project, _, image = self.parse_link(link, where, "images")
            least = int(self.image_of(project, image)["diskSizeGb"])
        elif disk.get("boot"):
            raise schema.bad_field(f"resource.disks[{number}].initializeParams.sourceImage", "",
                                   "A boot disk needs an image.")
        if size is not None and int(size) < least:
            raise schema.bad_field(f"resource.disks[{number}].initializeParams.diskSizeGb", size,
                                   f"Requested disk size cannot be smaller than the image size ({least} GB)")
        return str(size or least)

    def _check_networks(self, caller, body, zone, path):
        if not body.get("networkInterfaces"):
            raise schema.bad_field("resource.networkInterfaces", "", "At least one network interface is required.")
        for number, each in enumerate(body["networkInterfaces"]):
            where = f"resource.networkInterfaces[{number}]"
            region = region_of(zone)
            if each.get("subnetwork"):
                _, scope, name = self.parse_link(each["subnetwork"], f"{where}.subnetwork", "subnetworks")
                if scope != f"regions/{region}":
                    raise schema.bad_field(f"{where}.subnetwork", each["subnetwork"],
                                           "Subnetwork must be in the same region as the instance.")
                each["network"] = self._subnetwork(region, name)["network"]
            else:
                _, _, name = self.parse_link(each.get("network", "global/networks/default"), f"{where}.network",
                                             "networks")
                each["network"] = self._network(name)["selfLink"]
            each["subnetwork"] = self._subnetwork(region, name)["selfLink"]
            if each.get("accessConfigs"):
                self.demand(caller, "compute.subnetworks.useExternalIp", path)

    def _check_accounts(self, caller, body, path):
        given = body.get("serviceAccounts", [])
        if len(given) > 1:
            raise schema.bad_field("resource.serviceAccounts", "", "At most one service account.")
        for each in given:
            email = each.get("email", "default")
            each["email"] = self.world.iam.default_account if email == "default" else email
            account = self.world.iam.accounts.get(each["email"])
            if account is None or self.world.now() < account["since"] + self.world.settings["account_s"]:
                raise Refused("serviceAccountNotFound" if account is None else "invalid",
                              f"The resource '{each['email']}' of type 'serviceAccount' was not found.", 400)
            if not each.get("scopes"):
                raise schema.bad_field("resource.serviceAccounts[0].scopes", "", "At least one scope is required.")
            if not self.world.iam.is_allowed(caller, "iam.serviceAccounts.actAs", account["name"]):
                raise Refused("forbidden", "The user does not have access to service account "
                              f"'{each['email']}'.  User: '{caller.email}'.  Ask a project owner to grant you the "
                              "iam.serviceAccountUser role on the service account", 400)

    # ---- what there is not enough of ----

    def _no_quota(self, body, zone):
        if not self.world.settings["quota"]:
            return None
        region = region_of(zone)
        used = self.usage(region)
        for metric, count in self.needs(body).items():
            limit = self.world.settings["quota"].get(metric)
            if limit is not None and used.get(metric, 0) + count > limit:
                text = f"Quota '{metric}' exceeded.  Limit: {float(limit)} in region {region}."
                if not self.world.settings["quota_in_operation"]:
                    raise Refused("quotaExceeded", text, 403)
                return "QUOTA_EXCEEDED", text, 403
        return None

    def _no_stock(self, body, zone):
        stock, kind = self.world.settings["stock"], body["machineType"].rpartition("/")[2]
        names = [kind] + [each["acceleratorType"].rpartition("/")[2] for each in body.get("guestAccelerators", ())]
        keys = [f"{name}/{zone}" for name in names] + names
        if self.is_spot(body):
            keys = [f"spot:{each}" for each in keys] + keys
        for key in keys:
            if key in stock and self._count(key.removeprefix("spot:"), key.startswith("spot:")) >= stock[key]:
                return self.stockout(zone, kind)
        if self.world.machines is not None and not self.world.machines.has_free():
            return self.stockout(zone, kind)
        return None

    def _count(self, key, only_spot):
        """How many of a machine type or accelerator there are in a zone, or everywhere."""
        name, _, zone = key.partition("/")
        count = 0
        for one in self.all.values():
            body = one["body"]
            links = [body["machineType"], *(each["acceleratorType"] for each in body.get("guestAccelerators", ()))]
            count += self.state(one) in ALIVE and zone in ("", one["zone"]) \
                and (not only_spot or self.is_spot(body)) and name in [each.rpartition("/")[2] for each in links]
        return count

    def stockout(self, zone, kind):
        if self.world.settings["stock_details"]:
            return ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", f"The zone 'projects/{self.project}/zones/{zone}' "
                    f"does not have enough resources available to fulfill the request, '(resource type:compute)'.", 503)
        return ("ZONE_RESOURCE_POOL_EXHAUSTED", f"The zone 'projects/{self.project}/zones/{zone}' does not have enough "
                "resources available to fulfill the request.  Try a different zone, or try again later.", 503)

    def _make(self, caller, body, zone, disks, new_id):
        number, now = next(self.numbers), self.world.now()
        region = sorted(compute_data.REGIONS).index(region_of(zone))
        one = {"name": body["name"], "zone": zone, "id": new_id, "body": body, "made": now, "begun": now,
               "stopped": None, "ended": None, "labels": body.get("labels", {}), "disks": disks, "by": caller.email,
               "metadata": {"items": body.get("metadata", {}).get("items", [])},
               "tags": body.get("tags", {}).get("items", []), "preempted": False, "maintenance": "NONE",
               "address": f"10.{128 + region * 2}.{number // 250 % 16}.{number % 250 + 2}",
               "public": f"203.0.{number // 250 % 250}.{number % 250 + 1}"}
        self.all[zone, one["name"]] = one
        self.made += 1
        for each in disks:
            if "source" not in each:
                image = each.get("initializeParams", {}).get("sourceImage")
                self._keep_disk(zone, each["disk"], each["size"], image, each.get("initializeParams", {}).get("labels"))
        if self.world.machines is not None:
            one["address"] = one["public"] = self.world.machines.boot(one)

    # ---- read ----

    def instances_get(self, caller, parameters):
        return self.show(self._one(parameters["zone"], parameters["instance"]))

    def instances_list(self, caller, parameters):
        return self.page([self.show(one) for one in self.known(True) if one["zone"] == parameters["zone"]], parameters,
                         "instance")

    def instances_aggregatedList(self, caller, parameters):
        return self.aggregate([self.show(one) for one in self.known(True)], parameters, "instance",
                              [f"zones/{zone}" for zone in compute_data.zones()])

    def instances_getSerialPortOutput(self, caller, parameters):
        one = self._one(parameters["zone"], parameters["instance"])
        return {"kind": "compute#serialPortOutput", "contents": f"stand-in: {one['name']} boots\n", "start": "0",
                "next": "1", "selfLink": self.link(f"zones/{one['zone']}/instances/{one['name']}/serialPort")}

    # ---- changed ----

    def _change(self, caller, kind, one, seconds=None, error=None):
        return self.operate(caller, kind, f"zones/{one['zone']}", f"zones/{one['zone']}/instances/{one['name']}",
                            one["id"], seconds, error)

    def instances_delete(self, caller, parameters):
        one = self._one(parameters["zone"], parameters["instance"])
        if one["body"].get("deletionProtection"):
            raise Refused("invalid", f"Invalid resource usage: 'Resource cannot be deleted if it's protected against "
                          f"deletion: {one['name']}'.")
        self.end(one)
        return self._change(caller, "delete", one, self.world.settings["delete_s"])

    def end(self, one):
        if one["ended"] is not None:
            return
        one["ended"] = self.world.now()
        for each in one["disks"]:
            if each.get("autoDelete"):
                self.disks.pop((one["zone"], each["disk"]), None)
        if self.world.machines is not None:
            self.world.machines.end(one["id"])

    def instances_stop(self, caller, parameters):
        one = self._one(parameters["zone"], parameters["instance"])
        if self.state(one) in ALIVE:
            self.stop(one)
        return self._change(caller, "stop", one, self.world.settings["shutdown_s"])

    def stop(self, one):
        one["stopped"] = self.world.now()
        if self.world.machines is not None:
            self.world.machines.stop(one["id"])

    def instances_start(self, caller, parameters):
        one = self._one(parameters["zone"], parameters["instance"])
        state, error = self.state(one), None
        if state == "STOPPING":
            raise Refused("resourceNotReady", f"The resource 'projects/{self.project}/zones/{one['zone']}/instances/"
                          f"{one['name']}' is not ready", 400)
        if state == "TERMINATED":
            error = self._no_quota(one["body"], one["zone"])
            if error is None and self._count(f"{one['body']['machineType'].rpartition('/')[2]}/{one['zone']}", False) \
                    >= self.world.settings["stock"].get(
                        f"{one['body']['machineType'].rpartition('/')[2]}/{one['zone']}", 1 << 30):
                error = self.stockout(one["zone"], one["body"]["machineType"].rpartition("/")[2])
            if error is None:
                one["stopped"], one["begun"], one["preempted"] = None, self.world.now(), False
                if self.world.machines is not None:
                    self.world.machines.start(one["id"])
        return self._change(caller, "start", one, error=error)

    def instances_setLabels(self, caller, parameters):
        one, body = self._one(parameters["zone"], parameters["instance"]), parameters["body"]
        check_labels(body.get("labels", {}))
        if body.get("labelFingerprint") != fingerprint(one["labels"]):
            raise Refused("conditionNotMet", "Labels fingerprint either invalid or resource labels have changed", 412)
        one["labels"] = body.get("labels", {})
        return self._change(caller, "setLabels", one)

    def instances_setMetadata(self, caller, parameters):
        one = self._one(parameters["zone"], parameters["instance"])
        one["metadata"] = self.replace_metadata(one["metadata"], parameters["body"])
        self.keys_changed()
        return self._change(caller, "setMetadata", one)

    def instances_setTags(self, caller, parameters):
        one, body = self._one(parameters["zone"], parameters["instance"]), parameters["body"]
        if body.get("fingerprint") != fingerprint(one["tags"]):
            raise Refused("conditionNotMet", "Supplied fingerprint does not match current tags fingerprint.", 412)
        one["tags"] = body.get("items", [])
        return self._change(caller, "setTags", one)

    def instances_setScheduling(self, caller, parameters):
        one = self._one(parameters["zone"], parameters["instance"])
        one["body"]["scheduling"] = one["body"].get("scheduling", {}) | parameters["body"]
        return self._change(caller, "setScheduling", one)

    # ---- what happens to them ----

    def preempt(self, one):
        """Google takes a Spot machine: it is told, then off; `instanceTerminationAction` says what is left of it."""
        one["preempted"] = True
        if one["body"].get("scheduling", {}).get("instanceTerminationAction") == "DELETE":
            self.end(one)
        else:
            self.stop(one)

    def users_of(self, one):
        """{user: [keys]} as the guest's agent makes them of `ssh-keys`, the instance's and the project's; with OS Login
        those of accounts that may log in, and no others."""
        own = {each["key"]: each.get("value", "") for each in one["metadata"]["items"]}
        of_project = {each["key"]: each.get("value", "") for each in self.metadata["items"]}
        if (of_project | own).get("enable-oslogin", "").lower() == "true":
            return self.world.os_login.users_on(f"zones/{one['zone']}/instances/{one['name']}")
        lines = own.get("ssh-keys", "").splitlines() + own.get("sshKeys", "").splitlines()
        if own.get("block-project-ssh-keys", "").lower() != "true" and "sshKeys" not in own:
            lines += [line for each in self.metadata["items"] if each["key"] in ("ssh-keys", "sshKeys")
                      for line in each.get("value", "").splitlines()]
        users = {}
        for line in lines:
            user, _, key = line.strip().partition(":")
            if key and re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user):
                users.setdefault(user, []).append(key)
        return users

    def keys_changed(self):
        if self.world.machines is not None:
            for one in self.known():
                if self.state(one) in ALIVE:
                    self.world.machines.keys_changed(one)

    # ---- disks ----

    def _keep_disk(self, zone, name, size, image=None, labels=None):
        self.disks[zone, name] = {
            "kind": "compute#disk", "id": self.id(), "name": name, "sizeGb": size, "zone": self.link(f"zones/{zone}"),
            "status": "READY", "creationTimestamp": iso(self.world.now()),
            "labelFingerprint": fingerprint(labels or {}), "selfLink": self.link(f"zones/{zone}/disks/{name}"),
            "type": self.link(f"zones/{zone}/diskTypes/pd-standard")}
        if image:
            self.disks[zone, name]["sourceImage"] = image
        if labels:
            self.disks[zone, name]["labels"] = labels

    def _disk(self, zone, name):
        if (zone, name) not in self.disks:
            raise not_found(f"projects/{self.project}/zones/{zone}/disks/{name}")
        users = [self.link(f"zones/{zone}/instances/{one['name']}") for one in self.known()
                 if one["zone"] == zone and any(each["disk"] == name for each in one["disks"])]
        return self.disks[zone, name] | ({"users": users} if users else {})

    def disks_get(self, caller, parameters):
        return self._disk(parameters["zone"], parameters["disk"])

    def disks_list(self, caller, parameters):
        return self.page([self._disk(*key) for key in self.disks if key[0] == parameters["zone"]], parameters, "disk")

    def disks_aggregatedList(self, caller, parameters):
        return self.aggregate([self._disk(*key) for key in self.disks], parameters, "disk",
                              [f"zones/{zone}" for zone in compute_data.zones()])

    def _changed_disk(self, caller, kind, zone, one):
        return self.operate(caller, kind, f"zones/{zone}", f"zones/{zone}/disks/{one['name']}", one["id"])

    def disks_insert(self, caller, parameters):
        body, zone = parameters["body"], parameters["zone"]
        check_name(body.get("name"))
        if (zone, body["name"]) in self.disks:
            raise Refused("alreadyExists", f"The resource 'projects/{self.project}/zones/{zone}/disks/{body['name']}' "
                          "already exists", 409)
        self._keep_disk(zone, body["name"], body.get("sizeGb", "500"), body.get("sourceImage"), body.get("labels"))
        return self._changed_disk(caller, "insert", zone, self.disks[zone, body["name"]])

    def disks_setLabels(self, caller, parameters):
        zone, body = parameters["zone"], parameters["body"]
        one = self.disks.get((zone, parameters["resource"]))
        if one is None:
            raise not_found(f"projects/{self.project}/zones/{zone}/disks/{parameters['resource']}")
        check_labels(body.get("labels", {}))
        if body.get("labelFingerprint") != one["labelFingerprint"]:
            raise Refused("conditionNotMet", "Labels fingerprint either invalid or resource labels have changed", 412)
        one |= {"labels": body.get("labels", {}), "labelFingerprint": fingerprint(body.get("labels", {}))}
        return self._changed_disk(caller, "setLabels", zone, one)

    def disks_delete(self, caller, parameters):
        zone, name = parameters["zone"], parameters["disk"]
        one = self._disk(zone, name)
        if one.get("users"):
            raise in_use(f"projects/{self.project}/zones/{zone}/disks/{name}", one["users"][0])
        del self.disks[zone, name]
        return self._changed_disk(caller, "delete", zone, one)
