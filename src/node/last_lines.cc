#include "node/last_lines.h"

#include "core/error.h"
#include "core/turns.h"
#include "node/log_spool.h"

namespace rubato::node {

namespace {

constexpr Duration kLookAgain = 5ms;
// A guard gives up after 5 s (os/guard.cc).
constexpr Duration kGuardMax = 6s;
constexpr size_t kBatchBytes = size_t{256} << 10;

bool anybody_writes(Files& files, const std::string& spool) {
  const std::string folder = spool + LogSpool::kOutputs;
  if (!files.exists(folder)) return false;
  for (const Files::Entry& entry : files.list(folder)) {
    if (files.in_use(folder + "/" + entry.name)) return true;
  }
  return false;
}

Task<void> send_spool(World& world, JobId job, std::string folder, KeepLines keep) {
  const Instant deadline = world.clock.now() + kGuardMax;
  while (anybody_writes(world.files, folder) && world.clock.now() < deadline) {
    co_await Sleep(world.clock.loop(), world.clock.now() + kLookAgain);
  }
  LogSpool spool(world, folder, [] {});
  Turns turns(world.clock.loop());
  while (true) {
    elastic::LogLines lines{.job = job, .lines = spool.take(kBatchBytes), .agent = spool.owner(), .follows = 0};
    if (lines.lines.empty()) co_return;
    const uint64_t last = lines.lines.back().sequence;
    Task<uint64_t> kept = keep(std::move(lines));
    const uint64_t sequence = co_await std::move(kept);
    spool.acked(sequence);
    if (sequence < last) throw Error(ErrorCode::kUnavailable, "the head's disk has no room for the lines");
    co_await turns.step();
  }
}

}  // namespace

Task<void> send_last_lines(World& world, std::string node_folder, KeepLines keep) {
  const std::string folder = node_folder + "/spool";
  if (!world.files.exists(folder)) co_return;
  for (const Files::Entry& entry : world.files.list(folder)) {
    if (entry.kind != Files::Entry::Kind::kFolder) continue;
    JobId job{entry.name};
    co_await send_spool(world, std::move(job), folder + "/" + entry.name, keep);
  }
}

}  // namespace rubato::node
