#include "os/folder_watch.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace rubato::os {

namespace {

// A folder in which files are made without end must not hold up whoever asks.
constexpr size_t kChangesMax = 4096;

class InotifyWatch final : public FolderWatch {
 public:
  InotifyWatch(int fd, std::string folder) : fd_(fd), folder_(std::move(folder)) {}
  ~InotifyWatch() override { ::close(fd_); }
  InotifyWatch(const InotifyWatch&) = delete;
  InotifyWatch& operator=(const InotifyWatch&) = delete;

  std::vector<Change> take() override {
    std::vector<Change> changes;
    alignas(inotify_event) char buffer[size_t{64} << 10];
    while (changes.size() < kChangesMax) {
      const ssize_t got = ::read(fd_, buffer, sizeof buffer);
      if (got <= 0) break;
      for (ssize_t at = 0; at < got;) {
        inotify_event event;
        std::memcpy(&event, buffer + at, sizeof event);
        add(changes, event.mask, event.len > 0 ? buffer + at + sizeof event : "");
        at += static_cast<ssize_t>(sizeof event + event.len);
      }
    }
    return changes;
  }

 private:
  void add(std::vector<Change>& changes, uint32_t mask, const std::string& name) const {
    if (mask & IN_Q_OVERFLOW) changes.push_back({Kind::kMissed, ""});
    if (name.empty()) return;
    if (mask & IN_MOVED_TO) changes.push_back({Kind::kPlaced, name});
    if (mask & IN_CREATE) changes.push_back({is_link(name) ? Kind::kPlaced : Kind::kWritten, name});
    if (mask & (IN_CLOSE_WRITE | IN_MODIFY)) changes.push_back({Kind::kWritten, name});
    if (mask & (IN_DELETE | IN_MOVED_FROM)) changes.push_back({Kind::kGone, name});
  }

  bool is_link(const std::string& name) const {
    struct stat status {};
    return ::lstat((folder_ + "/" + name).c_str(), &status) == 0 && S_ISLNK(status.st_mode);
  }

  const int fd_;
  const std::string folder_;
};

}  // namespace

std::unique_ptr<FolderWatch> watch_folder(const std::string& folder) {
  const int fd = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) return nullptr;
  auto watch = std::make_unique<InotifyWatch>(fd, folder);
  // IN_MODIFY comes once for many writes until it is read. A link at the end would watch another folder.
  const uint32_t mask =
      IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_CLOSE_WRITE | IN_MODIFY | IN_ONLYDIR | IN_DONT_FOLLOW;
  if (::inotify_add_watch(fd, folder.c_str(), mask) < 0) return nullptr;
  return watch;
}

}  // namespace rubato::os
