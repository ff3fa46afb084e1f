#include "clouds/gcp/gcp_surroundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "clouds/common/address_range.h"
#include "clouds/common/inventory.h"
#include "clouds/gcp/gcp_login.h"
#include "clouds/gcp/machine_types.h"
#include "core/sha256.h"
#include "core/text.h"
#include "gcp/identity.h"
#include "gcp/permissions.h"
#include "rest/cloud_error.h"
#include "rest/json.h"

namespace rubato::clouds {
namespace {

using gcp::Client;
using nlohmann::json;
using rest::CloudError;
using rest::text_at;

constexpr size_t kAccountStemMax = 14;
constexpr size_t kAccountDigits = 8;
constexpr std::string_view kRole = "rubatoHead";
constexpr std::string_view kUsualImage = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts";
constexpr std::string_view kArmImage = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts-arm64";
constexpr std::string_view kGpuProject = "deeplearning-platform-release";
constexpr std::string_view kGpuFamily = "common-cu";

std::string ssh_rule_name(const GcpConfig& config) { return fmt::format("rubato-{}-ssh", config.cluster); }
std::string inside_rule_name(const GcpConfig& config) { return fmt::format("rubato-{}-inside", config.cluster); }
std::string network_tag_of(const GcpConfig& config) { return fmt::format("rubato-{}-node", config.cluster); }

// The first network interface of a type, as the file has it; null: it names none.
json own_card(const NodeTypeConfig& type) {
  const json config = type.node_config;
  const json cards = config.value("networkInterfaces", json::array());
  return cards.is_array() && !cards.empty() ? cards.front() : json();
}

// Of "projects/P/global/networks/N"; empty: the link names none.
std::string project_of(const std::string& link) {
  constexpr std::string_view kProjects = "projects/";
  const auto rest = strip_prefix(link, kProjects);
  return rest ? std::string(rest->substr(0, rest->find('/'))) : "";
}

bool names_key(const NodeTypeConfig& type, const char* key) {
  const auto found = type.node_config.find(key);
  return found != type.node_config.end() && !found->is_null() && !(found->is_array() && found->empty());
}

// The steps of `up`, each on what those before have found.
class GcpPreparation {
 public:
  GcpPreparation(Client& client, GcpSurroundingsOrder order) : client_(client), order_(std::move(order)) {}

  Task<FoundGcpSurroundings> run() {
    out_.around.project = config().project;
    out_.around.region = config().region;
    out_.around.person_key = order_.public_key;
    out_.around.endpoint = gcp::variable(order_.env, "RUBATO_GCP_ENDPOINT");
    out_.around.endpoints =
        gcp::endpoint_variables(order_.env, gcp::read_configuration(client_.world().files, order_.env));
    refuse_tpus();
    report("project");
    co_await check_project();
    report("zones and network");
    co_await find_zones();
    co_await find_network();
    const std::string login = co_await find_login();
    if (!login.empty()) out_.notes.push_back(login);
    report("firewall");
    co_await ensure_firewall();
    report("the head's service account");
    Task<void> account = ensure_account();
    co_await unless_unknown("service accounts", gcp::kIam, std::move(account));
    report("machine types and images");
    co_await check_machine_types();
    co_await find_images();
    co_return std::move(out_);
  }

  // As run(), as far as nothing is made.
  Task<GcpSurroundings> check(std::vector<provider::CloudCheck>& checks) {
    Task<std::string> project = tell_project();
    const bool has_project = co_await try_check("project", std::move(project), checks);
    if (!has_project) co_return std::move(out_.around);
    Task<std::string> region = tell_zones();
    const bool has_zones = co_await try_check("region", std::move(region), checks);
    Task<std::string> network = tell_network();
    co_await try_check("network", std::move(network), checks);
    Task<std::string> ssh = tell_ssh();
    co_await try_check("ssh", std::move(ssh), checks);
    if (!has_zones) co_return std::move(out_.around);
    Task<std::string> types = tell_machine_types();
    co_await try_check("types", std::move(types), checks);
    Task<std::string> images = tell_images();
    co_await try_check("images", std::move(images), checks);
    co_return std::move(out_.around);
  }

