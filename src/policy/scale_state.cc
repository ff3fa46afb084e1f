#include "policy/scale_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"

namespace rubato::policy {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kNodesMax = 10'000'000;
constexpr int64_t kLaunchingMax = 200'000;  // of one entry
constexpr int64_t kBundlesMax = 1'000'000'000;
constexpr double kDollarsMax = 1e9;
constexpr double kPriorityMax = 1e6;
constexpr double kSecondsMax = 3.2e9;    // a century
constexpr int64_t kListedMax = 100'000;  // unfulfilled bundles one by one; more are run-length encoded

// An object whose fields are all known: each was asked for when finish() is called.
class StateFields {
 public:
  StateFields(const json& object, std::string path, const std::string& file)
      : object_(object), path_(std::move(path)), file_(file) {
    if (!object.is_object()) throw bad("", "expected an object");
  }

  const json* find(std::string_view field) {
    known_.emplace_back(field);
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  Error bad(std::string_view field, std::string_view why, std::string hint = {}) const {
    std::string place = path(field);
    return Error(ErrorCode::kUsage, fmt::format("{}: {}", place.empty() ? "the state" : place, why), file_,
                 std::move(hint));
  }

  Error missing(std::string_view field) const {
    std::vector<std::string> given;
    for (const auto& [key, value] : object_.items()) given.push_back(key);
    const auto near = nearest(field, given);
    return bad("", fmt::format("{} is missing", field), near ? fmt::format("is it meant by '{}'?", *near) : "");
  }

  std::string path(std::string_view field) const {
    return field.empty() ? path_ : path_.empty() ? std::string(field) : fmt::format("{}.{}", path_, field);
  }

  int64_t integer(std::string_view field, int64_t absent, int64_t most = kNodesMax) {
    const json* const value = find(field);
    if (value == nullptr) return absent;
    return integer_of(field, *value, most);
  }

  int64_t integer_of(std::string_view field, const json& value, int64_t most) const {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0) || number > static_cast<double>(most) || number != std::floor(number)) {
      throw bad(field, fmt::format("expected a whole number from 0 to {}", most));
    }
    return static_cast<int64_t>(number);
  }

  std::optional<double> number(std::string_view field, double most) {
    const json* const value = find(field);
    if (value == nullptr) return std::nullopt;
    const double out = value->is_number() ? value->get<double>() : -1;
    if (!(out >= 0 && out <= most)) throw bad(field, fmt::format("expected a number from 0 to {:g}", most));
    return out;
  }

  std::string text(std::string_view field) {
    const json* const value = find(field);
    if (value == nullptr) return {};
    if (!value->is_string()) throw bad(field, "expected a text");
    return value->get<std::string>();
  }

  bool flag(std::string_view field) {
    const json* const value = find(field);
    if (value == nullptr) return false;
    if (!value->is_boolean()) throw bad(field, "expected true or false");
    return value->get<bool>();
  }

  // One of the names that to_string gives for these values; '_' stands for '-', as in the other names of the format.
  template <class Enum>
  Enum word(std::string_view field, Enum absent, std::initializer_list<Enum> values) {
    const std::string given = text(field);
    if (given.empty()) return absent;
    std::vector<std::string> names;
    for (const Enum value : values) {
      names.emplace_back(to_string(value));
      std::ranges::replace(names.back(), '-', '_');
      if (given == names.back() || given == to_string(value)) return value;
    }
    throw bad(field, fmt::format("'{}' is unknown", given), "write one of: " + join(names, ", "));
  }

  Resources resources(std::string_view field, const json& value) const {
    try {
      return resources_from_json(value);
    } catch (const Error& error) {
      throw bad(field, error.message, error.hint);
    }
  }

  void finish() const {
    for (const auto& [field, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), field) != known_.end()) continue;
      const auto near = nearest(field, known_);
      throw bad("", fmt::format("unknown field '{}'", field), near ? fmt::format("did you mean '{}'?", *near) : "");
    }
  }

 private:
  const json& object_;
  std::string path_;
  const std::string& file_;
  std::vector<std::string> known_;
};

// "[json.exception.parse_error.101] parse error at line 1, column 19: syntax error ...": for people, with its place.
Error not_json(std::string_view what, const std::string& file) {
  if (const size_t end = what.find("] "); what.starts_with('[') && end != std::string_view::npos)
    what.remove_prefix(end + 2);
  std::string where = file;
  constexpr std::string_view kBegin = "parse error at line ";
  const size_t comma = what.find(", column "), colon = what.find(": ");
  if (what.starts_with(kBegin) && comma < colon && colon != std::string_view::npos) {
    where += fmt::format(":{}:{}", what.substr(kBegin.size(), comma - kBegin.size()),
                         what.substr(comma + 9, colon - comma - 9));
    what.remove_prefix(colon + 2);
  }
  return Error(ErrorCode::kUsage, fmt::format("the state is not JSON: {}", what), std::move(where));
}

