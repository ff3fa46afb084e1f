"""EC2 as far as Rubato uses it: instances with their lives, networks, images, prices. Times are the server's clock."""
import base64
import fnmatch
import hashlib
import itertools
import json

from cloud_server import BadToken, Refused, page_of

ZONES = ("a", "b", "c")
CANONICAL = "099720109477"
TYPES = {  # name: (vcpus, memory MiB, gpus, price)
    "t3.micro": (2, 1024, 0, 0.0104), "m5.large": (2, 8192, 0, 0.096), "c5.4xlarge": (16, 32768, 0, 0.68),
    "g4dn.xlarge": (4, 16384, 1, 0.526), "p3.2xlarge": (8, 62464, 1, 3.06), "p3.16xlarge": (64, 499712, 8, 24.48),
}
GPUS = {"g4dn": ("T4", 16384), "p3": ("V100", 16384)}
QUOTA_CODE = "VcpuLimitExceeded"
GONE_AFTER_S = 60  # a terminated instance is listed for a while


class Ec2:
    def __init__(self, world):
        self.world, self.region = world, world.settings["region"]
        self.instances, self.tokens, self.tags = {}, {}, {}
        self.groups, self.keys, self.placements, self.templates, self.template_data = {}, {}, {}, {}, {}
        self.volumes = {}  # {id: {"instance", "zone", "size", "kind", "keeps"}}
        self.numbers = itertools.count(1)
        self.vpc = "vpc-0fake0000000001"
        self.subnets = {f"subnet-{zone * 8}": self.region + zone for zone in ZONES}
        self.images = {"ami-0000000000000001": ("fake-ubuntu-22.04", "2024-01-01T00:00:00.000Z"),
                       "ami-0000000000000002": ("fake-ubuntu-22.04", "2025-01-01T00:00:00.000Z"),
                       "ami-0000000000000003": ("ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-20250101",
                                                "2025-01-01T00:00:00.000Z")}
        self._add_group("default", "default VPC security group", self.vpc)

    # ---- what many calls need ----

    def _id(self, prefix):
        return f"{prefix}-{next(self.numbers):017x}"

    def _page(self, items, parameters, size_max=1000):
        """(this page, NextToken or None)"""
        size = min(parameters.get("MaxResults", size_max), self.world.settings["page_max"])
        try:
            return page_of(items, parameters.get("NextToken"), size)
        except BadToken:
            raise Refused("InvalidNextToken", "The token is not one of ours") from None

    def _matches(self, parameters, values_of):
        if self.world.has_habit("no filters"):
            return True
        for each in parameters.get("Filters", ()):
            found = values_of(each["Name"])
            if found is None:
                raise Refused("InvalidParameterValue", f"The filter '{each['Name']}' is invalid")
            if not any(fnmatch.fnmatchcase(value, wanted) for value in found for wanted in each["Values"]):
                return False
        return True

    def _tag_values(self, resource, name):
        tags = self.tags.get(resource, {})
        if name.startswith("tag:"):
            return [tags[name[4:]]] if name[4:] in tags else []
        return list(tags) if name == "tag-key" else None

    def _tag_list(self, resource):
        return [{"Key": key, "Value": value} for key, value in sorted(self.tags.get(resource, {}).items())]

    def _tag_new(self, resource, kind, parameters):
        if self.world.has_habit("no tags with requests"):
            return
        for each in parameters.get("TagSpecifications", ()):
            if each.get("ResourceType") == kind:
                self.tags.setdefault(resource, {}).update({tag["Key"]: tag["Value"] for tag in each["Tags"]})

    # ---- instances ----

    def _state(self, one):
        """pending -> running, by the time since it was made; stopping -> stopped, shutting-down -> terminated."""
        settings, now = self.world.settings, self.world.now()
        if one["ended"] is not None:
            return "terminated" if now >= one["ended"] + settings["shutdown_s"] else "shutting-down"
        if one["stopped"] is not None:
            return "stopped" if now >= one["stopped"] + settings["shutdown_s"] else "stopping"
        return "running" if now >= one["begun"] + settings["boot_s"] else "pending"

    def _describe(self, one):
        state = self._state(one)
        codes = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
        out = {"InstanceId": one["id"], "InstanceType": one["type"], "ImageId": one["image"],
               "State": {"Code": codes[state], "Name": state}, "Placement": {"AvailabilityZone": one["zone"]},
               "SubnetId": one["subnet"], "VpcId": self.vpc, "LaunchTime": one["begun"],
               "ClientToken": one["token"] or "", "Tags": self._tag_list(one["id"]),
               "AmiLaunchIndex": 0 if self.world.has_habit("no launch index") else one["index"],
               "SecurityGroups": [{"GroupId": each} for each in one["groups"]]}
        if one["key"]:
            out["KeyName"] = one["key"]
        if one["spot"]:
            out["InstanceLifecycle"] = "spot"
        if state in ("running", "pending"):
            out["PrivateIpAddress"] = one["address"]
        if state == "running":
            out |= {"PublicIpAddress": one["public"], "PublicDnsName": f"ec2-{one['public'].replace('.', '-')}.fake"}
        if one["reason"]:
            out["StateReason"] = {"Code": one["reason"], "Message": one["reason"]}
        return out

    def _zone_of(self, parameters):
        subnet = parameters.get("SubnetId") or next(
            (each["SubnetId"] for each in parameters.get("NetworkInterfaces", ()) if "SubnetId" in each), None)
        if subnet is not None:
            if subnet not in self.subnets:
                raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
            return subnet, self.subnets[subnet]
        zone = parameters.get("Placement", {}).get("AvailabilityZone", self.region + ZONES[0])
        for subnet, where in self.subnets.items():
            if where == zone:
                return subnet, zone
        raise Refused("InvalidParameterValue", f"Invalid availability zone: [{zone}]")

    def RunInstances(self, parameters):
        token = parameters.get("ClientToken")
        printed = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=str).encode()).hexdigest()
        if token in self.tokens:
            before, ids = self.tokens[token]
            if before != printed:
                raise Refused("IdempotentParameterMismatch", "The same client token came with other parameters")
            return self._reservation(ids)
        kind = parameters.get("InstanceType", "m1.small")
        if kind not in TYPES:
            raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
        if parameters.get("ImageId") not in self.images:
            raise Refused("InvalidAMIID.NotFound", f"The image id '[{parameters.get('ImageId')}]' does not exist")
        key = parameters.get("KeyName")
        if key and (key not in self.keys or self.world.take("unknown", "InvalidKeyPair.NotFound")):
            raise Refused("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")
        parameters = self._with_template(parameters)
        groups = self._groups_of(parameters)
        profile = self._profile_of(parameters)
        self._check_pass_role(profile)
        subnet, zone = self._zone_of(parameters)
        count = self._count_in_stock(kind, zone, parameters["MinCount"], parameters["MaxCount"])
        if parameters.get("DryRun"):
            raise Refused("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        if self.world.has_habit("one at a time"):
            count = 1
        ids = []
        for index in range(count):
            if self.world.machines is not None and not self.world.machines.has_free():
                break
            ids.append(self._make(kind, zone, subnet, parameters, index, groups, profile))
        if len(ids) < parameters["MinCount"]:
            raise Refused("InsufficientInstanceCapacity", f"We currently do not have sufficient {kind} capacity in the "
                          f"Availability Zone you requested ({zone}).", 500)
        if token:
            self.tokens[token] = (printed, ids)
        return self._reservation(ids)

    def _count_in_stock(self, kind, zone, least, most):
        settings = self.world.settings
        stock = settings["stock"].get(f"{kind}/{zone}", settings["stock"].get(kind))
        used = sum(each["type"] == kind and each["zone"] == zone and self._state(each) in ("pending", "running")
                   for each in self.instances.values())
        if stock is not None and used + least > stock:
            raise Refused("InsufficientInstanceCapacity", f"We currently do not have sufficient {kind} capacity in the "
                          f"Availability Zone you requested ({zone}).", 500)
        cpus = sum(TYPES[each["type"]][0] for each in self.instances.values()
                   if self._state(each) in ("pending", "running"))
        if cpus + TYPES[kind][0] * least > settings["vcpus_max"]:
            raise Refused(QUOTA_CODE, f"You have requested more vCPU capacity than your current vCPU limit of "
                          f"{settings['vcpus_max']} allows.")
        return most if stock is None else min(most, stock - used)

    def _with_template(self, parameters):
        """What the request lacks, from its launch template."""
        named = parameters.get("LaunchTemplate")
        if not named:
            return parameters
        return self._version(named, named.get("Version", "$Default"))["LaunchTemplateData"] | parameters

    def _groups_of(self, parameters):
        named = [name for name in parameters.get("SecurityGroupIds", ())]
        for card in parameters.get("NetworkInterfaces", ()):
            if named or parameters.get("SubnetId"):
                raise Refused("InvalidParameterCombination", "Network interfaces and an instance-level subnet ID or "
                              "security groups may not be specified on the same request")
            named += card.get("Groups", ())
        for name in named:
            if name not in self.groups and self.world.settings["strict"]:
                raise Refused("InvalidGroup.NotFound", f"The security group '{name}' does not exist")
        return named or [next(iter(self.groups))]

    def _profile_of(self, parameters):
        """The name of the instance profile, which IAM knows; with `profile_s`, for so long already."""
        given = parameters.get("IamInstanceProfile")
        if not given:
            return None
        name = given.get("Name") or given["Arn"].rpartition("/")[2]
        iam = self.world.services["iam"]
        if not self.world.settings["strict"]:
            return name
        if name not in iam.profiles or self.world.now() < iam.since.get(name, 0) + self.world.settings["profile_s"]:
            raise Refused("InvalidParameterValue", f"Value ({name}) for parameter iamInstanceProfile.name is invalid.")
        return name

    def _check_pass_role(self, profile):
        """A machine's role may make machines only with roles that its policies let it pass."""
        iam, caller = self.world.services["iam"], self.world.roles.get(self.world.caller)
        for role in iam.profiles.get(profile, []) if caller else []:
            resource = f"arn:aws:iam::{self.world.account}:role/{role}"
            if not iam.allows(caller, "iam:PassRole", resource):
                raise Refused("UnauthorizedOperation", f"{caller} is not authorized to perform: iam:PassRole on "
                              f"resource: {resource}", 403)

    def _make(self, kind, zone, subnet, parameters, index=0, groups=(), profile=None):
        number = next(self.numbers)
        one = {"id": f"i-{number:017x}", "type": kind, "zone": zone, "subnet": subnet, "begun": self.world.now(),
               "image": parameters["ImageId"], "key": parameters.get("KeyName"), "ended": None, "stopped": None,
               "token": parameters.get("ClientToken"), "reason": None, "notice": None, "index": index, "groups": groups,
               "profile": profile, "user_data": parameters.get("UserData"),
               "spot": parameters.get("InstanceMarketOptions", {}).get("MarketType") == "spot",
               "address": f"10.0.{number // 250 % 250}.{number % 250 + 1}",
               "public": f"203.0.{number // 250 % 250}.{number % 250 + 1}"}
        self.instances[one["id"]] = one
        if self.world.machines is not None:
            keys = [self.keys[one["key"]]["Material"]] if one["key"] else []
            one["address"] = one["public"] = self.world.machines.boot(one["id"], keys, one["user_data"])
        self._tag_new(one["id"], "instance", parameters)
        self._add_volumes(one, parameters)
        return one["id"]

    # ---- volumes: made with their machine; the image's own is gone with it, others if the request says so ----

    def _add_volumes(self, one, parameters):
        for each in parameters.get("BlockDeviceMappings") or [{"Ebs": {"DeleteOnTermination": True}}]:
            disk, volume = each.get("Ebs"), f"vol-{next(self.numbers):017x}"
            if disk is None:
                continue
            self.volumes[volume] = {"instance": one["id"], "zone": one["zone"], "size": disk.get("VolumeSize", 8),
                                    "kind": disk.get("VolumeType", "gp3"),
                                    "keeps": not disk.get("DeleteOnTermination", False)}
            self._tag_new(volume, "volume", parameters)

    def holds(self, volume):
        """Whether a machine has it: None when the volume went with its machine."""
        one = self.volumes[volume]
        if self._state(self.instances[one["instance"]]) != "terminated":
            return True
        return False if one["keeps"] else None

    def DescribeVolumes(self, parameters):
        found = []
        for volume, one in self.volumes.items():
            held = self.holds(volume)
            if held is None:
                continue
            known = {"volume-id": [volume], "status": ["in-use" if held else "available"]}

            def values_of(name, known=known, volume=volume):
                return known.get(name) if name in known else self._tag_values(volume, name)
            if self._matches(parameters, values_of):
                found.append({"VolumeId": volume, "AvailabilityZone": one["zone"], "Size": one["size"],
                              "VolumeType": one["kind"], "State": known["status"][0], "Tags": self._tag_list(volume)})
        page, token = self._page(found, parameters)
        return {"Volumes": page, "NextToken": token}

    def _reservation(self, ids):
        return {"ReservationId": self._id("r"), "OwnerId": self.world.account,
                "Instances": [self._describe(self.instances[each]) for each in ids]}

    def _known(self, ids):
        """What AWS has heard of by now: a new instance is unknown for a moment."""
        now, late = self.world.now(), self.world.settings["consistency_s"]
        for each in ids:
            one = self.instances.get(each)
            if one is None or now < one["begun"] + late:
                raise Refused("InvalidInstanceID.NotFound", f"The instance ID '{each}' does not exist")
        return [self.instances[each] for each in ids]

    def DescribeInstances(self, parameters):
        now, settings = self.world.now(), self.world.settings
        if parameters.get("InstanceIds"):
            if "MaxResults" in parameters:
                raise Refused("InvalidParameterCombination", "instancesSet cannot be used with maxResults")
            found = self._known(parameters["InstanceIds"])
        else:
            found = [one for one in self.instances.values() if now >= one["begun"] + settings["consistency_s"]]
        found = [one for one in found if one["ended"] is None or now < one["ended"] + GONE_AFTER_S]

        def values_of(one):
            def get(name):
                plain = {"instance-state-name": [self._state(one)], "instance-id": [one["id"]],
                         "instance-type": [one["type"]], "availability-zone": [one["zone"]],
                         "client-token": [one["token"] or ""]}
                return plain.get(name) if name in plain else self._tag_values(one["id"], name)
            return get
        found = [one for one in found if self._matches(parameters, values_of(one))]
        page, token = self._page(found, parameters)
        return {"Reservations": [self._reservation([one["id"]]) for one in page], "NextToken": token}

    def _change(self, parameters, change):
        out = []
        for one in self._known(parameters["InstanceIds"]):
            before = self._state(one)
            change(one, before)
            after = self._state(one)
            out.append({"InstanceId": one["id"], "PreviousState": {"Name": before}, "CurrentState": {"Name": after}})
        return out

    def TerminateInstances(self, parameters):
        def end(one, state):
            if one["ended"] is None:
                one["ended"], one["reason"] = self.world.now(), "Client.UserInitiatedShutdown"
                if self.world.machines is not None:
                    self.world.machines.end(one["id"])
        return {"TerminatingInstances": self._change(parameters, end)}

    def StopInstances(self, parameters):
        def stop(one, state):
            if state not in ("running", "stopping", "stopped"):
                raise Refused("IncorrectInstanceState", f"This instance '{one['id']}' is not in a state from which it "
                              "can be stopped.")
            one["stopped"] = one["stopped"] or self.world.now()
            if self.world.machines is not None:
                self.world.machines.stop(one["id"])
        return {"StoppingInstances": self._change(parameters, stop)}

    def StartInstances(self, parameters):
        def start(one, state):
            if state not in ("stopped", "pending", "running"):
                raise Refused("IncorrectInstanceState", f"The instance '{one['id']}' is not in a state from which it "
                              "can be started.")
            if state == "stopped":
                one["stopped"], one["begun"] = None, self.world.now()
                if self.world.machines is not None:
                    self.world.machines.start(one["id"])
        return {"StartingInstances": self._change(parameters, start)}

    def GetConsoleOutput(self, parameters):
        one, = self._known([parameters["InstanceId"]])
        shown = f"fake console of {one['id']}\n"
        if self.world.machines is not None:
            shown = self.world.machines.console(one["id"])
        text = base64.b64encode(shown.encode()).decode()
        return {"InstanceId": one["id"], "Output": text, "Timestamp": self.world.now()}

    def CreateTags(self, parameters):
        for resource in parameters["Resources"]:
            if resource.startswith("i-"):
                self._known([resource])
            self.tags.setdefault(resource, {}).update({tag["Key"]: tag["Value"] for tag in parameters["Tags"]})
        return {}

    def DeleteTags(self, parameters):
        for resource in parameters["Resources"]:
            for tag in parameters.get("Tags", ()):
                self.tags.get(resource, {}).pop(tag["Key"], None)
        return {}

    # ---- what surrounds them ----

    def DescribeVpcs(self, parameters):
        usual = not self.world.has_habit("no default VPC")
        found = [{"VpcId": self.vpc, "CidrBlock": "10.0.0.0/16", "IsDefault": usual, "State": "available"}]
        known = {"vpc-id": [self.vpc], "is-default": ["true" if usual else "false"], "state": ["available"]}
        return {"Vpcs": [one for one in found if self._matches(parameters, known.get)]}

    def DescribeSubnets(self, parameters):
        found = []
        for number, (subnet, zone) in enumerate(self.subnets.items()):
            known = {"vpc-id": [self.vpc], "availability-zone": [zone], "subnet-id": [subnet], "state": ["available"],
                     "default-for-az": ["true"]}
            wanted = parameters.get("SubnetIds") or [subnet]
            if subnet in wanted and self._matches(parameters, known.get):
                found.append({"SubnetId": subnet, "VpcId": self.vpc, "AvailabilityZone": zone, "State": "available",
                              "CidrBlock": f"10.0.{number}.0/24", "AvailableIpAddressCount": 250, "DefaultForAz": True,
                              "MapPublicIpOnLaunch": True})
        missing = set(parameters.get("SubnetIds", ())) - set(self.subnets)
        if missing:
            raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{missing.pop()}' does not exist")
        page, token = self._page(found, parameters)
        return {"Subnets": page, "NextToken": token}

    def DescribeAvailabilityZones(self, parameters):
        return {"AvailabilityZones": [{"ZoneName": self.region + zone, "ZoneId": f"fake-az{number}",
                                       "State": "available", "RegionName": self.region}
                                      for number, zone in enumerate(ZONES, 1)]}

    def _add_group(self, name, note, vpc):
        group = self._id("sg")
        self.groups[group] = {"GroupId": group, "GroupName": name, "Description": note, "VpcId": vpc,
                              "IpPermissions": []}
        return group

    def CreateSecurityGroup(self, parameters):
        vpc = parameters.get("VpcId", self.vpc)
        if any(each["GroupName"] == parameters["GroupName"] and each["VpcId"] == vpc for each in self.groups.values()):
            raise Refused("InvalidGroup.Duplicate", f"The security group '{parameters['GroupName']}' already exists")
        group = self._add_group(parameters["GroupName"], parameters["Description"], vpc)
        self._tag_new(group, "security-group", parameters)
        return {"GroupId": group, "Tags": self._tag_list(group)}

    def DescribeSecurityGroups(self, parameters):
        missing = set(parameters.get("GroupIds", ())) - set(self.groups)
        if missing:
            raise Refused("InvalidGroup.NotFound", f"The security group '{missing.pop()}' does not exist")
        found = []
        for group, one in self.groups.items():
            known = {"group-name": [one["GroupName"]], "vpc-id": [one["VpcId"]], "group-id": [group]}

            def values_of(name, known=known, group=group):
                return known.get(name) if name in known else self._tag_values(group, name)
            wanted = parameters.get("GroupIds") or [group]
            if group in wanted and self._matches(parameters, values_of):
                found.append(one | {"Tags": self._tag_list(group)})
        page, token = self._page(found, parameters)
        return {"SecurityGroups": page, "NextToken": token}

    def AuthorizeSecurityGroupIngress(self, parameters):
        group = self.groups.get(parameters["GroupId"])
        if group is None or self.world.take("unknown", "InvalidGroup.NotFound"):
            raise Refused("InvalidGroup.NotFound", f"The security group '{parameters['GroupId']}' does not exist")
        for rule in parameters["IpPermissions"]:
            if any(self._sources(rule) & self._sources(each) for each in group["IpPermissions"]):
                raise Refused("InvalidPermission.Duplicate", "the specified rule already exists")
        for rule in parameters["IpPermissions"]:
            if any(each.get("CidrIp") == "0.0.0.0/0" for each in rule.get("IpRanges", ())):
                self.world.note("open to the whole world")
            group["IpPermissions"].append(rule)
        return {"Return": True}

    @staticmethod
    def _sources(rule):
        """Each range and group of a rule is a rule of its own: two that share one cannot be."""
        ports = (rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort"))
        names = {"IpRanges": "CidrIp", "Ipv6Ranges": "CidrIpv6", "UserIdGroupPairs": "GroupId"}
        return {(*ports, one[name]) for kind, name in names.items() for one in rule.get(kind, ())}

    def RevokeSecurityGroupIngress(self, parameters):
        group, gone = self.groups[parameters["GroupId"]], set()
        for rule in parameters["IpPermissions"]:
            gone |= self._sources(rule)
        kept = []
        for rule in group["IpPermissions"]:
            none = {"IpRanges": [], "Ipv6Ranges": [], "UserIdGroupPairs": []}
            left = {kind: [one for one in rule[kind] if not self._sources(rule | none | {kind: [one]}) & gone]
                    for kind in ("IpRanges", "Ipv6Ranges") if rule.get(kind)}
            if not left or any(left.values()):
                kept.append(rule | left)
        group["IpPermissions"] = kept
        return {"Return": True}

    def DeleteSecurityGroup(self, parameters):
        if any(parameters["GroupId"] in one["groups"] and self._state(one) != "terminated"
               for one in self.instances.values()):
            raise Refused("DependencyViolation", f"resource {parameters['GroupId']} has a dependent object")
        efs = self.world.services["elasticfilesystem"]
        if any(parameters["GroupId"] in efs.groups[target] for target in efs.targets):
            raise Refused("DependencyViolation", f"resource {parameters['GroupId']} has a dependent object")
        if self.groups.pop(parameters["GroupId"], None) is None:
            raise Refused("InvalidGroup.NotFound", f"The security group '{parameters['GroupId']}' does not exist")
        return {}

    def ImportKeyPair(self, parameters):
        name = parameters["KeyName"]
        if name in self.keys:
            raise Refused("InvalidKeyPair.Duplicate", f"The keypair '{name}' already exists.")
        if not parameters["PublicKeyMaterial"].startswith((b"ssh-", b"ecdsa-")):
            raise Refused("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
        key = {"KeyName": name, "KeyPairId": self._id("key"),
               "Material": parameters["PublicKeyMaterial"].decode(),
               "KeyFingerprint": hashlib.md5(parameters["PublicKeyMaterial"]).hexdigest()}
        self.keys[name] = key
        self._tag_new(key["KeyPairId"], "key-pair", parameters)
        return self._key(key)

    def _key(self, key):
        return {name: value for name, value in key.items() if name != "Material"} | {
            "Tags": self._tag_list(key["KeyPairId"])}

    def DescribeKeyPairs(self, parameters):
        found = []
        for name, key in self.keys.items():
            def values_of(asked, key=key, name=name):
                return [name] if asked == "key-name" else self._tag_values(key["KeyPairId"], asked)
            if self._matches(parameters, values_of):
                found.append(self._key(key))
        return {"KeyPairs": found}

    def DeleteKeyPair(self, parameters):
        self.keys.pop(parameters["KeyName"], None)
        return {}

    def CreatePlacementGroup(self, parameters):
        name = parameters["GroupName"]
        if name in self.placements:
            raise Refused("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
        self.placements[name] = {"GroupName": name, "Strategy": parameters["Strategy"], "State": "available",
                                 "GroupId": self._id("pg")}
        self._tag_new(self.placements[name]["GroupId"], "placement-group", parameters)
        return {"PlacementGroup": self.placements[name]}

    def DescribePlacementGroups(self, parameters):
        found = []
        for name, one in self.placements.items():
            def values_of(asked, name=name, one=one):
                return [name] if asked == "group-name" else self._tag_values(one["GroupId"], asked)
            if self._matches(parameters, values_of):
                found.append(one | {"Tags": self._tag_list(one["GroupId"])})
        return {"PlacementGroups": found}

    def DeletePlacementGroup(self, parameters):
        if self.placements.pop(parameters["GroupName"], None) is None:
            raise Refused("InvalidPlacementGroup.Unknown", f"no placement group '{parameters['GroupName']}'")
        return {}

    def CreateLaunchTemplate(self, parameters):
        name = parameters["LaunchTemplateName"]
        if any(each["LaunchTemplateName"] == name for each in self.templates.values()):
            raise Refused("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
        template = {"LaunchTemplateId": self._id("lt"), "LaunchTemplateName": name, "LatestVersionNumber": 1,
                    "DefaultVersionNumber": 1, "CreateTime": self.world.now()}
        self.templates[template["LaunchTemplateId"]] = template
        self.template_data[template["LaunchTemplateId"]] = parameters["LaunchTemplateData"]
        self._tag_new(template["LaunchTemplateId"], "launch-template", parameters)
        return {"LaunchTemplate": template}

    def DescribeLaunchTemplates(self, parameters):
        wanted = parameters.get("LaunchTemplateNames")
        found = []
        for each in self.templates.values():
            def values_of(name, each=each):
                return [each["LaunchTemplateName"]] if name == "launch-template-name" else \
                    self._tag_values(each["LaunchTemplateId"], name)
            if (not wanted or each["LaunchTemplateName"] in wanted) and self._matches(parameters, values_of):
                found.append(each | {"Tags": self._tag_list(each["LaunchTemplateId"])})
        return {"LaunchTemplates": found}

    def _version(self, named, version):
        for one in self.templates.values():
            if named.get("LaunchTemplateId", one["LaunchTemplateId"]) == one["LaunchTemplateId"] and \
                    named.get("LaunchTemplateName", one["LaunchTemplateName"]) == one["LaunchTemplateName"]:
                if version not in ("1", "$Default", "$Latest"):
                    raise Refused("InvalidLaunchTemplateId.VersionNotFound", f"Could not find version {version}.")
                return {"LaunchTemplateId": one["LaunchTemplateId"], "VersionNumber": 1,
                        "LaunchTemplateName": one["LaunchTemplateName"],
                        "LaunchTemplateData": self.template_data[one["LaunchTemplateId"]]}
        raise Refused("InvalidLaunchTemplateName.NotFoundException", "The specified launch template does not exist.")

    def DescribeLaunchTemplateVersions(self, parameters):
        return {"LaunchTemplateVersions": [self._version(parameters, each)
                                           for each in parameters.get("Versions", ["$Default"])]}

    def DeleteLaunchTemplate(self, parameters):
        found = self.templates.pop(parameters.get("LaunchTemplateId"), None)
        if found is None:
            raise Refused("InvalidLaunchTemplateId.NotFound", "The specified launch template does not exist.")
        return {"LaunchTemplate": found}

    def DescribeImages(self, parameters):
        found = []
        for image, (name, made) in self.images.items():
            known = {"name": [name], "state": ["available"], "architecture": ["x86_64"]}
            wanted = parameters.get("ImageIds") or [image]
            owner = CANONICAL if name.startswith("ubuntu/") else self.world.account
            owners = parameters.get("Owners")
            if owners and owner not in [self.world.account if each == "self" else each for each in owners]:
                continue
            if image in wanted and self._matches(parameters, known.get):
                found.append({"ImageId": image, "Name": name, "CreationDate": made, "State": "available",
                              "RootDeviceName": "/dev/sda1", "Architecture": "x86_64", "OwnerId": owner})
        missing = set(parameters.get("ImageIds", ())) - set(self.images)
        if missing:
            raise Refused("InvalidAMIID.NotFound", f"The image id '[{missing.pop()}]' does not exist")
        return {"Images": found}

    def CreateImage(self, parameters):
        self._known([parameters["InstanceId"]])
        tagged = [one["ResourceType"] for one in parameters.get("TagSpecifications", ())]
        if "snapshot" in tagged and self.world.has_habit("no snapshot tags"):  # moto 5.2
            raise Refused("", "Internal Server Error", 500)
        image = self._id("ami")
        self.images[image] = (parameters["Name"], "2026-01-01T00:00:00.000Z")
        return {"ImageId": image}

    def DescribeInstanceTypes(self, parameters):
        unknown = set(parameters.get("InstanceTypes", ())) - set(TYPES)
        if unknown:
            raise Refused("InvalidInstanceType", f"The following supplied instance types do not exist: {unknown}")
        found = []
        for name in parameters.get("InstanceTypes") or TYPES:
            cpus, memory, gpus, _ = TYPES[name]
            one = {"InstanceType": name, "VCpuInfo": {"DefaultVCpus": cpus}, "MemoryInfo": {"SizeInMiB": memory},
                   "SupportedUsageClasses": ["on-demand", "spot"],
                   "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]}}
            if gpus:
                kind, room = GPUS[name.partition(".")[0]]
                one["GpuInfo"] = {"Gpus": [{"Name": kind, "Manufacturer": "NVIDIA", "Count": gpus,
                                            "MemoryInfo": {"SizeInMiB": room}}], "TotalGpuMemoryInMiB": room * gpus}
            found.append(one)
        page, token = self._page(found, parameters, 100)
        return {"InstanceTypes": page, "NextToken": token}

    def DescribeSpotPriceHistory(self, parameters):
        asked = self.world.now() - 3600
        found = [{"InstanceType": name, "AvailabilityZone": self.region + zone, "ProductDescription": "Linux/UNIX",
                  "SpotPrice": f"{TYPES[name][3] * (0.3 + 0.1 * number):.6f}", "Timestamp": asked}
                 for name in parameters.get("InstanceTypes") or TYPES for number, zone in enumerate(ZONES)]
        page, token = self._page(found, parameters)
        return {"SpotPriceHistory": page, "NextToken": token or ""}
