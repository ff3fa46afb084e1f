#include "cli/top.h"

#include <gtest/gtest.h>

#include "core/text.h"

namespace rubato::cli {
namespace {

using nlohmann::json;
using Kind = TopRequest::Kind;
using Mode = TopState::Mode;

constexpr size_t kRows = 10;

TopData three_jobs() {
  TopData data;
  data.status = json::parse(R"({"cluster": {"name": "local"}, "nodes": [{"id": "small-1", "phase": "up"}], "jobs": [
    {"id": "j-1", "name": "alpha", "phase": "running"}, {"id": "j-2", "name": "beta", "phase": "queued"},
    {"id": "j-3", "name": "gamma", "phase": "failed"}]})");
  data.events = json::parse(R"({"events": [{"offset": 9, "text": "beta waits", "job": "j-2"},
                                            {"offset": 8, "text": "hello"}]})");
  return data;
}

TopRequest type(TopState& state, const TopData& data, const std::vector<std::string>& keys) {
  TopRequest last;
  for (const std::string& key : keys) last = press(state, data, key, kRows);
  return last;
}

TEST(Top, MovesAndAsksAboutTheSelectedRow) {
  TopState state;
  const TopData data = three_jobs();
  const TopRequest why = type(state, data, {"j", "y"});
  EXPECT_EQ(why.kind, Kind::kWhy);
  EXPECT_EQ(why.id, "j-2");
  EXPECT_TRUE(why.is_job);
  EXPECT_EQ(type(state, data, {"down", "down", "enter"}).id, "j-3");
  EXPECT_EQ(type(state, data, {"g", "l"}).id, "j-1");
  EXPECT_EQ(type(state, data, {"G", "d"}).id, "j-3");
  EXPECT_EQ(type(state, data, {"q"}).kind, Kind::kQuit);
}

TEST(Top, TheSelectionStaysOnItsJobWhenOthersGo) {
  TopState state;
  TopData data = three_jobs();
  type(state, data, {"G"});
  data.status["jobs"].erase(0);
  EXPECT_EQ(type(state, data, {"enter"}).id, "j-3");
}

TEST(Top, ViewsChangeByNameAndByTab) {
  TopState state;
  const TopData data = three_jobs();
  type(state, data, {":", "n", "o", "enter"});
  EXPECT_EQ(state.list, TopList::kNodes);
  const TopRequest node = type(state, data, {"d"});
  EXPECT_EQ(node.id, "small-1");
  EXPECT_FALSE(node.is_job);
  EXPECT_EQ(type(state, data, {"l"}).kind, Kind::kNone);
  EXPECT_EQ(state.message, "only jobs have logs");
  type(state, data, {"tab"});
  EXPECT_EQ(state.list, TopList::kEvents);
  EXPECT_EQ(type(state, data, {"y"}).id, "j-2");
  EXPECT_EQ(type(state, data, {"j", "y"}).kind, Kind::kNone);
  type(state, data, {":", "x", "enter"});
  EXPECT_NE(state.message.find("no view is called 'x'"), std::string::npos);
  EXPECT_EQ(type(state, data, {":", "q", "enter"}).kind, Kind::kQuit);
}

TEST(Top, AFilterShowsOnlyWhatHoldsIt) {
  TopState state;
  const TopData data = three_jobs();
  type(state, data, {"/", "B", "e", "x", "backspace", "t", "enter"});
  EXPECT_EQ(state.filter, "Bet");
  const std::string screen = draw_top(state, data, {.width = 80}, kRows);
  EXPECT_NE(screen.find("beta"), std::string::npos);
  EXPECT_EQ(screen.find("alpha"), std::string::npos);
  EXPECT_EQ(type(state, data, {"enter"}).id, "j-2");
  type(state, data, {"esc"});
  EXPECT_NE(draw_top(state, data, {.width = 80}, kRows).find("alpha"), std::string::npos);
}

TEST(Top, StoppingIsAskedFirst) {
  TopState state;
  const TopData data = three_jobs();
  EXPECT_EQ(type(state, data, {"j", "ctrl-d"}).kind, Kind::kNone);
  EXPECT_NE(draw_top(state, data, {.width = 80}, kRows).find("stop j-2? y/n"), std::string::npos);
  EXPECT_EQ(type(state, data, {"n"}).kind, Kind::kNone);
  const TopRequest stop = type(state, data, {"ctrl-d", "y"});
  EXPECT_EQ(stop.kind, Kind::kStop);
  EXPECT_EQ(stop.id, "j-2");
}

TEST(Top, ALogIsShownAtItsEndAndStaysThere) {
  TopState state;
  const TopData data = three_jobs();
  const TopRequest logs{Kind::kLogs, "j-1", true};
  std::string text;
  for (int i = 0; i < 30; ++i) text += "line " + std::to_string(i) + "\n";
  show_text(state, logs, "logs of j-1", text, kRows, false);
  EXPECT_NE(draw_top(state, data, {.width = 80}, kRows).find("line 29"), std::string::npos);
  show_text(state, logs, "logs of j-1", text + "line 30\n", kRows, true);
  EXPECT_NE(draw_top(state, data, {.width = 80}, kRows).find("line 30"), std::string::npos);
  type(state, data, {"k", "k"});
  show_text(state, logs, "logs of j-1", text + "line 30\nline 31\n", kRows, true);
  EXPECT_EQ(draw_top(state, data, {.width = 80}, kRows).find("line 31"), std::string::npos);
  type(state, data, {"esc"});
  EXPECT_EQ(state.mode, Mode::kList);
}

TEST(Top, AFrameHasTheSizeOfTheScreen) {
  TopState state;
  TopData data = three_jobs();
  for (int i = 10; i < 60; ++i) data.status["jobs"].push_back({{"id", "j-" + std::to_string(i)}, {"name", "many"}});
  for (const size_t rows : {1u, 3u, 5u, 10u, 50u}) {
    for (const size_t width : {10u, 40u, 120u}) {
      type(state, data, {"j", "j", "j"});
      const std::string screen = draw_top(state, data, {.width = width}, rows);
      const auto lines = split(screen, '\n');
      EXPECT_EQ(lines.size(), rows);
      for (const std::string_view line : lines) EXPECT_LE(display_width(line), width) << line;
    }
  }
}

TEST(Top, HeadThatIsGoneIsSaidBelow) {
  TopData data = three_jobs();
  data.problem = "the head of 'local' is not running";
  EXPECT_NE(draw_top({}, data, {.width = 80}, kRows).find("is not running"), std::string::npos);
}

}  // namespace
}  // namespace rubato::cli
