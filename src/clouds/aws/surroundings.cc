#include "clouds/aws/surroundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "aws/identity.h"
#include "aws/policy.h"
#include "aws/storage.h"
#include "clouds/aws/file_systems.h"
#include "clouds/aws/instance_types.h"
#include "clouds/common/address_range.h"
#include "clouds/common/inventory.h"
#include "core/sha256.h"
#include "core/text.h"
#include "rest/cloud_error.h"

namespace rubato::clouds {
namespace {

using aws::Client;
using nlohmann::json;

constexpr size_t kRoleNameMax = 64;  // IAM's
constexpr int kSshPort = 22;
constexpr std::string_view kSshNote = "SSH for rubato up";
// Ray makes these for every head, and its files name them for workers.
constexpr std::string_view kRaysProfiles[] = {"ray-autoscaler-v1", "ray-autoscaler-cloudwatch-v1"};
constexpr Duration kDependencyMax = 180s;  // network interfaces outlive their machines for a while
constexpr Duration kDependencyPause = 2s;
// Public parameters of Canonical and AWS; with {}: the architecture.
constexpr std::string_view kUbuntu = "/aws/service/canonical/ubuntu/server/22.04/stable/current/{}/hvm/ebs-gp2/ami-id";
constexpr std::string_view kDeepLearning =
    "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id";
// The same by their names, for where there are no such parameters.
constexpr std::string_view kCanonical = "099720109477";
constexpr std::string_view kUbuntuName = "ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-{}-server-*";
constexpr std::string_view kAnyUbuntuName = "ubuntu/images/*-{}-server-*";
constexpr std::string_view kDeepLearningName = "Deep Learning{} Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)*";

bool is_rays_profile(const std::string& name) {
  return std::ranges::find(kRaysProfiles, name) != std::end(kRaysProfiles);
}

aws::Tags cluster_tags(const Ec2Config& config) {
  return {{std::string(aws::kClusterTag), config.cluster}, {"Name", group_name_of(config)}};
}

std::vector<aws::Filter> filter(std::string name, std::vector<std::string> values) {
  std::vector<aws::Filter> out;
  out.push_back({std::move(name), std::move(values)});
  return out;
}

bool is_ours(const aws::Tags& tags, const Ec2Config& config) {
  return std::ranges::any_of(
      tags, [&](const auto& tag) { return tag.first == aws::kClusterTag && tag.second == config.cluster; });
}

bool same_rule(const aws::Rule& a, const aws::Rule& b) {
  return a.protocol == b.protocol && (a.protocol == "-1" || (a.from_port == b.from_port && a.to_port == b.to_port));
}

// Whether the group has it already, in one rule or in several.
bool has_rule(const aws::SecurityGroup& group, const aws::Rule& wanted) {
  const auto covers = [&](const std::string& from, auto member) {
    return std::ranges::any_of(group.ingress, [&](const aws::Rule& one) {
      return same_rule(one, wanted) && std::ranges::find(one.*member, from) != (one.*member).end();
    });
  };
  return std::ranges::all_of(wanted.cidrs, [&](const std::string& one) { return covers(one, &aws::Rule::cidrs); }) &&
         std::ranges::all_of(wanted.groups, [&](const std::string& one) { return covers(one, &aws::Rule::groups); });
}

bool is_wanted(const std::vector<aws::Rule>& rules, const aws::Rule& there, const std::string& cidr) {
  return std::ranges::any_of(rules, [&](const aws::Rule& one) {
    return same_rule(one, there) && std::ranges::find(one.cidrs, cidr) != one.cidrs.end();
  });
}

std::vector<std::string> subnets_named(const NodeTypeConfig& type) {
  std::vector<std::string> out;
  const json config = type.node_config;
  if (const auto several = config.find("SubnetIds"); several != config.end() && several->is_array()) {
    for (const json& one : *several) {
      if (one.is_string()) out.push_back(one.get<std::string>());
    }
  }
  if (const auto one = config.find("SubnetId"); one != config.end() && one->is_string()) out.push_back(*one);
  if (const auto cards = config.find("NetworkInterfaces"); cards != config.end() && cards->is_array()) {
    for (const json& card : *cards) {
      if (const std::string id = card.value("SubnetId", ""); !id.empty()) out.push_back(id);
    }
  }
  return out;
}

bool has_key(const NodeTypeConfig& type, const Ec2Surroundings& around, const std::string& name, const char* key) {
  if (type.node_config.contains(key)) return true;
  const auto found = around.template_keys.find(name);
  return found != around.template_keys.end() && std::ranges::find(found->second, key) != found->second.end();
}

bool has_own_groups(const NodeTypeConfig& type, const Ec2Surroundings& around, const std::string& name) {
  if (has_key(type, around, name, "SecurityGroupIds") || has_key(type, around, name, "SecurityGroups")) return true;
  const auto cards = type.node_config.find("NetworkInterfaces");
  if (cards == type.node_config.end() || !cards->is_array()) return has_key(type, around, name, "NetworkInterfaces");
  return std::ranges::all_of(*cards, [](const auto& card) { return card.contains("Groups"); });
}

// The steps of `up`, each on what those before have found.
class Preparation {
 public:
  Preparation(Client& client, SurroundingsOrder order) : client_(client), order_(std::move(order)) {}

