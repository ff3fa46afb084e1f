// EC2: what surrounds machines: networks, security groups, key pairs, zones, placement groups.
#pragma once

#include <string>
#include <vector>

#include "aws/ec2.h"

namespace rubato::aws {

struct Vpc {
  std::string id, cidr;
  bool is_default = false;
};
Task<std::vector<Vpc>> describe_vpcs(Client& client, std::vector<std::string> ids, std::vector<Filter> filters);

struct Subnet {
  std::string id, vpc, zone, cidr, state;
  int free_addresses = 0;
  bool is_default = false;  // of its zone
  bool gives_public_addresses = false;
};
Task<std::vector<Subnet>> describe_subnets(Client& client, std::vector<std::string> ids, std::vector<Filter> filters);

struct Zone {
  std::string name, id, state;
};
Task<std::vector<Zone>> describe_zones(Client& client);

// One permission: from addresses, or from the members of a group.
struct Rule {
  std::string protocol = "tcp";  // "-1": all
  int from_port = 0, to_port = 0;
  std::vector<std::string> cidrs;   // "203.0.113.7/32"
  std::vector<std::string> groups;  // ids
  std::string note;
};
struct SecurityGroup {
  std::string id, name, vpc, note;
  std::vector<Rule> ingress;
  Tags tags;
};
Task<std::vector<SecurityGroup>> describe_security_groups(Client& client, std::vector<std::string> ids,
                                                          std::vector<Filter> filters);
// Throws kConflict when the VPC has one of that name; one that has all these tags is the one that was asked for.
Task<std::string> create_security_group(Client& client, std::string name, std::string note, std::string vpc, Tags tags);
Task<void> delete_security_group(Client& client, std::string id);
// A rule that is there already is no error. A group that is not known is asked for again for a while: it may be new.
Task<void> authorize_ingress(Client& client, std::string group, std::vector<Rule> rules);
Task<void> revoke_ingress(Client& client, std::string group, Rule rule);

struct KeyPair {
  std::string id, name, fingerprint;
  Tags tags;
};
Task<std::vector<KeyPair>> describe_key_pairs(Client& client, std::vector<Filter> filters);
// `public_key` as OpenSSH writes it. Throws kConflict when there is one of that name without these tags.
Task<KeyPair> import_key_pair(Client& client, std::string name, std::string public_key, Tags tags);
// One that is not there is no error.
Task<void> delete_key_pair(Client& client, std::string name);

struct Volume {
  std::string id, zone, state, kind;  // state: available (no machine holds it), in-use; kind: "gp3"
  int64_t gigabytes = 0;
  Tags tags;
};
Task<std::vector<Volume>> describe_volumes(Client& client, std::vector<Filter> filters);

struct PlacementGroup {
  std::string name, strategy, state, id;
  Tags tags;
};
Task<std::vector<PlacementGroup>> describe_placement_groups(Client& client, std::vector<Filter> filters);
// As for security groups.
Task<void> create_placement_group(Client& client, std::string name, std::string strategy, Tags tags);
Task<void> delete_placement_group(Client& client, std::string name);

}  // namespace rubato::aws
