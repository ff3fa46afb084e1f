#include "elastic/round.h"

#include <gtest/gtest.h>

namespace rubato::elastic {
namespace {

using enum WorkerStage;

MemberInfo agent(const std::string& machine, int nproc) {
  MemberInfo info;
  info.machine = machine;
  info.address = "10.0.0." + machine;
  info.nproc = nproc;
  return info;
}

Answer answer(uint16_t port, std::vector<WorkerSlot> slots = {}) {
  return Answer{port, std::move(slots), MeetingPlace{"", static_cast<uint16_t>(port + 1), "token"}};
}

TEST(FormRound, TheFirstAgentIsTheMasterAndRanksAreDense) {
  const Round round = form_round({agent("2", 2), agent("1", 3)}, {answer(4002), answer(4001)}, std::nullopt);
  EXPECT_EQ(round.master_addr, "10.0.0.2");
  EXPECT_EQ(round.master_port, 4002);
  ASSERT_EQ(round.places.size(), 2u);
  EXPECT_EQ(round.places[1].first_rank, 2);
  EXPECT_EQ(round.places[1].world_size, 5);
  EXPECT_FALSE(round.plan) << "nobody has named its workers";
}

TEST(FormRound, APlanCountsTheWorkersThatWereNamed) {
  const Round round =
      form_round({agent("1", 2), agent("2", 2)},
                 {answer(4001, {{"a", 0, kReady}}), answer(4002, {{"b", 0, kReady}, {"c", 1, kReady}})}, std::nullopt);
  ASSERT_TRUE(round.plan);
  EXPECT_EQ(round.plan->members, (std::vector<PlannedWorker>{{"a", 0, 0}, {"b", 0, 1}, {"c", 1, 1}}));
  EXPECT_EQ(round.places[1].first_rank, 1);
  EXPECT_EQ(round.places[1].world_size, 3);
  EXPECT_EQ(round.plan->store, (MeetingPlace{"10.0.0.1", 4002, "token"}));
}

TEST(FormRound, WhoWasInTheLastPlanComesFirstAndTheyMeetAtTheFirstOfThem) {
  GroupPlan last;
  last.members = {{"b", 0, 0}};
  const Round round = form_round({agent("1", 1), agent("2", 1)},
                                 {answer(4001, {{"a", 0, kReady}}), answer(4002, {{"b", 0, kVeteran}})}, last);
  ASSERT_TRUE(round.plan);
  EXPECT_EQ(round.plan->members, (std::vector<PlannedWorker>{{"b", 0, 1}, {"a", 0, 0}}));
  EXPECT_EQ(round.plan->store, (MeetingPlace{"10.0.0.2", 4003, "token"}));
  EXPECT_EQ(round.master_addr, "10.0.0.1") << "the master is the first agent's, whoever has rank 0";
}

TEST(FormRound, HasNoPlanWhereOneAgentCannotChangeItsWorkers) {
  const std::vector<MemberInfo> agents{agent("1", 1), agent("2", 1)};
  EXPECT_FALSE(form_round(agents, {answer(4001, {{"a", 0, kReady}}), answer(4002)}, std::nullopt).plan);
  Answer homeless = answer(4002, {{"b", 0, kReady}});
  homeless.store.port = 0;
  EXPECT_FALSE(form_round(agents, {answer(4001, {{"a", 0, kReady}}), homeless}, std::nullopt).plan);
}

TEST(FormRound, HasNoPlanOfTooManyWorkers) {
  std::vector<WorkerSlot> many;
  for (size_t i = 0; i <= kPlanWorkersMax; ++i) many.push_back({std::to_string(i), static_cast<int>(i), kReady});
  EXPECT_FALSE(form_round({agent("1", 1)}, {answer(4001, many)}, std::nullopt).plan);
  many.pop_back();
  EXPECT_TRUE(form_round({agent("1", 1)}, {answer(4001, many)}, std::nullopt).plan);
}

}  // namespace
}  // namespace rubato::elastic