  Task<FoundSurroundings> run() {
    out_.around.region = client_.region();
    co_await read_templates();
    report("network");
    co_await find_network();
    report("security group");
    co_await ensure_group();
    report("key pair");
    co_await ensure_key();
    report("roles");
    co_await ensure_workers_role();
    co_await ensure_role();
    report("placement groups");
    co_await ensure_placement();
    if (!config().file_systems.empty()) report("file systems");
    co_await ensure_mounts();
    report("images");
    co_await find_images();
    co_return std::move(out_);
  }

  // As run(), as far as nothing is made.
  Task<Ec2Surroundings> check(std::vector<provider::CloudCheck>& checks) {
    Task<std::string> network = check_network();
    co_await try_check("network", std::move(network), checks);
    Task<std::string> ssh = check_ssh();
    co_await try_check("ssh", std::move(ssh), checks);
    Task<std::string> images = check_images();
    co_await try_check("images", std::move(images), checks);
    co_return std::move(out_.around);
  }

 private:
  Task<std::string> check_network() {
    out_.around.region = client_.region();
    co_await read_templates();
    co_await find_network();
    std::vector<std::string> subnets;
    for (const Ec2Surroundings::Subnet& one : out_.around.subnets) {
      subnets.push_back(fmt::format("{} ({})", one.id, one.zone));
    }
    for (const auto& [id, zone] : out_.around.zones) subnets.push_back(fmt::format("{} ({})", id, zone));
    co_return fmt::format("{}: {}", out_.around.vpc, subnets.empty() ? "the file's own" : join(subnets, ", "));
  }

  Task<std::string> check_ssh() {
    SshFrom asked{config().ssh_from, config().internal_only, config().provider_where, order_.env, own_server()};
    const std::vector<std::string> from = co_await find_ssh_from(client_.world(), std::move(asked));
    co_return "let in from " + join(from, ", ");
  }

  // Each image is looked at: an AMI of another region, or one that is gone, is not there.
  Task<std::string> check_images() {
    co_await find_images();
    std::map<std::string, std::string> types;  // by the image
    for (const auto& [type, image] : out_.around.images) types.emplace(image, type);
    std::vector<std::string> parts;
    for (const auto& [id, type] : types) {
      std::vector<std::string> ids{id}, owners;
      std::vector<aws::Filter> none;
      std::vector<aws::Image> found;
      try {
        found = co_await aws::describe_images(client_, std::move(ids), std::move(owners), std::move(none));
      } catch (const rest::CloudError& error) {
        if (error.code != ErrorCode::kNotFound && !error.reason.starts_with("InvalidAMIID")) throw;
      }
      if (found.empty()) {
        throw Error(ErrorCode::kUsage, fmt::format("{} has no image '{}' that you may use", client_.region(), id),
                    where(type, "ImageId"), "write one of that region, or leave ImageId out for Ubuntu 22.04");
      }
      parts.push_back(fmt::format("{} ({})", id, found.front().name));
    }
    co_return parts.empty() ? "those of the launch templates" : join(parts, ", ");
  }

  // The server that is asked in place of AWS; empty: none.
  std::string own_server() const {
    const auto found = client_.config().endpoints.find(std::string(aws::kEc2.name));
    return found == client_.config().endpoints.end() ? "" : rest::parse_url(found->second.text, "").endpoint.host;
  }
  const Ec2Config& config() const { return order_.config; }
  const ClusterFile& file() const { return *order_.file; }
  void report(const std::string& what) {
    if (order_.on_progress) order_.on_progress("EC2: " + what);
  }
  std::string where(const std::string& type, const char* key) const {
    return file().place(fmt::format("node_types.{}.node_config{}{}", type, *key ? "." : "", key));
  }

