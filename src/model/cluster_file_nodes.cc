// Node types, limits and the head's type, from any generation of Ray's files:
//
//   node_types / available_node_types   as they are
//   head_node, worker_nodes             two types, ray-legacy-head-node-type and ray-legacy-worker-node-type
//   available_instance_types            one type for each, made of worker_nodes
//   none of these                       the two types of Ray's defaults for the provider
//   hosts of one's own                  one type, local.cluster.node
#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "model/cluster_file_readers.h"
#include "model/limits.h"
#include "model/provider_kind.h"
#include "model/yaml_value.h"

namespace rubato {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kLegacyHead = "ray-legacy-head-node-type";
constexpr std::string_view kLegacyWorker = "ray-legacy-worker-node-type";
constexpr int kDefaultMaxWorkers = 2;       // of Ray's defaults.yaml
constexpr double kAggressiveSpeed = 99999;  // as Ray itself reads autoscaling_mode: aggressive
// A node's certificate names it "node/TYPE-NUMBER", in 64 characters at most.
constexpr size_t kTypeNameMax = 50;
constexpr int64_t kPriorityLimit = 1'000'000;

bool is_given(const ConfigSection::Given* given) {
  return given != nullptr && !(given->value.is_mapping() && given->value.entries().empty());
}

// They become parts of node names.
bool valid_type_name(const std::string& name) {
  const auto fine = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kTypeNameMax && name.front() != '-' && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), fine);
}

class NodesReader {
 public:
  NodesReader(ConfigSection& top, ConfigReading& reading, ClusterFile& out)
      : top_(top), reading_(reading), findings_(reading.findings), out_(out), kind_(provider_kind(out.provider.type)) {}

  void read() {
    max_ = top_.limit("autoscaling.max_workers");
    least_ = top_.count("autoscaling.min_workers");
    read_speed();
    read_money();
    if (out_.provider.head || !out_.provider.workers.empty() || !out_.provider.coordinator_address.empty()) {
      host_type();
    } else {
      read_types();
      choose_head();
      merge_common_config();
      spread_minimum();
      fill_limits();
    }
    check_limits();
    read_initial();
  }

 private:
  // What was given for one type, before defaults.
  struct Limits {
    std::optional<int> least, most;
    std::optional<Yaml> least_at, most_at;
  };

  DefaultTypes default_types() const { return kind_.default_types != nullptr ? kind_.default_types() : DefaultTypes(); }

  void read_speed() {
    AutoscalingConfig& scaling = out_.autoscaling;
    if (const auto* given = top_.find("target_utilization_fraction")) {
      const auto fraction = top_.number("target_utilization_fraction");
      if (fraction && (*fraction <= 0 || *fraction > 1)) {
        findings_.error(given->value, "target_utilization_fraction must be above 0 and at most 1");
      } else if (fraction) {
        scaling.upscaling_speed = 1 / *fraction - 1;
        scaling.target_utilization = *fraction;
        top_.derive("autoscaling.upscaling_speed", *given);
      }
    }
    if (const auto mode = top_.text("autoscaling_mode")) {
      const auto* given = top_.find("autoscaling_mode");
      if (*mode == "aggressive") {
        scaling.upscaling_speed = kAggressiveSpeed;
        scaling.aggressive = true;
        top_.derive("autoscaling.upscaling_speed", *given);
      } else if (*mode != "default") {
        findings_.error(given->value, fmt::format("the autoscaling_mode '{}' is unknown", *mode),
                        "write default or aggressive");
      }
    }
    if (const auto speed = top_.number("autoscaling.upscaling_speed")) scaling.upscaling_speed = *speed;
    if (const auto idle = top_.duration("autoscaling.idle_timeout")) scaling.idle_timeout = *idle;
    read_lease();
    read_notice();
    read_adaptive();
  }