 private:
  Task<std::string> tell_project() {
    refuse_tpus();
    co_await check_project();
    if (!out_.notes.empty()) co_return out_.notes.front();
    co_return fmt::format("{}, where you may do all that up needs", config().project);
  }
  Task<std::string> tell_zones() {
    co_await find_zones();
    co_return fmt::format("{}, with {}", config().region, join(out_.around.zones, ", "));
  }
  Task<std::string> tell_network() {
    co_await find_network();
    add_own_networks();
    const std::vector<std::string> networks(networks_.begin(), networks_.end());
    co_return out_.around.subnetwork.empty() ? join(networks, ", ") : out_.around.subnetwork;
  }
  Task<std::string> tell_ssh() {
    const std::vector<std::string> from = co_await ssh_from();
    const std::string note = co_await find_login();
    if (!note.empty()) co_return note;
    co_return fmt::format("let in from {}{}", join(from, ", "), uses_login_ ? ", by OS Login" : "");
  }
  Task<std::string> tell_machine_types() {
    co_await check_machine_types();
    std::set<std::string> names;
    for (const auto& [name, type] : file().types) names.insert(machine_type_of(json(type.node_config)));
    names.erase("");
    co_return names.empty() ? "none is named" : join(std::vector<std::string>(names.begin(), names.end()), ", ");
  }
  Task<std::string> tell_images() {
    co_await find_images();
    std::set<std::string> names;
    for (const auto& [type, image] : out_.around.images) names.insert(image);
    co_return names.empty() ? "the file's own" : join(std::vector<std::string>(names.begin(), names.end()), ", ");
  }

  const GcpConfig& config() const { return order_.config; }
  const ClusterFile& file() const { return *order_.file; }
  void report(const std::string& what) {
    if (order_.on_progress) order_.on_progress("Google Cloud: " + what);
  }
  std::string where(const std::string& type, const char* key) const {
    return file().place(fmt::format("node_types.{}.node_config{}{}", type, *key ? "." : "", key));
  }
  bool makes_account() const {
    const auto head = file().types.find(file().head_type);
    return head == file().types.end() || !names_key(head->second, "serviceAccounts");
  }

  void refuse_tpus() const {
    for (const auto& [name, type] : file().types) {
      if (!is_tpu(json(type.node_config))) continue;
      throw Error(ErrorCode::kUsage, std::string(kNoTpus), where(name, ""), std::string(kNoTpusFix));
    }
  }

  // Servers that are not Google's may know nothing of projects: then nobody is asked.
  Task<void> check_project() {
    try {
      co_await check_project_and_permissions();
    } catch (const CloudError& error) {
      if (!gcp::is_unknown_call(error)) throw;
      out_.notes.push_back(
          fmt::format("note: the project '{}' cannot be checked: {}", config().project, error.message));
    }
  }

  Task<void> check_project_and_permissions() {
    const gcp::Project project = co_await gcp::get_project(client_);
    project_number_ = project.number;
    if (!project.state.empty() && project.state != "ACTIVE") {
      throw Error(ErrorCode::kUsage,
                  fmt::format("the project '{}' is not active ({})", config().project, project.state),
                  config().provider_where, "write another project_id, or restore it in Google's console");
    }
    std::vector<std::string> wanted = gcp::person_permissions(makes_account());
    const std::vector<std::string> missing = co_await gcp::missing_permissions(client_, std::move(wanted));
    if (missing.empty()) co_return;
    throw Error(ErrorCode::kAuth,
                fmt::format("you lack {} in the project '{}': {}", missing.size() == 1 ? "a permission" : "permissions",
                            config().project, join(missing, ", ")),
                config().provider_where,
                fmt::format("let an owner run: gcloud projects add-iam-policy-binding {} --member=user:YOU "
                            "--role=ROLE, with the roles of docs/gcp.md",
                            config().project));
  }

