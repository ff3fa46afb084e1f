#include "elastic/group_plan.h"

#include <gtest/gtest.h>

namespace rubato::elastic {
namespace {

using enum WorkerStage;

std::vector<std::string> ids(const std::vector<PlannedWorker>& members) {
  std::vector<std::string> out;
  for (const PlannedWorker& one : members) out.push_back(one.id);
  return out;
}

std::vector<std::string> ids(const std::vector<WorkerSlot>& slots) {
  std::vector<std::string> out;
  for (const WorkerSlot& one : slots) out.push_back(one.id);
  return out;
}

using Ids = std::vector<std::string>;

TEST(Plannable, NobodyWithTheStateWaitsForAnInterpreterToStart) {
  const std::vector<WorkerSlot> slots{{"a-1", 0, kVeteran}, {"a-2", 1, kFresh}, {"a-3", 2, kReady}};
  EXPECT_EQ(ids(plannable(slots, Intake::kReady)), (Ids{"a-1", "a-3"}));
}

TEST(Plannable, WhoJoinsAtTheEndWouldBeginAnew) {
  const std::vector<WorkerSlot> slots{{"a-1", 0, kVeteran}, {"a-2", 1, kReady}};
  EXPECT_EQ(ids(plannable(slots, Intake::kVeterans)), (Ids{"a-1"}));
}

TEST(Plannable, AllBeginTogetherWhereNobodyHasTheState) {
  const std::vector<WorkerSlot> slots{{"a-1", 0, kFresh}, {"a-2", 1, kReady}};
  EXPECT_EQ(ids(plannable(slots, Intake::kAll)), (Ids{"a-1", "a-2"}));
}

TEST(Compose, AFirstPlanHasTheRanksOfTorchrun) {
  const auto members = compose({{{"a-1", 0, kFresh}, {"a-2", 1, kFresh}}, {{"b-1", 0, kFresh}}}, {});
  EXPECT_EQ(members, (std::vector<PlannedWorker>{{"a-1", 0, 0}, {"a-2", 1, 0}, {"b-1", 0, 1}}));
}

TEST(Compose, SurvivorsComeFirstInTheirOldOrder) {
  const std::vector<PlannedWorker> last{{"c-1", 0, 2}, {"a-1", 0, 0}, {"a-2", 1, 0}, {"b-1", 0, 1}};
  const auto members = compose({{{"a-3", 0, kReady}, {"a-2", 1, kVeteran}}, {{"c-1", 0, kVeteran}}}, last);
  EXPECT_EQ(ids(members), (Ids{"c-1", "a-2", "a-3"}));
  EXPECT_EQ(members[0].node, 1);
  EXPECT_EQ(members[2].node, 0);
}

TEST(Compose, AnAgentWithoutWorkersHasNoPlace) {
  const auto members = compose({{}, {{"b-1", 0, kReady}}}, {});
  EXPECT_EQ(members, (std::vector<PlannedWorker>{{"b-1", 0, 0}}));
}

}  // namespace
}  // namespace rubato::elastic