  void read_adaptive() {
    AdaptiveSettings& adaptive = out_.adaptive;
    if (const auto name = top_.text("adaptive.policy")) {
      const auto policy = parse_adaptive_policy(*name);
      adaptive.policy = policy.value_or(adaptive.policy);
      if (!policy) {
        findings_.error(top_.find("adaptive.policy")->value, fmt::format("there is no policy '{}'", *name),
                        "write goodput or fair");
      }
    }
    if (const auto bound = top_.number("adaptive.max_slowdown")) {
      adaptive.max_slowdown = *bound;
      if (*bound != 0 && *bound < 1) {
        findings_.error(top_.find("adaptive.max_slowdown")->value, "no job is slower by less than 1",
                        "write a factor such as 3, or 0 for no bound");
      }
    }
    if (const auto least = top_.number("adaptive.least_utility")) {
      adaptive.least_utility = *least;
      if (*least > 1) {
        findings_.error(top_.find("adaptive.least_utility")->value, "a worker does at most what a first one does",
                        "write a number from 0 to 1");
      }
    }
    if (const auto text = top_.text("adaptive.utility_band")) {
      adaptive.utility_band = parse_utility_band(*text);
      if (!adaptive.utility_band) {
        findings_.error(top_.find("adaptive.utility_band")->value, fmt::format("'{}' is not a band", *text),
                        "write LOW:HIGH, such as \"0.35:0.65\"");
      }
    }
  }

  void read_notice() {
    NoticeSource& notice = out_.notice;
    notice.service = kind_.notices;
    if (const auto watch = top_.text("notice.watch")) {
      if (*watch == "ec2" || *watch == "gcp") {
        notice.service = *watch == "ec2" ? NoticeService::kEc2 : NoticeService::kGcp;
      } else if (*watch == "none") {
        notice.service = NoticeService::kNone;
      } else if (*watch != "auto") {
        findings_.error(top_.find("notice.watch")->value, fmt::format("nobody gives notices by '{}'", *watch),
                        "write auto, ec2, gcp or none");
      }
    }
    notice.rebalance = top_.flag("notice.rebalance").value_or(false);
    notice.file = top_.text("notice.file").value_or("");
    notice.command = top_.text("notice.command").value_or("");
  }

  void read_lease() {
    const auto lease = top_.duration("lease");
    if (!lease) return;
    out_.lease = *lease;
    if (*lease >= kLeaseMin) return;
    findings_.error(top_.find("lease")->value, fmt::format("a lease of {} is too short", format_duration(*lease)),
                    fmt::format("write at least {}", format_duration(kLeaseMin)));
  }

  void read_money() {
    AutoscalingConfig& scaling = out_.autoscaling;
    if (const auto policy = top_.text("autoscaling.spot")) {
      scaling.spot = *policy;
      if (*policy != "prefer" && *policy != "only" && *policy != "never") {
        findings_.error(top_.find("autoscaling.spot")->value, fmt::format("the spot policy '{}' is unknown", *policy),
                        "write prefer, only or never");
      }
    }
    scaling.on_demand_base = top_.count("autoscaling.on_demand_base").value_or(0);
    scaling.price_cap = top_.number("autoscaling.price_cap");
    scaling.budget_per_hour = top_.number("autoscaling.budget_per_hour");
    scaling.budget = top_.number("autoscaling.budget");
    scaling.launch_concurrency = top_.count("autoscaling.launch_concurrency");
    if (scaling.launch_concurrency == 0) {
      findings_.error(top_.find("autoscaling.launch_concurrency")->value,
                      "with no launch at once there is never a node", "write at least 1");
    }
    scaling.consolidate_after = top_.duration("autoscaling.consolidate_after");
  }

  // Hosts of one's own are all alike to Ray; what each has is found out there.
  void host_type() {
    for (const char* path : {"node_types", "head_type", "head_node", "worker_nodes"}) {
      const auto* given = top_.find(path);
      if (is_given(given)) {
        findings_.error(given->key, fmt::format("\"{}\" has no meaning for hosts of your own", given->row->path),
                        "remove it; head_ip and worker_ips say which nodes there are");
      }
    }
    const bool lent = !out_.provider.coordinator_address.empty();
    const int hosts = static_cast<int>(out_.provider.workers.size());
    NodeTypeConfig type;
    type.max_workers = max_.value_or(hosts);
    type.min_workers = least_.value_or(lent ? 0 : std::min(hosts, type.max_workers));
    if (!lent) {
      clamp("autoscaling.max_workers", type.max_workers, hosts);
      clamp("autoscaling.min_workers", type.min_workers, hosts);
    }
    if (type.min_workers > type.max_workers) {
      findings_.error(top_.find("autoscaling.min_workers")->value,
                      fmt::format("min_workers {} is above max_workers {}", type.min_workers, type.max_workers),
                      fmt::format("raise max_workers to {}", type.min_workers));
    }
    out_.autoscaling.max_workers = type.max_workers;
    out_.head_type = kHostType;
    out_.types.emplace(kHostType, std::move(type));
  }

