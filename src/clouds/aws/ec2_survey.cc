#include "clouds/aws/ec2_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "aws/account.h"
#include "aws/credentials.h"
#include "aws/identity.h"
#include "aws/policy.h"
#include "aws/storage.h"
#include "clouds/aws/ec2_instances.h"
#include "clouds/aws/instance_types.h"
#include "clouds/aws/surroundings.h"
#include "clouds/common/inventory.h"
#include "core/text.h"
#include "rest/base64.h"
#include "rest/cloud_error.h"

namespace rubato::clouds {
namespace {

using aws::Client;
using provider::CheckResult;
using provider::CloudCheck;
using provider::CloudInventory;
using provider::CloudResource;

// Dollars for a gigabyte and month, of us-east-1; written down by hand in June 2025.
struct StoragePrice {
  std::string_view kind;
  double price;
};
constexpr std::array<StoragePrice, 7> kVolumePrices{{{"gp2", 0.10},
                                                     {"gp3", 0.08},
                                                     {"io1", 0.125},
                                                     {"io2", 0.125},
                                                     {"sc1", 0.015},
                                                     {"st1", 0.045},
                                                     {"standard", 0.05}}};
constexpr double kFileSystemPrice = 0.30;
constexpr int64_t kGigabyte = 1'000'000'000;
constexpr std::string_view kNodeTypeTag = "ray-user-node-type";

double volume_price(std::string_view kind) {
  const auto found = std::ranges::find(kVolumePrices, kind, &StoragePrice::kind);
  return found == kVolumePrices.end() ? 0 : found->price;
}

Ec2Config config_of(const ClusterFile& file) { return ec2_config_from_json(compile_ec2_config(file)); }

Task<std::unique_ptr<Client>> open_for(World& world, const ClusterFile& file, const std::vector<std::string>& env) {
  aws::Settings settings;
  settings.env = rest::environment_of(env);
  settings.region = config_of(file).region;
  return aws::open_client(world, std::move(settings));
}

std::vector<aws::Filter> of_cluster(const Ec2Config& config) {
  std::vector<aws::Filter> out;
  out.push_back({"tag:" + std::string(aws::kClusterTag), {config.cluster}});
  return out;
}

// Whatever the filter let through: some servers have none.
bool is_of_cluster(const aws::Tags& tags, const Ec2Config& config) {
  return std::ranges::any_of(
      tags, [&](const auto& tag) { return tag.first == aws::kClusterTag && tag.second == config.cluster; });
}

// ---- audit ----

class Ec2Inventory {
 public:
  Ec2Inventory(Client& client, const ClusterFile& file) : client_(client), config_(config_of(file)), out_(file) {}

  Task<CloudInventory> run() {
    co_await list_machines();  // who cannot list machines has found nothing out
    Task<void> volumes = list_volumes(), groups = list_groups(), keys = list_keys();
    co_await out_.read("volumes", std::move(volumes));
    co_await out_.read("security groups", std::move(groups));
    co_await out_.read("key pairs", std::move(keys));
    Task<void> placements = list_placements(), roles = list_roles(), file_systems = list_file_systems();
    co_await out_.read("placement groups", std::move(placements));
    co_await out_.read("roles", std::move(roles));
    co_await out_.read("file systems", std::move(file_systems));
    co_return out_.finish();
  }

 private:
  CloudResource resource(const char* kind, const std::string& name, const std::string& tool) const {
    CloudResource out;
    out.kind = kind;
    out.name = name;
    out.where = config_.region;
    out.price_per_hour = 0;
    out.remove = fmt::format("aws {} {} --region {}", tool, name, config_.region);
    return out;
  }

  Task<void> list_machines() {
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = of_cluster(config_);
    const auto found = co_await aws::describe_instances(client_, std::move(any), std::move(filters));
    for (const aws::Instance& one : found) {
      if (!is_of_cluster(one.tags, config_)) continue;
      CloudResource named = resource("instance", one.id, "ec2 terminate-instances --instance-ids");
      out_.add_machine(machine_of(one), std::move(named), one.type, std::string(one.tag(kNodeTypeTag)));
    }
  }

  Task<void> list_volumes() {
    std::vector<aws::Filter> filters = of_cluster(config_);
    const auto found = co_await aws::describe_volumes(client_, std::move(filters));
    for (const aws::Volume& one : found) {
      if (!is_of_cluster(one.tags, config_) || one.state == "deleting" || one.state == "deleted") continue;
      CloudResource named = resource("volume", one.id, "ec2 delete-volume --volume-id");
      const bool is_attached = one.state != "available";
      named.where = one.zone;
      named.detail = fmt::format("{} GB, {}{}", one.gigabytes, one.kind, is_attached ? "" : ", no machine holds it");
      out_.add_disk(std::move(named), one.gigabytes, volume_price(one.kind), is_attached);
    }
  }

