#include "archive/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace rubato::archive {

namespace {

constexpr size_t kLeftOutMax = 100;

std::string below(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

// As typed by a person: "./a/" is "a".
std::string chosen_path(const std::string& path) {
  std::string tidy;
  for (const std::string_view part : split(path, '/')) {
    if (!part.empty() && part != ".") tidy = below(tidy, std::string(part));
  }
  const auto fault = path_fault(path.starts_with('/') ? path : tidy);
  if (fault) throw Error(ErrorCode::kUsage, fmt::format("cannot pack '{}': {}", path, *fault), path);
  return tidy;
}

// Reads a part of the tree. False: it is gone since it was listed. The error for one that cannot be read names the way
// out: a person seldom needs such a file in a package.
template <class Read>
bool read_part(const std::string& path, bool may_ignore, Read read) {
  try {
    read();
    return true;
  } catch (Error& error) {
    if (error.code == ErrorCode::kNotFound) return false;
    if (may_ignore && !path.empty())
      error.hint = fmt::format("make it readable, or leave it out: write /{} into .rubatoignore", path);
    throw;
  }
}

TarEntry::Kind kind_of(Files::Entry::Kind kind) {
  switch (kind) {
    case Files::Entry::Kind::kFolder:
      return TarEntry::Kind::kFolder;
    case Files::Entry::Kind::kLink:
      return TarEntry::Kind::kLink;
    case Files::Entry::Kind::kFile:
    case Files::Entry::Kind::kOther:  // TreeWalk leaves these out
      break;
  }
  return TarEntry::Kind::kFile;
}

}  // namespace

TreeWalk::TreeWalk(Files& files, std::string folder, const TreeOptions& options)
    : files_(files),
      folder_(std::move(folder)),
      ignore_files_(options.ignore_files),
      needed_(options.needed.empty() ? "" : chosen_path(options.needed)) {
  for (const std::string& path : options.only) only_.insert(chosen_path(path));
  missing_ = only_;
}

// A folder inside of a git repository obeys the ignore files above it too, as it does in git.
void TreeWalk::read_ignore_files_above() {
  if (!folder_.starts_with('/')) return;
  std::string root = folder_;
  while (root.ends_with('/')) root.pop_back();
  const std::string tree = root;
  while (!files_.exists(root + "/.git")) {
    if (root.empty()) return;
    root.resize(root.rfind('/'));
  }
  const std::string inside = root.size() < tree.size() ? tree.substr(root.size() + 1) : "";
  ignore_.add_above(inside, files_.read(root + "/.git/info/exclude").value_or(""));
  while (root.size() < tree.size()) {
    ignore_.add_above(tree.substr(root.size() + 1), files_.read(root + "/.gitignore").value_or(""));
    root = tree.substr(0, tree.find('/', root.size() + 1));
  }
}

bool TreeWalk::enter(const std::string& path, bool left_out) {
  const std::string real = path.empty() ? folder_ : below(folder_, path);
  const auto list = [&] { levels_.push_back({path, files_.list(real), 0, left_out}); };
  if (!read_part(path, ignore_files_, list)) return false;
  if (!ignore_files_) return true;
  std::string texts[2];
  const char* const names[2] = {".gitignore", ".rubatoignore"};
  for (const Files::Entry& entry : levels_.back().entries) {
    for (int i = 0; i < 2; ++i) {
      if (entry.name == names[i] && entry.kind == Files::Entry::Kind::kFile) {
        texts[i] = files_.read(below(real, entry.name)).value_or("");
      }
    }
  }
  ignore_.enter(path, texts[0], texts[1]);
  return true;
}

TreeWalk::Choice TreeWalk::choice(const std::string& path) const {
  if (only_.empty()) return Choice::kInside;
  if (only_.contains(path)) return Choice::kNamed;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    if (only_.contains(path.substr(0, slash))) return Choice::kInside;
  }
  const auto after = only_.lower_bound(path + "/");
  return after != only_.end() && after->starts_with(path + "/") ? Choice::kWayThere : Choice::kNo;
}

bool TreeWalk::is_wanted(const std::string& path, bool is_folder) {
  switch (choice(path)) {
    case Choice::kNo:
      return false;
    case Choice::kWayThere:
      return is_folder;
    case Choice::kNamed:
      missing_.erase(path);
      return true;
    case Choice::kInside:
      break;
  }
  return !is_left_out(path, is_folder) || path == needed_ || (is_folder && needed_.starts_with(path + "/"));
}

