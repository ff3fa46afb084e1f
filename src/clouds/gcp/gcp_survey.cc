#include "clouds/gcp/gcp_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "clouds/common/inventory.h"
#include "clouds/gcp/gcp_instances.h"
#include "clouds/gcp/gcp_surroundings.h"
#include "clouds/gcp/machine_types.h"
#include "core/text.h"
#include "gcp/identity.h"

namespace rubato::clouds {
namespace {

using gcp::Client;
using provider::CloudCheck;
using provider::CloudInventory;
using provider::CloudResource;

// Dollars for a gigabyte and month, of us-central1; written down by hand in June 2025.
struct DiskPrice {
  std::string_view kind;
  double price;
};
constexpr std::array<DiskPrice, 4> kDiskPrices{
    {{"hyperdisk-balanced", 0.08}, {"pd-balanced", 0.10}, {"pd-ssd", 0.17}, {"pd-standard", 0.04}}};
constexpr std::string_view kNodeTypeLabel = "ray-user-node-type";
constexpr std::string_view kQuotaFix = "ask for more at https://console.cloud.google.com/iam-admin/quotas, or fewer workers";

double disk_price(std::string_view kind) {
  const auto found = std::ranges::find(kDiskPrices, kind, &DiskPrice::kind);
  return found == kDiskPrices.end() ? 0 : found->price;
}

GcpConfig config_of(const ClusterFile& file) { return gcp_config_from_json(compile_gcp_config(file)); }

std::unique_ptr<Client> open_for(World& world, const ClusterFile& file, const std::vector<std::string>& env) {
  gcp::Settings settings;
  settings.env = rest::environment_of(env);
  settings.given = given_credentials(file);
  return gcp::open_client(world, config_of(file).project, std::move(settings));
}

// ---- audit ----

class GcpInventory {
 public:
  GcpInventory(Client& client, const ClusterFile& file) : client_(client), config_(config_of(file)), out_(file) {
    for (const auto& [name, type] : file.types) types_.push_back(name);
  }

  Task<CloudInventory> run() {
    co_await list_machines();  // who cannot list machines has found nothing out
    Task<void> disks = list_disks(), rules = list_rules(), accounts = list_accounts();
    co_await out_.read("disks", std::move(disks));
    co_await out_.read("firewall rules", std::move(rules));
    co_await out_.read("service accounts", std::move(accounts));
    co_return out_.finish();
  }

 private:
  gcp::Labels labels() const { return {{std::string(kClusterLabel), config_.cluster}}; }

  CloudResource resource(const char* kind, const std::string& name, const std::string& tool) const {
    CloudResource out;
    out.kind = kind;
    out.name = name;
    out.price_per_hour = 0;
    out.remove = fmt::format("gcloud {} {} --project {}", tool, name, config_.project);
    return out;
  }

  // A label has fewer characters than a name: the type whose label this is.
  std::string type_of(const gcp::Instance& instance) const {
    const std::string& label = instance.label(kNodeTypeLabel);
    for (const std::string& name : types_) {
      if (name == label || to_lower(name) == label) return name;
    }
    return label;
  }

  Task<void> list_machines() {
    const auto found = co_await gcp::list_instances(client_, labels(), config_.region);
    for (const gcp::Instance& one : found) {
      if (one.label(kClusterLabel) != config_.cluster) continue;
      CloudResource named = resource("instance", one.name, "compute instances delete");
      named.remove += " --zone " + one.zone;
      out_.add_machine(machine_of(one), std::move(named), one.machine_type, type_of(one));
    }
  }

  Task<void> list_disks() {
    const auto found = co_await gcp::list_disks(client_, labels());
    for (const gcp::Disk& one : found) {
      CloudResource named = resource("disk", one.name, "compute disks delete");
      named.where = one.zone;
      named.remove += " --zone " + one.zone;
      named.detail =
          fmt::format("{} GB, {}{}", one.gigabytes, one.kind, one.in_use ? "" : ", no machine holds it");
      out_.add_disk(std::move(named), one.gigabytes, disk_price(one.kind), one.in_use);
    }
  }

  Task<void> list_rules() {
    for (const std::string& name : firewall_names(config_)) {
      const std::optional<gcp::Firewall> found = co_await gcp::get_firewall(client_, name);
      if (!found || found->description != description_of(config_)) continue;
      CloudResource named = resource("firewall rule", name, "compute firewall-rules delete");
      named.detail = found->source_ranges.empty() ? "" : "from " + join(found->source_ranges, ", ");
      out_.add(std::move(named));
    }
  }

