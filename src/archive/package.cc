#include "archive/package.h"

#include <fmt/format.h>

#include <algorithm>

#include "archive/codec.h"
#include "archive/folder_stream.h"
#include "core/error.h"
#include "core/sha256.h"

namespace rubato::archive {

namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kNamedMax = 10;

// A folder beside a file or folder that is being made; goes away with what is still in it.
class Draft {
 public:
  Draft(Files& files, const std::string& beside) : files_(files), folder_(make_draft(files, beside)) {}
  ~Draft() { files_.remove_tree(folder_); }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  std::string at(const std::string& name) const { return folder_ + "/" + name; }

 private:
  Files& files_;
  const std::string folder_;
};

// The largest files, and folders that are large by many small ones, of a walk.
class Largest {
 public:
  void add(const TarEntry& entry) {
    while (!open_.empty() && !entry.path.starts_with(open_.back().path + "/")) close();
    if (entry.kind == TarEntry::Kind::kFolder) {
      open_.push_back({entry.path, 0, 0});
    } else {
      count(entry.path, entry.size);
    }
  }

  std::vector<std::pair<uint64_t, std::string>> take() {
    while (!open_.empty()) close();
    return std::move(named_);
  }

 private:
  struct Folder {
    std::string path;
    uint64_t size;
    uint64_t largest_child;
  };

  void close() {
    const Folder folder = std::move(open_.back());
    open_.pop_back();
    // One child that makes up most of it says more than the folder does.
    if (folder.largest_child <= folder.size / 2) {
      name(folder.path + "/", folder.size);
    }
    add_to_parent(folder.size);
  }

  void count(const std::string& path, uint64_t size) {
    name(path, size);
    add_to_parent(size);
  }

  void add_to_parent(uint64_t size) {
    if (open_.empty()) return;
    open_.back().size += size;
    open_.back().largest_child = std::max(open_.back().largest_child, size);
  }

  void name(const std::string& path, uint64_t size) {
    const auto smaller = std::ranges::find_if(named_, [size](const auto& one) { return one.first < size; });
    named_.insert(smaller, {size, path});
    if (named_.size() > kNamedMax) named_.pop_back();
  }

  std::vector<Folder> open_;
  std::vector<std::pair<uint64_t, std::string>> named_;  // the largest first
};

[[noreturn]] void refuse_size(const std::string& folder, const PackOptions& options, uint64_t size, uint64_t entries,
                              Largest& largest) {
  std::string list;
  const auto named = largest.take();
  for (const auto& [bytes, path] : named) {
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", path, human_bytes(bytes));
  }
  const bool many = entries > options.entries_max;
  throw Error(ErrorCode::kUsage,
              many ? fmt::format("the package would have {} files and folders, at most {}; the largest: {}", entries,
                                 options.entries_max, list)
                   : fmt::format("the package would have {}, at most {}; the largest: {}", human_bytes(size),
                                 human_bytes(options.size_max), list),
              folder,
              fmt::format("name what the job does not need in {}/.rubatoignore (the rules of .gitignore), such as: {}",
                          folder, named.empty() ? "data/" : "/" + named.front().second));
}

uint64_t check_size(Files& files, const std::string& folder, const TreeOptions& tree, const PackOptions& options) {
  TreeWalk walk(files, folder, tree);
  Largest largest;
  uint64_t size = 0, entries = 0;
  while (const std::optional<TarEntry> entry = walk.next()) {
    size += entry->size;
    ++entries;
    largest.add(*entry);
  }
  if (size > options.size_max || entries > options.entries_max) refuse_size(folder, options, size, entries, largest);
  if (options.on_progress) options.on_progress({0, size, largest.take()});
  return size;
}

Package pack_tree(Files& files, const std::string& folder, const std::string& package_file, const TreeOptions& tree,
                  const PackOptions& options) {
  const uint64_t size = check_size(files, folder, tree, options);
  const Draft draft(files, package_file);
  const std::string draft_file = draft.at("package");
  TarLimits limits;
  limits.bytes_max = options.size_max;
  limits.entries_max = options.entries_max;
  FolderTar tar(files, folder, tree, limits);
  Package package;
  Sha256 hash;
  {
    const auto file = files.open_append(draft_file);
    while (const std::optional<std::string> chunk = tar.next()) {
      hash.update(*chunk);
      package.bytes += chunk->size();
      file->append(*chunk);
      if (options.on_progress) options.on_progress({std::min(tar.counts().content_bytes, size), size, {}});
    }
  }
  files.rename(draft_file, package_file);
  package.hash = hash.hex();
  package.counts = tar.counts();
  package.left_out = tar.left_out();
  return package;
}

// Reads the archive into a folder that does not matter yet. Gives the hash of the archive's bytes.
std::string unpack_into(Files& files, const std::string& archive, Decoder& decoder, const TarLimits& limits,
                        const std::string& folder) {
  FolderSink sink(files, folder);
  TarReader tar(archive, limits, sink);
  const Output output = [&tar](std::string_view piece) { tar.feed(piece); };
  Sha256 hash;
  const auto reader = files.open_read(archive);
  for (std::string piece = reader->read(kReadBytes); !piece.empty(); piece = reader->read(kReadBytes)) {
    hash.update(piece);
    decoder.decode(piece, output);
  }
  decoder.finish();
  tar.finish();
  return hash.hex();
}

}  // namespace

Package pack(Files& files, const std::string& folder, const std::string& package_file, const PackOptions& options) {
  TreeOptions tree;
  tree.ignore_files = options.ignore_files;
  tree.only = options.only;
  tree.needed = options.needed;
  return pack_tree(files, folder, package_file, tree, options);
}

Package repack(Files& files, const std::string& archive, const std::string& package_file, const PackOptions& options) {
  const Draft draft(files, package_file);
  const std::string folder = draft.at("tree");
  files.make_folders(folder);
  const auto decoder = make_decoder(archive, files.read_range(archive, 0, kTarBlock));
  TarLimits limits;
  limits.bytes_max = options.size_max;
  limits.entries_max = options.entries_max;
  unpack_into(files, archive, *decoder, limits, folder);
  return pack_tree(files, folder, package_file, TreeOptions(), options);
}

void unpack(Files& files, const std::string& package_file, const std::string& hash, const std::string& target,
            const TarLimits& limits) {
  if (files.exists(target)) return;
  // Before anything of it is read: a decoder should not see bytes that nobody vouches for.
  const std::string real = hash_of_file(files, package_file);
  const auto check = [&](const std::string& found) {
    if (found == hash) return;
    throw Error(ErrorCode::kUsage, fmt::format("the package is damaged: its hash is {}, not {}", found, hash),
                package_file, "submit the job again");
  };
  check(real);
  const Draft draft(files, target);
  const std::string folder = draft.at("tree");
  files.make_folders(folder);
  const auto decoder = make_zstd_decoder(package_file);
  check(unpack_into(files, package_file, *decoder, limits, folder));
  try {
    files.rename(folder, target);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kConflict) throw;  // somebody else unpacked the same bytes meanwhile
  }
}

std::string hash_of_file(Files& files, const std::string& path) {
  Sha256 hash;
  const auto reader = files.open_read(path);
  for (std::string piece = reader->read(kReadBytes); !piece.empty(); piece = reader->read(kReadBytes)) {
    hash.update(piece);
  }
  return hash.hex();
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace rubato::archive
