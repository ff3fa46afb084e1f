#include "node/devices.h"

#include <gtest/gtest.h>

namespace rubato::node {
namespace {

TEST(Devices, WholeGpusAreGivenInTheOrderOfLocalRanks) {
  Devices devices({"4", "5", "6", "7"});
  const Devices::Share first = devices.take(2, 1000);
  EXPECT_EQ(first.visible(), "4,5");
  EXPECT_EQ(devices.take(1, 2000).visible(), "6,7");
}

TEST(Devices, WhoStaysKeepsItsDeviceWhileOthersComeAndGo) {
  Devices devices({"4", "5", "6", "7"});
  Devices::Share share = devices.take(1, 1000);
  const Devices::Share other = devices.take(1, 1000);
  share.hold({0, 1});
  EXPECT_EQ(share.visible(), "4,6");
  share.hold({1});
  EXPECT_EQ(share.visible(), "4,6") << "local rank 1 finds its device in the second place";
  const Devices::Share third = devices.take(1, 1000);
  EXPECT_EQ(third.visible(), "4");
  share.hold({0, 1});
  EXPECT_EQ(share.visible(), "7,6");
}

TEST(Devices, APlaceThatNobodyHasNamesNoDeviceOfTheJobTwice) {
  Devices devices({"a", "b", "c"});
  Devices::Share share = devices.take(2, 1000);
  share.hold({1});
  share.hold({1, 2});
  EXPECT_EQ(share.visible(), "c,b,a");
}

TEST(Devices, AreGivenBack) {
  Devices devices({"0", "1"});
  Devices::Share share = devices.take(2, 1000);
  share = Devices::Share();
  EXPECT_EQ(devices.take(2, 1000).visible(), "0,1");
}

TEST(Devices, PartsShareADeviceAndLeaveOthersWhole) {
  Devices devices({"0", "1"});
  const Devices::Share half = devices.take(1, 500);
  const Devices::Share other_half = devices.take(1, 500);
  EXPECT_EQ(half.visible(), "0");
  EXPECT_EQ(other_half.visible(), "0");
  EXPECT_EQ(devices.take(1, 1000).visible(), "1");
}

TEST(Devices, ShareTheLeastUsedRatherThanNothing) {
  Devices devices({"0", "1"});
  const Devices::Share one = devices.take(1, 1000);
  const Devices::Share more = devices.take(2, 1000);
  EXPECT_EQ(more.visible(), "1,0");
}

TEST(Devices, NobodyIsShownWhatHeDidNotAskFor) {
  Devices devices({"0"});
  EXPECT_EQ(devices.take(3, 0).visible(), "");
  Devices none({});
  EXPECT_EQ(none.take(3, 1000).visible(), "");
}

}  // namespace
}  // namespace rubato::node