  Task<void> list_groups() {
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = of_cluster(config_);
    const auto found = co_await aws::describe_security_groups(client_, std::move(any), std::move(filters));
    for (const aws::SecurityGroup& one : found) {
      if (!is_of_cluster(one.tags, config_)) continue;
      CloudResource named = resource("security group", one.id, "ec2 delete-security-group --group-id");
      named.detail = one.name;
      out_.add(std::move(named));
    }
  }

  Task<void> list_keys() {
    std::vector<aws::Filter> filters = of_cluster(config_);
    const auto found = co_await aws::describe_key_pairs(client_, std::move(filters));
    for (const aws::KeyPair& one : found) {
      if (is_of_cluster(one.tags, config_)) {
        out_.add(resource("key pair", one.name, "ec2 delete-key-pair --key-name"));
      }
    }
  }

  Task<void> list_placements() {
    std::vector<aws::Filter> filters = of_cluster(config_);
    const auto found = co_await aws::describe_placement_groups(client_, std::move(filters));
    for (const aws::PlacementGroup& one : found) {
      if (!one.tags.empty() && !is_of_cluster(one.tags, config_)) continue;
      CloudResource named = resource("placement group", one.name, "ec2 delete-placement-group --group-name");
      named.detail = one.strategy;
      out_.add(std::move(named));
    }
  }

  Task<void> list_roles() {
    for (const std::string& name : {head_role_name(config_), workers_role_name(config_)}) {
      const bool has_profile = co_await aws::has_instance_profile(client_, name);
      if (has_profile) {
        add_global(resource("instance profile", name, "iam delete-instance-profile --instance-profile-name"));
      }
      const bool has_role = co_await aws::has_role(client_, name);
      if (has_role) add_global(resource("role", name, "iam delete-role --role-name"));
    }
  }

  void add_global(CloudResource one) {
    one.where.clear();
    out_.add(std::move(one));
  }

  Task<void> list_file_systems() {
    const auto found = co_await aws::describe_file_systems(client_);
    for (const aws::FileSystem& one : found) {
      if (!is_of_cluster(one.tags, config_)) continue;
      CloudResource named = resource("file system", one.id, "efs delete-file-system --file-system-id");
      named.detail = fmt::format("{}{}{:.1f} GB", one.name, one.name.empty() ? "" : ", ",
                                 static_cast<double>(one.bytes) / static_cast<double>(kGigabyte));
      named.goes_with_down = false;
      constexpr double kHoursInMonth = 730;
      named.price_per_hour =
          static_cast<double>(one.bytes) / static_cast<double>(kGigabyte) * kFileSystemPrice / kHoursInMonth;
      out_.add(std::move(named));
    }
  }

  Client& client_;
  const Ec2Config config_;
  Inventory out_;
};

// ---- doctor ----

// What a person does with `up` and `down`; IAM's part, by the names of its permissions.
const std::vector<std::string>& iam_actions() {
  static const std::vector<std::string> kActions = {
      "iam:CreateRole",         "iam:DeleteRole",           "iam:PutRolePolicy", "iam:DeleteRolePolicy",
      "iam:CreateInstanceProfile", "iam:DeleteInstanceProfile", "iam:GetInstanceProfile",
      "iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:PassRole"};
  return kActions;
}
// A key that nobody has: the public part of 32 zero bytes.
constexpr std::string_view kNobodysKey =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA nobody";

class Ec2Doctor {
 public:
  Ec2Doctor(Client& client, const ClusterFile& file, rest::Environment env)
      : client_(client), file_(file), config_(config_of(file)), env_(std::move(env)) {}

  Task<std::vector<CloudCheck>> run() {
    Task<std::string> identity = check_identity();
    const bool known = co_await try_check("credentials", std::move(identity), out_);
    if (!known) co_return std::move(out_);
    Task<std::string> region = check_region();
    co_await try_check("region", std::move(region), out_);
    SurroundingsOrder order;
    order.config = config_;
    order.file = &file_;
    order.env = env_;
    around_ = co_await check_surroundings(client_, std::move(order), out_);
    Task<std::string> types = check_types();
    co_await try_check("types", std::move(types), out_);
    co_await check_permissions();
    co_await check_quotas();
    co_return std::move(out_);
  }