  // What a launch template settles need not be filled in, and sometimes must not.
  Task<void> read_templates() {
    for (const auto& [name, type] : file().types) {
      const auto named = type.node_config.find("LaunchTemplate");
      if (named == type.node_config.end() || !named->is_object()) continue;
      const json reference = *named;
      const std::string version = reference.contains("Version") && reference["Version"].is_number_integer()
                                      ? std::to_string(reference["Version"].get<int64_t>())
                                      : reference.value("Version", "$Default");
      std::optional<aws::TemplateContents> found = co_await aws::describe_template(
          client_, reference.value("LaunchTemplateId", ""), reference.value("LaunchTemplateName", ""), version);
      if (!found) {
        throw Error(ErrorCode::kUsage, "there is no such launch template, or not this version of it",
                    where(name, "LaunchTemplate"), fmt::format("look at those of {}", client_.region()));
      }
      out_.around.template_keys[name] = std::move(found->keys);
      template_profiles_[name] = std::move(found->profile);
      if (!found->user_data.empty()) out_.around.template_user_data[name] = std::move(found->user_data);
    }
  }

  Task<void> find_network() {
    std::set<std::string> named;
    for (const auto& [name, type] : file().types) {
      for (const std::string& id : subnets_named(type)) named.insert(id);
    }
    std::string vpc;
    if (!named.empty()) {
      std::vector<std::string> ids(named.begin(), named.end());
      std::vector<aws::Filter> none;
      const auto found = co_await described(std::move(ids), std::move(none));
      for (const aws::Subnet& one : found) {
        out_.around.zones[one.id] = one.zone;
        if (!vpc.empty() && one.vpc != vpc) {
          throw Error(ErrorCode::kUsage, fmt::format("the subnets are of two networks, {} and {}", vpc, one.vpc),
                      file().place("node_types"), "name subnets of one VPC");
        }
        vpc = one.vpc;
      }
    }
    const bool all_named = std::ranges::all_of(file().types, [&](const auto& one) {
      return !subnets_named(one.second).empty() || has_key(one.second, out_.around, one.first, "SubnetId") ||
             has_key(one.second, out_.around, one.first, "NetworkInterfaces");
    });
    if (vpc.empty()) vpc = co_await default_vpc(all_named);
    out_.around.vpc = vpc;
    if (!all_named) co_await find_subnets();
  }

  Task<std::vector<aws::Subnet>> described(std::vector<std::string> ids, std::vector<aws::Filter> none) {
    const std::string all = join(ids, ", ");
    try {
      co_return co_await aws::describe_subnets(client_, std::move(ids), std::move(none));
    } catch (const rest::CloudError& error) {
      if (error.code != ErrorCode::kNotFound) throw;
      throw Error(ErrorCode::kUsage, fmt::format("{} does not have all of {}", client_.region(), all),
                  file().place("node_types"), "write subnets of that region, or leave them out");
    }
  }

  Task<std::string> default_vpc(bool may_be_absent) {
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = filter("is-default", {"true"});
    const auto found = co_await aws::describe_vpcs(client_, std::move(any), std::move(filters));
    const auto usual = std::ranges::find(found, true, &aws::Vpc::is_default);
    if (usual != found.end()) co_return usual->id;
    if (may_be_absent) co_return std::string();
    co_return co_await only_vpc();
  }

  // Without a default one: the only one that has subnets for us.
  Task<std::string> only_vpc() {
    std::vector<std::string> any;
    std::vector<aws::Filter> none;
    const auto subnets = co_await aws::describe_subnets(client_, std::move(any), std::move(none));
    std::set<std::string> vpcs;
    for (const aws::Subnet& one : subnets) {
      if (fits(one)) vpcs.insert(one.vpc);
    }
    if (vpcs.size() == 1) co_return *vpcs.begin();
    const std::vector<std::string> others(vpcs.begin(), vpcs.end());
    throw Error(ErrorCode::kUsage,
                fmt::format("{} has no default VPC{}", client_.region(),
                            vpcs.empty() ? ", and no other with a subnet that fits"
                                         : ", and several others: " + join(others, ", ")),
                config().provider_where, "name subnets in each node type: node_config: {SubnetIds: [subnet-...]}");
  }

