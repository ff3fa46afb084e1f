#include "os/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace rubato::os {

namespace {

[[noreturn]] void fail(const std::string& doing, const std::string& path) {
  const int code = errno;
  std::string hint;
  ErrorCode kind = ErrorCode::kFailed;
  if (code == ENOENT || code == ENOTDIR) kind = ErrorCode::kNotFound;
  if (code == EEXIST || code == ENOTEMPTY) kind = ErrorCode::kConflict;
  if (code == ENOSPC) hint = "free some space on that disk";
  if (code == EACCES || code == EPERM || code == EROFS) hint = "check the permissions of that folder";
  throw Error(kind, fmt::format("cannot {} '{}': {}", doing, path, strerror(code)), path, hint);
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Everything, through short writes and interruptions; false with errno set.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, 1000);
      continue;
    }
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Where Python's tempfile looks, in its order: a container may have one of them only. Each with its last slash.
std::vector<std::string> temporary_places(const std::string& prefix) {
  if (prefix.starts_with('/')) return {""};
  std::vector<std::string> places;
  const auto add = [&](const std::filesystem::path& folder) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(folder, error);
    if (!error) places.push_back((whole / "").string());
  };
  for (const char* name : {"TMPDIR", "TEMP", "TMP"}) {
    const char* named = std::getenv(name);
    if (named && *named) add(named);
  }
  for (const char* usual : {"/tmp", "/var/tmp", "/usr/tmp", "."}) add(usual);
  return places;
}

// A full disk still has room for an empty folder. False with errno set, and the folder is gone.
bool takes_bytes(const std::string& folder) {
  const std::string path = folder + "/probe";
  bool written = false;
  {
    const Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    written = file.fd >= 0 && write_all(file.fd, "probe");
  }
  const int why = errno;
  ::unlink(path.c_str());
  if (!written) ::rmdir(folder.c_str());
  errno = why;
  return written;
}

class RealAppender final : public Appender {
 public:
  explicit RealAppender(std::string path) : path_(std::move(path)) {
    fd_.fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_.fd < 0) fail("open", path_);
  }
  void append(std::string_view bytes) override {
    if (!write_all(fd_.fd, bytes)) fail("write", path_);
  }

 private:
  std::string path_;
  Descriptor fd_{-1};
};

// Up to `size_max` bytes from where `read_some` stands; fewer only at the end.
template <class ReadSome>
std::string read_up_to(const std::string& path, size_t size_max, ReadSome read_some) {
  constexpr size_t kFirst = 16 * 1024;  // most files are far smaller than what is allowed
  std::string bytes;
  size_t have = 0;
  while (have < size_max) {
    if (have == bytes.size()) bytes.resize(std::min(size_max, std::max(kFirst, 2 * have)));
    const ssize_t n = read_some(bytes.data() + have, bytes.size() - have, have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path);
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

class RealReader final : public Reader {
 public:
  explicit RealReader(std::string path) : path_(std::move(path)) {
    // O_NONBLOCK: to open a pipe that nobody writes to would wait for ever.
    fd_.fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd_.fd < 0 || ::fstat(fd_.fd, &facts_) != 0) fail("open", path_);
    if (!S_ISREG(facts_.st_mode)) {
      throw Error(ErrorCode::kFailed, fmt::format("cannot read '{}': it is no plain file", path_), path_);
    }
  }
  uint64_t size() const override { return static_cast<uint64_t>(facts_.st_size); }
  bool executable() const override { return (facts_.st_mode & S_IXUSR) != 0; }
  std::string read(size_t size_max) override {
    return read_up_to(path_, size_max, [this](char* at, size_t size, size_t) { return ::read(fd_.fd, at, size); });
  }

 private:
  std::string path_;
  struct stat facts_ {};
  Descriptor fd_{-1};
};

Files::Entry::Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return Files::Entry::Kind::kFile;
  if (S_ISDIR(mode)) return Files::Entry::Kind::kFolder;
  if (S_ISLNK(mode)) return Files::Entry::Kind::kLink;
  return Files::Entry::Kind::kOther;
}

std::string link_target(int folder, const char* name, const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = ::readlinkat(folder, name, target, sizeof target);
  if (size < 0) fail("read the link", path);
  return std::string(target, static_cast<size_t>(size));
}

void sync_folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const Descriptor folder{::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd < 0 || ::fsync(folder.fd) != 0) fail("sync the folder of", path);
}

}  // namespace

