#include "sim/files.h"

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

bool is_below(const std::string& path, const std::string& folder) {
  return path == folder || (path.size() > folder.size() && path[folder.size()] == '/' && path.starts_with(folder));
}

}  // namespace

const SimFile* SimDisk::find(const std::string& path) const {
  const auto found = files_.find(path);
  return found == files_.end() ? nullptr : &found->second;
}

bool SimDisk::exists(const std::string& path) const { return files_.contains(path) || folders_.contains(path); }

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

}  // namespace rubato::sim
