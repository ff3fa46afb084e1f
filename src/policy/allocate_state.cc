#include "policy/allocate_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/json_text.h"
#include "core/text.h"
#include "model/byte_amounts.h"
#include "policy/goodput_fit.h"

namespace rubato::policy {
namespace {

using nlohmann::ordered_json;

constexpr size_t kAllocateNodesMax = 100'000;
constexpr size_t kAllocateJobsMax = 100'000;
constexpr size_t kSeatsMax = 100'000;  // of one job
constexpr size_t kDimensionsMax = 64;  // of one node or job
constexpr size_t kIdBytesMax = 1024;
constexpr double kAmountMax = 9e12;  // of one resource; more is taken for this much
constexpr double kNumberMax = 1e18;  // of seconds and iterations
constexpr double kBatchMax = 1e12;
constexpr double kReplicasAsked = 2147483647;  // more is taken for this many

// An object whose fields are all known: each was asked for when finish() is called.
class ObjectFields {
 public:
  ObjectFields(const JsonText& document, const JsonNode& object, std::string path)
      : document_(document), object_(object), path_(std::move(path)) {
    if (object.kind != JsonKind::kObject)
      throw bad(object, fmt::format("expected an object, this is {}", to_string(object.kind)));
  }

  // nullptr: absent, or null.
  const JsonNode* find(std::string_view field) {
    known_.push_back(field);
    const JsonNode* const found = object_.find(field);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  std::string path(std::string_view field) const {
    return field.empty() ? path_ : path_.empty() ? std::string(field) : fmt::format("{}.{}", path_, field);
  }

  Error bad(const JsonNode& node, std::string_view why, std::string hint = {}, std::string_view field = {}) const {
    const std::string place = path(field);
    return Error(ErrorCode::kUsage, fmt::format("{}: {}", place.empty() ? "the state" : place, why),
                 document_.where(node.offset), std::move(hint));
  }

  Error missing(std::string_view field) const {
    const auto near = nearest(field, object_.keys);
    return bad(object_, fmt::format("{} is missing", field), near ? fmt::format("is it meant by '{}'?", *near) : "");
  }

  // From `least` to `most`; what is larger still is taken for `most`, and what is below 0 is an error where `least` is
  // not. NaN is an error.
  std::optional<double> number(std::string_view field, double least, double most) {
    const JsonNode* const node = find(field);
    if (node == nullptr) return std::nullopt;
    if (node->kind != JsonKind::kNumber)
      throw bad(*node, fmt::format("expected a number, this is {}", to_string(node->kind)), {}, field);
    if (std::isnan(node->number)) throw bad(*node, "this is not a number", {}, field);
    if (node->number < least && least >= 0) throw bad(*node, fmt::format("expected at least {:g}", least), {}, field);
    return std::clamp(node->number, least, most);
  }

  // A number of a model; null, NaN and infinities mean that it is not known.
  std::optional<double> measured(std::string_view field) {
    const JsonNode* const node = find(field);
    if (node == nullptr) return std::nullopt;
    if (node->kind != JsonKind::kNumber)
      throw bad(*node, fmt::format("expected a number or null, this is {}", to_string(node->kind)), {}, field);
    if (!std::isfinite(node->number)) return std::nullopt;
    return node->number;
  }

  int64_t whole(std::string_view field, int64_t absent, double most) {
    const auto value = number(field, 0, most);
    if (!value) return absent;
    if (*value != std::floor(*value)) throw bad(*object_.find(field), "expected a whole number", {}, field);
    return static_cast<int64_t>(*value);
  }

  bool flag(std::string_view field, bool absent) {
    const JsonNode* const node = find(field);
    if (node == nullptr) return absent;
    if (node->kind == JsonKind::kNumber && (node->number == 0 || node->number == 1)) return node->number == 1;
    if (node->kind != JsonKind::kBoolean)
      throw bad(*node, fmt::format("expected true or false, this is {}", to_string(node->kind)), {}, field);
    return node->boolean;
  }

  std::string text(std::string_view field) {
    const JsonNode* const node = find(field);
    if (node == nullptr) return {};
    if (node->kind != JsonKind::kString)
      throw bad(*node, fmt::format("expected a text, this is {}", to_string(node->kind)), {}, field);
    return node->text;
  }

  // A text, or a whole number as Python's simulators number their nodes.
  std::string id_of(const JsonNode& node, std::string_view field) const {
    if (node.kind == JsonKind::kNumber && node.number == std::floor(node.number) && std::abs(node.number) < 1e15)
      return fmt::format("{}", static_cast<int64_t>(node.number));
    if (node.kind != JsonKind::kString)
      throw bad(node, fmt::format("expected a text or a whole number, this is {}", to_string(node.kind)), {}, field);
    if (node.text.size() > kIdBytesMax) throw bad(node, fmt::format("longer than {} bytes", kIdBytesMax), {}, field);
    return node.text;
  }

  const JsonNode* list(std::string_view field, size_t most) {
    const JsonNode* const node = find(field);
    if (node == nullptr) return nullptr;
    if (node->kind != JsonKind::kArray)
      throw bad(*node, fmt::format("expected a list, this is {}", to_string(node->kind)), {}, field);
    if (node->items.size() > most) throw bad(*node, fmt::format("more than {} entries", most), {}, field);
    return node;
  }

  // "memory" is in bytes, all others may have three digits after the point.
  Resources resources(std::string_view field) {
    const JsonNode* const node = find(field);
    Resources out;
    if (node == nullptr) return out;
    if (node->kind != JsonKind::kObject)
      throw bad(*node, fmt::format("expected an object, this is {}", to_string(node->kind)), {}, field);
    if (node->keys.size() > kDimensionsMax)
      throw bad(*node, fmt::format("more than {} resources", kDimensionsMax), {}, field);
    for (size_t i = 0; i < node->keys.size(); ++i) {
      const JsonNode& amount = node->items[i];
      if (amount.is_null()) continue;
      const std::string name = fmt::format("{}.{}", field, node->keys[i]);
      if (amount.kind != JsonKind::kNumber || !(amount.number >= 0))
        throw bad(amount, "expected a number of at least 0", {}, name);
      const double scale = counted_in_bytes(node->keys[i]) ? 1 : 1000;
      out.set(node->keys[i], std::llround(std::min(amount.number, kAmountMax) * scale));
    }
    return out;
  }

  void finish() const {
    for (size_t i = 0; i < object_.keys.size(); ++i) {
      const std::string& field = object_.keys[i];
      if (std::find(known_.begin(), known_.end(), field) != known_.end()) continue;
      const auto near = nearest(field, known_);
      throw bad(object_.items[i], fmt::format("unknown field '{}'", field),
                near ? fmt::format("did you mean '{}'?", *near) : "known are: " + join(known_, ", "));
    }
  }

 private:
  const JsonText& document_;
  const JsonNode& object_;
  std::string path_;
  std::vector<std::string_view> known_;
};

class AllocateReader {
 public:
  explicit AllocateReader(const JsonText& document) : document_(document) {}

