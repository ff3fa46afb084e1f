#include "sim/files.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"

namespace rubato::sim {

namespace {

class SimAppender final : public Appender {
 public:
  SimAppender(SimDisk& disk, std::string path, const ProgramLife& life)
      : disk_(disk), path_(std::move(path)), life_(life) {}
  void append(std::string_view bytes) override {
    if (life_.running) disk_.append(path_, bytes);
  }

 private:
  SimDisk& disk_;
  const std::string path_;
  const ProgramLife& life_;
};

class SimReader final : public Reader {
 public:
  explicit SimReader(SimFile file) : file_(std::move(file)) {}
  uint64_t size() const override { return file_.bytes.size(); }
  bool executable() const override { return file_.executable; }
  std::string read(size_t size_max) override {
    std::string bytes = file_.bytes.substr(at_, size_max);
    at_ += bytes.size();
    return bytes;
  }

 private:
  const SimFile file_;
  size_t at_ = 0;
};

bool is_below(const std::string& path, const std::string& folder) {
  return path == folder || (path.size() > folder.size() && path[folder.size()] == '/' && path.starts_with(folder));
}

Files::Entry& child(std::map<std::string, Files::Entry>& children, const std::string& path, size_t at) {
  const std::string name = path.substr(at, path.find('/', at) - at);
  Files::Entry& entry = children[name];
  entry.name = name;
  entry.kind = Files::Entry::Kind::kFolder;
  return entry;
}

// The values whose key is at or below `from` get the key that they have at or below `to`.
template <class Map>
void move_below(Map& map, const std::string& from, const std::string& to) {
  Map moved;
  for (auto at = map.lower_bound(from); at != map.end() && at->first.starts_with(from);) {
    const auto here = at++;
    if (!is_below(here->first, from)) continue;
    auto node = map.extract(here);
    node.key() = to + node.key().substr(from.size());
    moved.insert(std::move(node));
  }
  map.merge(moved);
}

}  // namespace

std::string SimDisk::follow(std::string path) const {
  for (int left = 40; left > 0; --left) {  // as many as Linux follows
    const auto link = std::ranges::find_if(links_, [&](const auto& one) { return is_below(path, one.first); });
    if (link == links_.end()) return path;
    const auto& [at, target] = *link;
    const std::string led = target.starts_with('/') ? target : at.substr(0, at.rfind('/') + 1) + target;
    path = std::filesystem::path(led + path.substr(at.size())).lexically_normal().string();
  }
  return {};
}

const SimFile* SimDisk::find(const std::string& path) const {
  const auto found = files_.find(links_.empty() ? path : follow(path));
  return found == files_.end() ? nullptr : &found->second;
}

bool SimDisk::exists(const std::string& path) const {
  const std::string real = follow(path);
  return files_.contains(real) || folders_.contains(real);
}

bool SimDisk::is_folder(const std::string& path) const {
  const auto below = files_.lower_bound(path + "/");
  return folders_.contains(path) || (below != files_.end() && is_below(below->first, path));
}

void SimDisk::use(const std::string& path, uint64_t bytes) {
  if (bytes > free_bytes_ || free_bytes_ == 0) {
    simulator_.mark("disk.full");
    throw Error(ErrorCode::kFailed, "write " + path + ": no space left on device", path);
  }
  free_bytes_ -= bytes;
}

void SimDisk::write(const std::string& path, std::string_view bytes) {
  use(path, bytes.size());
  SimFile& file = files_[path];
  free_bytes_ += file.bytes.size();
  file.bytes = bytes;
  file.modified = clock_.wall();
}

void SimDisk::append(const std::string& path, std::string_view bytes) {
  use(path, bytes.size());
  SimFile& file = files_[path];
  file.bytes += bytes;
  file.modified = clock_.wall();
}

void SimDisk::make_folders(const std::string& path) {
  if (!exists(path)) use(path, 0);  // a folder needs room, too
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    folders_.insert(path.substr(0, slash));
  }
  folders_.insert(path);
}

void SimDisk::remove_tree(const std::string& path) {
  for (auto at = files_.lower_bound(path); at != files_.end() && at->first.starts_with(path);) {
    if (!is_below(at->first, path)) {
      ++at;
      continue;
    }
    free_bytes_ += at->second.bytes.size();
    at = files_.erase(at);
  }
  std::erase_if(folders_, [&path](const std::string& folder) { return is_below(folder, path); });
  std::erase_if(links_, [&path](const auto& link) { return is_below(link.first, path); });
}