  bool fits(const aws::Subnet& one) const {
    const auto& zones = config().zones;
    const bool wanted = zones.empty() || std::ranges::find(zones, one.zone) != zones.end();
    return one.state == "available" && wanted && (config().internal_only || one.gives_public_addresses);
  }

  Task<void> find_subnets() {
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = filter("vpc-id", {out_.around.vpc});
    std::vector<aws::Subnet> found = co_await aws::describe_subnets(client_, std::move(any), std::move(filters));
    // Whatever the filter let through.
    std::erase_if(found, [&](const aws::Subnet& one) { return one.vpc != out_.around.vpc || !fits(one); });
    std::ranges::sort(found, {}, [](const aws::Subnet& one) { return std::pair(one.zone, one.id); });
    const auto order = [&](const aws::Subnet& one) { return std::ranges::find(config().zones, one.zone); };
    if (!config().zones.empty()) std::ranges::stable_sort(found, {}, order);
    for (const aws::Subnet& one : found) out_.around.subnets.push_back({one.id, one.zone});
    if (!out_.around.subnets.empty()) co_return;
    throw Error(ErrorCode::kUsage,
                fmt::format("{} has no subnet{}{}", out_.around.vpc,
                            config().internal_only ? "" : " that gives public addresses",
                            config().zones.empty() ? "" : " in " + join(config().zones, ", ")),
                config().provider_where,
                "name others in availability_zone or SubnetIds, or write use_internal_ips: true");
  }

  Task<void> ensure_group() {
    const bool needed = std::ranges::any_of(
        file().types, [&](const auto& one) { return !has_own_groups(one.second, out_.around, one.first); });
    if (!needed) co_return;
    const std::string name = group_name_of(config());
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = filter("group-name", {name});
    filters.push_back({"vpc-id", {out_.around.vpc}});
    const auto found = co_await aws::describe_security_groups(client_, std::move(any), std::move(filters));
    aws::SecurityGroup group;
    if (!found.empty()) group = found.front();
    if (found.empty()) {
      group.id = co_await aws::create_security_group(client_, name, "nodes of the cluster " + config().cluster,
                                                     out_.around.vpc, cluster_tags(config()));
    } else if (!is_ours(group.tags, config())) {
      out_.notes.push_back(
          fmt::format("note: the security group '{}' was there before: its rules are left as they are", name));
      out_.around.security_group = group.id;
      co_return;
    }
    out_.around.security_group = group.id;
    const std::vector<aws::Rule> rules = co_await wanted_rules(group.id);
    for (const aws::Rule& rule : rules) {
      if (has_rule(group, rule)) continue;
      std::vector<aws::Rule> one;
      one.push_back(rule);
      co_await aws::authorize_ingress(client_, group.id, std::move(one));
    }
    co_await close_ssh(group, rules);
  }

  // SSH from where the file has said before, and says no longer. Other people's addresses stay where it says nothing.
  Task<void> close_ssh(const aws::SecurityGroup& group, const std::vector<aws::Rule>& wanted) {
    if (config().ssh_from.empty()) co_return;
    // IPv6 has many ways to write the same: a range of it is old for certain only where the file has none.
    const bool wants_v6 = std::ranges::any_of(
        config().ssh_from, [](const std::string& cidr) { return cidr.find(':') != std::string::npos; });
    std::vector<aws::Rule> old;
    for (const aws::Rule& one : group.ingress) {
      if (one.note != kSshNote || one.from_port != kSshPort || one.to_port != kSshPort) continue;
      aws::Rule rule = one;
      rule.note.clear();
      std::erase_if(rule.cidrs, [&](const std::string& cidr) {
        return (wants_v6 && cidr.find(':') != std::string::npos) || is_wanted(wanted, one, cidr);
      });
      if (!rule.cidrs.empty()) old.push_back(std::move(rule));
    }
    try {
      for (aws::Rule& one : old) co_await aws::revoke_ingress(client_, group.id, std::move(one));
    } catch (const rest::CloudError& error) {
      out_.notes.push_back(fmt::format("note: SSH is still allowed from where ssh_from does not say any more: {}",
                                       error.message));
    }
  }