  AllocateState read() {
    ObjectFields fields(document_, document_.root(), "");
    state_.input.now_s = fields.number("now", -kNumberMax, kNumberMax).value_or(0);
    const JsonNode* const nodes = fields.list("nodes", kAllocateNodesMax);
    const JsonNode* const jobs = fields.list("jobs", kAllocateJobsMax);
    if (nodes == nullptr) throw fields.missing("nodes");
    if (jobs == nullptr) throw fields.missing("jobs");
    fields.finish();
    std::set<std::string> seen;
    for (size_t i = 0; i < nodes->items.size(); ++i) read_node(nodes->items[i], fmt::format("nodes[{}]", i), seen);
    seen.clear();
    for (size_t i = 0; i < jobs->items.size(); ++i) read_job(jobs->items[i], fmt::format("jobs[{}]", i), seen);
    return std::move(state_);
  }

 private:
  static std::string read_id(ObjectFields& fields, std::set<std::string>& seen, bool& number) {
    const JsonNode* const node = fields.find("id");
    if (node == nullptr) throw fields.missing("id");
    number = node->kind == JsonKind::kNumber;
    std::string id = fields.id_of(*node, "id");
    if (!seen.insert(id).second) throw fields.bad(*node, fmt::format("'{}' is there twice", id), {}, "id");
    return id;
  }

