#include "cluster/event.h"

#include <fmt/format.h>

#include <array>

#include "cluster/event_fields.h"
#include "core/hash.h"
#include "core/text.h"
#include "core/timestamp.h"

namespace rubato::cluster {

namespace {

// In the order of the variant.
constexpr std::array<std::string_view, std::variant_size_v<Event>> kTypeNames = {
    "head-started",   "cluster-configured", "shutdown-requested",  "journal-lost",  "node-requested",
    "node-created",   "node-failed",        "node-joined",         "node-lost",     "node-draining",
    "node-removing",  "node-gone",          "node-stepped",        "node-updating", "node-refreshing",
    "node-refreshed", "stray-found",        "resources-requested", "scale-held",    "job-submitted",
    "job-held",       "job-placed",         "restart-charged",     "job-started",   "seat-failed",
    "seat-done",      "seat-vacated",       "checkpoint-missed",   "output-kept",   "output-missing",
    "job-stopping",   "job-ended",          "job-profiled",        "job-sized",     "node-kept"};

template <size_t I = 0>
Event event_of_type(std::string_view type) {
  if constexpr (I < std::variant_size_v<Event>) {
    return type == kTypeNames[I] ? Event(std::in_place_index<I>) : event_of_type<I + 1>(type);
  } else {
    throw Error(ErrorCode::kFailed, fmt::format("'{}' is no event that this version knows", type));
  }
}

std::string workers(int count) { return count == 1 ? "1 worker" : fmt::format("{} workers", count); }

std::string on_nodes(const std::vector<Seat>& seats) {
  std::vector<std::string> parts;
  int all = 0;
  for (const Seat& seat : seats) {
    all += seat.workers;
    if (parts.size() < 8)
      parts.push_back(seat.workers == 1 ? seat.node.value : fmt::format("{}×{}", seat.node.value, seat.workers));
  }
  const std::string more = seats.size() > parts.size() ? fmt::format(" and {} more", seats.size() - parts.size()) : "";
  return fmt::format("{} on {}{}", workers(all), join(parts, ", "), more);
}

std::string because(const std::string& reason) { return reason.empty() ? "" : ": " + reason; }

struct Describer {
  std::string operator()(const HeadStarted& e) const {
    return fmt::format("head {} started (pid {}){}", e.epoch, e.pid,
                       e.restarted_after.empty() ? "" : ", restarted after " + e.restarted_after);
  }
  std::string operator()(const ClusterConfigured& e) const {
    return fmt::format("cluster '{}' configured with {} node type{}", e.spec.name, e.spec.types.size(),
                       e.spec.types.size() == 1 ? "" : "s");
  }
  std::string operator()(const ShutdownRequested&) const { return "shutdown requested"; }
  std::string operator()(const JournalLost& e) const {
    const std::string which = e.first > e.last    ? std::string("an unknown number of records")
                              : e.first == e.last ? fmt::format("record {}", e.first)
                                                  : fmt::format("records {} to {}", e.first, e.last);
    return fmt::format("{} of the journal before {} lost and given up{}{}", which, e.first == e.last ? "is" : "are",
                       because(e.cause), e.kept_in.empty() ? "" : "; the damaged journal is kept in " + e.kept_in);
  }
  std::string operator()(const NodeRequested& e) const {
    return fmt::format("node {} requested{}", e.node.value, because(e.why));
  }
  std::string operator()(const NodeCreated& e) const { return fmt::format("node {} started", e.node.value); }
  std::string operator()(const NodeFailed& e) const {
    return fmt::format("node {} could not be started: {}", e.node.value, e.error);
  }
  std::string operator()(const NodeJoined& e) const {
    return fmt::format("node {} joined with {}", e.node.value, rubato::describe(e.resources));
  }
  std::string operator()(const NodeLost& e) const {
    return fmt::format("node {} {}{}", e.node.value, e.silent ? "is silent and given up" : "lost", because(e.reason));
  }
  std::string operator()(const NodeDraining& e) const {
    const std::string by = e.deadline == WallTime{} ? "" : fmt::format(" by {}", format_time(e.deadline));
    return fmt::format("node {} drains{}{}", e.node.value, by, because(e.reason));
  }
  std::string operator()(const NodeKept& e) const {
    return fmt::format("node {} does not drain any more{}", e.node.value, because(e.reason));
  }
  std::string operator()(const NodeRemoving& e) const {
    return fmt::format("node {} is removed{}", e.node.value, because(e.reason));
  }
  std::string operator()(const NodeStepped& e) const {
    return fmt::format("node {}: {}{}", e.node.value, e.step, because(e.detail));
  }
  std::string operator()(const NodeUpdating& e) const {
    return fmt::format("node {} is updated{}", e.node.value, because(e.why));
  }
  std::string operator()(const NodeRefreshing& e) const {
    return fmt::format("node {} is updated beside its work", e.node.value);
  }
  std::string operator()(const NodeRefreshed& e) const {
    return e.error.empty() ? fmt::format("node {} is up to date", e.node.value)
                           : fmt::format("node {} could not be updated: {}", e.node.value, e.error);
  }
  std::string operator()(const NodeGone& e) const {
    return fmt::format("node {} is gone{}", e.node.value, e.unreachable ? ": its machine does not answer" : "");
  }
  std::string operator()(const StrayFound& e) const {
    return fmt::format("node {} is not known to anybody: it is removed", e.node.value);
  }
  std::string operator()(const ResourcesRequested& e) const {
    std::vector<std::string> parts;
    for (const Bundle& one : e.bundles) {
      if (parts.size() < 8)
        parts.push_back((one.count == 1 ? "" : fmt::format("{}×", one.count)) + rubato::describe(one.each));
    }
    if (e.bundles.size() > parts.size()) parts.push_back(fmt::format("{} more", e.bundles.size() - parts.size()));
    return parts.empty() ? "requests cleared" : fmt::format("room requested for {}", join(parts, "; "));
  }
  std::string operator()(const ScaleHeld& e) const {
    if (e.reasons.against.empty()) return "all demand has nodes";
    return fmt::format("not launching: {} (for {})", e.reasons.against.front().text, e.reasons.wanted);
  }
  std::string operator()(const JobSubmitted& e) const {
    return fmt::format("job {} ({}) submitted{}", e.job.value, e.spec.name,
                       e.rerun_of.empty() ? "" : ", a rerun of " + e.rerun_of);
  }
  std::string operator()(const JobHeld& e) const {
    return fmt::format("job {} waits{}", e.job.value,
                       because(e.reasons.against.empty() ? "" : e.reasons.against.front().text));
  }
  std::string operator()(const JobPlaced& e) const {
    return fmt::format("job {} gathers generation {} with {}{}{}", e.job.value, e.generation, on_nodes(e.seats),
                       e.in_place ? ", in place" : "", because(e.cause));
  }
  std::string operator()(const RestartCharged& e) const {
    const std::string what = e.saved ? std::string("starts again") : fmt::format("used restart {}", e.used);
    return fmt::format("job {} {}{}{}", e.job.value, what, because(e.cause),
                       e.backoff > 0s ? fmt::format("; starts again in {}", format_duration(e.backoff)) : "");
  }
  std::string operator()(const JobStarted& e) const {
    const std::string& how = e.moved.empty() ? e.change : e.moved;
    return fmt::format("job {} runs generation {}, master {}:{}{}", e.job.value, e.generation, e.master_addr,
                       e.master_port, because(how));
  }
  std::string operator()(const SeatFailed& e) const {
    const elastic::Failure* first = elastic::root_cause(e.failures);
    return fmt::format("job {} failed on node {}{}", e.job.value, e.node.value,
                       because(first ? elastic::describe(*first) : ""));
  }
  std::string operator()(const SeatDone& e) const {
    return fmt::format("job {} is done on node {}", e.job.value, e.node.value);
  }
  std::string operator()(const SeatVacated& e) const {
    return fmt::format("job {} has left node {}", e.job.value, e.node.value);
  }
  std::string operator()(const CheckpointMissed& e) const {
    return fmt::format(
        "job {} saved nothing in time on node {}: {} killed; it goes on from the checkpoint before, or the start",
        e.job.value, e.node.value, join(e.workers, ", "));
  }
  std::string operator()(const OutputKept& e) const {
    return fmt::format("job {}: the output of node {} is here ({} file{}, {} bytes)", e.job.value, e.node.value,
                       e.files, e.files == 1 ? "" : "s", e.bytes);
  }
  std::string operator()(const OutputMissing& e) const {
    return fmt::format("job {}: the output of node {} is missing{}", e.job.value, e.node.value, because(e.reason));
  }
  std::string operator()(const JobStopping& e) const {
    return fmt::format("job {} stops{}", e.job.value, because(e.reason));
  }
  std::string operator()(const JobProfiled& e) const {
    const JobProfile& p = e.profile;
    return fmt::format("job {} tells its profile{}", e.job.value,
                       p.global_batch_size > 0 ? fmt::format(": batch size {:g}", p.global_batch_size) : "");
  }
  std::string operator()(const JobSized& e) const {
    return fmt::format("job {} is to have {}{}", e.job.value, workers(e.workers), because(e.reason));
  }
  std::string operator()(const JobEnded& e) const {
    return fmt::format("job {} {}{}", e.job.value, to_string(e.result), because(e.reason));
  }
};

}  // namespace

std::string_view to_string(JobEndCause cause) {
  switch (cause) {
    case JobEndCause::kOther:
      return "other";
    case JobEndCause::kRestartsUsed:
      return "restarts-used";
    case JobEndCause::kSameCrash:
      return "same-crash";
  }
  return "unknown";
}

std::string_view to_string(JobResult result) {
  switch (result) {
    case JobResult::kSucceeded:
      return "succeeded";
    case JobResult::kFailed:
      return "failed";
    case JobResult::kStopped:
      return "stopped";
  }
  return "?";
}

std::string_view to_string(LaunchFailure failure) {
  switch (failure) {
    case LaunchFailure::kOther:
      return "failed";
    case LaunchFailure::kNoCapacity:
      return "no capacity";
    case LaunchFailure::kQuota:
      return "quota reached";
    case LaunchFailure::kAuth:
      return "not allowed";
  }
  return "?";
}

std::string_view type_name(const Event& event) { return kTypeNames[event.index()]; }

std::string describe(const Event& event) { return std::visit(Describer{}, event); }

std::optional<JobId> job_of(const Event& event) {
  return std::visit(
      [](const auto& e) -> std::optional<JobId> {
        if constexpr (requires { e.job; }) return e.job;
        return std::nullopt;
      },
      event);
}

std::optional<NodeId> node_of(const Event& event) {
  return std::visit(
      [](const auto& e) -> std::optional<NodeId> {
        if constexpr (requires { e.node; }) return e.node;
        return std::nullopt;
      },
      event);
}

Json event_fields(const Event& event) {
  Json json = std::visit([](const auto& e) { return write_value(e); }, event);
  json.erase("plan");  // the workers' own business, and it has a secret of theirs
  return json;
}

std::string encode(WallTime time, const Event& event) {
  Json json = std::visit([](const auto& e) { return write_value(e); }, event);
  json["v"] = kRecordVersion;
  json["t"] = time.time_since_epoch().count();
  json["type"] = type_name(event);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Record decode(uint64_t offset, std::string_view bytes) {
  const std::string where = fmt::format("journal record {}", offset);
  try {
    const Json json = Json::parse(bytes);
    const int64_t version = read_integer<int64_t>(json.at("v"));
    if (version > kRecordVersion) {
      throw Error(ErrorCode::kFailed, fmt::format("written by a newer rubato (format {})", version), where,
                  "use that version, or a newer one");
    }
    Record record;
    record.offset = offset;
    record.time = WallTime(std::chrono::microseconds(read_micros(json.at("t"))));
    record.event = event_of_type(json.at("type").get<std::string>());
    std::visit([&](auto& e) { read_value(json, e); }, record.event);
    return record;
  } catch (const Json::parse_error&) {
    throw Error(ErrorCode::kFailed, "not a record: it is no JSON", where);
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::kFailed, fmt::format("not a record: {}", e.what()), where);
  } catch (const Error& e) {
    throw Error(e.code, e.message, where, e.hint);
  }
}

uint64_t digest(const Reasons& reasons) {
  RunningHash hash;
  hash.add(reasons.wanted);
  hash.add(uint64_t{reasons.against.size()});
  for (const Reasons::Obstacle& obstacle : reasons.against) {
    hash.add(obstacle.text);
    hash.add(obstacle.where);
  }
  for (const std::string& text : reasons.changes) hash.add(text);
  for (const Reasons::Obstacle& other : reasons.others) hash.add(other.text);
  return hash.value();
}

Json to_json(const Reasons& reasons) { return write_value(reasons); }
Json to_json(const elastic::Failure& failure) { return write_value(failure); }

}  // namespace rubato::cluster
