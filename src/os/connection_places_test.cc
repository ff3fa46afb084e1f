#include "os/connection_places.h"

#include <gtest/gtest.h>

namespace rubato::os {
namespace {

constexpr Instant kNow{};

Peer peer(const std::string& key, bool ours = false) {
  Peer peer;
  peer.key = key;
  peer.ours = ours;
  return peer;
}

PlaceLimits small() {
  PlaceLimits limits;
  limits.strangers_max = 4;
  limits.known_max = 2;
  limits.strangers_burst = 1000;
  return limits;
}

TEST(ConnectionPlaces, ACrowdDisplacesItselfAndNobodyElse) {
  ConnectionPlaces places(small());
  const auto quiet = places.arrive(peer("quiet"), kNow);
  const auto first = places.arrive(peer("crowd"), kNow);
  places.arrive(peer("crowd"), kNow);
  places.arrive(peer("crowd"), kNow);
  for (int i = 0; i < 100; ++i) {
    const auto next = places.arrive(peer("crowd"), kNow);
    ASSERT_TRUE(next.place);
    ASSERT_TRUE(next.evicted);
    EXPECT_NE(*next.evicted, *quiet.place);
    if (i == 0) {
      EXPECT_EQ(*next.evicted, *first.place) << "the oldest goes first";
    }
  }
  EXPECT_EQ(places.strangers(), 4u);
}

TEST(ConnectionPlaces, ANewcomerGetsInWhenACrowdHoldsThemAll) {
  ConnectionPlaces places(small());
  for (int i = 0; i < 4; ++i) places.arrive(peer("crowd"), kNow);
  const auto newcomer = places.arrive(peer("newcomer"), kNow);
  ASSERT_TRUE(newcomer.place);
  for (int i = 0; i < 100; ++i) EXPECT_NE(places.arrive(peer("crowd"), kNow).evicted, newcomer.place);
}

TEST(ConnectionPlaces, ManyStrangersOfOneConnectionEachLoseTheOldest) {
  ConnectionPlaces places(small());
  std::vector<ConnectionPlaces::Id> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(*places.arrive(peer(std::to_string(i)), kNow).place);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(places.arrive(peer("new" + std::to_string(i)), kNow).evicted, ids.at(static_cast<size_t>(i)));
}

TEST(ConnectionPlaces, OurOwnAndThoseWhoHaveProvenThemselvesHaveTheirOwn) {
  ConnectionPlaces places(small());
  places.remember("10.0.0.7");
  const auto own = places.arrive(peer("user 1000", true), kNow);
  const auto known = places.arrive(peer("10.0.0.7"), kNow);
  for (int i = 0; i < 100; ++i) {
    const auto next = places.arrive(peer("crowd " + std::to_string(i)), kNow);
    EXPECT_NE(next.evicted, own.place);
    EXPECT_NE(next.evicted, known.place);
  }
  EXPECT_EQ(places.known(), 2u);
}

TEST(ConnectionPlaces, AStrangerWhoComesTooOftenIsTurnedAway) {
  PlaceLimits limits = small();
  limits.strangers_per_second = 1;
  limits.strangers_burst = 3;
  ConnectionPlaces places(limits);
  int taken = 0;
  for (int i = 0; i < 10; ++i) {
    const auto one = places.arrive(peer("crowd"), kNow);
    if (one.place) places.leave(*one.place);
    taken += one.place.has_value();
  }
  EXPECT_EQ(taken, 3);
  EXPECT_TRUE(places.arrive(peer("another"), kNow).place);
  EXPECT_TRUE(places.arrive(peer("crowd"), kNow + 2s).place);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(places.arrive(peer("user 0", true), kNow).place);
}

TEST(ConnectionPlaces, LeavingFreesAPlaceOnce) {
  ConnectionPlaces places(small());
  const auto one = places.arrive(peer("a"), kNow);
  places.leave(*one.place);
  places.leave(*one.place);
  EXPECT_EQ(places.strangers(), 0u);
  EXPECT_FALSE(places.evict_stranger());
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(places.arrive(peer("a"), kNow).evicted);
}

TEST(ConnectionPlaces, RemembersABoundedNumber) {
  ConnectionPlaces places(small());
  for (size_t i = 0; i < 2 * ConnectionPlaces::kRememberedMax; ++i) places.remember(std::to_string(i));
  places.arrive(peer("0"), kNow);
  EXPECT_EQ(places.strangers(), 1u) << "the oldest is forgotten";
  places.arrive(peer(std::to_string(2 * ConnectionPlaces::kRememberedMax - 1)), kNow);
  EXPECT_EQ(places.known(), 1u);
  places.remember(kUnknownUser);
  places.arrive(peer(kUnknownUser), kNow);
  EXPECT_EQ(places.strangers(), 2u);
}

}  // namespace
}  // namespace rubato::os