  Task<void> find_zones() {
    const std::vector<std::string> all = co_await gcp::list_zones(client_, config().region);
    if (all.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("the region '{}' has no zones", config().region),
                  file().place("provider.region"), "gcloud compute regions list has all");
    }
    for (const std::string& zone : config().zones) {
      if (std::ranges::find(all, zone) != all.end()) continue;
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is no zone of {} that is up", zone, config().region),
                  file().place("provider.availability_zone"), "write one or more of: " + join(all, ", "));
    }
    out_.around.zones = config().zones.empty() ? all : config().zones;
  }

  Task<void> find_network() {
    const bool needed =
        std::ranges::any_of(file().types, [](const auto& one) { return own_card(one.second).is_null(); });
    std::vector<gcp::Subnetwork> found = co_await subnetworks();
    subnetworks_ = found;
    if (!needed) co_return;
    if (found.empty() && client_.is_elsewhere(gcp::kCompute)) {
      networks_.insert(fmt::format("projects/{}/global/networks/default", config().project));
      co_return;
    }
    // The network `default` before others, then by name: the same one each time.
    std::ranges::sort(found, {}, [](const gcp::Subnetwork& one) {
      return std::pair(!one.network.ends_with("/default"), one.name);
    });
    if (found.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("the project '{}' has no subnet in {}", config().project,
                                                 config().region),
                  config().provider_where,
                  "gcloud compute networks create default, or name networkInterfaces in each node_config");
    }
    out_.around.subnetwork = found.front().link;
    networks_.insert(found.front().network);
  }

  // What people are told of it; empty: nothing. What the project says is respected: its organisation may want it so.
  Task<std::string> find_login() {
    try {
      out_.around.uses_login = co_await gcp::project_uses_login(client_);
    } catch (const CloudError& error) {
      if (!gcp::is_unknown_call(error) || !client_.is_elsewhere(gcp::kCompute)) throw;
    }
    uses_login_ = any_uses_login(file(), out_.around.uses_login);
    if (!uses_login_) co_return "";
    try {
      co_return co_await check_login_permission(client_, config());
    } catch (const CloudError& error) {
      if (!gcp::is_unknown_call(error)) throw;
    }
    co_return "";
  }

  Task<std::vector<gcp::Subnetwork>> subnetworks() {
    try {
      co_return co_await gcp::list_subnetworks(client_, config().region);
    } catch (const CloudError& error) {
      if (!gcp::is_unknown_call(error) || !client_.is_elsewhere(gcp::kCompute)) throw;
    }
    co_return std::vector<gcp::Subnetwork>();
  }

  // Networks that node types name themselves, so that the rules are where the machines are.
  void add_own_networks() {
    for (const auto& [name, type] : file().types) {
      const json card = own_card(type);
      if (card.is_null() || is_of_others(card)) continue;
      const std::string subnet = gcp::last_part(text_at(card, "subnetwork"));
      const auto found = std::ranges::find(subnetworks_, subnet, &gcp::Subnetwork::name);
      if (!subnet.empty() && found != subnetworks_.end()) {
        networks_.insert(found->network);
      } else if (const std::string network = text_at(card, "network"); !network.empty()) {
        networks_.insert(fmt::format("projects/{}/global/networks/{}", config().project, gcp::last_part(network)));
      }
    }
  }

  // A network that another project shares with this one: its rules are that project's to write.
  bool is_of_others(const json& card) {
    for (const char* key : {"subnetwork", "network"}) {
      const std::string link = gcp::without_host(text_at(card, key)), project = project_of(link);
      if (project.empty() || project == config().project || project == project_number_) continue;
      shared_.insert(link);
      return true;
    }
    return false;
  }

  Task<void> ensure_firewall() {
    add_own_networks();
    for (const std::string& link : shared_) {
      out_.around.network_tag = network_tag_of(config());
      out_.notes.push_back(
          fmt::format("note: {} is of another project, whose firewall must let in SSH to machines with the tag {}, and "
                      "all traffic between them",
                      link, out_.around.network_tag));
    }
    if (networks_.empty()) co_return;
    if (networks_.size() > 1) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("the node types are in {} networks: {}", networks_.size(),
                              join(std::vector<std::string>(networks_.begin(), networks_.end()), ", ")),
                  file().place("node_types"), "use one network for all of them");
    }
    const std::string tag = network_tag_of(config());
    std::vector<std::string> from = co_await ssh_from();
    json ssh = rule(ssh_rule_name(config()));
    ssh["allowed"] = json::array({{{"IPProtocol", "tcp"}, {"ports", {"22"}}}});
    ssh["sourceRanges"] = from;
    json inside = rule(inside_rule_name(config()));
    inside["allowed"] = json::array({{{"IPProtocol", "all"}}});
    inside["sourceTags"] = {tag};
    out_.around.network_tag = tag;
    Task<void> rules = ensure_rules(std::move(ssh), std::move(inside));
    co_await unless_unknown("firewall rules", gcp::kCompute, std::move(rules));
  }
  Task<void> ensure_rules(json ssh, json inside) {
    co_await ensure_rule(std::move(ssh), !config().ssh_from.empty());
    co_await ensure_rule(std::move(inside), false);
  }

  // A server that is not Google's may lack a part of what Google has: `up` goes on without it, and says so.
  Task<void> unless_unknown(std::string what, gcp::Service service, Task<void> step) {
    try {
      co_await std::move(step);
    } catch (const CloudError& error) {
      if (!gcp::is_unknown_call(error) || !client_.is_elsewhere(service)) throw;
      out_.notes.push_back(fmt::format("note: the server has no {}: {}", what, error.message));
    }
  }

  Task<std::vector<std::string>> ssh_from() {
    SshFrom asked{config().ssh_from, config().internal_only && config().internal_head, config().provider_where,
                  order_.env,
                  client_.is_elsewhere(gcp::kCompute) ? client_.url_of(gcp::kCompute).endpoint.host : ""};
    co_return co_await find_ssh_from(client_.world(), std::move(asked));
  }

  json rule(const std::string& name) const {
    return {{"name", name},
            {"description", description_of(config())},
            {"network", *networks_.begin()},
            {"direction", "INGRESS"},
            {"targetTags", {network_tag_of(config())}}};
  }

  // `exact`: ranges that are no longer wanted go; else they stay, of other people's machines.
  Task<void> ensure_rule(json wanted, bool exact) {
    const std::string name = wanted["name"];
    const std::optional<gcp::Firewall> found = co_await gcp::get_firewall(client_, name);
    if (!found) {
      co_await gcp::insert_firewall(client_, std::move(wanted));
      co_return;
    }
    if (found->description != description_of(config())) {
      out_.notes.push_back(fmt::format("note: the firewall rule '{}' was there before: it is left as it is", name));
      co_return;
    }
    std::set<std::string> ranges;
    for (const json& one : wanted.value("sourceRanges", json::array())) ranges.insert(one.get<std::string>());
    if (!exact) ranges.insert(found->source_ranges.begin(), found->source_ranges.end());
    const std::set<std::string> has(found->source_ranges.begin(), found->source_ranges.end());
    if (ranges == has) co_return;
    const json change = {{"sourceRanges", ranges}};
    co_await gcp::patch_firewall(client_, name, change);
  }

  Task<void> ensure_account() {
    if (!makes_account()) co_return;
    std::vector<std::string> permissions = gcp::head_permissions();
    const std::string role =
        co_await gcp::ensure_role(client_, std::string(kRole), "Head of a rubato cluster", std::move(permissions));
    gcp::ServiceAccount account;
    account.name = head_account_name(config());
    account.title = fmt::format("head of the rubato cluster {}", config().cluster);
    account.description = description_of(config());
    const std::string email = co_await gcp::ensure_service_account(client_, std::move(account), out_.new_account);
    gcp::Grant grant;
    grant.role = role;
    grant.email = email;
    grant.title = "machines of one rubato cluster";
    grant.condition = fmt::format(
        "resource.type != \"compute.googleapis.com/Instance\" || "
        "resource.name.extract(\"/instances/{{name}}\").startsWith(\"ray-{}-\")",
        config().cluster);
    gcp::Grant login = grant;
    co_await gcp::grant_in_project(client_, std::move(grant));
    if (uses_login_) {
      login.role = "roles/compute.osAdminLogin";
      co_await gcp::grant_in_project(client_, std::move(login));
    }
    for (const std::string& used : worker_accounts()) co_await gcp::grant_use_of_account(client_, used, email);
    out_.around.head_account = email;
  }

  // Accounts that workers' machines have: whoever makes such a machine must be allowed to use its account.
  std::set<std::string> worker_accounts() const {
    std::set<std::string> out;
    for (const auto& [name, type] : file().types) {
      const json config_of_type = type.node_config;
      for (const json& one : config_of_type.value("serviceAccounts", json::array())) {
        std::string email = text_at(one, "email");
        if (email.empty() || email == "default") {
          if (project_number_.empty()) continue;  // nobody knows its name
          email = fmt::format("{}-compute@developer.gserviceaccount.com", project_number_);
        }
        out.insert(std::move(email));
      }
    }
    return out;
  }

  Task<void> check_machine_types() {
    std::map<std::string, std::vector<std::string>> known;  // zones by machine type
    for (const auto& [name, type] : file().types) {
      const std::string machine = machine_type_of(json(type.node_config));
      if (machine.empty()) continue;
      if (!known.contains(machine)) {
        std::vector<std::string>& zones = known[machine];
        for (const std::string& zone : out_.around.zones) {
          const bool has = co_await gcp::has_machine_type(client_, zone, machine);
          if (has) zones.push_back(zone);
        }
      }
      if (known[machine].empty() && client_.is_elsewhere(gcp::kCompute)) {
        const bool any = co_await gcp::knows_machine_types(client_, out_.around.zones.front());
        if (!any) known[machine] = out_.around.zones;
      }
      if (known[machine].empty()) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("there is no machine type '{}' in {}", machine, join(out_.around.zones, ", ")),
                    where(name, "machineType"),
                    fmt::format("gcloud compute machine-types list --zones {}", out_.around.zones.front()));
      }
      if (known[machine].size() < out_.around.zones.size()) out_.around.type_zones[name] = known[machine];
    }
  }

  Task<void> find_images() {
    std::set<std::string> fine;
    for (const auto& [name, type] : file().types) {
      if (!names_key(type, "disks")) {
        if (names_key(type, "sourceInstanceTemplate") || names_key(type, "sourceMachineImage")) continue;
        out_.around.images[name] = co_await default_image(name, json(type.node_config));
        continue;
      }
      const json config_of_type = type.node_config;
      for (const json& disk : config_of_type["disks"]) {
        const json parameters = disk.is_object() ? disk.value("initializeParams", json::object()) : json::object();
        const std::string image = gcp::without_host(text_at(parameters, "sourceImage"));
        if (!image.starts_with("projects/") || !fine.insert(image).second) continue;
        const bool found = co_await gcp::has_image(client_, image);
        if (found) continue;
        bool has_any = true;
        if (client_.is_elsewhere(gcp::kCompute)) has_any = co_await gcp::has_image(client_, std::string(kUsualImage));
        if (!has_any) {
          out_.notes.push_back(fmt::format("note: the server knows no image '{}'", image));
          continue;
        }
        throw Error(ErrorCode::kUsage, fmt::format("there is no image '{}'", image), where(name, "disks"),
                    "gcloud compute images list has those of today, for example " + std::string(kUsualImage));
      }
    }
  }

  Task<std::string> default_image(std::string type, json node_config) {
    const std::string machine = machine_type_of(node_config);
    const auto size = find_gcp_type(machine);
    const json cards = node_config.value("guestAccelerators", json::array());
    const bool gpus = (size && size->gpus > 0) || (cards.is_array() && !cards.empty());
    if (!gpus) co_return std::string(is_gcp_arm(machine) ? kArmImage : kUsualImage);
    std::string newest = co_await gcp::newest_image(client_, std::string(kGpuProject), std::string(kGpuFamily));
    if (newest.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("no image with drivers for GPUs is found in {}", kGpuProject),
                  where(type, ""), "name one in disks: [{boot: true, initializeParams: {sourceImage: projects/...}}]");
    }
    co_return newest;
  }

  Client& client_;
  const GcpSurroundingsOrder order_;
  FoundGcpSurroundings out_;
  std::string project_number_;
  bool uses_login_ = false;  // some of the machines, OS Login
  std::vector<gcp::Subnetwork> subnetworks_;
  std::set<std::string> networks_, shared_;
};