  void clamp(const char* path, int& value, int hosts) {
    if (value <= hosts) return;
    findings_.warning(
        top_.find(path)->value,
        fmt::format("{} worker{} wanted, but worker_ips has {}", value, value == 1 ? " is" : "s are", hosts),
        fmt::format("{} is used", hosts));
    value = hosts;
  }

  void read_types() {
    const auto* given = top_.find("node_types");
    const auto* head = top_.find("head_node");
    const auto* worker = top_.find("worker_nodes");
    const auto* instances = top_.find("available_instance_types");
    if (is_given(given)) {
      if (is_given(instances)) {
        findings_.error(
            instances->key,
            fmt::format("\"{}\" and \"{}\" both say which nodes there are", instances->row->path, given->row->path),
            fmt::format("remove \"{}\"", instances->row->path));
      }
      read_given_types(*given);
      return;
    }
    if (head != nullptr || worker != nullptr || instances != nullptr) {
      if (is_given(head) || is_given(worker) || is_given(instances)) return legacy_types(head, worker, instances);
    }
    if (out_.provider.this_machine() || out_.provider.type.empty()) return;
    const DefaultTypes defaults = default_types();
    add_type(defaults.head, defaults.head_config, defaults.resources);
    add_type(defaults.worker, defaults.worker_config, defaults.resources);
    defaulted_ = true;
  }

  void add_type(const std::string& name, ordered_json config, const Resources& resources = {}) {
    NodeTypeConfig type;
    type.node_config = std::move(config);
    type.resources.amounts = resources;
    out_.types.emplace(name, std::move(type));
    limits_[name];
  }

  void legacy_types(const ConfigSection::Given* head, const ConfigSection::Given* worker,
                    const ConfigSection::Given* instances) {
    const DefaultTypes defaults = default_types();
    const ordered_json head_config =
        head != nullptr ? top_.opaque("head_node").value_or(ordered_json::object()) : defaults.head_config;
    const ordered_json worker_config =
        worker != nullptr ? top_.opaque("worker_nodes").value_or(ordered_json::object()) : defaults.worker_config;
    const ConfigSection::Given& any = head != nullptr ? *head : worker != nullptr ? *worker : *instances;
    legacy_type(kLegacyHead, head_config, head != nullptr ? *head : any);
    out_.head_type = kLegacyHead;
    top_.derive("head_type", any);
    if (instances == nullptr) return legacy_type(kLegacyWorker, worker_config, worker != nullptr ? *worker : any);
    attempt(findings_, [&] {
      for (const Yaml::Entry& entry : instances->value.entries()) {
        ordered_json config = worker_config;
        if (!kind_.instance_type_key.empty()) config[std::string(kind_.instance_type_key)] = entry.key.as_string();
        const std::string name = entry.key.as_string();
        read_type(entry);
        if (out_.types.contains(name)) out_.types[name].node_config = std::move(config);
        reading_.places.emplace("node_types." + name + ".node_config", entry.key.where());
      }
    });
  }

  void legacy_type(std::string_view name, const ordered_json& config, const ConfigSection::Given& from) {
    add_type(std::string(name), config);
    top_.derive(fmt::format("node_types.{}", name), from);
    top_.derive(fmt::format("node_types.{}.node_config", name), from);
  }

  void read_given_types(const ConfigSection::Given& given) {
    if (findings_.blames(given.value)) return;
    attempt(findings_, [&] {
      for (const Yaml::Entry& entry : given.value.entries()) read_type(entry);
    });
  }