bool TreeWalk::is_left_out(const std::string& path, bool is_folder) const {
  return ignore_files_ && (levels_.back().left_out || ignore_.ignores(path, is_folder));
}

bool TreeWalk::can_be_packed(const std::string& path, const Files::Entry& entry) {
  std::optional<std::string> fault = path_fault(path);
  if (!fault && entry.kind == Files::Entry::Kind::kLink) fault = link_fault(path, entry.target);
  if (!fault && entry.kind == Files::Entry::Kind::kOther) fault = "it is a socket, a pipe or a device";
  if (!fault) return true;
  const std::string shown = entry.target.empty() ? path : path + " -> " + entry.target;
  if (left_out_.size() < kLeftOutMax) left_out_.push_back(fmt::format("'{}' is left out: {}", shown, *fault));
  return false;
}

std::optional<TarEntry> TreeWalk::next() {
  if (!std::exchange(begun_, true)) {
    if (ignore_files_) read_ignore_files_above();
    if (!enter("", false)) throw Error(ErrorCode::kNotFound, fmt::format("there is no folder '{}'", folder_), folder_);
  }
  while (!levels_.empty()) {
    Level& level = levels_.back();
    if (level.next == level.entries.size()) {
      levels_.pop_back();
      if (ignore_files_) ignore_.leave();
      continue;
    }
    Files::Entry& entry = level.entries[level.next++];
    TarEntry found;
    found.path = below(level.path, entry.name);
    if (!is_wanted(found.path, entry.kind == Files::Entry::Kind::kFolder)) continue;
    if (!can_be_packed(found.path, entry)) continue;
    found.kind = kind_of(entry.kind);
    found.size = entry.size;
    found.executable = entry.executable;
    found.target = std::move(entry.target);
    if (found.kind != TarEntry::Kind::kFolder) return found;
    const bool left_out = choice(found.path) == Choice::kInside && is_left_out(found.path, true);
    if (left_out && !levels_.back().left_out) {
      left_out_.push_back(fmt::format("'{}' is left out by an ignore file, but for '{}'", found.path, needed_));
    }
    if (!enter(found.path, left_out)) continue;
    return found;
  }
  if (!missing_.empty()) {
    throw Error(ErrorCode::kNotFound, fmt::format("cannot pack '{}': it is not in the folder", *missing_.begin()),
                folder_);
  }
  return std::nullopt;
}

TreeTar::TreeTar(Files& files, std::string folder, const TreeOptions& options, const TarLimits& limits)
    : files_(files), folder_(std::move(folder)), limits_(limits), walk_(files, folder_, options) {}

std::optional<std::string> TreeTar::next() {
  while (!ended_) {
    if (body_ && !body_->ended()) return body_->next();
    if (std::optional<std::string> piece = next_entry()) return piece;
  }
  return std::nullopt;
}

// nullopt: a file is gone since it was listed.
std::optional<std::string> TreeTar::next_entry() {
  std::optional<TarEntry> entry = walk_.next();
  if (!entry) {
    ended_ = true;
    return tar_end();
  }
  if (entry->kind == TarEntry::Kind::kFile) {
    const auto open = [&] { body_.emplace(files_.open_read(below(folder_, entry->path)), entry->path); };
    if (!read_part(entry->path, walk_.reads_ignore_files(), open)) return std::nullopt;
    entry->size = body_->size();
    entry->executable = body_->executable();
  }
  counts_.files += entry->kind == TarEntry::Kind::kFile;
  counts_.folders += entry->kind == TarEntry::Kind::kFolder;
  counts_.links += entry->kind == TarEntry::Kind::kLink;
  counts_.content_bytes += entry->size;
  names_bytes_ += entry->path.size() + entry->target.size();
  if (counts_.content_bytes > limits_.bytes_max || names_bytes_ > limits_.names_bytes_max ||
      counts_.files + counts_.folders + counts_.links > limits_.entries_max) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the folder has more than {} bytes or {} files", limits_.bytes_max, limits_.entries_max),
                folder_, "list what is not needed in .rubatoignore");
  }
  return tar_header(*entry);
}

}  // namespace rubato::archive
