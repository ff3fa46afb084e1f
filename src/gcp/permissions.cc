#include "gcp/permissions.h"

#include <algorithm>

namespace rubato::gcp {

std::vector<std::string> head_permissions() {
  return {"compute.acceleratorTypes.get",    "compute.disks.create",
          "compute.disks.setLabels",         "compute.disks.use",
          "compute.images.useReadOnly",      "compute.instances.create",
          "compute.instances.delete",        "compute.instances.get",
          "compute.instances.list",          "compute.instances.setLabels",
          "compute.instances.setMetadata",   "compute.instances.setServiceAccount",
          "compute.instances.setTags",       "compute.instances.start",
          "compute.instances.stop",          "compute.machineTypes.get",
          "compute.subnetworks.use",         "compute.subnetworks.useExternalIp",
          "compute.zoneOperations.get",      "compute.zones.get"};
}

std::vector<std::string> person_permissions(bool makes_account) {
  std::vector<std::string> out = head_permissions();
  out.insert(out.end(), {"compute.firewalls.create", "compute.firewalls.delete", "compute.firewalls.get",
                         "compute.firewalls.update", "compute.networks.updatePolicy", "compute.projects.get",
                         "compute.subnetworks.list", "compute.zones.list", "iam.serviceAccounts.actAs"});
  if (makes_account) {
    out.insert(out.end(), {"iam.roles.create", "iam.roles.get", "iam.roles.update", "iam.serviceAccounts.create",
                           "iam.serviceAccounts.delete", "iam.serviceAccounts.get",
                           "resourcemanager.projects.getIamPolicy", "resourcemanager.projects.setIamPolicy"});
  }
  return out;
}

std::string role_document(const std::string& title, const std::string& description,
                          std::vector<std::string> permissions) {
  std::ranges::sort(permissions);
  std::string out = "title: " + title + "\ndescription: " + description + "\nstage: GA\nincludedPermissions:\n";
  for (const std::string& permission : permissions) out += "- " + permission + "\n";
  return out;
}

}  // namespace rubato::gcp
