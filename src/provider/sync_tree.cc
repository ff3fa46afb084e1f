#include "provider/sync_tree.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"

namespace rubato::provider {

namespace {

using Kind = Files::Entry::Kind;

constexpr int kEntriesATurn = 64;
constexpr size_t kBytesATurn = size_t{1} << 20;

std::string_view parent_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

bool is_folder(Files& files, const std::string& path) {
  try {
    (void)files.list(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void hash_part(Sha256& hash, std::string_view text) {
  hash.update(std::to_string(text.size()) + ":");
  hash.update(text);
}

// A file that went away meanwhile is an empty one: the next hash is another.
Task<std::string> hash_of(World& world, std::string path) {
  Sha256 hash;
  uint64_t size = 0;
  while (true) {
    std::string bytes;
    try {
      bytes = world.files.read_range(path, size, kBytesATurn);
    } catch (const Error& error) {
      if (error.code != ErrorCode::kNotFound) throw;
    }
    size += bytes.size();
    hash.update(bytes);
    if (bytes.size() < kBytesATurn) break;
    co_await Sleep(world.clock.loop(), world.clock.now() + 1ns);
  }
  co_return hash.hex();
}

bool is_program(Files& files, const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  for (const Files::Entry& entry : files.list(folder)) {
    if (entry.name == path.substr(slash + 1)) return entry.executable;
  }
  return false;
}

}  // namespace

SyncFilter::SyncFilter(const std::vector<std::string>& exclude) : exclude_(join(exclude, "\n")) {}

void SyncFilter::add_file(const std::string& folder, std::string_view text) { files_[folder].emplace_back(text); }

bool SyncFilter::leaves_out_itself(std::string_view path, bool is_folder) const {
  if (const auto said = exclude_.ignores(path, is_folder)) return *said;
  for (std::string_view folder = parent_of(path);; folder = parent_of(folder)) {
    const auto found = files_.find(folder);
    if (found != files_.end()) {
      const std::string_view inside = folder.empty() ? path : path.substr(folder.size() + 1);
      for (auto file = found->second.rbegin(); file != found->second.rend(); ++file) {
        if (const auto said = file->ignores(inside, is_folder)) return *said;
      }
    }
    if (folder.empty()) return false;
  }
}

bool SyncFilter::leaves_out(std::string_view path, bool is_folder) const {
  for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
    if (leaves_out_itself(path.substr(0, slash), true)) return true;
  }
  return leaves_out_itself(path, is_folder);
}

Task<SyncTree> walk_tree(World& world, std::string folder, SyncOptions options) {
  SyncTree tree{{}, SyncFilter(options.exclude)};
  std::vector<std::string> waiting = {""};
  int seen = 0;
  while (!waiting.empty()) {
    const std::string inside = std::move(waiting.back());
    waiting.pop_back();
    const std::string here = inside.empty() ? folder : folder + "/" + inside;
    std::vector<Files::Entry> listed;
    try {
      listed = world.files.list(here);
    } catch (const Error&) {
      if (inside.empty()) throw;
      continue;  // it went away meanwhile
    }
    for (const std::string& name : options.ignore_files) {
      if (const auto text = world.files.read(here + "/" + name)) tree.filter.add_file(inside, *text);
    }
    std::vector<std::string> below;
    for (Files::Entry& entry : listed) {
      if (++seen % kEntriesATurn == 0) co_await Sleep(world.clock.loop(), world.clock.now() + 1ns);
      SyncEntry found;
      found.path = inside.empty() ? entry.name : inside + "/" + entry.name;
      found.kind = entry.kind;
      found.executable = entry.executable;
      found.target = std::move(entry.target);
      if (entry.kind == Kind::kOther || tree.filter.leaves_out(found.path, entry.kind == Kind::kFolder)) continue;
      if (entry.kind == Kind::kFolder) below.push_back(found.path);
      tree.entries.push_back(std::move(found));
    }
    waiting.insert(waiting.end(), below.rbegin(), below.rend());
  }
  co_return tree;
}

Leftovers leftovers(const SyncTree& here, const std::vector<std::string>& files_there,
                    const std::vector<std::string>& folders_there) {
  std::set<std::string_view> files, folders;
  for (const SyncEntry& entry : here.entries) {
    (entry.kind == Kind::kFolder ? folders : files).insert(entry.path);
  }
  Leftovers rest;
  for (const std::string& path : files_there) {
    if (!files.contains(path) && !here.filter.leaves_out(path, false)) rest.files.push_back(path);
  }
  for (const std::string& path : folders_there) {
    if (!folders.contains(path) && !here.filter.leaves_out(path, true)) rest.folders.push_back(path);
  }
  // Longest first: a folder is longer than the one it is in.
  std::ranges::stable_sort(rest.folders, [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return rest;
}

Task<std::string> tree_hash(World& world, std::string path, SyncOptions options) {
  Sha256 hash;
  if (!is_folder(world.files, path)) {
    if (!world.files.exists(path)) co_return std::string("absent");
    hash_part(hash, is_program(world.files, path) ? "program" : "file");
    hash_part(hash, co_await hash_of(world, path));
    co_return hash.hex();
  }
  SyncTree tree = co_await walk_tree(world, path, std::move(options));
  std::ranges::sort(tree.entries, {}, &SyncEntry::path);
  hash_part(hash, "folder");
  for (const SyncEntry& entry : tree.entries) {
    hash_part(hash, entry.path);
    if (entry.kind == Kind::kFolder) {
      hash_part(hash, "folder");
    } else if (entry.kind == Kind::kLink) {
      hash_part(hash, "link");
      hash_part(hash, entry.target);
    } else {
      hash_part(hash, entry.executable ? "program" : "file");
      hash_part(hash, co_await hash_of(world, path + "/" + entry.path));
    }
  }
  co_return hash.hex();
}

}  // namespace rubato::provider