 private:
  Task<std::string> check_identity() {
    const aws::FoundCredentials found = co_await client_.credentials().get(client_.world().clock.wall());
    caller_ = co_await aws::get_caller_identity(client_);
    co_return fmt::format("{}, by {} from {}", caller_.arn, found.credentials.access_key, found.origin);
  }

  Task<std::string> check_region() {
    const std::vector<aws::Zone> zones = co_await aws::describe_zones(client_);
    std::vector<std::string> names;
    for (const aws::Zone& one : zones) names.push_back(one.name);
    for (const std::string& wanted : config_.zones) {
      if (std::ranges::find(names, wanted) != names.end()) continue;
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is no zone of {} that this account has", wanted, config_.region),
                  file_.place("provider.availability_zone"), "write one or more of: " + join(names, ", "));
    }
    co_return fmt::format("{}, with {}", config_.region, join(names, ", "));
  }

  static std::string instance_type_of(const NodeTypeConfig& type) {
    const auto found = type.node_config.find("InstanceType");
    return found != type.node_config.end() && found->is_string() ? found->get<std::string>() : "";
  }

  Task<std::string> check_types() {
    std::set<std::string> names;
    for (const auto& [name, type] : file_.types) {
      if (const std::string text = instance_type_of(type); !text.empty()) names.insert(text);
    }
    if (names.empty()) co_return "none is named";
    std::vector<std::string> asked(names.begin(), names.end());
    const auto found = co_await aws::describe_instance_types(client_, std::move(asked));
    for (const aws::InstanceType& one : found) {
      names.erase(one.name);
      vcpus_[one.name] = one.vcpus;
    }
    if (!names.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("{} does not have {}", config_.region,
                                                 join(std::vector<std::string>(names.begin(), names.end()), ", ")),
                  file_.place("node_types"), "write another InstanceType, or another region");
    }
    std::vector<std::string> parts;
    for (const auto& [name, count] : vcpus_) parts.push_back(fmt::format("{} ({} vCPUs)", name, count));
    co_return join(parts, ", ");
  }

  // ---- permissions ----

  Task<void> check_permissions() {
    CloudCheck check;
    check.check = "permissions";
    std::vector<std::string> missing, unknown;
    co_await try_dry_runs(missing, unknown);
    co_await simulate_iam(missing, unknown);
    if (!missing.empty()) {
      check.result = CheckResult::kFail;
      check.found = "missing: " + join(missing, ", ");
      check.fix = fmt::format("add this statement to the policy of the user or role (rubato aws policy has all): {}",
                              aws::statement_for(missing));
    } else {
      check.found = unknown.empty() ? "all that could be tried are there" : "those that could be tried are there";
    }
    if (!unknown.empty()) check.found += fmt::format("; not tried: {}", join(unknown, ", "));
    out_.push_back(std::move(check));
  }

  aws::Params tagged(int number, std::string_view resource, aws::Params params) const {
    const aws::Tags tags{{std::string(aws::kClusterTag), config_.cluster}};
    aws::add_tag_specification(params, number, resource, tags);
    return params;
  }

  // EC2 itself says what it would refuse. A server that does not know dry runs is not asked to make things.
  Task<void> try_dry_runs(std::vector<std::string>& missing, std::vector<std::string>& unknown) {
    std::vector<std::pair<std::string, aws::Params>> calls;
    aws::Params group{{"GroupName", group_name_of(config_) + "-dry-run"}, {"GroupDescription", "a dry run"}};
    if (!around_.vpc.empty()) group.emplace_back("VpcId", around_.vpc);
    calls.emplace_back("CreateSecurityGroup", tagged(1, "security-group", std::move(group)));
    aws::Params key{{"KeyName", group_name_of(config_) + "-dry-run"},
                    {"PublicKeyMaterial", rest::base64(kNobodysKey)}};
    calls.emplace_back("ImportKeyPair", tagged(1, "key-pair", std::move(key)));
    if (!placement_groups_of(file_).empty()) {
      aws::Params placement{{"GroupName", group_name_of(config_) + "-dry-run"}, {"Strategy", "cluster"}};
      calls.emplace_back("CreatePlacementGroup", tagged(1, "placement-group", std::move(placement)));
    }
    if (auto launch = launch_params()) calls.emplace_back("RunInstances", std::move(*launch));
    const aws::DryRun known = co_await aws::dry_run(client_, "DescribeAvailabilityZones", aws::Params());
    for (auto& [action, params] : calls) {
      const std::string permission = "ec2:" + action;
      if (known != aws::DryRun::kAllowed) {
        unknown.push_back(permission);
        continue;
      }
      const aws::DryRun answer = co_await aws::dry_run(client_, action, std::move(params));
      if (answer == aws::DryRun::kDenied) missing.push_back(permission);
    }
  }

