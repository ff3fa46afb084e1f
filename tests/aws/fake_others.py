"""STS, IAM, Auto Scaling, SSM and EFS, as far as Rubato uses them."""
import fnmatch
import itertools
import json
import uuid

from cloud_server import Refused


class Sts:
    def __init__(self, world):
        self.world = world

    def GetCallerIdentity(self, parameters):
        return {"Account": self.world.account, "Arn": self.world.arn_of(self.world.caller),
                "UserId": "AIDAFAKE"}

    def _give(self, role, session):
        given_until = self.world.now() + self.world.settings["session_s"]
        key, token = f"ASIA{uuid.uuid4().hex[:16].upper()}", uuid.uuid4().hex
        self.world.accounts[key] = (f"secret-of-{key}", token)
        self.world.arns[key] = f"arn:aws:sts::{self.world.account}:assumed-role/{role.rpartition('/')[2]}/{session}"
        return {"Credentials": {"AccessKeyId": key, "SecretAccessKey": f"secret-of-{key}", "SessionToken": token,
                                "Expiration": given_until},
                "AssumedRoleUser": {"AssumedRoleId": f"AROA:{session}", "Arn": self.world.arns[key]}}

    def AssumeRole(self, parameters):
        if "forbidden" in parameters["RoleArn"]:
            raise Refused("AccessDenied", f"not authorized to perform: sts:AssumeRole on {parameters['RoleArn']}", 403)
        return self._give(parameters["RoleArn"], parameters["RoleSessionName"])

    def AssumeRoleWithWebIdentity(self, parameters):
        if parameters["WebIdentityToken"] != self.world.settings["web_identity_token"]:
            raise Refused("InvalidIdentityToken", "The token is not one that we issued")
        return self._give(parameters["RoleArn"], parameters["RoleSessionName"])


class Iam:
    def __init__(self, world):
        self.world, self.roles, self.profiles, self.since = world, {}, {}, {}

    def allowed(self, role):
        """The actions that the role's policies name."""
        return {action for document in self.roles.get(role, {}).values()
                for statement in json.loads(document)["Statement"] for action in statement["Action"]}

    def allows(self, role, action, resource):
        """Whether a statement allows it for this resource; conditions are not looked at."""
        for document in self.roles.get(role, {}).values():
            for statement in json.loads(document)["Statement"]:
                resources = statement["Resource"]
                resources = [resources] if isinstance(resources, str) else resources
                if action in statement["Action"] and any(fnmatch.fnmatchcase(resource, each) for each in resources):
                    return True
        return False

    def _found(self, table, name, what):
        if name not in table:
            raise Refused("NoSuchEntity", f"The {what} {name} cannot be found.", 404)
        return table[name]

    def _role(self, name):
        return {"RoleName": name, "Path": "/", "RoleId": f"AROA{name}"[:32].ljust(16, "0"), "CreateDate": 0,
                "Arn": f"arn:aws:iam::{self.world.account}:role/{name}"}

    def CreateRole(self, parameters):
        name = parameters["RoleName"]
        if name in self.roles:
            raise Refused("EntityAlreadyExists", f"Role with name {name} already exists.", 409)
        self.roles[name] = {}
        return {"Role": self._role(name)}

    def PutRolePolicy(self, parameters):
        self._found(self.roles, parameters["RoleName"], "role")[parameters["PolicyName"]] = parameters["PolicyDocument"]

    def DeleteRolePolicy(self, parameters):
        role = self._found(self.roles, parameters["RoleName"], "role")
        self._found(role, parameters["PolicyName"], "role policy")
        del role[parameters["PolicyName"]]

    def DeleteRole(self, parameters):
        name = parameters["RoleName"]
        if self._found(self.roles, name, "role") or any(name in each for each in self.profiles.values()):
            raise Refused("DeleteConflict", "Cannot delete entity, must detach all policies and profiles first.", 409)
        del self.roles[name]

    def _profile(self, name):
        return {"InstanceProfileName": name, "Path": "/", "InstanceProfileId": f"AIPA{name}"[:32].ljust(16, "0"),
                "Arn": f"arn:aws:iam::{self.world.account}:instance-profile/{name}", "CreateDate": 0,
                "Roles": [self._role(each) for each in self.profiles[name]]}

    def CreateInstanceProfile(self, parameters):
        name = parameters["InstanceProfileName"]
        if name in self.profiles:
            raise Refused("EntityAlreadyExists", f"Instance Profile {name} already exists.", 409)
        self.profiles[name], self.since[name] = [], self.world.now()
        return {"InstanceProfile": self._profile(name)}

    def GetInstanceProfile(self, parameters):
        self._found(self.profiles, parameters["InstanceProfileName"], "instance profile")
        return {"InstanceProfile": self._profile(parameters["InstanceProfileName"])}

    def AddRoleToInstanceProfile(self, parameters):
        profile = self._found(self.profiles, parameters["InstanceProfileName"], "instance profile")
        self._found(self.roles, parameters["RoleName"], "role")
        if profile:
            raise Refused("LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1", 409)
        profile.append(parameters["RoleName"])

    def GetRole(self, parameters):
        self._found(self.roles, parameters["RoleName"], "role")
        return {"Role": self._role(parameters["RoleName"])}

    def SimulatePrincipalPolicy(self, parameters):
        kind, _, role = parameters["PolicySourceArn"].rpartition(":")[2].partition("/")
        if kind == "user":  # who may do everything that is not refused
            return {"IsTruncated": False, "EvaluationResults": [
                {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision":
                 "implicitDeny" if action.partition(":")[2] in self.world.settings["refuse"] else "allowed"}
                for action in parameters["ActionNames"] for resource in parameters.get("ResourceArns", ["*"])]}
        self._found(self.roles, role, "role")
        return {"IsTruncated": False, "EvaluationResults": [
            {"EvalActionName": action, "EvalResourceName": resource,
             "EvalDecision": "allowed" if action in self.allowed(role) else "implicitDeny"}
            for action in parameters["ActionNames"] for resource in parameters.get("ResourceArns", ["*"])]}

    def RemoveRoleFromInstanceProfile(self, parameters):
        profile = self._found(self.profiles, parameters["InstanceProfileName"], "instance profile")
        if parameters["RoleName"] not in profile:
            raise Refused("NoSuchEntity", "The role is not in the profile.", 404)
        profile.remove(parameters["RoleName"])

    def DeleteInstanceProfile(self, parameters):
        if self._found(self.profiles, parameters["InstanceProfileName"], "instance profile"):
            raise Refused("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.", 409)
        del self.profiles[parameters["InstanceProfileName"]]