std::optional<std::string> RealFiles::read(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return std::nullopt;
  std::string bytes;
  char block[16384];
  while (true) {
    const ssize_t n = ::read(file.fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return bytes;
    bytes.append(block, static_cast<size_t>(n));
  }
}

std::optional<WallTime> RealFiles::modified(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return std::nullopt;
  return WallTime(std::chrono::seconds(facts.st_mtim.tv_sec) + std::chrono::microseconds(facts.st_mtim.tv_nsec / 1000));
}

void RealFiles::write_atomically(const std::string& path, std::string_view bytes) {
  std::string draft = path + ".XXXXXX";
  const Descriptor file{::mkostemp(draft.data(), O_CLOEXEC)};
  if (file.fd < 0) fail("create", path);
  if (!write_all(file.fd, bytes) || ::fsync(file.fd) != 0 || ::rename(draft.c_str(), path.c_str()) != 0) {
    const int code = errno;
    ::unlink(draft.c_str());
    errno = code;
    fail("write", path);
  }
}

bool RealFiles::exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void RealFiles::make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    errno = error.value();
    fail("make the folder", path);
  }
}

void RealFiles::remove_tree(const std::string& path) {
  // Where others work in the tree (an ssh that takes its socket away), remove_all stops at the first surprise.
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries; ++tries) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error != std::errc::no_such_file_or_directory && error != std::errc::directory_not_empty) return;
  }
}

std::string RealFiles::make_temporary_folder(const std::string& prefix) {
  std::string refused;
  int why = 0;
  for (const std::string& base : temporary_places(prefix)) {
    std::string path = base + prefix + "XXXXXX";
    if (::mkdtemp(path.data()) && (base.empty() || takes_bytes(path))) return path;
    if (refused.empty()) {
      refused = path;
      why = errno;
    }
  }
  errno = why;
  fail("make a temporary folder", refused);
}

std::unique_ptr<Appender> RealFiles::open_append(const std::string& path) {
  return std::make_unique<RealAppender>(path);
}

std::vector<Files::Entry> RealFiles::list(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), ::closedir);
  if (!stream) fail("list", folder);
  const int fd = ::dirfd(stream.get());
  std::vector<Entry> entries;
  for (errno = 0; const dirent* one = ::readdir(stream.get()); errno = 0) {
    Entry entry;
    entry.name = one->d_name;
    if (entry.name == "." || entry.name == "..") continue;
    struct stat facts {};
    if (::fstatat(fd, one->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;  // gone since
      fail("look at", folder + "/" + entry.name);
    }
    entry.kind = kind_of(facts.st_mode);
    entry.size = entry.kind == Entry::Kind::kFile ? static_cast<uint64_t>(facts.st_size) : 0;
    entry.executable = entry.kind == Entry::Kind::kFile && (facts.st_mode & S_IXUSR) != 0;
    if (entry.kind == Entry::Kind::kLink) entry.target = link_target(fd, one->d_name, folder + "/" + entry.name);
    entries.push_back(std::move(entry));
  }
  if (errno != 0) fail("list", folder);
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

std::string RealFiles::read_range(const std::string& path, uint64_t offset, size_t size_max) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) fail("read", path);
  return read_up_to(path, size_max, [&](char* at, size_t size, size_t have) {
    return ::pread(file.fd, at, size, static_cast<off_t>(offset + have));
  });
}

std::unique_ptr<Reader> RealFiles::open_read(const std::string& path) { return std::make_unique<RealReader>(path); }

void RealFiles::make_link(const std::string& target, const std::string& path) {
  if (::symlink(target.c_str(), path.c_str()) != 0) fail("make the link", path);
}

void RealFiles::set_mode(const std::string& path, uint32_t mode) {
  if (::chmod(path.c_str(), mode) != 0) fail("set the mode of", path);
}

void RealFiles::rename(const std::string& from, const std::string& to) {
  struct stat facts {};
  if (::lstat(from.c_str(), &facts) != 0) fail("rename", from);
  if (S_ISREG(facts.st_mode)) {
    const Descriptor file{::open(from.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.fd < 0 || ::fsync(file.fd) != 0) fail("sync", from);
  }
  move(from, to);
  sync_folder_of(to);
}

void RealFiles::move(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno == EISDIR) errno = EEXIST;
  fail("rename to", to);
}

void RealFiles::give_back(const std::string& path, uint64_t size) {
  const Descriptor file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  if (file.fd >= 0) ::fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size));
}

std::optional<Files::Room> RealFiles::room(const std::string& folder) {
  struct statvfs facts {};
  if (::statvfs(folder.c_str(), &facts) != 0) return std::nullopt;
  return Room{uint64_t{facts.f_bavail} * facts.f_frsize, uint64_t{facts.f_blocks} * facts.f_frsize};
}

void RealFiles::sync_tree(const std::string& folder) {
  const Descriptor opened{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (opened.fd < 0 || ::syncfs(opened.fd) != 0) fail("sync", folder);
}

bool RealFiles::in_use(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return file.fd >= 0 && ::fcntl(file.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// A closed pipe is not an error: the words had no reader.
void RealConsole::out(std::string_view text) { write_all(STDOUT_FILENO, text); }
void RealConsole::err(std::string_view text) { write_all(STDERR_FILENO, text); }

}  // namespace rubato::os
