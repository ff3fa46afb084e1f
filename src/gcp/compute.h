// Compute: the calls that make, list and end machines, and what surrounds them. Lists are read page by page, whole.
//
// What changes something is an operation of Google's: begun by one call, and waited for by another. Each has a request
// id: repeated with the same one, it is the same operation.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gcp/client.h"

namespace rubato::gcp {

using Labels = std::map<std::string, std::string>;

struct Instance {
  std::string id;                 // digits; no other machine ever has it
  std::string name, zone;         // both together name it while it is there
  std::string status;             // PROVISIONING, STAGING, RUNNING, STOPPING, TERMINATED (it is stopped), …
  std::string private_address, public_address, subnetwork;
  std::string machine_type;       // "n1-standard-2"
  std::string label_fingerprint;  // of the labels that were read
  Labels labels;
  bool spot = false;
  bool uses_login = false;        // its own metadata switches OS Login on
  const std::string& label(std::string_view key) const;  // empty: none
};

// Of the whole project, by labels that all have. Throws kUnavailable when a zone of `region` did not answer: what is
// not in the list would be taken for gone.
Task<std::vector<Instance>> list_instances(Client& client, Labels labels, std::string region);
Task<std::optional<Instance>> get_instance(Client& client, std::string zone, std::string name);

// ---- operations ----

// The UUID that a text stands for: always the same one.
std::string request_id_of(std::string_view text);

struct Operation {
  std::string name;
  std::string scope;      // "zones/us-west1-a", "global"
  std::string target_id;  // of what it changes
  bool is_done = false;
  bool is_replayed = false;  // it was begun some time ago, by a request with the same id
  std::optional<rest::CloudError> error;
};

// As it is begun. Throws CloudError for a refusal; what the operation itself comes to is in its `error`.
// `body` may name a sourceInstanceTemplate, which is a parameter of the call.
Task<Operation> insert_instance(Client& client, std::string zone, nlohmann::json body, std::string request_id);
Task<Operation> delete_instance(Client& client, std::string zone, std::string name);
Task<Operation> stop_instance(Client& client, std::string zone, std::string name);
Task<Operation> start_instance(Client& client, std::string zone, std::string name);
// All labels, those of `changes` new. A fingerprint that is no longer right is read again.
Task<Operation> change_labels(Client& client, Instance instance, Labels changes);

// Until it is done; throws kUnavailable after the deadline.
Task<Operation> wait_operation(Client& client, Operation operation, Instant deadline);
// The same for one whose failure is an Error of the caller's.
Task<void> finish_operation(Client& client, Operation operation, Instant deadline);

// ---- what surrounds them ----

Task<std::vector<std::string>> list_zones(Client& client, std::string region);  // that are up, in order
struct Subnetwork {
  std::string name, link, network;  // both as "projects/…"
};
Task<std::vector<Subnetwork>> list_subnetworks(Client& client, std::string region);
Task<bool> has_machine_type(Client& client, std::string zone, std::string name);
// Whether there is a list of them at all: servers that are not Google's may have none.
Task<bool> knows_machine_types(Client& client, std::string zone);
// By "projects/P/global/images/NAME" or ".../images/family/NAME".
Task<bool> has_image(Client& client, std::string path);
// The newest of a project's images whose family begins so, that is not deprecated; "projects/…"; empty: none.
Task<std::string> newest_image(Client& client, std::string project, std::string family_prefix);

struct Firewall {
  std::string name, description, network;
  std::vector<std::string> source_ranges;
};
Task<std::optional<Firewall>> get_firewall(Client& client, std::string name);
Task<void> insert_firewall(Client& client, nlohmann::json body);
Task<void> patch_firewall(Client& client, std::string name, nlohmann::json body);
Task<bool> delete_firewall(Client& client, std::string name);  // false: there was none

struct Disk {
  std::string name, zone;
  bool in_use = false;
  std::string kind;  // "pd-balanced"
  int64_t gigabytes = 0;
};
Task<std::vector<Disk>> list_disks(Client& client, Labels labels);

struct Quota {
  std::string metric;  // "CPUS", "NVIDIA_T4_GPUS"
  double limit = 0, usage = 0;
};
// Of a region.
Task<std::vector<Quota>> list_quotas(Client& client, std::string region);

// "https://www.googleapis.com/compute/v1/projects/p/zones/z" is "projects/p/zones/z"; what has no host stays.
std::string without_host(std::string_view link);
// The last part of an address.
std::string last_part(std::string_view link);

}  // namespace rubato::gcp
