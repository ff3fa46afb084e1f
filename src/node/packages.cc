#include "node/packages.h"

#include <fmt/format.h>

#include <vector>

#include "archive/package.h"
#include "core/turns.h"

namespace rubato::node {

namespace {
// Asked again when nothing came for so long: the head may have been busy, or forgotten us.
constexpr Duration kAskAgain = 30s;
constexpr size_t kCopyBytes = size_t{1} << 20;
}  // namespace

PackageStore::PackageStore(World& world, std::string folder, Unpack unpack, Offload offload)
    : world_(world),
      folder_(std::move(folder)),
      unpack_(std::move(unpack)),
      offload_(std::move(offload)),
      scope_(world.clock.loop()) {
  world_.files.make_folders(folder_);
}

Task<std::string> PackageStore::get(std::string hash) {
  const std::string place = folder_ + "/" + hash;
  if (world_.files.exists(place)) co_return place;
  std::shared_ptr<Fetch> fetch;
  if (const auto found = fetches_.find(hash); found != fetches_.end()) {
    fetch = found->second;
  } else {
    fetch = std::make_shared<Fetch>(world_.clock.loop());
    world_.files.remove_tree(part_path(hash));
    fetch->file = world_.files.open_append(part_path(hash));
    fetches_[hash] = fetch;
    if (ask_) ask_(elastic::PackageWanted{hash, 0});
  }
  while (!fetch->done && !fetch->error) {
    const uint64_t had = fetch->have;
    const Instant deadline = world_.clock.now() + kAskAgain;
    co_await fetch->changed.wait_until(deadline);
    if (world_.clock.now() >= deadline && fetch->have == had && !fetch->done && !fetch->unpacking && ask_) {
      ask_(elastic::PackageWanted{hash, had});
    }
  }
  if (fetch->error) throw *fetch->error;
  co_return place;
}

void PackageStore::connected(Ask ask) {
  ask_ = std::move(ask);
  for (const auto& [hash, fetch] : fetches_) {
    if (!fetch->unpacking) ask_(elastic::PackageWanted{hash, fetch->have});
  }
}

void PackageStore::take(const elastic::PackagePart& part) {
  const auto found = fetches_.find(part.hash);
  if (found == fetches_.end()) return;
  const std::shared_ptr<Fetch> fetch = found->second;
  if (part.offset != fetch->have || fetch->unpacking) return;  // an answer to a question that was asked twice
  try {
    fetch->file->append(part.bytes);
    fetch->have += part.bytes.size();
    if (fetch->have == part.size) {
      fetch->file.reset();
      fetch->unpacking = true;
      scope_.spawn(finish(part.hash, fetch));
    } else if (part.bytes.empty()) {
      throw Error(ErrorCode::kFailed, fmt::format("the head has only {} of {} bytes of package {}", fetch->have,
                                                  part.size, part.hash.substr(0, 12)));
    } else if (ask_) {
      ask_(elastic::PackageWanted{part.hash, fetch->have});
    }
  } catch (const Error& error) {
    fetch->error = error;
    close(part.hash, *fetch);
  }
  fetch->changed.notify();
}

Task<void> PackageStore::finish(std::string hash, std::shared_ptr<Fetch> fetch) {
  try {
    std::function<void()> work = [unpack = unpack_, &files = world_.files, file = part_path(hash), hash,
                                  target = folder_ + "/" + hash] { unpack(files, file, hash, target); };
    if (offload_) {
      Task<void> unpacked = offload_(std::move(work));
      co_await std::move(unpacked);
    } else {
      work();
    }
    fetch->done = true;
  } catch (const Error& error) {
    fetch->error = error;
  }
  close(hash, *fetch);
  fetch->changed.notify();
}

void PackageStore::close(const std::string& hash, Fetch& fetch) {
  fetch.file.reset();
  world_.files.remove_tree(part_path(hash));
  fetches_.erase(hash);
}

PackageStore::Unpack package_unpacker() {
  return [](Files& files, const std::string& file, const std::string& hash, const std::string& target) {
    archive::unpack(files, file, hash, target);
  };
}

Task<void> copy_tree(World& world, std::string from, std::string to) {
  Turns turns(world.clock.loop());
  std::vector<std::pair<std::string, std::string>> folders{{std::move(from), std::move(to)}};
  while (!folders.empty()) {
    const auto [source, target] = std::move(folders.back());
    folders.pop_back();
    world.files.make_folders(target);
    for (const Files::Entry& entry : world.files.list(source)) {
      const std::string path = source + "/" + entry.name;
      const std::string copy = target + "/" + entry.name;
      if (entry.kind == Files::Entry::Kind::kFolder) folders.emplace_back(path, copy);
      if (entry.kind == Files::Entry::Kind::kLink) world.files.make_link(entry.target, copy);
      if (entry.kind != Files::Entry::Kind::kFile) continue;
      const std::unique_ptr<Reader> reader = world.files.open_read(path);
      const std::unique_ptr<Appender> writer = world.files.open_append(copy);
      while (true) {
        const std::string bytes = reader->read(kCopyBytes);
        if (bytes.empty()) break;
        writer->append(bytes);
        co_await turns.step();
      }
      world.files.set_mode(copy, entry.executable ? 0755 : 0644);
      co_await turns.step();
    }
    co_await turns.step();
  }
}

}  // namespace rubato::node
