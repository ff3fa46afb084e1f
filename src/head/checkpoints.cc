#include "head/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>

#include "archive/package.h"
#include "elastic/checkpoints_json.h"

namespace rubato::head {

using elastic::CheckpointItem;
using elastic::OutputAck;

namespace {

// As for outputs: a head without its journal can decide nothing.
constexpr uint64_t kCheckpointReserve = uint64_t{256} << 20;
constexpr uint64_t kCheckpointReserveShare = 20;
constexpr const char* kIndexName = "/index.json";
constexpr const char* kBlobEnd = ".tar.zst";

uint64_t size_of_file(Files& files, const std::string& path) {
  try {
    return files.open_read(path)->size();
  } catch (const Error&) {
    return 0;
  }
}

OutputAck make_ack(const JobId& job, OutputAck::State state, std::string reason = "") {
  OutputAck ack;
  ack.job = job;
  ack.state = state;
  ack.reason = std::move(reason);
  return ack;
}

// Beside the loop. False: the bytes are others. Durable when it returns true.
bool place_blob(Files& files, const std::string& part, const std::string& place, const std::string& hash) {
  if (archive::hash_of_file(files, part) != hash) {
    files.remove_tree(part);
    return false;
  }
  files.rename(part, place);
  return true;
}

// Beside the loop: first the index, then what it does not name any more. A crash in between costs room until the next.
void write_index(Files& files, const std::string& folder, const std::vector<CheckpointItem>& items,
                 const std::vector<std::string>& garbage) {
  files.write_atomically(folder + kIndexName, elastic::index_text(items));
  for (const std::string& name : garbage) files.remove_tree(folder + "/" + name);
}

std::set<std::string> blobs_of(const std::vector<CheckpointItem>& items) {
  std::set<std::string> names;
  for (const CheckpointItem& item : items) names.insert(item.hash + kBlobEnd);
  return names;
}

}  // namespace

CheckpointStore::CheckpointStore(World& world, std::string jobs_folder, Offload offload,
                                 elastic::CheckpointLimits limits)
    : world_(world),
      folder_(std::move(jobs_folder)),
      offload_(offload),
      limits_(limits),
      checks_(world.clock.loop(), offload),
      commits_(world.clock.loop(), offload) {}

CheckpointStore::Shelf& CheckpointStore::shelf(const JobId& job) {
  const auto [it, is_new] = shelves_.try_emplace(job);
  Shelf& found = it->second;
  if (!is_new) return found;
  try {
    const std::optional<std::string> text = world_.files.read(folder(job) + kIndexName);
    if (text) found.items = elastic::index_from_text(*text);
    // Nothing is on its way yet: what is not named was left by a head that died between two steps.
    const std::set<std::string> named = blobs_of(found.items);
    if (!world_.files.exists(folder(job))) return found;
    for (const Files::Entry& entry : world_.files.list(folder(job))) {
      if (entry.name.ends_with(kBlobEnd) && !named.contains(entry.name)) found.garbage.push_back(entry.name);
    }
  } catch (const Error& error) {
    world_.console.err(fmt::format("the index of {}'s checkpoints is damaged: {}\n", job.value, error.message));
  }
  return found;
}

const std::vector<CheckpointItem>& CheckpointStore::items(const JobId& job) { return shelf(job).items; }

std::set<NodeId> CheckpointStore::holders(const JobId& job, const std::string& hash) const {
  const auto known = shelves_.find(job);
  if (known == shelves_.end()) return {};
  const auto it = known->second.holders.find(hash);
  return it == known->second.holders.end() ? std::set<NodeId>{} : it->second;
}

std::set<NodeId> CheckpointStore::bringing(const JobId& job) const {
  const auto known = shelves_.find(job);
  return known == shelves_.end() ? std::set<NodeId>{} : known->second.bringing;
}

std::vector<JobId> CheckpointStore::drop_bringing(const std::function<bool(const NodeId&)>& is_gone) {
  std::vector<JobId> jobs;
  for (auto& [job, one] : shelves_) {
    if (std::erase_if(one.bringing, is_gone) > 0 && one.bringing.empty()) jobs.push_back(job);
  }
  return jobs;
}

void CheckpointStore::drop_holders(const std::function<bool(const NodeId&)>& is_gone) {
  for (auto& [job, one] : shelves_) {
    for (auto& [hash, nodes] : one.holders) std::erase_if(nodes, is_gone);
  }
}

void CheckpointStore::forget_all_but(const std::function<bool(const JobId&)>& is_known) {
  std::erase_if(shelves_, [&](const auto& entry) { return !is_known(entry.first); });
}

std::optional<std::string> CheckpointStore::refusal(uint64_t bytes) {
  const std::optional<Files::Room> room = world_.files.room(folder_);
  if (!room) return std::nullopt;
  const uint64_t reserve = std::min(kCheckpointReserve, room->size / kCheckpointReserveShare);
  if (room->free >= reserve && room->free - reserve >= bytes) return std::nullopt;
  return fmt::format("the head's disk has no room for it: {} are free, and {} stay free for the head",
                     archive::human_bytes(room->free), archive::human_bytes(reserve));
}

bool CheckpointStore::is_wanted(const JobId& job, const CheckpointItem& item) {
  std::vector<CheckpointItem> all = shelf(job).items;
  all.push_back(item);
  all.back().sequence = UINT64_MAX;
  const std::vector<CheckpointItem> kept = elastic::retained(std::move(all), limits_);
  return std::ranges::any_of(kept, [](const CheckpointItem& one) { return one.sequence == UINT64_MAX; });
}

Task<OutputAck> CheckpointStore::offered(NodeId node, JobId job, CheckpointItem item) {
  const Key key{job, node};
  co_await checks_.idle(key);
  Shelf& mine = shelf(job);
  const bool here = !item.hash.empty() &&
                    std::ranges::any_of(mine.items, [&](const CheckpointItem& one) { return one.hash == item.hash; });
  mine.bringing.erase(node);
  if (here) mine.holders[item.hash].insert(node);
  if (here || !is_wanted(job, item)) co_return make_ack(job, OutputAck::State::kKept);
  if (const std::optional<std::string> why = refusal(item.packed_bytes))
    co_return make_ack(job, OutputAck::State::kRefused, *why);
  // The same bytes may follow what came on an earlier connection; if they are others, the hash will say so.
  const std::string what = fmt::format("{}/{}/{}", item.name, item.generation, item.saved_us);
  const std::string path = part_path(job, node);
  const auto before = mine.arriving.find(node);
  if (before != mine.arriving.end() && before->second != what) world_.files.remove_tree(path);
  mine.arriving[node] = what;
  if (!item.hash.empty()) mine.bringing.insert(node);
  OutputAck ack = make_ack(job, OutputAck::State::kMore);
  ack.have = size_of_file(world_.files, path);
  co_return ack;
}

Task<OutputAck> CheckpointStore::add(NodeId node, elastic::OutputPart part) {
  const Key key{part.job, node};
  co_await checks_.idle(key);
  const std::string path = part_path(part.job, node);
  const uint64_t have = size_of_file(world_.files, path);
  OutputAck ack = make_ack(part.job, OutputAck::State::kMore);
  ack.have = have;
  if (part.offset > have) co_return ack;
  if (part.last && part.offset == have) co_return co_await finish(std::move(node), std::move(part));
  if (part.last) {
    // More is here than was said to be all of it: not what was begun.
    world_.files.remove_tree(path);
    ack.have = 0;
    co_return ack;
  }
  const uint64_t end = part.offset + part.bytes.size();
  if (end <= have) co_return ack;
  std::optional<std::string> why = refusal(part.bytes.size());
  if (!why && end > limits_.bytes_max) {
    why = fmt::format("it is larger than {}, which is what the head keeps of a job's checkpoints",
                      archive::human_bytes(limits_.bytes_max));
  }
  if (!why) {
    try {
      world_.files.make_folders(folder(part.job));
      world_.files.open_append(path)->append(std::string_view(part.bytes).substr(have - part.offset));
      ack.have = end;
    } catch (const Error& error) {
      why = error.message;
    }
  }
  if (why) {
    shelf(part.job).bringing.erase(node);
    world_.files.remove_tree(path);
    co_return make_ack(part.job, OutputAck::State::kRefused, *why);
  }
  co_return ack;
}

Task<OutputAck> CheckpointStore::finish(NodeId node, elastic::OutputPart part) {
  const JobId job = part.job;
  const auto whole = std::make_shared<bool>(false);
  std::string trouble;
  try {
    std::function<void()> work = [&files = world_.files, path = part_path(job, node),
                                  place = folder(job) + "/" + part.hash + kBlobEnd, hash = part.hash,
                                  whole] { *whole = place_blob(files, path, place, hash); };
    std::function<void()> after = [] {};
    const Key key(job, node);
    co_await checks_.run(key, std::move(work), std::move(after));
    if (*whole) {
      CheckpointItem item = *part.checkpoint;
      item.hash = part.hash;
      item.packed_bytes = part.offset;
      item.bytes = part.content_bytes;
      item.files = part.files;
      if (item.node.value.empty()) item.node = node;
      co_await commit(job, std::move(item));
      shelf(job).holders[part.hash].insert(node);
    }
  } catch (const Error& error) {
    trouble = error.message;
  }
  shelf(job).arriving.erase(node);
  shelf(job).bringing.erase(node);
  if (!trouble.empty()) co_return make_ack(job, OutputAck::State::kRefused, trouble);
  co_return make_ack(job, *whole ? OutputAck::State::kKept : OutputAck::State::kMore);
}

// One at a time for a job: the index is written as a whole.
Task<void> CheckpointStore::commit(JobId job, CheckpointItem item) {
  co_await commits_.idle(job);
  const auto items = std::make_shared<std::vector<CheckpointItem>>(shelf(job).items);
  for (const CheckpointItem& one : *items) item.sequence = std::max(item.sequence, one.sequence);
  ++item.sequence;
  items->push_back(std::move(item));
  std::set<std::string> dropped = blobs_of(*items);
  *items = elastic::retained(std::move(*items), limits_);
  for (const std::string& name : blobs_of(*items)) dropped.erase(name);
  std::vector<std::string> garbage = std::exchange(shelf(job).garbage, {});
  std::erase_if(garbage, [&](const std::string& name) { return blobs_of(*items).contains(name); });
  garbage.insert(garbage.end(), dropped.begin(), dropped.end());
  const auto done = std::make_shared<bool>(false);
  std::function<void()> work = [&files = world_.files, folder = folder(job), items, garbage, done] {
    write_index(files, folder, *items, garbage);
    *done = true;
  };
  std::function<void()> after = [this, job, items, done] {
    if (!*done) return;
    Shelf& mine = shelf(job);
    mine.items = *items;
    std::set<std::string> hashes;
    for (const CheckpointItem& one : mine.items) hashes.insert(one.hash);
    std::erase_if(mine.holders, [&](const auto& entry) { return !hashes.contains(entry.first); });
  };
  co_await commits_.run(job, std::move(work), std::move(after));
}

Task<elastic::PackagePart> CheckpointStore::read(elastic::PackageWanted wanted, size_t size_max) {
  const auto part = std::make_shared<elastic::PackagePart>();
  part->hash = wanted.hash;
  part->offset = wanted.offset;
  std::function<void()> work = [&files = world_.files, part, size_max,
                                path = folder(wanted.checkpoint_of) + "/" + wanted.hash + kBlobEnd] {
    const uint64_t size = size_of_file(files, path);
    if (part->offset >= size) {
      part->offset = std::min(part->offset, size);
      return;
    }
    part->bytes = files.read_range(path, part->offset, size_max);
    part->size = size;
  };
  try {
    co_await run_beside(offload_, std::move(work));
  } catch (const Error&) {
    part->bytes.clear();  // it was replaced by newer ones while it was read
    part->offset = part->size = 0;
  }
  co_return std::move(*part);
}

std::vector<api::Checkpoint> checkpoints_document(CheckpointStore& store, const JobId& job) {
  std::vector<api::Checkpoint> list;
  for (const CheckpointItem& item : store.items(job)) {
    api::Checkpoint one;
    one.name = item.name;
    one.bytes = item.bytes;
    one.files = item.files;
    one.generation = item.generation;
    one.saved = WallTime(std::chrono::microseconds(item.saved_us));
    one.node = item.node.value;
    one.hash = item.hash;
    one.copies.emplace_back("head");
    for (const NodeId& node : store.holders(job, item.hash)) one.copies.push_back(node.value);
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace rubato::head
