#include "os/file_lock.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace rubato::os {

std::optional<FileLock> FileLock::try_take(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) throw Error(ErrorCode::kFailed, fmt::format("cannot open the lock file: {}", strerror(errno)), path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return FileLock(std::move(fd));
  if (errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
  throw Error(ErrorCode::kFailed, fmt::format("cannot lock: {}", strerror(errno)), path);
}

std::optional<FileLock> FileLock::try_take_folder(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return FileLock(std::move(fd));
}

std::optional<FileLock> FileLock::take_folder(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  while (::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return std::nullopt;
  }
  return FileLock(std::move(fd));
}

}  // namespace rubato::os