  void read_node(const JsonNode& value, std::string path, std::set<std::string>& seen) {
    ObjectFields fields(document_, value, std::move(path));
    AllocateNode node;
    bool number = false;
    node.id = read_id(fields, seen, number);
    node.resources = fields.resources("resources");
    node.kind = fields.text("kind");
    node.price_per_hour = fields.number("price_per_hour", 0, kNumberMax);
    fields.flag("preemptible", false);  // Pollux' nodes have it; every node here may go
    fields.finish();
    state_.input.nodes.push_back(std::move(node));
    state_.number_ids.push_back(number);
  }

  void read_job(const JsonNode& value, std::string path, std::set<std::string>& seen) {
    ObjectFields fields(document_, value, std::move(path));
    AllocateJob job;
    bool number = false;
    job.id = read_id(fields, seen, number);
    job.resources = fields.resources("resources");
    if (fields.find("resources") == nullptr) job.resources.set(kGpu, 1000);
    job.min_replicas = fields.whole("min_replicas", 0, kReplicasAsked);
    job.max_replicas = fields.whole("max_replicas", INT32_MAX, kReplicasAsked);
    job.step = std::max<int64_t>(fields.whole("step", 1, kReplicasAsked), 1);
    job.preemptible = fields.flag("preemptible", true);
    job.priority = fields.number("priority", -kNumberMax, kNumberMax).value_or(0);
    job.weight = fields.number("weight", 0, 1e6).value_or(1);
    job.deadline_s = fields.number("deadline_s", -kNumberMax, kNumberMax);
    job.age_s = fields.number("age_s", 0, kNumberMax).value_or(0);
    job.attained_service_s = fields.number("attained_service_s", 0, kNumberMax).value_or(0);
    job.restarts = fields.whole("restarts", 0, kReplicasAsked);
    job.restart_cost_s = fields.number("restart_cost_s", 0, 1e9).value_or(job.restart_cost_s);
    if (const JsonNode* const list = fields.list("allocation", kSeatsMax)) {
      for (const JsonNode& one : list->items) job.allocation.push_back(fields.id_of(one, "allocation"));
    }
    if (const JsonNode* const progress = fields.find("progress")) {
      ObjectFields inner(document_, *progress, fields.path("progress"));
      job.done_iters = inner.number("done_iters", 0, kNumberMax);
      job.total_iters = inner.number("total_iters", 0, kNumberMax);
      inner.finish();
    }
    if (const JsonNode* const model = fields.find("model")) job.model = read_model(*model, fields.path("model"));
    fields.finish();
    state_.input.jobs.push_back(std::move(job));
  }

  // All seven, else it is not profiled.
  std::optional<PerfParams> read_perf(const JsonNode& value, std::string path) const {
    ObjectFields fields(document_, value, std::move(path));
    const std::optional<double> parts[] = {
        fields.measured("alpha_c"), fields.measured("beta_c"), fields.measured("alpha_n"), fields.measured("beta_n"),
        fields.measured("alpha_r"), fields.measured("beta_r"), fields.measured("gamma")};
    fields.finish();
    for (const auto& part : parts) {
      if (!part) return std::nullopt;
    }
    PerfParams perf{
        *parts[0], *parts[1], *parts[2], *parts[3], *parts[4], *parts[5], std::clamp(*parts[6], 1.0, 100.0)};
    if (!fitted(perf)) return std::nullopt;
    return perf;
  }

  void read_limits(ObjectFields& fields, JobModel& model) const {
    BatchLimits& limits = model.limits;
    const auto init = fields.measured("init_batch_size"), most = fields.measured("max_batch_size");
    limits.accumulation = fields.flag("gradient_accumulation", false);
    const JsonNode* const bounds = fields.list("local_bsz_bounds", 2);
    if (!init || *init < 1) {  // without it nothing is known about batches
      model.perf.reset();
      model.perf_by_kind.clear();
    }
    limits.init_batch_size = std::clamp(init.value_or(1), 1.0, kBatchMax);
    limits.max_batch_size = std::clamp(most.value_or(limits.init_batch_size), limits.init_batch_size, kBatchMax);
    limits.local_max = static_cast<int64_t>(limits.max_batch_size);
    if (bounds == nullptr) return;
    if (bounds->items.size() != 2) throw fields.bad(*bounds, "expected [least, most]", {}, "local_bsz_bounds");
    for (size_t i = 0; i < 2; ++i) {
      const JsonNode& bound = bounds->items[i];
      if (bound.is_null()) continue;
      if (bound.kind != JsonKind::kNumber || std::isnan(bound.number) || bound.number < 0)
        throw fields.bad(bound, "expected a number or null", {}, "local_bsz_bounds");
      const auto whole = static_cast<int64_t>(std::clamp(bound.number, 1.0, kBatchMax));
      (i == 0 ? limits.local_min : limits.local_max) = whole;
    }
  }

