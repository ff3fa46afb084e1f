#include "elastic/member.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace rubato::elastic {
namespace {

MemberInfo member(int nproc, std::string role = "default") {
  MemberInfo info;
  info.nproc = nproc;
  info.role = std::move(role);
  return info;
}

MemberInfo at(std::string machine, std::string address, std::vector<std::string> addresses = {}) {
  MemberInfo info;
  info.machine = std::move(machine);
  info.address = std::move(address);
  info.addresses = std::move(addresses);
  return info;
}

TEST(AssignRanks, CountsWorkersOverAgentsWithDifferentNumbersOfThem) {
  const auto places = assign_ranks({member(2), member(3), member(1)});
  EXPECT_EQ(places, (std::vector<Assignment>{{0, 3, 0, 6, 0, 6}, {1, 3, 2, 6, 2, 6}, {2, 3, 5, 6, 5, 6}}));
}

TEST(AssignRanks, CountsRoleRanksWithinARole) {
  const auto places =
      assign_ranks({member(2, "trainer"), member(1, "reader"), member(4, "trainer"), member(3, "reader")});
  EXPECT_EQ(places[0], (Assignment{0, 4, 0, 10, 0, 6}));
  EXPECT_EQ(places[1], (Assignment{1, 4, 2, 10, 0, 4}));
  EXPECT_EQ(places[2], (Assignment{2, 4, 3, 10, 2, 6}));
  EXPECT_EQ(places[3], (Assignment{3, 4, 7, 10, 1, 4}));
}

TEST(AssignRanks, OfNobodyIsNothing) { EXPECT_TRUE(assign_ranks({}).empty()); }

RC_GTEST_PROP(AssignRanks, AreDenseWithinTheWorldAndWithinEachRole, ()) {
  std::vector<MemberInfo> order;
  for (const int size : *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 9))) {
    order.push_back(member(size, *rc::gen::element<std::string>("a", "b", "c")));
  }
  const auto places = assign_ranks(order);
  RC_ASSERT(places.size() == order.size());
  int ranks = 0;
  std::map<std::string, int> role_ranks;
  for (size_t i = 0; i < order.size(); ++i) {
    RC_ASSERT(places[i].group_rank == static_cast<int>(i));
    RC_ASSERT(places[i].group_world_size == static_cast<int>(order.size()));
    RC_ASSERT(places[i].first_rank == ranks);
    RC_ASSERT(places[i].first_role_rank == role_ranks[order[i].role]);
    ranks += order[i].nproc;
    role_ranks[order[i].role] += order[i].nproc;
  }
  for (size_t i = 0; i < order.size(); ++i) {
    RC_ASSERT(places[i].world_size == ranks);
    RC_ASSERT(places[i].role_world_size == role_ranks[order[i].role]);
  }
}

TEST(ReachableAddress, IsTheLoopbackWhenAllShareTheMachine) {
  const MemberInfo master = at("m1", "127.0.0.1", {"10.0.0.1"});
  EXPECT_EQ(reachable_address(master, {master, at("m1", "127.0.0.1", {"10.0.0.1"})}), "127.0.0.1");
}

TEST(ReachableAddress, IsNoLoopbackWhenOneMemberIsElsewhere) {
  for (const char* loopback : {"127.0.0.1", "127.0.1.1", "::1", "localhost"}) {
    const MemberInfo master = at("m1", loopback, {"10.0.0.1", "192.168.0.1"});
    EXPECT_EQ(reachable_address(master, {master, at("m2", "10.0.0.2")}), "10.0.0.1");
  }
}

TEST(ReachableAddress, IsTheOneOfItsConnectionUnlessThatIsLoopback) {
  const MemberInfo master = at("m1", "10.9.9.9", {"10.0.0.1"});
  EXPECT_EQ(reachable_address(master, {master, at("m2", "10.0.0.2")}), "10.9.9.9");
}

TEST(ReachableAddress, IsTheLoopbackWhenThereIsNoOther) {
  const MemberInfo master = at("m1", "127.0.0.1");
  EXPECT_EQ(reachable_address(master, {master, at("m2", "10.0.0.2")}), "127.0.0.1");
}

TEST(IsLoopback, KnowsBothFamiliesAndTheName) {
  for (const char* yes : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) EXPECT_TRUE(is_loopback(yes)) << yes;
  for (const char* no : {"", "10.0.0.1", "12.7.0.0", "::2", "1270.example", "localhost.example"}) {
    EXPECT_FALSE(is_loopback(no)) << no;
  }
}

TEST(Heartbeat, AnAgentStopsItsWorkersBeforeTheHostGivesItUpAndMayMissBeats) {
  EXPECT_LT(fence_after(3s), 3s);
  EXPECT_GE(fence_after(3s), 4 * beat_interval(3s));
}

}  // namespace
}  // namespace rubato::elastic