Task<void> remove_rule(Client& client, const GcpConfig& config, std::string name, RemovedSurroundings& out) {
  const std::optional<gcp::Firewall> found = co_await gcp::get_firewall(client, name);
  if (!found) co_return;
  if (found->description != description_of(config)) {
    out.kept.push_back(fmt::format("firewall rule {}: it is not ours", name));
    co_return;
  }
  co_await gcp::delete_firewall(client, name);
  out.removed.push_back("firewall rule " + name);
}

// The account's grants first: of one that is gone they would stay in the project's policy. Who may not do this has not
// made one either.
Task<void> remove_account(Client& client, std::string email, RemovedSurroundings& out) {
  try {
    co_await gcp::revoke_in_project(client, email);
    const bool gone = co_await gcp::delete_service_account(client, email);
    if (gone) out.removed.push_back("service account " + email);
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kAuth) throw;
  }
}

Task<void> report_disks(Client& client, const GcpConfig& config, RemovedSurroundings& out) {
  gcp::Labels labels{{std::string(kClusterLabel), config.cluster}};
  const std::vector<gcp::Disk> disks = co_await gcp::list_disks(client, std::move(labels));
  for (const gcp::Disk& one : disks) {
    if (one.in_use) continue;
    out.kept.push_back(fmt::format("disk {} in {} (its autoDelete is false): it costs money", one.name, one.zone));
  }
}

}  // namespace

