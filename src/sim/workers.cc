#include "sim/workers.h"

#include <charconv>
#include <tuple>

#include "core/text.h"
#include "sim/processes.h"
#include "sim/worker_group.h"

namespace rubato::sim {

namespace {

std::string text_of(const std::map<std::string, std::string>& env, const char* name) {
  const auto found = env.find(name);
  return found == env.end() ? std::string() : found->second;
}

int64_t number_of(const std::map<std::string, std::string>& env, const char* name, int64_t otherwise) {
  const std::string text = text_of(env, name);
  int64_t value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string words_of(const WorkerRecord& record) {
  return "rank " + std::to_string(record.rank) + " of generation " + std::to_string(record.generation) +
         " on machine " + std::to_string(record.machine);
}

}  // namespace

WorkerRegistry::WorkerRegistry(SimNetwork& network) : network_(network), random_(network.simulator().random().fork()) {
  network_.on_change([this] {
    ++version_;
    for (auto at = groups_.begin(); at != groups_.end();) {
      const std::shared_ptr<WorkerGroup> group = at->second.lock();
      at = group ? std::next(at) : groups_.erase(at);
      if (group) group->update();
    }
  });
}

WorkerRegistry::~WorkerRegistry() = default;

WorkerRecord& WorkerRegistry::begin(Node& node, const SpawnSpec& spec) {
  const uint64_t id = next_id_++;
  WorkerRecord& record = live_[id];
  record.id = id;
  record.machine = node.id;
  record.pid = static_cast<int>(1000 + id);
  for (const std::string& entry : spec.env) {
    if (const auto pair = split_once(entry, '=')) record.env.emplace(pair->first, pair->second);
  }
  record.run_id = text_of(record.env, "TORCHELASTIC_RUN_ID");
  record.generation = number_of(record.env, "RUBATO_GENERATION", -1);
  record.rank = static_cast<int>(number_of(record.env, "RANK", -1));
  record.world_size = static_cast<int>(number_of(record.env, "WORLD_SIZE", 0));
  record.master = text_of(record.env, "MASTER_ADDR") + ":" + text_of(record.env, "MASTER_PORT");
  record.started = network_.simulator().now();
  ++version_;
  const uint64_t identity = static_cast<uint64_t>(record.generation) << 32 | static_cast<uint32_t>(record.rank);
  network_.simulator().record(EventKind::kWorker, node.id, identity);
  return record;
}

void WorkerRegistry::end(uint64_t id, const ExitStatus& status) {
  if (const auto found = processes_.find(id); found != processes_.end()) found->second->exit(status);
}

void WorkerRegistry::finish(uint64_t id, const ExitStatus& status) {
  processes_.erase(id);
  auto node = live_.extract(id);
  WorkerRecord& record = node.mapped();
  record.env.clear();
  record.stopped = network_.simulator().now();
  record.status = status;
  ++version_;
  network_.simulator().record(EventKind::kWorker, record.machine,
                              id << 16 | static_cast<uint16_t>(status.returncode()));
  past_.push_back(std::move(record));
}

std::optional<std::string> WorkerRegistry::broken_rule(Duration overlap_max) {
  if (checked_version_ != version_) find_overlaps();
  if (outside_) return outside_;
  const Instant now = network_.simulator().now();
  for (const auto& [ids, overlap] : overlaps_) {
    if (now - overlap.since >= overlap_max) return overlap.message;
  }
  return std::nullopt;
}

void WorkerRegistry::find_overlaps() {
  checked_version_ = version_;
  outside_.reset();
  Overlaps found;
  std::multimap<std::tuple<std::string_view, int>, const WorkerRecord*> by_rank;
  for (const auto& [id, record] : live_) {
    if (record.rank < 0) continue;
    if (record.rank >= record.world_size) outside_ = words_of(record) + " is outside its world";
    const std::tuple<std::string_view, int> key(record.run_id, record.rank);
    for (auto [at, last] = by_rank.equal_range(key); at != last; ++at) {
      const WorkerRecord& other = *at->second;
      if (!network_.round_trip(other.machine, record.machine)) continue;
      const std::pair<uint64_t, uint64_t> ids(other.id, id);
      const auto before = overlaps_.find(ids);
      const Instant since = before != overlaps_.end() ? before->second.since : network_.simulator().now();
      found.emplace(ids, Overlap{since, words_of(other) + " and " + words_of(record) + " are alive at once"});
    }
    by_rank.emplace(key, &record);
  }
  overlaps_ = std::move(found);
}

std::shared_ptr<WorkerGroup> WorkerRegistry::group_for(const WorkerRecord& record) {
  const std::string key = record.master + "/" + std::to_string(record.world_size);
  std::shared_ptr<WorkerGroup>& group = joining_[key];
  if (!group) {
    group = std::make_shared<WorkerGroup>(*this, key, record.world_size);
    groups_.emplace(record.id, group);
  }
  return group;
}

void WorkerRegistry::detach(const WorkerGroup& group) {
  const auto found = joining_.find(group.key());
  if (found != joining_.end() && found->second.get() == &group) joining_.erase(found);
}

void WorkerRegistry::report_mix_up(std::string message) {
  network_.simulator().mark("worker.mix_up");
  mix_ups_.push_back(std::move(message));
}

}  // namespace rubato::sim
