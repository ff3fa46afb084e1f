#include "clouds/aws/surroundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "aws/identity.h"
#include "aws/policy.h"
#include "aws/storage.h"
#include "clouds/aws/instance_types.h"
#include "core/sha256.h"
#include "core/text.h"
#include "rest/cloud_error.h"

namespace rubato::clouds {
namespace {

using aws::Client;
using nlohmann::json;

constexpr size_t kRoleNameMax = 64;  // IAM's
constexpr int kSshPort = 22;
constexpr Duration kCheckIpTimeout = 10s;
constexpr Duration kDependencyMax = 180s;  // network interfaces outlive their machines for a while
constexpr Duration kDependencyPause = 2s;
constexpr std::string_view kCheckIp = "https://checkip.amazonaws.com";
// Public parameters of Canonical and AWS; with {}: the architecture.
constexpr std::string_view kUbuntu = "/aws/service/canonical/ubuntu/server/22.04/stable/current/{}/hvm/ebs-gp2/ami-id";
constexpr std::string_view kDeepLearning =
    "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id";

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
    report("the head's role");
    co_await ensure_role();
    report("placement groups");
    co_await ensure_placement();
    report("images");
    co_await find_images();
    co_return std::move(out_);
  }

 private:
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
      const auto found = co_await aws::describe_subnets(client_, std::move(ids), std::move(none));
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

  Task<std::string> default_vpc(bool may_be_absent) {
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = filter("is-default", {"true"});
    const auto found = co_await aws::describe_vpcs(client_, std::move(any), std::move(filters));
    if (!found.empty()) co_return found.front().id;
    if (may_be_absent) co_return std::string();
    throw Error(ErrorCode::kUsage, fmt::format("{} has no default VPC", client_.region()), config().provider_where,
                "name subnets in each node type: node_config: {SubnetIds: [subnet-...]}");
  }

  Task<void> find_subnets() {
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = filter("vpc-id", {out_.around.vpc});
    std::vector<aws::Subnet> found = co_await aws::describe_subnets(client_, std::move(any), std::move(filters));
    std::erase_if(found, [&](const aws::Subnet& one) {
      const auto& zones = config().zones;
      const bool wanted = zones.empty() || std::ranges::find(zones, one.zone) != zones.end();
      return one.state != "available" || !wanted || (!config().internal_only && !one.gives_public_addresses);
    });
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
    std::vector<aws::Rule> rules = co_await wanted_rules(group.id);
    for (aws::Rule& rule : rules) {
      if (has_rule(group, rule)) continue;
      std::vector<aws::Rule> one;
      one.push_back(std::move(rule));
      co_await aws::authorize_ingress(client_, group.id, std::move(one));
    }
  }

  Task<std::vector<aws::Rule>> wanted_rules(std::string group) {
    aws::Rule inside;
    inside.protocol = "-1";
    inside.groups = {group};
    aws::Rule ssh;
    ssh.from_port = ssh.to_port = kSshPort;
    ssh.note = "SSH for rubato up";
    ssh.cidrs = config().ssh_from;
    if (ssh.cidrs.empty()) {
      std::string own = co_await own_address();
      ssh.cidrs.push_back(std::move(own));
    }
    std::vector<aws::Rule> rules = config().rules;
    rules.insert(rules.begin(), {inside, ssh});
    co_return rules;
  }

  Task<std::string> own_address() {
    const std::string fix = "add ssh_from: [ADDRESS/32] to provider: from there SSH to the head is allowed";
    if (config().internal_only) {
      throw Error(ErrorCode::kUsage, "with use_internal_ips, from which addresses do you reach the head?",
                  config().provider_where, fix);
    }
    std::string named = aws::variable(order_.env, "AWS_ENDPOINT_URL_CHECKIP");
    if (named.empty()) named = kCheckIp;
    const rest::Url url = rest::parse_url(named, "AWS_ENDPOINT_URL_CHECKIP");
    HttpRequest request;
    request.target = url.path.empty() ? "/" : url.path;
    TlsFiles tls;
    tls.use_tls = url.https;
    std::string found;
    try {
      const Instant deadline = client_.world().clock.now() + kCheckIpTimeout;
      const HttpResponse answer =
          co_await client_.world().network.call(url.endpoint, std::move(tls), std::move(request), deadline);
      found = answer.status == 200 ? std::string(trim(answer.body)) : "";
    } catch (const Error&) {
      found.clear();  // told below, with the fix
    }
    const auto cidr = normal_cidr(found);
    if (!cidr || found.find('/') != std::string::npos) {
      throw Error(ErrorCode::kUsage, fmt::format("your public address cannot be found: {} does not tell it", named),
                  config().provider_where, fix);
    }
    co_return *cidr;
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
    if (head != file().types.end() && has_key(head->second, out_.around, head->first, "IamInstanceProfile")) co_return;
    aws::PolicyRequest request;
    request.whom = aws::PolicyFor::kHead;
    request.cluster = config().cluster;
    request.partition = aws::partition_of(client_.region());
    aws::InstanceRole role;
    role.name = head_role_name(config());
    role.policy = aws::make_policy(request);
    role.tags = cluster_tags(config());
    out_.around.head_profile = co_await aws::ensure_instance_role(client_, std::move(role));
    out_.new_profile = true;
  }