// Builds the document, and refuses fields that are there twice: of two numbers, one would be read over. (The parser's
// own callback looks through the whole list after each of its elements: 100,000 demands would take seconds.)
class DocumentBuilder : public nlohmann::json_sax<json> {
 public:
  explicit DocumentBuilder(const std::string& file) : file_(file) {}
  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return begin(json::object()); }
  bool start_array(std::size_t) override { return begin(json::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    keys_.back() = std::move(name);
    if (open_.back()->contains(keys_.back())) throw twice();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    throw not_json(error.what(), file_);
  }

 private:
  json* place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[keys_.back()] = std::move(value));
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool begin(json empty) {
    // Only what is open is pointed to, and it stays the last element of its parent meanwhile.
    open_.push_back(place(std::move(empty)));
    keys_.emplace_back();
    return true;
  }
  bool end() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Error twice() const {
    std::string path;
    for (const std::string& name : keys_) {
      if (!name.empty()) path += (path.empty() ? "" : ".") + name;
    }
    return Error(ErrorCode::kUsage, fmt::format("{} is there twice", path), file_, "leave one of them out");
  }

  const std::string& file_;
  json root_;
  std::vector<json*> open_;
  std::vector<std::string> keys_;  // of each open object, the field that is being read; empty for lists
};

class StateReader {
 public:
  explicit StateReader(const std::string& file) : file_(file) {}

  ScaleInput read(const json& document) {
    StateFields fields(document, "", file_);
    fields.find("name");
    read_limits(fields);
    const json* const types = fields.find("node_types");
    if (types == nullptr) throw fields.missing("node_types");
    if (!types->is_object()) throw fields.bad("node_types", "expected an object");
    for (const auto& [name, value] : types->items()) input_.types[name] = read_type(name, value);
    if (!input_.head_type.empty()) check_type(fields, "head_node_type", input_.head_type);
    read_nodes(fields);
    read_launching(fields);
    input_.demands = read_bundles(fields, "demands", fields.find("demands"));
    input_.requests = read_bundles(fields, "requests", fields.find("requests"));
    read_gangs(fields);
    read_legacy(fields);
    fields.finish();
    return std::move(input_);
  }

 private:
  void read_limits(StateFields& fields) {
    input_.head_type = fields.text("head_node_type");
    input_.max_workers = static_cast<int>(fields.integer("max_workers", kNodesMax));
    input_.upscaling_speed = fields.number("upscaling_speed", 1e12).value_or(1);
    if (const json* const value = fields.find("launch_concurrency")) {
      input_.launch_concurrency = static_cast<int>(fields.integer_of("launch_concurrency", *value, kNodesMax));
    }
    input_.idle_timeout = seconds(60 * fields.number("idle_timeout_minutes", kSecondsMax / 60).value_or(5));
    input_.spot =
        fields.word("spot", SpotPolicy::kPrefer, {SpotPolicy::kPrefer, SpotPolicy::kOnly, SpotPolicy::kNever});
    input_.on_demand_base = static_cast<int>(fields.integer("on_demand_base", 0));
    input_.price_cap = fields.number("price_cap", kDollarsMax);
    input_.budget_per_hour = fields.number("budget_per_hour", kDollarsMax);
  }

  ScaleType read_type(const std::string& name, const json& value) {
    StateFields fields(value, "node_types." + name, file_);
    ScaleType type;
    const json* const resources = fields.find("resources");
    if (resources == nullptr) throw fields.missing("resources");
    type.resources = fields.resources("resources", *resources);
    type.min_workers = static_cast<int>(fields.integer("min_workers", 0));
    // As in Ray: the cluster's, and none beside the head.
    const int absent = name == input_.head_type ? 0 : input_.max_workers;
    type.max_workers = static_cast<int>(fields.integer("max_workers", absent));
    type.price_per_hour = fields.number("price_per_hour", kDollarsMax);
    if (const json* const priority = fields.find("priority")) {
      const double number = priority->is_number() ? priority->get<double>() : std::nan("");
      if (!(std::abs(number) <= kPriorityMax) || number != std::floor(number))
        throw fields.bad("priority", fmt::format("expected a whole number from -{0:g} to {0:g}", kPriorityMax));
      type.priority = static_cast<int64_t>(number);
    }
    fields.find("node_config");  // Ray's: what the provider is told
    fields.find("labels");       // no bundle can ask for one
    if (const json* const offerings = fields.find("offerings")) {
      if (!offerings->is_array()) throw fields.bad("offerings", "expected a list");
      for (const json& one : *offerings) type.offerings.push_back(read_offering(fields.path("offerings"), one));
    }
    fields.finish();
    return type;
  }

