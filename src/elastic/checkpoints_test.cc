#include "elastic/checkpoints.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "elastic/checkpoints_json.h"

namespace rubato::elastic {
namespace {

CheckpointItem item(const std::string& name, Generation generation, int64_t saved_us, uint64_t bytes = 1) {
  CheckpointItem one;
  one.name = name;
  one.generation = generation;
  one.saved_us = saved_us;
  one.packed_bytes = bytes;
  one.hash = std::string(64, 'a');
  return one;
}

std::vector<std::string> names(const std::vector<CheckpointItem>& items) {
  std::vector<std::string> list;
  for (const CheckpointItem& one : items) list.push_back(one.name);
  return list;
}

using Names = std::vector<std::string>;

TEST(CheckpointNames, AreOneComponentOrOneInAdaptdl) {
  for (const char* good : {"model.pt", "step-1", "adaptdl/checkpoint-7", "größe 3", "a..b", "adaptdl.pt"})
    EXPECT_TRUE(is_checkpoint_name(good)) << good;
  for (const char* bad :
       {"",           ".",           "..",          "../x",         "a/b",         "adaptdl",   "adaptdl/",
        "adaptdl/..", "adaptdl/a/b", "/etc/passwd", ".hidden",      "_checkpoint", "x.tmp",     "x~",
        "a\nb",       "a\x7f",       "\xff\xfe",    "\xed\xa0\x80", "\xc0\xaf",    "adaptdl/.x"})
    EXPECT_FALSE(is_checkpoint_name(bad)) << bad;
  EXPECT_FALSE(is_checkpoint_name(std::string(300, 'a')));
  EXPECT_FALSE(is_checkpoint_name(std::string("a\0b", 3)));
}

TEST(CheckpointsRetained, TheNewestThreeOfASeries) {
  std::vector<CheckpointItem> items;
  for (int i = 1; i <= 12; ++i) items.push_back(item("epoch-" + std::to_string(i) + ".pt", 1, i));
  EXPECT_EQ(names(retained(items, {})), (Names{"epoch-12.pt", "epoch-11.pt", "epoch-10.pt"}));
}

TEST(CheckpointsRetained, WhatHasNoNumberStaysAndTheNewestOfANameWins) {
  const std::vector<CheckpointItem> kept = retained({item("best.pt", 1, 1), item("e1", 1, 2), item("e2", 1, 3),
                                                     item("e3", 1, 4), item("e4", 1, 5), item("best.pt", 1, 0)},
                                                    {});
  EXPECT_EQ(names(kept), (Names{"e4", "e3", "e2", "best.pt"}));
  EXPECT_EQ(kept.back().saved_us, 1);
}

TEST(CheckpointsRetained, ShardsOfAnEpochStayTogether) {
  std::vector<CheckpointItem> items;
  int64_t at = 0;
  for (int epoch = 1; epoch <= 5; ++epoch) {
    for (int rank = 0; rank < 8; ++rank)
      items.push_back(item("epoch-" + std::to_string(epoch) + "-rank" + std::to_string(rank), 1, ++at));
  }
  const Names kept = names(retained(items, {}));
  for (int epoch = 3; epoch <= 5; ++epoch) {
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_TRUE(std::ranges::count(kept, "epoch-" + std::to_string(epoch) + "-rank" + std::to_string(rank)));
    }
  }
}

TEST(CheckpointsRetained, WhatALostGenerationBringsLateIsOlder) {
  // Its clock is an hour ahead, and it comes last.
  const std::vector<CheckpointItem> kept = retained({item("model.pt", 5, 100), item("model.pt", 4, 3'600'000'100)}, {});
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].generation, 5u);
}

TEST(CheckpointsRetained, BytesAreBoundedButTheNewestStays) {
  CheckpointLimits limits;
  limits.bytes_max = 100;
  EXPECT_EQ(names(retained({item("a", 1, 1, 40), item("b", 1, 2, 40), item("c", 1, 3, 40)}, limits)),
            (Names{"c", "b"}));
  EXPECT_EQ(names(retained({item("a", 1, 1, 40), item("b", 1, 2, 500)}, limits)), (Names{"b"}));
  // Not a small old one in the place of a newer large one.
  EXPECT_EQ(names(retained({item("a", 1, 1, 1), item("b", 1, 2, 90), item("c", 1, 3, 90)}, limits)), (Names{"c"}));
  EXPECT_EQ(names(retained({item("a", 1, 1, UINT64_MAX), item("b", 1, 2, UINT64_MAX)}, limits)), (Names{"b"}));
}

RC_GTEST_PROP(CheckpointsRetained, AlwaysHasTheNewestAndIsBoundedAndStable, ()) {
  std::vector<CheckpointItem> items;
  for (const int n : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40))) {
    const std::string name = *rc::gen::element<std::string>("e", "shard-3-of-", "best", "r7-s");
    items.push_back(item(name == "best" ? name : name + std::to_string(n), static_cast<Generation>(n % 4),
                         static_cast<int64_t>(items.size()), static_cast<uint64_t>(n) * 10));
  }
  CheckpointLimits limits;
  limits.keep = *rc::gen::inRange<size_t>(1, 5);
  limits.bytes_max = *rc::gen::inRange<uint64_t>(1, 2000);
  const std::vector<CheckpointItem> kept = retained(items, limits);
  RC_ASSERT(kept.empty() == items.empty());
  if (items.empty()) return;
  RC_ASSERT(kept.front() == *std::ranges::min_element(items, is_newer));
  uint64_t bytes = 0;
  std::set<std::string> unique;
  for (const CheckpointItem& one : kept) {
    bytes += one.packed_bytes;
    RC_ASSERT(unique.insert(one.name).second);
  }
  RC_ASSERT(bytes <= limits.bytes_max || kept.size() == 1);
  // Whether they came one by one or at once, in which order ever, whatever is kept of them is among the kept.
  RC_ASSERT(retained(kept, limits) == kept);
}