std::string description_of(const GcpConfig& config) {
  return fmt::format("made by rubato for the cluster {}", config.cluster);
}

std::vector<std::string> firewall_names(const GcpConfig& config) {
  return {ssh_rule_name(config), inside_rule_name(config)};
}

std::string head_account_name(const GcpConfig& config) {
  const std::string digest = sha256_hex(config.cluster + "/" + config.region).substr(0, kAccountDigits);
  std::string stem = config.cluster.substr(0, kAccountStemMax);
  while (stem.ends_with('-')) stem.pop_back();
  return fmt::format("rubato-{}-{}", stem, digest);
}

Task<FoundGcpSurroundings> prepare_gcp_surroundings(Client& client, GcpSurroundingsOrder order) {
  GcpPreparation preparation(client, std::move(order));
  co_return co_await preparation.run();
}

Task<GcpSurroundings> check_gcp_surroundings(Client& client, GcpSurroundingsOrder order,
                                             std::vector<provider::CloudCheck>& out) {
  GcpPreparation preparation(client, std::move(order));
  co_return co_await preparation.check(out);
}

Task<RemovedSurroundings> remove_gcp_surroundings(Client& client, GcpConfig config) {
  RemovedSurroundings out;
  for (const std::string& name : firewall_names(config)) {
    Task<void> rule = remove_rule(client, config, name, out);
    co_await try_removal("firewall rule " + name, std::move(rule), out);
  }
  const std::string email = gcp::email_of(head_account_name(config), client.project());
  Task<void> account = remove_account(client, email, out);
  co_await try_removal("service account " + email, std::move(account), out);
  Task<void> disks = report_disks(client, config, out);
  co_await try_removal("disks", std::move(disks), out);
  co_return out;
}

}  // namespace rubato::clouds
