#include "agent/plan_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "world/network.h"

namespace rubato::agent {

using nlohmann::json;

std::string plan_document(const elastic::GroupPlan& plan, Generation generation, const std::vector<std::string>& lost) {
  json members = json::array();
  for (size_t rank = 0; rank < plan.members.size(); ++rank) {
    const elastic::PlannedWorker& one = plan.members[rank];
    members.push_back({{"id", one.id}, {"rank", rank}, {"local_rank", one.local_rank}, {"node", one.node}});
  }
  const Endpoint store{plan.store.host, plan.store.port};
  const json document = {{"version", 1},
                         {"generation", generation},
                         {"lost", lost},
                         {"store", {{"address", to_string(store)}, {"token", plan.store.token}}},
                         {"members", std::move(members)}};
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<WorkerReport> parse_worker_report(std::string_view text) {
  constexpr size_t kBytesMax = 64 << 10;
  constexpr size_t kReasonMax = 500;
  if (text.size() > kBytesMax) return std::nullopt;
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  const json state = document.value("state", json());
  const json generation = document.value("generation", json());
  const json reason = document.value("reason", json());
  WorkerReport report;
  using enum WorkerReport::State;
  if (state == "ready") {
    report.state = kReady;
  } else if (state == "training") {
    report.state = kTraining;
  } else if (state == "broken") {
    report.state = kBroken;
  } else if (state == "left") {
    report.state = kLeft;
  } else {
    return std::nullopt;
  }
  if (!generation.is_number_unsigned()) return std::nullopt;
  report.generation = generation.get<uint64_t>();
  if (reason.is_string()) report.reason = reason.get<std::string>().substr(0, kReasonMax);
  return report;
}

std::vector<std::string> lost_between(const elastic::GroupPlan& before, const elastic::GroupPlan& after) {
  std::vector<std::string> lost;
  for (const elastic::PlannedWorker& one : before.members) {
    if (!after.has(one.id) && !after.lets_go(one.id)) lost.push_back(one.id);
  }
  return lost;
}

}  // namespace rubato::agent