  Offering read_offering(const std::string& path, const json& value) {
    StateFields fields(value, path, file_);
    Offering offering;
    offering.zone = fields.text("zone");
    offering.market = fields.word("market", Market::kOnDemand, {Market::kOnDemand, Market::kSpot});
    offering.price_per_hour = fields.number("price_per_hour", kDollarsMax);
    offering.blocked = fields.text("blocked");
    if (const json* const limit = fields.find("limit")) {
      offering.limit = static_cast<int>(fields.integer_of("limit", *limit, kNodesMax));
    }
    fields.finish();
    return offering;
  }

  void read_nodes(StateFields& fields) {
    const json* const nodes = fields.find("nodes");
    if (nodes == nullptr) return;
    if (!nodes->is_array()) throw fields.bad("nodes", "expected a list");
    std::set<NodeId> seen;
    for (size_t at = 0; at < nodes->size(); ++at) {
      StateFields node((*nodes)[at], fmt::format("nodes[{}]", at), file_);
      input_.nodes.push_back(read_node(node));
      if (!seen.insert(input_.nodes.back().id).second) {
        throw node.bad("id", fmt::format("'{}' is there twice", input_.nodes.back().id.value));
      }
    }
  }

  ScaleNode read_node(StateFields& fields) {
    ScaleNode node;
    node.id.value = fields.text("id");
    if (node.id.value.empty()) throw fields.bad("id", "a node needs one");
    const std::string kind = fields.text("kind");
    if (!kind.empty() && kind != "head" && kind != "worker") throw fields.bad("kind", "write head or worker");
    node.head = kind == "head";
    node.type = fields.text("type");
    if (node.type.empty()) throw fields.bad("type", "a node needs one");
    node.zone = fields.text("zone");
    node.market = fields.word("market", Market::kOnDemand, {Market::kOnDemand, Market::kSpot});
    if (const json* const available = fields.find("available")) {
      node.available = fields.resources("available", *available);
    }
    node.idle = seconds(fields.number("idle_s", kSecondsMax).value_or(0));
    node.keep = fields.text("keep");
    node.leaving = fields.flag("leaving");
    fields.find("ip");
    fields.find("labels");
    fields.finish();
    return node;
  }

  // {type: n}, or a list of {type, count, zone, market}.
  void read_launching(StateFields& fields) {
    const json* const launching = fields.find("launching_nodes");
    if (launching == nullptr) return;
    if (launching->is_object()) {
      for (const auto& [type, count] : launching->items()) {
        const std::string field = "launching_nodes." + type;
        check_type(fields, field, type);
        input_.launching.push_back(
            {.type = type, .count = static_cast<int>(fields.integer_of(field, count, kLaunchingMax))});
      }
      return;
    }
    if (!launching->is_array()) throw fields.bad("launching_nodes", "expected an object of counts by type");
    for (size_t at = 0; at < launching->size(); ++at) {
      StateFields one((*launching)[at], fmt::format("launching_nodes[{}]", at), file_);
      ScaleLaunching out{.type = one.text("type")};
      check_type(one, "type", out.type);
      out.count = static_cast<int>(one.integer("count", 1, kLaunchingMax));
      out.zone = one.text("zone");
      out.market = one.word("market", Market::kOnDemand, {Market::kOnDemand, Market::kSpot});
      one.finish();
      input_.launching.push_back(std::move(out));
    }
  }

  // Bundles one by one, or run-length encoded: [bundle, count].
  std::vector<Bundles> read_bundles(const StateFields& fields, std::string_view field, const json* list) {
    std::vector<Bundles> out;
    if (list == nullptr) return out;
    if (!list->is_array()) throw fields.bad(field, "expected a list of bundles");
    out.reserve(list->size());
    for (const json& one : *list) {
      try {
        if (!one.is_array()) {
          out.push_back({fields.resources("", one), 1});
        } else if (one.size() == 2) {
          out.push_back({fields.resources("", one[0]), fields.integer_of("", one[1], kBundlesMax)});
        } else {
          throw fields.bad("", "expected a bundle or [bundle, count]");
        }
      } catch (const Error& error) {  // the place is put together only when it is needed: there may be 100,000
        const std::string_view what = error.message;
        const size_t colon = what.find(": ");
        throw fields.bad(fmt::format("{}[{}]", field, out.size()), what.substr(colon + 2), error.hint);
      }
    }
    return out;
  }