  Task<void> list_accounts() {
    const std::string email = gcp::email_of(head_account_name(config_), client_.project());
    const bool found = co_await gcp::has_service_account(client_, email);
    if (found) out_.add(resource("service account", email, "iam service-accounts delete"));
  }

  Client& client_;
  const GcpConfig config_;
  std::vector<std::string> types_;
  Inventory out_;
};

// ---- doctor ----

class GcpDoctor {
 public:
  GcpDoctor(Client& client, const ClusterFile& file, rest::Environment env)
      : client_(client), file_(file), config_(config_of(file)), env_(std::move(env)) {}

  Task<std::vector<CloudCheck>> run() {
    Task<std::string> identity = check_identity();
    const bool known = co_await try_check("credentials", std::move(identity), out_);
    if (!known) co_return std::move(out_);
    GcpSurroundingsOrder order;
    order.config = config_;
    order.file = &file_;
    order.env = env_;
    co_await check_gcp_surroundings(client_, std::move(order), out_);
    Task<std::string> quotas = check_quotas();
    const bool read = co_await try_check("quota", std::move(quotas), found_quotas_);
    if (read) out_.insert(out_.end(), quotas_.begin(), quotas_.end());
    co_return std::move(out_);
  }

 private:
  Task<std::string> check_identity() {
    const gcp::AccessToken token = co_await client_.credentials().get(client_.world().clock.wall());
    co_return fmt::format("{}, from {}", token.account.empty() ? "a person's" : token.account, token.origin);
  }

  // What the region gives at most of CPUs and of each kind of GPU. What cannot be read is not told: `up` works without.
  Task<std::string> check_quotas() {
    std::map<std::string, QuotaNeed> needs;  // by the metric
    const ClusterSpec spec = cluster_spec_of(file_);
    for (const auto& [name, type] : file_.types) {
      const auto of_spec = spec.types.find(name);
      if (of_spec == spec.types.end()) continue;
      const int more = name == file_.head_type ? 1 : 0;
      add_needs(nlohmann::json(type.node_config), of_spec->second.min_workers + more,
                of_spec->second.max_workers + more, needs);
    }
    const std::vector<gcp::Quota> found = co_await gcp::list_quotas(client_, config_.region);
    for (auto& [metric, need] : needs) {
      const auto quota = std::ranges::find(found, metric, &gcp::Quota::metric);
      if (quota == found.end()) continue;
      need.name = fmt::format("{} in {}", metric, config_.region);
      need.limit = quota->limit;
      need.used = quota->usage;
      need.unit = metric == "CPUS" ? "vCPUs" : "of them";
      need.fix = kQuotaFix;
      quotas_.push_back(judge_quota(need));
    }
    co_return "";
  }

  static void add_needs(const nlohmann::json& config, int least, int most, std::map<std::string, QuotaNeed>& needs) {
    const auto add = [&](const std::string& metric, double each) {
      if (each <= 0) return;
      needs[metric].least += each * least;
      needs[metric].most += each * most;
    };
    if (const auto type = find_gcp_type(machine_type_of(config))) add("CPUS", type->vcpus);
    const nlohmann::json cards = config.value("guestAccelerators", nlohmann::json::array());
    for (const nlohmann::json& card : cards.is_array() ? cards : nlohmann::json::array()) {
      if (!card.is_object()) continue;
      const auto kind = card.find("acceleratorType");
      const auto* found = kind != card.end() && kind->is_string()
                              ? find_gcp_accelerator(gcp::last_part(kind->get<std::string>()))
                              : nullptr;
      const auto count = card.find("acceleratorCount");
      const double number = count != card.end() && count->is_number() ? count->get<double>() : 1;
      if (found != nullptr) add(fmt::format("NVIDIA_{}_GPUS", found->gpu), number);
    }
  }

  Client& client_;
  const ClusterFile& file_;
  const GcpConfig config_;
  const rest::Environment env_;
  std::vector<CloudCheck> out_, quotas_, found_quotas_;
};

}  // namespace

Task<CloudInventory> list_gcp(World& world, const ClusterFile& file, std::vector<std::string> env) {
  const std::unique_ptr<Client> client = open_for(world, file, env);
  GcpInventory inventory(*client, file);
  co_return co_await inventory.run();
}

Task<std::vector<CloudCheck>> check_gcp(World& world, const ClusterFile& file, std::vector<std::string> env) {
  const std::unique_ptr<Client> client = open_for(world, file, env);
  GcpDoctor doctor(*client, file, rest::environment_of(env));
  co_return co_await doctor.run();
}

}  // namespace rubato::clouds