  // Made when named and absent.
  Task<void> ensure_placement() {
    std::set<std::string> names;
    for (const auto& [name, type] : file().types) {
      const auto placement = type.node_config.find("Placement");
      if (placement == type.node_config.end() || !placement->is_object()) continue;
      if (const std::string group = placement->value("GroupName", ""); !group.empty()) names.insert(group);
    }
    if (names.empty()) co_return;
    std::vector<aws::Filter> filters = filter("group-name", {names.begin(), names.end()});
    const auto found = co_await aws::describe_placement_groups(client_, std::move(filters));
    for (const aws::PlacementGroup& one : found) names.erase(one.name);
    for (const std::string& name : names) {
      co_await aws::create_placement_group(client_, name, "cluster", cluster_tags(config()));
      out_.notes.push_back(fmt::format("the placement group '{}' is made", name));
    }
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
    if (wish.kind == ImageWish::Kind::kParameter) {
      const auto found = co_await aws::get_parameter(client_, wish.text);
      co_return found.value_or("");
    }
    std::vector<std::string> any, owners = {"self"};
    std::vector<aws::Filter> filters = filter("name", {wish.text});
    const auto found = co_await aws::describe_images(client_, std::move(any), std::move(owners), std::move(filters));
    co_return found.empty() ? "" : found.front().id;
  }

  Client& client_;
  const SurroundingsOrder order_;
  FoundSurroundings out_;
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

}  // namespace

std::string group_name_of(const Ec2Config& config) {
  return config.group_name.empty() ? "rubato-" + config.cluster : config.group_name;
}

std::string head_role_name(const Ec2Config& config) {
  std::string name = fmt::format("rubato-{}-head-{}", config.cluster, config.region);
  if (name.size() <= kRoleNameMax) return name;
  const std::string digest = sha256_hex(name).substr(0, 12);
  return name.substr(0, kRoleNameMax - digest.size() - 1) + "-" + digest;
}

ImageWish image_wish(const json& node_config) {
  const auto given = node_config.find("ImageId");
  const std::string text = given != node_config.end() && given->is_string() ? given->get<std::string>() : "";
  for (const char* prefix : {"ssm:", "resolve:ssm:"}) {
    if (const auto name = strip_prefix(text, prefix)) return {ImageWish::Kind::kParameter, std::string(*name)};
  }
  if (const auto name = strip_prefix(text, "name:")) return {ImageWish::Kind::kName, std::string(*name)};
  if (!text.empty() && text != "latest_dlami") return {ImageWish::Kind::kId, text};
  const std::string machine = node_config.value("InstanceType", "");
  const Ec2Type* type = find_ec2_type(machine);
  const bool arm = is_arm(machine);
  if (text == "latest_dlami" || (type != nullptr && type->gpus > 0)) {
    return {ImageWish::Kind::kParameter, fmt::format(fmt::runtime(kDeepLearning), arm ? "arm64" : "x86_64")};
  }
  return {ImageWish::Kind::kParameter, fmt::format(fmt::runtime(kUbuntu), arm ? "arm64" : "amd64")};
}

Task<FoundSurroundings> prepare_surroundings(Client& client, SurroundingsOrder order) {
  Preparation preparation(client, std::move(order));
  co_return co_await preparation.run();
}

Task<RemovedSurroundings> remove_surroundings(Client& client, Ec2Config config) {
  RemovedSurroundings out;
  const std::string tag = "tag:" + std::string(aws::kClusterTag);
  std::vector<std::string> any;
  std::vector<aws::Filter> filters = filter(tag, {config.cluster});
  const auto groups = co_await aws::describe_security_groups(client, std::move(any), filters);
  for (const aws::SecurityGroup& group : groups) {
    const bool gone = co_await delete_group(client, group.id);
    (gone ? out.removed : out.kept).push_back(fmt::format("security group {}{}", group.name, gone ? "" : ": in use"));
  }
  const auto keys = co_await aws::describe_key_pairs(client, filters);
  for (const aws::KeyPair& key : keys) {
    co_await aws::delete_key_pair(client, key.name);
    out.removed.push_back("key pair " + key.name);
  }
  const auto placements = co_await aws::describe_placement_groups(client, filters);
  for (const aws::PlacementGroup& one : placements) {
    co_await aws::delete_placement_group(client, one.name);
    out.removed.push_back("placement group " + one.name);
  }
  const std::string role = head_role_name(config);
  const bool had_role = co_await aws::remove_instance_role(client, role);
  if (had_role) out.removed.push_back("role " + role);
  co_return out;
}

}  // namespace rubato::clouds