TEST(CheckpointsMissing, AFreshNodeNeedsAllOfEarlierGenerations) {
  EXPECT_EQ(names(missing_items({item("b", 3, 2), item("a", 2, 1)}, {}, 3)), (Names{"a"}));
  EXPECT_EQ(names(missing_items({item("b", 3, 2), item("a", 2, 1)}, {}, 4)), (Names{"b", "a"}));
}

TEST(CheckpointsMissing, NotWhatTheScriptRemovedNorWhatIsNewerHere) {
  const CheckpointItem a = item("a", 2, 1);
  EXPECT_TRUE(missing_items({a}, {{"a", {a.hash, 2, 1}}}, 3).empty());
  // Finished here, and the head could not take it.
  EXPECT_TRUE(missing_items({a}, {{"a", {"", 2, 9}}}, 3).empty());
  // Of a generation whose work was lost.
  EXPECT_EQ(missing_items({a}, {{"a", {"", 1, 9}}}, 3).size(), 1u);
  // Another node has written it since.
  EXPECT_EQ(missing_items({a}, {{"a", {std::string(64, 'b'), 1, 1}}}, 3).size(), 1u);
}

TEST(CheckpointPeers, PreferOtherMachinesAndChangeLittle) {
  std::vector<PeerCandidate> nodes;
  for (int i = 0; i < 20; ++i) nodes.push_back({NodeId{"n" + std::to_string(i)}, i < 5, i == 7});
  const std::vector<NodeId> first = choose_peers(JobId{"j-1"}, nodes, 2);
  ASSERT_EQ(first.size(), 2u);
  for (const NodeId& node : first) {
    const auto it = std::ranges::find(nodes, node, &PeerCandidate::node);
    EXPECT_FALSE(it->on_head_machine || it->works_on_it);
  }
  // One of them goes: the other stays.
  std::erase_if(nodes, [&](const PeerCandidate& one) { return one.node == first[0]; });
  const std::vector<NodeId> second = choose_peers(JobId{"j-1"}, nodes, 2);
  EXPECT_TRUE(std::ranges::count(second, first[1]));
  EXPECT_EQ(choose_peers(JobId{"j-1"}, {nodes[0]}, 2).size(), 1u);
}

TEST(CheckpointsJson, RoundTripsAndRefusesWhatLeadsElsewhere) {
  const std::vector<CheckpointItem> items{item("model \"1\".pt", 1, 2), item("adaptdl/checkpoint-1", 3, 4)};
  EXPECT_EQ(index_from_text(index_text(items)), items);
  const CheckpointLedger ledger{{"a", {"", 1, 2}}, {"adaptdl/b", {std::string(64, 'c'), 3, 4}}};
  EXPECT_EQ(ledger_from_text(ledger_text(ledger)), ledger);
  const CheckpointCopy copy = copy_from_text(copy_text({JobId{"j-1"}, items[0]}));
  EXPECT_EQ(copy.item, items[0]);
  for (const char* name : {"../x", "/x", "adaptdl/../x", ""}) {
    nlohmann::json j = to_json(items[0]);
    j["name"] = name;
    EXPECT_THROW(checkpoint_item_from_json(j), Error) << name;
  }
  nlohmann::json j = to_json(items[0]);
  j["hash"] = "../../../etc/passwd";
  EXPECT_THROW(checkpoint_item_from_json(j), Error);
  for (const char* text : {"", "{", "[]", "{\"items\": 3}", "{\"entries\": {\"..\": {}}}"}) {
    EXPECT_THROW(index_from_text(text), Error) << text;
    EXPECT_THROW(ledger_from_text(text), Error) << text;
  }
}

}  // namespace
}  // namespace rubato::elastic