  Task<std::vector<aws::Rule>> wanted_rules(std::string group) {
    aws::Rule inside;
    inside.protocol = "-1";
    inside.groups = {group};
    aws::Rule ssh;
    ssh.from_port = ssh.to_port = kSshPort;
    ssh.note = kSshNote;
    SshFrom asked{config().ssh_from, config().internal_only, config().provider_where, order_.env, own_server()};
    ssh.cidrs = co_await find_ssh_from(client_.world(), std::move(asked));
    std::vector<aws::Rule> rules = config().rules;
    rules.insert(rules.begin(), {inside, ssh});
    co_return rules;
  }

  Task<void> ensure_key() {
    const bool needed = std::ranges::any_of(
        file().types, [&](const auto& one) { return !has_key(one.second, out_.around, one.first, "KeyName"); });
    if (!needed) co_return;
    const bool given = !config().key_name.empty();
    std::string name = config().key_name;
    if (!given) {
      name = fmt::format("rubato-{}-{}", config().cluster, sha256_hex(order_.public_key).substr(0, 8));
    }
    out_.around.key_name = name;
    std::vector<aws::Filter> filters = filter("key-name", {name});
    const auto found = co_await aws::describe_key_pairs(client_, std::move(filters));
    if (!found.empty() && given && file().auth.ssh_private_key.empty() && !is_ours(found.front().tags, config())) {
      throw Error(ErrorCode::kUsage, fmt::format("the key pair '{}' exists: which file is its private key?", name),
                  config().key_where, "add auth: {ssh_private_key: PATH}, or name a key pair that does not exist");
    }
    if (found.empty()) (void)co_await aws::import_key_pair(client_, name, order_.public_key, cluster_tags(config()));
  }

  Task<void> ensure_role() {
    const auto head = file().types.find(file().head_type);
    const bool names_one =
        head != file().types.end() && has_key(head->second, out_.around, head->first, "IamInstanceProfile");
    const std::string own = names_one ? own_profile(head->first, head->second) : "";
    if (names_one && !is_rays_profile(own)) co_return;
    std::vector<std::string> roles = co_await roles_of_workers();
    const auto& absent = out_.around.absent_profiles;
    if (names_one && std::ranges::find(absent, own) == absent.end()) co_return;
    aws::PolicyRequest request;
    request.whom = aws::PolicyFor::kHead;
    request.cluster = config().cluster;
    request.partition = aws::partition_of(client_.region());
    request.pass_roles = std::move(roles);
    request.buckets = config().buckets;
    aws::InstanceRole role;
    role.name = head_role_name(config());
    role.policy = aws::make_policy(request);
    role.tags = cluster_tags(config());
    out_.around.head_profile = co_await aws::ensure_instance_role(client_, std::move(role));
    out_.new_profile = true;
  }

  Task<void> ensure_workers_role() {
    if (config().buckets.empty()) co_return;
    aws::PolicyRequest request;
    request.whom = aws::PolicyFor::kWorkers;
    request.cluster = config().cluster;
    request.partition = aws::partition_of(client_.region());
    request.buckets = config().buckets;
    aws::InstanceRole role;
    role.name = workers_role_name(config());
    role.policy = aws::make_policy(request);
    role.tags = cluster_tags(config());
    out_.around.worker_profile = co_await aws::ensure_instance_role(client_, std::move(role));
  }

  // The name of the person's own profile that a type gives to its machines; empty: none.
  std::string own_profile(const std::string& name, const NodeTypeConfig& type) const {
    const auto of_template = template_profiles_.find(name);
    std::string text = of_template == template_profiles_.end() ? "" : of_template->second;
    const auto named = type.node_config.find("IamInstanceProfile");
    if (named != type.node_config.end() && named->is_object()) {
      text = named->value("Arn", "");
      if (text.empty()) text = named->value("Name", "");
    }
    return text.substr(text.rfind('/') + 1);
  }

