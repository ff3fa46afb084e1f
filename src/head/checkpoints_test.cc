#include "head/checkpoints.h"

#include <gtest/gtest.h>

#include "core/sha256.h"
#include "sim/simulation.h"

namespace rubato::head {
namespace {

using elastic::CheckpointItem;
using elastic::OutputAck;
using State = OutputAck::State;

const JobId kJob{"j-1"};
const NodeId kNode{"n-1"}, kOther{"n-2"};

CheckpointItem item_of(const std::string& name, int64_t saved_us, Generation generation = 1) {
  CheckpointItem item;
  item.name = name;
  item.generation = generation;
  item.saved_us = saved_us;
  return item;
}

std::string hash_of(const std::string& bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

elastic::OutputPart part_of(const CheckpointItem& item, uint64_t offset, const std::string& bytes) {
  elastic::OutputPart part;
  part.job = kJob;
  part.checkpoint = item;
  part.offset = offset;
  part.bytes = bytes;
  return part;
}

elastic::OutputPart last_of(const CheckpointItem& item, const std::string& all) {
  elastic::OutputPart part = part_of(item, all.size(), "");
  part.last = true;
  part.hash = hash_of(all);
  part.files = 1;
  part.content_bytes = 100;
  return part;
}

Task<State> bring(CheckpointStore& store, NodeId node, CheckpointItem item, std::string bytes) {
  const OutputAck offered = co_await store.offered(node, kJob, item);
  if (offered.state != State::kMore) co_return offered.state;
  elastic::OutputPart part = part_of(item, offered.have, bytes.substr(offered.have));
  const OutputAck added = co_await store.add(node, std::move(part));
  if (added.state != State::kMore) co_return added.state;
  elastic::OutputPart last = last_of(item, bytes);
  const OutputAck done = co_await store.add(node, std::move(last));
  co_return done.state;
}

std::vector<std::string> names(CheckpointStore& store) {
  std::vector<std::string> list;
  for (const CheckpointItem& item : store.items(kJob)) list.push_back(item.name);
  return list;
}

struct CheckpointStoreTest : testing::Test {
  using Body = std::function<Task<void>(sim::SimProgram&, sim::SimDisk&)>;
  static Task<int> program(sim::SimProgram& self, sim::SimDisk& disk, Body body, bool& ran) {
    co_await body(self, disk);
    ran = true;
    co_return 0;
  }
  // Each call is another head on the same disk.
  void run(Body body) {
    bool ran = false;
    sim.machine(1).start("head",
                         [&](sim::SimProgram& self) { return program(self, sim.machine(1).disk(), body, ran); });
    sim.simulator.run_for(60s);
    ASSERT_TRUE(ran);
  }
  size_t blobs() {
    size_t count = 0;
    for (const auto& [path, file] : sim.machine(1).disk().files()) count += path.ends_with(".tar.zst");
    return count;
  }
  sim::Simulation sim{1, 1};
};

TEST_F(CheckpointStoreTest, KeepsTheNewestThreeOverRestartsOfTheHead) {
  run([](sim::SimProgram& self, sim::SimDisk&) -> Task<void> {
    CheckpointStore store(self.world(), "/c/jobs", Offload());
    for (int i = 1; i <= 5; ++i) {
      const std::string number = std::to_string(i);
      const State state = co_await bring(store, kNode, item_of("e" + number, i), "bytes " + number);
      EXPECT_EQ(state, State::kKept);
    }
  });
  EXPECT_EQ(blobs(), 3u);
  run([](sim::SimProgram& self, sim::SimDisk&) -> Task<void> {
    CheckpointStore store(self.world(), "/c/jobs", Offload());
    EXPECT_EQ(names(store), (std::vector<std::string>{"e5", "e4", "e3"}));
    EXPECT_TRUE(store.holders(kJob, hash_of("bytes 5")).empty());
    // A node says that it has one of them; an old one is not wanted.
    CheckpointItem held = item_of("e5", 5);
    held.hash = hash_of("bytes 5");
    OutputAck ack = co_await store.offered(kOther, kJob, held);
    EXPECT_EQ(ack.state, State::kKept);
    EXPECT_EQ(store.holders(kJob, held.hash), std::set<NodeId>{kOther});
    CheckpointItem old = item_of("e1", 1);
    ack = co_await store.offered(kOther, kJob, old);
    EXPECT_EQ(ack.state, State::kKept);
    EXPECT_EQ(names(store).size(), 3u);
    elastic::PackageWanted wanted{hash_of("bytes 4"), 2, kJob};
    const elastic::PackagePart part = co_await store.read(wanted, 3);
    EXPECT_EQ(part.bytes, "tes");
    EXPECT_EQ(part.size, 7u);
    wanted.hash = std::string(64, '0');
    const elastic::PackagePart none = co_await store.read(wanted, 3);
    EXPECT_EQ(none.size, 0u);
  });
}

TEST_F(CheckpointStoreTest, GoesOnFromWhatCameBeforeTheHeadDied) {
  run([](sim::SimProgram& self, sim::SimDisk&) -> Task<void> {
    CheckpointStore store(self.world(), "/c/jobs", Offload());
    const CheckpointItem item = item_of("e1", 1);
    (void)co_await store.offered(kNode, kJob, item);
    elastic::OutputPart part = part_of(item, 0, "half of ");
    const OutputAck ack = co_await store.add(kNode, std::move(part));
    EXPECT_EQ(ack.have, 8u);
  });
  run([](sim::SimProgram& self, sim::SimDisk&) -> Task<void> {
    CheckpointStore store(self.world(), "/c/jobs", Offload());
    EXPECT_TRUE(store.items(kJob).empty());
    const OutputAck ack = co_await store.offered(kNode, kJob, item_of("e1", 1));
    EXPECT_EQ(ack.have, 8u);
    const State state = co_await bring(store, kNode, item_of("e1", 1), "half of it");
    EXPECT_EQ(state, State::kKept);
  });
}

TEST_F(CheckpointStoreTest, NeverKeepsWhatHasAnotherHash) {
  run([](sim::SimProgram& self, sim::SimDisk&) -> Task<void> {
    CheckpointStore store(self.world(), "/c/jobs", Offload());
    const CheckpointItem item = item_of("e1", 1);
    (void)co_await store.offered(kNode, kJob, item);
    elastic::OutputPart part = part_of(item, 0, "torn!");
    (void)co_await store.add(kNode, std::move(part));
    elastic::OutputPart last = last_of(item, "whole");
    const OutputAck ack = co_await store.add(kNode, std::move(last));
    EXPECT_EQ(ack.state, State::kMore);
    EXPECT_EQ(ack.have, 0u);
    EXPECT_TRUE(store.items(kJob).empty());
  });
  EXPECT_EQ(blobs(), 0u);
}

TEST_F(CheckpointStoreTest, AFullDiskIsSaidAndCostsNothingThatWasKept) {
  run([](sim::SimProgram& self, sim::SimDisk& disk) -> Task<void> {
    CheckpointStore store(self.world(), "/c/jobs", Offload());
    State state = co_await bring(store, kNode, item_of("e1", 1), "bytes 1");
    EXPECT_EQ(state, State::kKept);
    disk.set_free_bytes(3);
    state = co_await bring(store, kNode, item_of("e2", 2), "bytes 2");
    EXPECT_EQ(state, State::kRefused);
    EXPECT_EQ(names(store), std::vector<std::string>{"e1"});
    disk.set_free_bytes(uint64_t{1} << 30);
    state = co_await bring(store, kNode, item_of("e2", 2), "bytes 2");
    EXPECT_EQ(state, State::kKept);
    EXPECT_EQ(names(store), (std::vector<std::string>{"e2", "e1"}));
  });
}

TEST_F(CheckpointStoreTest, ADamagedIndexIsNoneAndWhatItLeftIsRemoved) {
  run([](sim::SimProgram& self, sim::SimDisk&) -> Task<void> {
    CheckpointStore store(self.world(), "/c/jobs", Offload());
    const State state = co_await bring(store, kNode, item_of("e1", 1), "bytes 1");
    EXPECT_EQ(state, State::kKept);
  });
  sim.machine(1).disk().write("/c/jobs/j-1/checkpoints/index.json", "{");
  run([](sim::SimProgram& self, sim::SimDisk&) -> Task<void> {
    CheckpointStore store(self.world(), "/c/jobs", Offload());
    EXPECT_TRUE(store.items(kJob).empty());
    const State state = co_await bring(store, kNode, item_of("e2", 2), "bytes 2");
    EXPECT_EQ(state, State::kKept);
    EXPECT_EQ(names(store), std::vector<std::string>{"e2"});
  });
}

}  // namespace
}  // namespace rubato::head