  JobModel read_model(const JsonNode& value, std::string path) const {
    ObjectFields fields(document_, value, std::move(path));
    JobModel model;
    if (const JsonNode* const perf = fields.find("perf")) model.perf = read_perf(*perf, fields.path("perf"));
    if (const JsonNode* const kinds = fields.find("perf_by_kind")) {
      if (kinds->kind != JsonKind::kObject) throw fields.bad(*kinds, "expected an object", {}, "perf_by_kind");
      for (size_t i = 0; i < kinds->keys.size(); ++i) {
        if (kinds->items[i].is_null()) continue;
        const std::string inner = fields.path("perf_by_kind." + kinds->keys[i]);
        if (const auto perf = read_perf(kinds->items[i], inner)) model.perf_by_kind[kinds->keys[i]] = *perf;
      }
    }
    if (const JsonNode* const grad = fields.find("grad")) {
      ObjectFields inner(document_, *grad, fields.path("grad"));
      const auto sqr = inner.measured("sqr"), var = inner.measured("var");
      inner.finish();
      if (sqr && var && *sqr >= 0 && *var >= 0) model.grad = {*sqr, *var};
    }
    read_limits(fields, model);
    fields.finish();
    return model;
  }

  const JsonText& document_;
  AllocateState state_;
};

// "node-1 ×4, node-2 ×4"
std::string seats_text(const AllocateState& state, const std::vector<size_t>& nodes) {
  std::vector<std::pair<size_t, size_t>> runs;
  for (const size_t node : nodes) {
    if (runs.empty() || runs.back().first != node) runs.emplace_back(node, 0);
    ++runs.back().second;
  }
  std::string out;
  for (const auto& [node, count] : runs)
    out += fmt::format("{}{} ×{}", out.empty() ? "" : ", ", state.input.nodes[node].id, count);
  return out.empty() ? "-" : out;
}

}  // namespace

AllocateState read_allocate_state(std::string_view text, const std::string& file) {
  if (trim(text).empty())
    throw Error(ErrorCode::kUsage, "the state is empty", file, "see 'The state' in docs/allocate.md");
  const JsonText document(text, file);
  return AllocateReader(document).read();
}

ordered_json to_json(const AllocateState& state, const AllocateDecision& decision) {
  ordered_json allocations = ordered_json::object(), batch = ordered_json::object(), reasons = ordered_json::object();
  for (size_t i = 0; i < decision.jobs.size(); ++i) {
    const JobAllocation& job = decision.jobs[i];
    const std::string& id = state.input.jobs[i].id;
    ordered_json ids = ordered_json::array();
    for (const size_t node : job.nodes) {
      if (state.number_ids[node]) {
        ids.push_back(std::stoll(state.input.nodes[node].id));
      } else {
        ids.push_back(state.input.nodes[node].id);
      }
    }
    // push_back: the ids are unique, and looking for one in an ordered object takes as long as the object is.
    allocations.get_ref<ordered_json::object_t&>().push_back({id, std::move(ids)});
    reasons.get_ref<ordered_json::object_t&>().push_back({id, job.reason});
    if (!job.batch) continue;
    ordered_json choice = {{"atomic_bsz", job.batch->atomic_bsz}, {"accum_steps", job.batch->accum_steps}};
    batch.get_ref<ordered_json::object_t&>().push_back({id, std::move(choice)});
  }
  return {{"allocations", std::move(allocations)},
          {"batch", std::move(batch)},
          {"desired_nodes", decision.desired_nodes},
          {"reasons", std::move(reasons)}};
}

std::string allocate_text(const AllocateState& state, const AllocateDecision& decision) {
  std::string out;
  for (size_t i = 0; i < decision.jobs.size(); ++i) {
    const JobAllocation& job = decision.jobs[i];
    out += fmt::format("{}  {}  {}\n", state.input.jobs[i].id, seats_text(state, job.nodes), job.reason);
  }
  return out + fmt::format("{} of {} nodes are worth their money\n", decision.desired_nodes, state.input.nodes.size());
}

}  // namespace rubato::policy