  void read_gangs(StateFields& fields) {
    const json* const gangs = fields.find("gangs");
    if (gangs == nullptr) return;
    if (!gangs->is_array()) throw fields.bad("gangs", "expected a list");
    for (size_t at = 0; at < gangs->size(); ++at) {
      StateFields one((*gangs)[at], fmt::format("gangs[{}]", at), file_);
      Gang gang;
      gang.name = one.text("name");
      gang.strategy = one.word(
          "strategy", GangStrategy::kPack,
          {GangStrategy::kPack, GangStrategy::kSpread, GangStrategy::kStrictPack, GangStrategy::kStrictSpread});
      gang.bundles = read_bundles(one, "bundles", one.find("bundles"));
      one.finish();
      input_.gangs.push_back(std::move(gang));
    }
  }

  // Ray's first autoscaler, when the state has its words.
  void read_legacy(StateFields& fields) {
    const auto target = fields.number("target_utilization_fraction", 1);
    const auto initial = static_cast<int>(fields.integer("initial_workers", 0));
    const std::string mode = fields.text("autoscaling_mode");
    const bool bringup = fields.flag("bringup");
    if (!mode.empty() && mode != "default" && mode != "aggressive") {
      throw fields.bad("autoscaling_mode", fmt::format("'{}' is unknown", mode), "write default or aggressive");
    }
    if (!target && initial == 0 && mode.empty() && !bringup) return;
    if (target && *target == 0) throw fields.bad("target_utilization_fraction", "it must be above 0");
    LegacyScaling legacy;
    legacy.target_utilization_fraction = target.value_or(legacy.target_utilization_fraction);
    legacy.initial_workers = initial;
    legacy.aggressive = mode == "aggressive";
    legacy.bringup = bringup;
    for (const auto& [name, type] : input_.types) {
      if (type.max_workers == 0) continue;
      if (!legacy.worker_type.empty()) {
        throw fields.bad("target_utilization_fraction", "it works with one type of workers only");
      }
      legacy.worker_type = name;
    }
    input_.legacy = std::move(legacy);
  }

  void check_type(const StateFields& fields, std::string_view field, const std::string& name) const {
    if (input_.types.contains(name)) return;
    std::vector<std::string> names;
    for (const auto& [known, type] : input_.types) names.push_back(known);
    const auto near = nearest(name, names);
    throw fields.bad(field, fmt::format("the node type '{}' is unknown", name),
                     near ? fmt::format("did you mean '{}'?", *near) : "");
  }

  const std::string& file_;
  ScaleInput input_;
};

ordered_json reason_json(const ScaleReason& reason) {
  ordered_json out = {{"kind", to_string(reason.kind)}, {"subject", reason.subject}, {"text", reason.text}};
  if (!reason.against.empty()) {
    ordered_json& list = out["against"] = ordered_json::array();
    for (const ScaleReason::Against& one : reason.against) {
      list.push_back({{"limit", to_string(one.limit)}, {"text", one.whole()}});
    }
  }
  if (!reason.changes.empty()) out["changes"] = reason.changes;
  return out;
}

}  // namespace

ScaleInput read_scale_state(std::string_view text, const std::string& file) {
  if (trim(text).empty())
    throw Error(ErrorCode::kUsage, "the state is empty", file, "see 'The state' in docs/autoscaler.md");
  DocumentBuilder builder(file);
  json::sax_parse(text, &builder);
  const json document = builder.take();
  return StateReader(file).read(document);
}

ordered_json to_json(const ScalePlan& plan) {
  ordered_json launch = ordered_json::object();
  for (const auto& [type, count] : plan.launches_by_type()) launch[type] = count;
  ordered_json terminate = ordered_json::array();
  for (const PlannedTermination& one : plan.terminations) {
    terminate.push_back({{"id", one.id.value}, {"reason", one.why}});
  }
  int64_t waiting = 0;
  for (const Unfulfilled& one : plan.unfulfilled) waiting += one.count;
  ordered_json unfulfilled = ordered_json::array();
  for (const Unfulfilled& one : plan.unfulfilled) {
    const ordered_json bundle = rubato::to_json(one.each);
    if (waiting > kListedMax) {
      unfulfilled.push_back(ordered_json::array({bundle, one.count}));
    } else {
      for (int64_t at = 0; at < one.count; ++at) unfulfilled.push_back(bundle);
    }
  }
  ordered_json reasons = ordered_json::array();
  for (const ScaleReason& reason : plan.reasons) reasons.push_back(reason_json(reason));
  // Six digits: sums of cents in binary are not what people wrote.
  return {{"launch", std::move(launch)},
          {"terminate", std::move(terminate)},
          {"unfulfilled", std::move(unfulfilled)},
          {"cost_per_hour", std::round(plan.cost_per_hour * 1e6) / 1e6},
          {"reasons", std::move(reasons)}};
}

}  // namespace rubato::policy