  // The head's machine, as far as it is known without making anything.
  std::optional<aws::Params> launch_params() const {
    const auto image = around_.images.find(file_.head_type);
    const auto type = file_.types.find(file_.head_type);
    if (image == around_.images.end() || type == file_.types.end()) return std::nullopt;
    aws::Params out{{"ImageId", image->second}, {"MinCount", "1"}, {"MaxCount", "1"}};
    aws::add(out, "InstanceType", instance_type_of(type->second));
    if (!around_.subnets.empty()) out.emplace_back("SubnetId", around_.subnets.front().id);
    return tagged(1, "instance", std::move(out));
  }

  Task<void> simulate_iam(std::vector<std::string>& missing, std::vector<std::string>& unknown) {
    const auto head = file_.types.find(file_.head_type);
    if (head != file_.types.end() && head->second.node_config.contains("IamInstanceProfile")) co_return;
    const std::string principal = aws::principal_of(caller_.arn);
    if (principal.empty()) co_return;  // the account's root
    const std::string account =
        fmt::format("arn:{}:iam::{}:", aws::partition_of(client_.region()), caller_.account);
    std::vector<std::string> resources = {account + "role/" + head_role_name(config_),
                                          account + "instance-profile/" + head_role_name(config_)};
    aws::Tags context{{"iam:PassedToService", "ec2.amazonaws.com"}};
    std::vector<std::string> actions = iam_actions();
    try {
      const auto denied = co_await aws::denied_actions(client_, principal, std::move(actions), std::move(resources),
                                                       std::move(context));
      missing.insert(missing.end(), denied.begin(), denied.end());
    } catch (const Error&) {  // not allowed to ask, or a server that knows no such call
      unknown.emplace_back("iam (that needs iam:SimulatePrincipalPolicy)");
    }
  }

  // ---- quotas ----

  Task<void> check_quotas() {
    std::map<std::string, QuotaNeed> needs;  // by the quota's code
    const ClusterSpec spec = cluster_spec_of(file_);
    for (const auto& [name, type] : file_.types) {
      const std::string instance_type = instance_type_of(type);
      const auto vcpus = vcpus_.find(instance_type);
      const auto of_spec = spec.types.find(name);
      if (vcpus == vcpus_.end() || of_spec == spec.types.end()) continue;
      const bool is_head = name == file_.head_type;
      const bool spot = !is_head && std::ranges::any_of(of_spec->second.offerings, [](const Offering& one) {
        return one.market == Market::kSpot;
      });
      const auto code = aws::vcpu_quota_code(instance_type, spot);
      if (!code) continue;
      QuotaNeed& need = needs[*code];
      need.name = aws::vcpu_quota_name(instance_type, spot);
      need.least += vcpus->second * (of_spec->second.min_workers + (is_head ? 1 : 0));
      need.most += vcpus->second * (of_spec->second.max_workers + (is_head ? 1 : 0));
    }
    for (auto& [code, need] : needs) co_await check_quota(code, std::move(need));
  }

  Task<void> check_quota(std::string code, QuotaNeed need) {
    std::optional<double> limit;
    try {
      limit = co_await aws::get_ec2_quota(client_, code);
    } catch (const Error& error) {
      CloudCheck check;
      check.check = "quota";
      check.found = fmt::format("{}: not known ({})", need.name, error.message);
      out_.push_back(std::move(check));
    }
    if (!limit) co_return;
    need.limit = *limit;
    need.unit = "vCPUs";
    need.fix = fmt::format(
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {} --desired-value {:g}, or "
        "fewer workers",
        code, need.most);
    out_.push_back(judge_quota(need));
  }

  Client& client_;
  const ClusterFile& file_;
  const Ec2Config config_;
  const rest::Environment env_;
  aws::CallerIdentity caller_;
  Ec2Surroundings around_;
  std::map<std::string, int> vcpus_;  // by instance type
  std::vector<CloudCheck> out_;
};

}  // namespace

Task<CloudInventory> list_ec2(World& world, const ClusterFile& file, std::vector<std::string> env) {
  const std::unique_ptr<Client> client = co_await open_for(world, file, env);
  Ec2Inventory inventory(*client, file);
  co_return co_await inventory.run();
}

Task<std::vector<CloudCheck>> check_ec2(World& world, const ClusterFile& file, std::vector<std::string> env) {
  const std::unique_ptr<Client> client = co_await open_for(world, file, env);
  Ec2Doctor doctor(*client, file, rest::environment_of(env));
  co_return co_await doctor.run();
}

}  // namespace rubato::clouds
