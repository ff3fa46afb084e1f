#include "os/proc_scan.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace rubato::os {

namespace {

// As the kernel writes directory entries for getdents64.
struct Entry {
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

// 0 when the name is not a number.
pid_t to_pid(const char* name) {
  pid_t pid = 0;
  for (; *name; ++name) {
    if (*name < '0' || *name > '9') return 0;
    pid = pid * 10 + (*name - '0');
  }
  return pid;
}

pid_t parent_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t end_of_name = text.rfind(')');  // the name may hold blanks and brackets
  if (end_of_name == std::string::npos) return 0;
  int parent = 0;
  if (std::sscanf(text.c_str() + end_of_name + 1, " %*c %d", &parent) != 1) return 0;
  return parent;
}

}  // namespace

bool environ_has(pid_t pid, std::string_view entry) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/environ", pid);
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  constexpr size_t kMismatch = SIZE_MAX;
  size_t matched = 0;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(file.get(), buffer, sizeof buffer)) > 0) {
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] == '\0') {
        if (matched == entry.size()) return true;
        matched = 0;
      } else if (matched < entry.size() && entry[matched] == buffer[i]) {
        ++matched;
      } else {
        matched = kMismatch;
      }
    }
  }
  return matched == entry.size();
}

void each_process(void (*visit)(void*, pid_t), void* context) {
  const Fd folder(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return;
  alignas(Entry) char buffer[8192];
  long got = 0;
  while ((got = ::syscall(SYS_getdents64, folder.get(), buffer, sizeof buffer)) > 0) {
    for (long at = 0; at < got;) {
      const Entry* entry = reinterpret_cast<const Entry*>(buffer + at);
      at += entry->length;
      const pid_t pid = to_pid(entry->name);
      if (pid > 0) visit(context, pid);
    }
  }
}

std::vector<pid_t> own_children() {
  std::vector<pid_t> result;
  bool listed = false;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(thread.path() / "children");
    listed = listed || children.is_open();
    pid_t pid = 0;
    while (children >> pid) result.push_back(pid);
  }
  if (listed) return result;
  // A kernel without CONFIG_PROC_CHILDREN.
  const auto visit = [](void* context, pid_t pid) {
    if (parent_of(pid) == ::getpid()) static_cast<std::vector<pid_t>*>(context)->push_back(pid);
  };
  each_process(visit, &result);
  return result;
}

Fd open_pidfd(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

bool reap_within(pid_t pid, Duration limit) {
  const Fd pidfd = open_pidfd(pid);
  if (pidfd) {
    pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    while (::poll(&ended, 1, static_cast<int>(to_ms(limit))) < 0 && errno == EINTR) {
    }
    return ::waitpid(pid, nullptr, WNOHANG) == pid;
  }
  for (Duration waited{}; waited <= limit; waited += 1ms) {
    const pid_t got = ::waitpid(pid, nullptr, WNOHANG);
    if (got != 0) return got == pid;
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace rubato::os