  // Roles of the person's own profiles: whoever makes a machine with one must be allowed to pass its role.
  Task<std::vector<std::string>> roles_of_workers() {
    std::set<std::string> roles;
    for (const auto& [name, type] : file().types) {
      const std::string profile = own_profile(name, type);
      if (profile.empty()) continue;
      std::vector<std::string> found;
      bool refused = false;
      try {
        found = co_await aws::roles_of_profile(client_, profile);
      } catch (const rest::CloudError& error) {
        if (error.code == ErrorCode::kNotFound && is_rays_profile(profile)) {
          out_.around.absent_profiles.push_back(profile);
          out_.notes.push_back(fmt::format("note: '{}' of '{}' is a profile that Ray makes: there is none, and the "
                                           "machines go without",
                                           profile, name));
          continue;
        }
        if (error.code == ErrorCode::kNotFound) {
          throw Error(ErrorCode::kUsage, fmt::format("there is no instance profile '{}'", profile),
                      where(name, "IamInstanceProfile"), "aws iam list-instance-profiles has all");
        }
        refused = true;
      }
      if (refused) {
        found.push_back(fmt::format("arn:{}:iam::*:role/{}", aws::partition_of(client_.region()), profile));
        out_.notes.push_back(fmt::format("note: the role of the instance profile '{}' cannot be read: the head may "
                                         "give workers a role of the same name",
                                         profile));
      }
      roles.insert(found.begin(), found.end());
    }
    co_return std::vector<std::string>(roles.begin(), roles.end());
  }

  // Made when named and absent.
  Task<void> ensure_placement() {
    std::set<std::string> names = placement_groups_of(file());
    if (names.empty()) co_return;
    std::vector<aws::Filter> filters = filter("group-name", {names.begin(), names.end()});
    const auto found = co_await aws::describe_placement_groups(client_, std::move(filters));
    for (const aws::PlacementGroup& one : found) names.erase(one.name);
    for (const std::string& name : names) {
      co_await aws::create_placement_group(client_, name, "cluster", cluster_tags(config()));
      out_.notes.push_back(fmt::format("the placement group '{}' is made", name));
    }
  }

  Task<void> ensure_mounts() {
    if (config().file_systems.empty()) co_return;
    FileSystemsOrder order;
    order.config = config();
    order.security_group = out_.around.security_group;
    for (const auto& [subnet, zone] : out_.around.zones) order.subnets.emplace(zone, subnet);
    for (const Ec2Surroundings::Subnet& one : out_.around.subnets) order.subnets.emplace(one.zone, one.id);
    out_.around.mounts = co_await ensure_file_systems(client_, std::move(order), out_.notes);
  }

  Task<void> find_images() {
    std::map<std::string, std::string> known;  // by the wish
    for (const auto& [name, type] : file().types) {
      if (!type.node_config.contains("ImageId") && has_key(type, out_.around, name, "ImageId")) continue;
      const ImageWish wish = image_wish(json(type.node_config));
      if (wish.kind == ImageWish::Kind::kId) {
        out_.around.images[name] = wish.text;
        continue;
      }
      std::string& image = known[wish.text];
      if (image.empty()) image = co_await find_image(wish);
      if (image.empty()) {
        throw Error(ErrorCode::kUsage, fmt::format("no image is found by '{}' in {}", wish.text, client_.region()),
                    where(name, "ImageId"), "write ImageId: ami-..., ssm:/PARAMETER, or name:PATTERN of one of yours");
      }
      out_.around.images[name] = image;
    }
  }

  Task<std::string> find_image(ImageWish wish) {
    if (wish.kind == ImageWish::Kind::kName) co_return co_await newest_image("self", wish.text);
    std::optional<std::string> found;
    try {
      found = co_await aws::get_parameter(client_, wish.text);
    } catch (const Error&) {  // a server that has no parameters, or none at all
      if (wish.pattern.empty()) throw;
    }
    if (found || wish.pattern.empty()) co_return found.value_or("");
    std::string image = co_await newest_image(wish.owner, wish.pattern);
    if (image.empty() && client_.has_own_endpoint(aws::kEc2)) image = co_await stand_in_image(std::move(wish));
    co_return image;
  }

  Task<std::string> stand_in_image(ImageWish wish) {
    const std::optional<aws::Image> found = co_await aws::find_stand_in(client_, wish.like);
    if (!found) co_return std::string();
    out_.notes.push_back(fmt::format("note: the server has no image '{}': {} ({}) stands in for it", wish.pattern,
                                     found->id, found->name));
    co_return found->id;
  }

  Task<std::string> newest_image(std::string owner, std::string pattern) {
    std::vector<std::string> any, owners = {std::move(owner)};
    std::vector<aws::Filter> filters = filter("name", {std::move(pattern)});
    const auto found = co_await aws::describe_images(client_, std::move(any), std::move(owners), std::move(filters));
    co_return found.empty() ? "" : found.front().id;
  }

