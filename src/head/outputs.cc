#include "head/outputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "archive/folder_stream.h"
#include "archive/package.h"

namespace rubato::head {

namespace {

// A head without its journal can decide nothing: outputs leave so much of the disk, or a twentieth of a small one.
constexpr uint64_t kReserve = uint64_t{256} << 20;
constexpr uint64_t kReserveShare = 20;
constexpr const char* kPart = ".part";
constexpr const char* kDraft = ".draft";

std::string brought_by(const std::string& jobs_folder, const JobId& job, const NodeId& node) {
  return fmt::format("{}/{}/nodes/{}", jobs_folder, job.value, node.value);
}

uint64_t part_size(Files& files, const std::string& folder, const std::string& name) {
  try {
    return files.open_read(folder + "/" + name)->size();
  } catch (const Error&) {
    return 0;
  }
}

// Beside the loop. False: the bytes are others.
bool unpack_output(Files& files, const std::string& target, const std::string& hash, uint64_t content_bytes) {
  const std::string part = target + kPart;
  const std::string draft = target + kDraft;
  if (archive::hash_of_file(files, part) != hash) return false;
  files.remove_tree(draft);
  try {
    // No more than was said, for which there is room.
    archive::TarLimits limits = archive::kStreamLimits;
    limits.bytes_max = content_bytes;
    archive::unpack(files, part, hash, draft, limits);
    files.sync_tree(draft);
    // A crash here costs nothing: the journal does not say yet that it is kept, and the part is still there.
    files.remove_tree(target);
    files.rename(draft, target);
  } catch (const Error&) {
    files.remove_tree(draft);
    throw;
  }
  files.remove_tree(part);
  return true;
}

}  // namespace

OutputStore::OutputStore(World& world, std::string jobs_folder, Offload offload)
    : world_(world), folder_(std::move(jobs_folder)), unpacking_(world.clock.loop(), std::move(offload)) {}

std::string OutputStore::place(const JobId& job, const NodeId& node) const { return brought_by(folder_, job, node); }

Task<uint64_t> OutputStore::have(JobId job, NodeId node) {
  const Key key{job, node};
  co_await unpacking_.idle(key);
  const uint64_t size = part_size(world_.files, folder_ + "/" + job.value + "/nodes", node.value + kPart);
  have_[key] = size;
  co_return size;
}

void OutputStore::check_room(uint64_t wanted) {
  const std::optional<Files::Room> room = world_.files.room(folder_);
  if (!room) return;
  const uint64_t reserve = std::min(kReserve, room->size / kReserveShare);
  if (room->free >= reserve && room->free - reserve >= wanted) return;
  throw Error(
      ErrorCode::kFailed,
      fmt::format("the head's disk has no room for it: {} are free, {} are wanted, and {} stay free for the head",
                  archive::human_bytes(room->free), archive::human_bytes(wanted), archive::human_bytes(reserve)),
      folder_, "free some space on that disk: it is tried again");
}

void OutputStore::drop(const JobId& job, const NodeId& node) {
  world_.files.remove_tree(place(job, node) + kPart);
  have_.erase({job, node});
}

uint64_t OutputStore::add(const JobId& job, const NodeId& node, uint64_t offset, std::string_view bytes) {
  const auto known = have_.find({job, node});
  const uint64_t have = known == have_.end() ? 0 : known->second;
  if (offset > have || offset + bytes.size() <= have) return have;
  bytes.remove_prefix(have - offset);
  try {
    const std::string path = place(job, node) + kPart;
    world_.files.make_folders(path.substr(0, path.rfind('/')));
    check_room(bytes.size());
    world_.files.open_append(path)->append(bytes);
  } catch (const Error&) {
    drop(job, node);
    throw;
  }
  return have_[{job, node}] = have + bytes.size();
}

Task<bool> OutputStore::finish(JobId job, NodeId node, std::string hash, uint64_t content_bytes) {
  const Key key{job, node};
  try {
    check_room(content_bytes);
  } catch (const Error&) {
    drop(job, node);
    throw;
  }
  const auto whole = std::make_shared<bool>(false);
  std::function<void()> work = [&files = world_.files, target = place(job, node), hash, content_bytes, whole] {
    *whole = unpack_output(files, target, hash, content_bytes);
  };
  std::function<void()> after = [this, job, node, whole] {
    if (!*whole) drop(job, node);
    have_.erase({job, node});
  };
  co_await unpacking_.run(key, std::move(work), std::move(after));
  co_return *whole;
}

std::vector<archive::Layer> output_layers(Files& files, const std::string& jobs_folder, const cluster::Job& job) {
  struct Ranked {
    Generation generation;
    int rank;
    archive::Layer layer;
  };
  std::vector<Ranked> found;
  found.push_back({job.output_here_generation, job.output_here_rank, {output_folder(jobs_folder, job.id), "head"}});
  for (const auto& [node, output] : job.outputs) {
    archive::Layer layer{brought_by(jobs_folder, job.id, node), node.value};
    if (files.exists(layer.folder)) found.push_back({output.generation, output.rank, std::move(layer)});
  }
  // What ran last, and of that the lowest rank: rank 0 is who writes results.
  std::ranges::stable_sort(found, [](const Ranked& a, const Ranked& b) {
    return a.generation != b.generation ? a.generation > b.generation : a.rank < b.rank;
  });
  std::vector<archive::Layer> layers;
  for (Ranked& one : found) layers.push_back(std::move(one.layer));
  return layers;
}

}  // namespace rubato::head
