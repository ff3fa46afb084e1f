#include "os/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace rubato::os {

namespace {

[[noreturn]] void fail(const std::string& doing, const std::string& path) {
  const int code = errno;
  std::string hint;
  if (code == ENOSPC) hint = "free some space on that disk";
  if (code == EACCES || code == EPERM || code == EROFS) hint = "check the permissions of that folder";
  throw Error(ErrorCode::kFailed, fmt::format("cannot {} '{}': {}", doing, path, strerror(code)), path, hint);
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
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string RealFiles::make_temporary_folder(const std::string& prefix) {
  std::error_code error;
  std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error) base = "/tmp";
  std::string path = (base / (prefix + "XXXXXX")).string();
  if (!::mkdtemp(path.data())) fail("make a temporary folder", path);
  return path;
}

std::unique_ptr<Appender> RealFiles::open_append(const std::string& path) {
  return std::make_unique<RealAppender>(path);
}

// A closed pipe is not an error: the words had no reader.
void RealConsole::out(std::string_view text) { write_all(STDOUT_FILENO, text); }
void RealConsole::err(std::string_view text) { write_all(STDERR_FILENO, text); }

}  // namespace rubato::os