  Client& client_;
  const SurroundingsOrder order_;
  FoundSurroundings out_;
  std::map<std::string, std::string> template_profiles_;  // ARN or name, by the type of node
};

// A group is in use for as long as the network interfaces of ended machines are there.
Task<bool> delete_group(Client& client, std::string id) {
  World& world = client.world();
  const Instant deadline = world.clock.now() + kDependencyMax;
  while (true) {
    try {
      co_await aws::delete_security_group(client, id);
      co_return true;
    } catch (const rest::CloudError& error) {
      if (error.code == ErrorCode::kNotFound) co_return true;
      if (error.code != ErrorCode::kConflict) throw;
    }
    if (world.clock.now() >= deadline) co_return false;
    co_await Sleep(world.clock.loop(), world.clock.now() + kDependencyPause);
  }
}

std::vector<aws::Filter> of_cluster(const Ec2Config& config) {
  return filter("tag:" + std::string(aws::kClusterTag), {config.cluster});
}

Task<void> remove_group(Client& client, aws::SecurityGroup group, RemovedSurroundings& out) {
  const bool gone = co_await delete_group(client, group.id);
  (gone ? out.removed : out.kept).push_back(fmt::format("security group {}{}", group.name, gone ? "" : ": in use"));
}

Task<void> remove_groups(Client& client, const Ec2Config& config, RemovedSurroundings& out) {
  std::vector<std::string> any;
  std::vector<aws::Filter> filters = of_cluster(config);
  const auto groups = co_await aws::describe_security_groups(client, std::move(any), std::move(filters));
  for (const aws::SecurityGroup& group : groups) {
    if (!is_ours(group.tags, config)) continue;
    Task<void> removal = remove_group(client, group, out);
    co_await try_removal("security group " + group.name, std::move(removal), out);
  }
}

// Before the groups, which their mount targets use.
Task<void> remove_mounts(Client& client, const Ec2Config& config, RemovedSurroundings& out) {
  std::vector<std::string> any;
  std::vector<aws::Filter> filters = of_cluster(config);
  const auto found = co_await aws::describe_security_groups(client, std::move(any), std::move(filters));
  std::set<std::string> groups;
  for (const aws::SecurityGroup& one : found) {
    if (is_ours(one.tags, config)) groups.insert(one.id);
  }
  co_await remove_file_systems(client, config, std::move(groups), out);
}

Task<void> remove_key(Client& client, std::string name, RemovedSurroundings& out) {
  co_await aws::delete_key_pair(client, name);
  out.removed.push_back("key pair " + name);
}

Task<void> remove_keys(Client& client, const Ec2Config& config, RemovedSurroundings& out) {
  std::vector<aws::Filter> filters = of_cluster(config);
  const auto keys = co_await aws::describe_key_pairs(client, std::move(filters));
  for (const aws::KeyPair& key : keys) {
    if (!is_ours(key.tags, config)) continue;
    Task<void> removal = remove_key(client, key.name, out);
    co_await try_removal("key pair " + key.name, std::move(removal), out);
  }
}

Task<void> remove_placement(Client& client, std::string name, RemovedSurroundings& out) {
  co_await aws::delete_placement_group(client, name);
  out.removed.push_back("placement group " + name);
}

Task<void> remove_placements(Client& client, const Ec2Config& config, std::set<std::string> named,
                             RemovedSurroundings& out) {
  std::vector<aws::Filter> filters = of_cluster(config);
  const auto found = co_await aws::describe_placement_groups(client, std::move(filters));
  for (const aws::PlacementGroup& one : found) {
    if (!named.contains(one.name)) continue;
    Task<void> removal = remove_placement(client, one.name, out);
    co_await try_removal("placement group " + one.name, std::move(removal), out);
  }
}

// Nobody's data goes without a word.
Task<void> name_volumes(Client& client, const Ec2Config& config, RemovedSurroundings& out) {
  std::vector<aws::Filter> filters = of_cluster(config);
  const auto volumes = co_await aws::describe_volumes(client, std::move(filters));
  for (const aws::Volume& one : volumes) {
    if (!is_ours(one.tags, config) || one.state != "available") continue;
    out.kept.push_back(
        fmt::format("volume {} ({} GB, {}): its DeleteOnTermination is false, and it costs money; aws ec2 "
                    "delete-volume --volume-id {} --region {}",
                    one.id, one.gigabytes, one.zone, one.id, config.region));
  }
}

Task<void> remove_role(Client& client, std::string name, RemovedSurroundings& out) {
  const bool had_role = co_await aws::remove_instance_role(client, name);
  if (had_role) out.removed.push_back("role " + name);
}

std::string role_name_of(const Ec2Config& config, const char* whose) {
  std::string name = fmt::format("rubato-{}-{}-{}", config.cluster, whose, config.region);
  if (name.size() <= kRoleNameMax) return name;
  const std::string digest = sha256_hex(name).substr(0, 12);
  return name.substr(0, kRoleNameMax - digest.size() - 1) + "-" + digest;
}

}  // namespace

std::string group_name_of(const Ec2Config& config) {
  return config.group_name.empty() ? "rubato-" + config.cluster : config.group_name;
}

std::string head_role_name(const Ec2Config& config) { return role_name_of(config, "head"); }
std::string workers_role_name(const Ec2Config& config) { return role_name_of(config, "workers"); }

std::set<std::string> placement_groups_of(const ClusterFile& file) {
  std::set<std::string> names;
  for (const auto& [name, type] : file.types) {
    const auto placement = type.node_config.find("Placement");
    if (placement == type.node_config.end() || !placement->is_object()) continue;
    if (const std::string group = placement->value("GroupName", ""); !group.empty()) names.insert(group);
  }
  return names;
}

ImageWish image_wish(const json& node_config) {
  const auto given = node_config.find("ImageId");
  const std::string text = given != node_config.end() && given->is_string() ? given->get<std::string>() : "";
  for (const char* prefix : {"ssm:", "resolve:ssm:"}) {
    const auto name = strip_prefix(text, prefix);
    if (name) return {ImageWish::Kind::kParameter, std::string(*name), "", "", ""};
  }
  if (const auto name = strip_prefix(text, "name:")) return {ImageWish::Kind::kName, std::string(*name), "", "", ""};
  if (!text.empty() && text != "latest_dlami") return {ImageWish::Kind::kId, text, "", "", ""};
  const std::string machine = node_config.value("InstanceType", "");
  const Ec2Type* type = find_ec2_type(machine);
  const bool arm = is_arm(machine);
  if (text == "latest_dlami" || (type != nullptr && type->gpus > 0)) {
    return {ImageWish::Kind::kParameter, fmt::format(fmt::runtime(kDeepLearning), arm ? "arm64" : "x86_64"), "amazon",
            fmt::format(fmt::runtime(kDeepLearningName), arm ? " ARM64" : ""), "Deep Learning*Ubuntu*"};
  }
  const char* const architecture = arm ? "arm64" : "amd64";
  return {ImageWish::Kind::kParameter, fmt::format(fmt::runtime(kUbuntu), architecture), std::string(kCanonical),
          fmt::format(fmt::runtime(kUbuntuName), architecture),
          fmt::format(fmt::runtime(kAnyUbuntuName), architecture)};
}

Task<FoundSurroundings> prepare_surroundings(Client& client, SurroundingsOrder order) {
  Preparation preparation(client, std::move(order));
  co_return co_await preparation.run();
}

Task<Ec2Surroundings> check_surroundings(Client& client, SurroundingsOrder order,
                                         std::vector<provider::CloudCheck>& out) {
  Preparation preparation(client, std::move(order));
  co_return co_await preparation.check(out);
}

Task<RemovedSurroundings> remove_surroundings(Client& client, Ec2Config config,
                                              std::set<std::string> placement_groups) {
  RemovedSurroundings out;
  if (!config.file_systems.empty()) {
    Task<void> file_systems = remove_mounts(client, config, out);
    co_await try_removal("file systems", std::move(file_systems), out);
  }
  Task<void> groups = remove_groups(client, config, out);
  co_await try_removal("security groups", std::move(groups), out);
  Task<void> keys = remove_keys(client, config, out);
  co_await try_removal("key pairs", std::move(keys), out);
  if (!placement_groups.empty()) {
    Task<void> placements = remove_placements(client, config, std::move(placement_groups), out);
    co_await try_removal("placement groups", std::move(placements), out);
  }
  for (const std::string& role : {head_role_name(config), workers_role_name(config)}) {
    Task<void> removal = remove_role(client, role, out);
    co_await try_removal("role " + role, std::move(removal), out);
  }
  Task<void> volumes = name_volumes(client, config, out);
  co_await try_removal("volumes", std::move(volumes), out);
  co_return out;
}

}  // namespace rubato::clouds
