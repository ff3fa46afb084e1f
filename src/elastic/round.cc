#include "elastic/round.h"

#include <algorithm>

namespace rubato::elastic {

namespace {

std::optional<GroupPlan> make_plan(const std::vector<MemberInfo>& agents, const std::vector<Answer>& answers,
                                   const std::optional<GroupPlan>& last) {
  std::vector<std::vector<WorkerSlot>> slots;
  size_t workers = 0;
  for (const Answer& answer : answers) {
    if (answer.slots.empty() || answer.store.port == 0) return std::nullopt;
    slots.push_back(answer.slots);
    workers += answer.slots.size();
  }
  if (workers > kPlanWorkersMax) return std::nullopt;
  GroupPlan plan;
  plan.members = compose(slots, last ? last->members : std::vector<PlannedWorker>{});
  const auto first = static_cast<size_t>(plan.members.front().node);
  plan.store = answers[first].store;
  plan.store.host = reachable_address(agents[first], agents);
  return plan;
}

}  // namespace

Round form_round(std::vector<MemberInfo> agents, const std::vector<Answer>& answers,
                 const std::optional<GroupPlan>& last) {
  Round round;
  round.plan = make_plan(agents, answers, last);
  for (size_t i = 0; round.plan && i < agents.size(); ++i) agents[i].nproc = static_cast<int>(answers[i].slots.size());
  round.places = assign_ranks(agents);
  round.master_addr = reachable_address(agents.front(), agents);
  round.master_port = answers.front().port;
  return round;
}

}  // namespace rubato::elastic