class AutoScaling:
    """Groups keep as many instances in EC2 as they want to have."""

    def __init__(self, world, ec2):
        self.world, self.ec2, self.groups = world, ec2, {}

    def _group(self, name):
        self._forget_deleted()
        if name not in self.groups:
            raise Refused("ValidationError", f"AutoScalingGroup name not found - AutoScalingGroup {name} not found")
        return self.groups[name]

    def _settle(self, group):
        alive = [each for each in group["members"]
                 if self.ec2._state(self.ec2.instances[each]) in ("pending", "running")]
        while len(alive) < group["desired"]:
            if self.world.machines is not None and not self.world.machines.has_free():
                break  # as a zone without capacity: tried again at the next look
            subnet = group["subnets"][len(alive) % len(group["subnets"])]
            alive.append(self._launch(group, subnet))
        for extra in alive[group["desired"]:]:
            self.ec2.instances[extra]["ended"] = self.world.now()
            if self.world.machines is not None:
                self.world.machines.end(extra)
            group["ended"].append(extra)
        group["members"] = alive[:group["desired"]]

    def _launch(self, group, subnet):
        """An instance as its launch template describes it."""
        data = self.ec2.template_data[group["template"]]
        kind = data.get("InstanceType", "t3.micro")
        parameters = {"ImageId": "ami-0000000000000001"} | data
        cards = [dict(card) for card in data.get("NetworkInterfaces", ())]
        groups = self.ec2._groups_of(parameters | {"NetworkInterfaces": cards})
        made = self.ec2._make(kind, self.ec2.subnets[subnet], subnet, parameters, 0, groups,
                              self.ec2._profile_of(parameters))
        self.ec2.tags[made] = dict(group["tags"])
        return made

    def _check_template(self, template):
        """As Auto Scaling tries a template before it makes a group of it."""
        data = self.ec2.template_data[template]
        try:
            self.ec2._profile_of(data)
            self.ec2._groups_of(data)
        except Refused as refused:
            raise Refused("ValidationError", f"You must use a valid fully-formed launch template. {refused}")
        if data.get("ImageId", "ami-0000000000000001") not in self.ec2.images:
            raise Refused("ValidationError", "You must use a valid fully-formed launch template. The image id "
                          f"'[{data['ImageId']}]' does not exist")
        if self.world.settings["strict"] and data.get("KeyName") and data["KeyName"] not in self.ec2.keys:
            raise Refused("ValidationError", "You must use a valid fully-formed launch template. The key pair "
                          f"'{data['KeyName']}' does not exist")

    def _forget_deleted(self):
        """A group that is deleted is there until its last machine is gone."""
        for name, group in list(self.groups.items()):
            gone = all(self.ec2._state(self.ec2.instances[each]) == "terminated" for each in group["ended"])
            if group["deleting"] and (gone or self.world.machines is None):
                del self.groups[name]

    def CreateAutoScalingGroup(self, parameters):
        self._forget_deleted()
        name = parameters["AutoScalingGroupName"]
        if name in self.groups:
            raise Refused("AlreadyExists", f"AutoScalingGroup by this name already exists - {name}")
        template = parameters.get("LaunchTemplate", {}).get("LaunchTemplateId")
        if template not in self.ec2.templates:
            raise Refused("ValidationError", "You must use a valid fully-formed launch template.")
        self._check_template(template)
        subnets = parameters.get("VPCZoneIdentifier", "").split(",")
        if not set(subnets) <= set(self.ec2.subnets):
            raise Refused("ValidationError", "The subnet ID does not exist")
        self.groups[name] = {"min": parameters["MinSize"], "max": parameters["MaxSize"], "members": [], "ended": [],
                             "template": template, "deleting": False,
                             "desired": parameters.get("DesiredCapacity", parameters["MinSize"]), "subnets": subnets,
                             "tags": {each["Key"]: each["Value"] for each in parameters.get("Tags", ())}}
        self._settle(self.groups[name])

    def SetDesiredCapacity(self, parameters):
        group = self._group(parameters["AutoScalingGroupName"])
        if not group["min"] <= parameters["DesiredCapacity"] <= group["max"]:
            raise Refused("ValidationError", f"New SetDesiredCapacity value {parameters['DesiredCapacity']} is outside")
        group["desired"] = parameters["DesiredCapacity"]
        self._settle(group)

    def DeleteAutoScalingGroup(self, parameters):
        group = self._group(parameters["AutoScalingGroupName"])
        if group["members"] and not parameters.get("ForceDelete"):
            raise Refused("ResourceInUse", "You cannot delete an AutoScalingGroup while there are instances in it")
        group["desired"] = group["min"] = 0
        group["deleting"] = True
        self._settle(group)
        self._forget_deleted()

    def DescribeAutoScalingGroups(self, parameters):
        found = []
        self._forget_deleted()
        for name, group in self.groups.items():
            if parameters.get("AutoScalingGroupNames") and name not in parameters["AutoScalingGroupNames"]:
                continue
            self._settle(group)
            members = [{"InstanceId": each, "AvailabilityZone": self.ec2.instances[each]["zone"],
                        "LifecycleState": "InService" if self.ec2._state(self.ec2.instances[each]) == "running"
                        else "Pending", "HealthStatus": "Healthy", "ProtectedFromScaleIn": False}
                       for each in group["members"]]
            status = {"Status": "Delete in progress"} if group["deleting"] else {}
            found.append(status | {"AutoScalingGroupName": name, "MinSize": group["min"], "MaxSize": group["max"],
                          "DesiredCapacity": group["desired"], "DefaultCooldown": 300, "HealthCheckType": "EC2",
                          "AvailabilityZones": sorted({self.ec2.subnets[each] for each in group["subnets"]}),
                          "CreatedTime": 0, "Instances": members,
                          "Tags": [{"Key": key, "Value": value, "ResourceId": name, "PropagateAtLaunch": True,
                                    "ResourceType": "auto-scaling-group"} for key, value in group["tags"].items()]})
        page, token = self.ec2._page(found, parameters, 50)
        return {"AutoScalingGroups": page, "NextToken": token}


