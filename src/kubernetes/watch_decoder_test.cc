#include "kubernetes/watch_decoder.h"

#include <gtest/gtest.h>

namespace rubato::kubernetes {
namespace {

const std::string kLines = R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"}}})"
                           "\n"
                           R"({"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"7"}}})"
                           "\n"
                           R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}})"
                           "\n"
                           R"({"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"10"}}})"
                           "\n";

TEST(WatchDecoder, GivesTheSameEventsWhereverTheBytesAreCut) {
  for (size_t cut = 0; cut <= kLines.size(); ++cut) {
    WatchDecoder decoder;
    std::vector<WatchEvent> events = decoder.add(std::string_view(kLines).substr(0, cut));
    for (WatchEvent& event : decoder.add(std::string_view(kLines).substr(cut))) events.push_back(std::move(event));
    ASSERT_EQ(events.size(), 4u) << cut;
    EXPECT_EQ(events[0].type, WatchType::kAdded);
    EXPECT_EQ(events[1].resource_version, "7");
    EXPECT_EQ(events[2].type, WatchType::kBookmark);
    EXPECT_EQ(events[2].resource_version, "9");
    EXPECT_EQ(events[3].type, WatchType::kDeleted);
    EXPECT_TRUE(decoder.finish().empty());
  }
}

TEST(WatchDecoder, TellsAnExpiredVersionFromOtherErrors) {
  WatchDecoder decoder;
  const auto events = decoder.add(
      "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"message\":\"too old\"}}\n" + kLines);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, WatchType::kExpired);
  EXPECT_EQ(events[0].message, "too old");
  WatchDecoder other;
  EXPECT_EQ(other.add("{\"kind\":\"Status\",\"code\":500,\"message\":\"no\"}\n").at(0).type, WatchType::kFailed);
}

TEST(WatchDecoder, ReadsARefusalWithoutALineEnd) {
  WatchDecoder decoder;
  EXPECT_TRUE(decoder.add("{\"kind\":\"Status\",\"code\":410}").empty());
  const auto events = decoder.finish();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, WatchType::kExpired);
}

TEST(WatchDecoder, HalfAnEventIsNone) {
  WatchDecoder decoder;
  decoder.add(kLines.substr(0, 20));
  EXPECT_TRUE(decoder.finish().empty());
}

TEST(WatchDecoder, RefusesNonsense) {
  for (const char* line : {"nonsense\n", "[]\n", "{\"type\":\"ADDED\"}\n",
                           "{\"type\":\"X\",\"object\":{\"metadata\":{\"resourceVersion\":\"1\"}}}\n"}) {
    WatchDecoder decoder;
    const auto events = decoder.add(line);
    ASSERT_EQ(events.size(), 1u) << line;
    EXPECT_EQ(events[0].type, WatchType::kFailed) << line;
  }
}

}  // namespace
}  // namespace rubato::kubernetes