  void read_type(const Yaml::Entry& entry) {
    const std::string name = entry.key.as_string();
    if (!valid_type_name(name)) {
      findings_.error(
          entry.key, fmt::format("'{}' is not a name for a node type", name),
          fmt::format("use up to {} letters, digits and ._-; the first one a letter or digit", kTypeNameMax));
      return;
    }
    reading_.places.emplace("node_types." + name, entry.key.where());
    const ConfigSection fields(entry.value, "node_types.*", "node_types." + name, reading_);
    NodeTypeConfig type;
    if (auto config = fields.opaque("node_config")) type.node_config = std::move(*config);
    if (auto resources = fields.resources("resources")) type.resources = std::move(*resources);
    type.idle_timeout = fields.duration("idle_timeout");
    type.priority = fields.integer("priority", -kPriorityLimit, kPriorityLimit).value_or(0);
    type.price_per_hour = fields.number("price_per_hour");
    type.spot = fields.flag("spot");
    type.spot_price_per_hour = fields.number("spot_price_per_hour");
    if (type.spot.value_or(false) && !kind_.offers_spot) {
      findings_.warning(fields.find("spot")->value,
                        fmt::format("the provider '{}' has no spot market", out_.provider.type),
                        "remove spot; its nodes are never taken away");
    }
    if (auto labels = fields.text_map("labels")) type.labels = std::move(*labels);
    type.setup_host = fields.texts("setup.host");
    type.setup_worker = fields.texts("setup.worker");
    type.pull_before_run = fields.flag("docker.pull_before_run");
    type.worker_image = fields.text("docker.worker_image");
    type.worker_run_options = fields.texts("docker.worker_run_options");
    if (type.worker_image && !type.worker_image->empty() && !out_.docker.enabled()) {
      findings_.warning(fields.find("docker.worker_image")->value, "docker is off, because docker names no image",
                        "add docker: {image: NAME} at the top level");
    }
    Limits limits{fields.count("min_workers"), fields.limit("max_workers"), {}, {}};
    if (limits.least) limits.least_at = fields.find("min_workers")->value;
    if (limits.most) limits.most_at = fields.find("max_workers")->value;
    limits_[name] = std::move(limits);
    types_at_.emplace(name, entry.value);
    if (out_.provider.this_machine()) check_local_type(entry, fields, type);
    out_.types.emplace(name, std::move(type));
  }

  void choose_head() {
    if (!out_.head_type.empty() || out_.types.empty()) return;
    const auto* given = top_.find("head_type");
    if (const auto name = top_.text("head_type")) {
      out_.head_type = *name;
      if (out_.types.contains(*name) || findings_.blames(given->value)) return;
      std::vector<std::string> names;
      for (const auto& [type, config] : out_.types) names.push_back(type);
      const auto near = nearest(*name, names);
      findings_.error(given->value, fmt::format("the head's type '{}' is not among the node types", *name),
                      near ? fmt::format("did you mean {}?", *near) : "write one of: " + join(names, ", "));
      return;
    }
    if (out_.provider.this_machine()) return;  // its head is no node
    const std::string usual = default_types().head;
    if (out_.types.contains(usual)) {
      out_.head_type = usual;
    } else if (out_.types.size() == 1) {
      out_.head_type = out_.types.begin()->first;
    } else if (const auto* types = top_.find("node_types")) {
      std::vector<std::string> names;
      for (const auto& [type, config] : out_.types) names.push_back(type);
      findings_.error(types->key, "the file does not say which node type is the head's",
                      fmt::format("add {}: one of {}", types->row->era == KeyEra::kRay ? "head_node_type" : "head_type",
                                  join(names, ", ")));
    }
  }

  // Ray 1.0: head_node and worker_nodes beside node types are what all of them have in common.
  void merge_common_config() {
    if (!is_given(top_.find("node_types"))) return;
    for (auto& [name, type] : out_.types) {
      const char* key = name == out_.head_type ? "head_node" : "worker_nodes";
      const auto* given = top_.find(key);
      auto common = is_given(given) ? top_.opaque(key) : std::nullopt;
      if (!common) continue;
      for (const auto& [word, value] : type.node_config.items()) (*common)[word] = value;
      type.node_config = std::move(*common);
      top_.derive("node_types." + name + ".node_config", *given);
    }
  }

  // The type that workers are of when nobody says it. nullptr when there are several.
  const std::string* worker_type() {
    if (const auto name = top_.text("worker_default_node_type")) {
      const auto found = out_.types.find(*name);
      if (found != out_.types.end()) return &found->first;
      findings_.error(top_.find("worker_default_node_type")->value, fmt::format("there is no node type '{}'", *name));
      return nullptr;
    }
    const std::string* only = nullptr;
    for (const auto& [name, type] : out_.types) {
      if (name == out_.head_type) continue;
      if (only != nullptr) return nullptr;
      only = &name;
    }
    return only != nullptr || out_.types.size() != 1 ? only : &out_.types.begin()->first;
  }

  void spread_minimum() {
    if (!least_) return;
    const auto* given = top_.find("autoscaling.min_workers");
    const std::string* name = worker_type();
    if (name == nullptr) {
      if (*least_ > 0 && !out_.types.empty()) {
        findings_.warning(given->value,
                          "min_workers of the whole cluster is ignored, because there are several node types",
                          "write min_workers in the node types");
      }
      return;
    }
    Limits& limits = limits_[*name];
    if (limits.least) return;
    limits.least = least_;
    limits.least_at = given->value;
    top_.derive("node_types." + *name + ".min_workers", *given);
    if (defaulted_) spell_out(*given);
  }