class Ssm:
    def __init__(self, world):
        self.world = world

    def GetParameter(self, parameters):
        value = self.world.settings["parameters"].get(parameters["Name"])
        if value is None:
            raise Refused("ParameterNotFound", f"Parameter {parameters['Name']} not found.")
        return {"Parameter": {"Name": parameters["Name"], "Type": "String", "Value": value, "Version": 1}}


class ServiceQuotas:
    def __init__(self, world):
        self.world = world

    def GetServiceQuota(self, parameters):
        code, settings = parameters["QuotaCode"], self.world.settings
        return {"Quota": {"ServiceCode": parameters["ServiceCode"], "QuotaCode": code,
                          "Value": float(settings["quotas"].get(code, settings["vcpus_max"]))}}


class Efs:
    """By (method, the path's words with {} for ids); the model's operations by name."""

    def __init__(self, world):
        self.world, self.systems, self.targets, self.numbers = world, {}, {}, itertools.count(1)
        self.groups, self.begun = {}, {}  # of mount targets

    def _system(self, one):
        return {"FileSystemId": one["id"], "OwnerId": self.world.account, "CreationToken": one["token"],
                "CreationTime": self.world.now(), "LifeCycleState": "available", "NumberOfMountTargets": 0,
                "SizeInBytes": {"Value": 0}, "PerformanceMode": "generalPurpose", "Name": one["name"],
                "Tags": one["tags"]}

    def CreateFileSystem(self, parameters):
        for one in self.systems.values():
            if one["token"] == parameters["CreationToken"]:
                raise Refused("FileSystemAlreadyExists", f"File system '{one['id']}' already exists", 409)
        tags = parameters.get("Tags", [])
        name = next((tag["Value"] for tag in tags if tag["Key"] == "Name"), "")
        one = {"id": f"fs-{next(self.numbers):017x}", "token": parameters["CreationToken"], "name": name, "tags": tags}
        self.systems[one["id"]] = one
        return self._system(one)

    def DescribeFileSystems(self, parameters):
        items = [one for one in self.systems.values() if parameters.get("CreationToken", one["token"]) == one["token"]]
        start, size = int(parameters.get("Marker", 0)), self.world.settings["page_max"]
        out = {"FileSystems": [self._system(one) for one in items[start:start + size]]}
        if start + size < len(items):
            out["NextMarker"] = str(start + size)
        return out

    def DeleteFileSystem(self, parameters):
        if any(each["FileSystemId"] == parameters["FileSystemId"] for each in self.targets.values()):
            raise Refused("FileSystemInUse", "There are mount targets", 409)
        if self.systems.pop(parameters["FileSystemId"], None) is None:
            raise Refused("FileSystemNotFound", "no such file system", 404)

    def CreateMountTarget(self, parameters):
        if parameters["FileSystemId"] not in self.systems:
            raise Refused("FileSystemNotFound", f"File system '{parameters['FileSystemId']}' does not exist.", 404)
        zone = self.world.services["ec2"].subnets.get(parameters["SubnetId"])
        if zone is None:
            raise Refused("SubnetNotFound", f"The subnet ID '{parameters['SubnetId']}' does not exist", 400)
        if any(each["FileSystemId"] == parameters["FileSystemId"] and each["AvailabilityZoneName"] == zone
               for each in self.targets.values()):
            raise Refused("MountTargetConflict", "mount target already exists in this AZ", 409)
        number = next(self.numbers)
        target = {"MountTargetId": f"fsmt-{number:017x}", "FileSystemId": parameters["FileSystemId"],
                  "SubnetId": parameters["SubnetId"], "IpAddress": f"10.0.0.{number % 250 + 1}",
                  "AvailabilityZoneName": zone}
        self.targets[target["MountTargetId"]] = target
        self.groups[target["MountTargetId"]] = parameters.get("SecurityGroups", [])
        self.begun[target["MountTargetId"]] = self.world.now()
        return self._target(target)

    def _target(self, one):
        late = self.world.now() < self.begun[one["MountTargetId"]] + self.world.settings["boot_s"]
        return one | {"LifeCycleState": "creating" if late else "available"}

    def DescribeMountTargetSecurityGroups(self, parameters):
        if parameters["MountTargetId"] not in self.targets:
            raise Refused("MountTargetNotFound", "no such mount target", 404)
        return {"SecurityGroups": self.groups[parameters["MountTargetId"]]}

    def DescribeMountTargets(self, parameters):
        return {"MountTargets": [self._target(each) for each in self.targets.values()
                                 if each["FileSystemId"] == parameters.get("FileSystemId")]}

    def DeleteMountTarget(self, parameters):
        if self.targets.pop(parameters["MountTargetId"], None) is None:
            raise Refused("MountTargetNotFound", "no such mount target", 404)