std::vector<Files::Entry> SimDisk::list(const std::string& folder) const {
  const std::string real = follow(folder);
  if (!is_folder(real)) throw Error(ErrorCode::kNotFound, "cannot list '" + folder + "': no such folder", folder);
  const std::string below = real + "/";
  std::map<std::string, Files::Entry> children;
  for (const std::string& path : folders_) {
    if (path.starts_with(below)) child(children, path, below.size());
  }
  for (auto at = files_.lower_bound(below); at != files_.end() && at->first.starts_with(below); ++at) {
    Files::Entry& entry = child(children, at->first, below.size());
    if (below.size() + entry.name.size() != at->first.size()) continue;
    entry.kind = Files::Entry::Kind::kFile;
    entry.size = at->second.bytes.size();
    entry.executable = at->second.executable;
  }
  for (auto at = links_.lower_bound(below); at != links_.end() && at->first.starts_with(below); ++at) {
    Files::Entry& entry = child(children, at->first, below.size());
    if (below.size() + entry.name.size() != at->first.size()) continue;
    entry.kind = Files::Entry::Kind::kLink;
    entry.target = at->second;
  }
  std::vector<Files::Entry> entries;
  for (auto& [name, entry] : children) entries.push_back(std::move(entry));
  return entries;
}

void SimDisk::make_link(const std::string& target, const std::string& path) {
  if (files_.contains(path) || links_.contains(path) || is_folder(path)) {
    throw Error(ErrorCode::kConflict, "cannot make the link '" + path + "': file exists", path);
  }
  use(path, 0);
  links_[path] = target;
}

void SimDisk::set_mode(const std::string& path, uint32_t mode) {
  const std::string real = follow(path);
  if (const auto file = files_.find(real); file != files_.end()) {
    file->second.executable = (mode & 0100) != 0;
  } else if (!is_folder(real)) {
    throw Error(ErrorCode::kNotFound, "cannot set the mode of '" + path + "': no such file", path);
  }
}

void SimDisk::rename(const std::string& from, const std::string& to) {
  if (!files_.contains(from) && !links_.contains(from) && !is_folder(from)) {
    throw Error(ErrorCode::kNotFound, "cannot rename '" + from + "': no such file", from);
  }
  if (from == to) return;
  if (is_folder(to) && (!is_folder(from) || !list(to).empty())) {
    throw Error(ErrorCode::kConflict, "cannot rename to '" + to + "': it is a folder with something in it", to);
  }
  remove_tree(to);
  move_below(files_, from, to);
  move_below(links_, from, to);
  std::set<std::string> folders;
  for (const std::string& folder : folders_) {
    folders.insert(is_below(folder, from) ? to + folder.substr(from.size()) : folder);
  }
  folders_ = std::move(folders);
}

std::string SimDisk::make_temporary_folder(const std::string& prefix) {
  const std::string path = (prefix.starts_with('/') ? prefix : "/tmp/" + prefix) + std::to_string(next_temporary_++);
  use(path, 0);
  make_folders(path);
  return path;
}

std::optional<std::string> ProgramFiles::read(const std::string& path) {
  const SimFile* file = disk_.find(path);
  return file ? std::optional<std::string>(file->bytes) : std::nullopt;
}

std::optional<WallTime> ProgramFiles::modified(const std::string& path) {
  const SimFile* file = disk_.find(path);
  return file ? std::optional<WallTime>(file->modified) : std::nullopt;
}

void ProgramFiles::write_atomically(const std::string& path, std::string_view bytes) {
  if (life_.running) disk_.write(path, bytes);
}

void ProgramFiles::make_folders(const std::string& path) {
  if (life_.running) disk_.make_folders(path);
}

void ProgramFiles::remove_tree(const std::string& path) {
  if (life_.running) disk_.remove_tree(path);
}

std::string ProgramFiles::make_temporary_folder(const std::string& prefix) {
  return disk_.make_temporary_folder(prefix);
}

std::unique_ptr<Appender> ProgramFiles::open_append(const std::string& path) {
  if (life_.running) disk_.append(path, {});
  return std::make_unique<SimAppender>(disk_, path, life_);
}

std::vector<Files::Entry> ProgramFiles::list(const std::string& folder) { return disk_.list(folder); }

std::string ProgramFiles::read_range(const std::string& path, uint64_t offset, size_t size_max) {
  const SimFile* file = disk_.find(path);
  if (!file) throw Error(ErrorCode::kNotFound, "cannot read '" + path + "': no such file", path);
  return offset < file->bytes.size() ? file->bytes.substr(offset, size_max) : std::string();
}

std::unique_ptr<Reader> ProgramFiles::open_read(const std::string& path) {
  const auto file = disk_.files().find(path);  // a link at the end is not followed
  if (file == disk_.files().end()) {
    const bool taken = disk_.exists(path);
    throw Error(taken ? ErrorCode::kFailed : ErrorCode::kNotFound,
                "cannot read '" + path + (taken ? "': it is no plain file" : "': no such file"), path);
  }
  return std::make_unique<SimReader>(file->second);
}

void ProgramFiles::make_link(const std::string& target, const std::string& path) {
  if (life_.running) disk_.make_link(target, path);
}

void ProgramFiles::set_mode(const std::string& path, uint32_t mode) {
  if (life_.running) disk_.set_mode(path, mode);
}

void ProgramFiles::rename(const std::string& from, const std::string& to) {
  if (life_.running) disk_.rename(from, to);
}

}  // namespace rubato::sim
