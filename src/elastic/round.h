// Round: what is decided once, when all agents of a generation have answered: their ranks, the master, and the plan of
// workers that may live on to the next one. Pure; for a rendezvous and for a head's jobs alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/group_plan.h"
#include "elastic/member.h"

namespace rubato::elastic {

// What an agent that is ready has said.
struct Answer {
  uint16_t port = 0;              // free there for the master
  std::vector<WorkerSlot> slots;  // that the round takes; none: its workers cannot be planned
  MeetingPlace store;             // without its host
};

struct Round {
  std::vector<Assignment> places;  // of the agents, in their order
  std::string master_addr;
  uint16_t master_port = 0;
  std::optional<GroupPlan> plan;  // none: its workers cannot change in place
};

// `agents` in the order of their ranks, at least one, each with its answer: the first is the master. Where all can be
// planned, each has the workers that it names, and members of the plan `last` keep their order and come first.
Round form_round(std::vector<MemberInfo> agents, const std::vector<Answer>& answers,
                 const std::optional<GroupPlan>& last);

}  // namespace rubato::elastic