  // A limit in one of the default types makes them the file's own.
  void spell_out(const ConfigSection::Given& from) {
    top_.derive("head_type", from);
    for (const auto& [name, type] : out_.types) {
      for (const char* key : {"", ".node_config", ".resources"}) top_.derive("node_types." + name + key, from);
    }
  }

  void fill_limits() {
    int64_t least_sum = 0, most_sum = 0;
    for (const auto& [name, limits] : limits_) least_sum += limits.least.value_or(0);
    for (auto& [name, type] : out_.types) {
      const Limits& limits = limits_[name];
      const bool head = name == out_.head_type;
      const int shared =
          max_.value_or(out_.provider.this_machine() ? limits.least.value_or(0) : default_max(least_sum));
      type.min_workers = limits.least.value_or(0);
      type.max_workers = limits.most.value_or(head ? type.min_workers : shared);
      most_sum += type.max_workers;
      if (out_.provider.this_machine()) check_local_limits(name);
      if (type.min_workers <= type.max_workers) continue;
      const Yaml& at = limits.most_at ? *limits.most_at : *limits.least_at;
      std::string message = fmt::format("the node type {} has min_workers {} above max_workers {}", name,
                                        type.min_workers, type.max_workers);
      std::string hint = fmt::format("raise max_workers to {}", type.min_workers);
      if (out_.provider.this_machine()) {
        findings_.error(at, std::move(message), std::move(hint));
        continue;
      }
      // In Ray max_workers "takes precedence".
      findings_.warning(at, std::move(message), fmt::format("at most {} are made; {}", type.max_workers, hint));
      type.min_workers = type.max_workers;
    }
    const int summed = static_cast<int>(std::min(most_sum, kClusterNodesMax));
    out_.autoscaling.max_workers = max_.value_or(out_.provider.this_machine() ? summed : default_max(least_sum));
  }

  // Nobody finds out later what a process of this machine has.
  void check_local_type(const Yaml::Entry& entry, const ConfigSection& fields, const NodeTypeConfig& type) {
    if (findings_.has_errors()) return;
    const auto* resources = fields.find("resources");
    if (type.resources.amounts.empty()) {
      findings_.error(resources != nullptr ? resources->value : entry.value,
                      fmt::format("a node of type {} needs some resource", entry.key.as_string()),
                      "write resources: {CPU: 4}; 'rubato up' without a file counts this machine");
    }
    if (!type.node_config.empty()) {
      findings_.error(fields.find("node_config")->value, "node_config has no meaning for nodes on this machine",
                      "remove its keys");
    }
  }

  void check_local_limits(const std::string& name) {
    const Limits& limits = limits_[name];
    if (limits.least || limits.most || max_ || findings_.has_errors()) return;
    findings_.error(types_at_.at(name), fmt::format("the node type {} would never have a node", name),
                    "give it min_workers, max_workers, or both");
  }

  static int default_max(int64_t least_sum) {
    return static_cast<int>(std::min<int64_t>(std::max<int64_t>(kDefaultMaxWorkers, least_sum), kClusterNodesMax));
  }

  void check_limits() {
    int64_t least_sum = 0;
    for (const auto& [name, type] : out_.types) least_sum += type.min_workers;
    if (!max_ || least_sum <= *max_ || out_.head_type == kHostType) return;
    findings_.error(top_.find("autoscaling.max_workers")->value,
                    fmt::format("the types' min_workers add up to {}, but max_workers is {}", least_sum, *max_),
                    fmt::format("raise max_workers to {}, or lower a min_workers", least_sum));
  }

  void read_initial() {
    int& initial = out_.autoscaling.initial_workers;
    initial = top_.count("autoscaling.initial_workers").value_or(0);
    if (initial <= out_.autoscaling.max_workers) return;
    findings_.warning(top_.find("autoscaling.initial_workers")->value,
                      fmt::format("initial_workers {} is above max_workers {}", initial, out_.autoscaling.max_workers),
                      fmt::format("{} is used", out_.autoscaling.max_workers));
    initial = out_.autoscaling.max_workers;
  }

  ConfigSection& top_;
  ConfigReading& reading_;
  Findings& findings_;
  ClusterFile& out_;
  const ProviderKind& kind_;
  std::optional<int> max_, least_;
  bool defaulted_ = false;
  std::map<std::string, Limits> limits_;
  std::map<std::string, Yaml> types_at_;
};

}  // namespace

void read_nodes(ConfigSection& top, ConfigReading& reading, ClusterFile& out) { NodesReader(top, reading, out).read(); }

}  // namespace rubato
