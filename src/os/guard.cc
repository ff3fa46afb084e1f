#include "os/guard.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "os/proc_scan.h"
#include "os/runtime.h"

extern char** environ;

namespace rubato::os {

namespace {

constexpr auto kPatience = 5s;
constexpr auto kRoundPause = 2ms;
constexpr int kRoundsMax = static_cast<int>((kPatience - 1s) / kRoundPause);
constexpr size_t kGroupsMax = 4096;  // more live groups than one agent ever has; the token finds the rest
constexpr size_t kPipesMax = 2 * kGroupsMax;
constexpr size_t kBlock = size_t{16} << 10;
// As much as a pipe can hold, and not for ever: somebody who escaped may still write.
constexpr int kBlocksMax = 128;

// One of the two is set. A negative number takes it off; a pipe that is added comes with two descriptors, its own and
// its file's.
struct Message {
  int32_t group = 0;
  int32_t pipe = 0;
};
constexpr size_t kDescriptors = 2;

// How often it looks whether a time was changed, while there is any.
constexpr int kLookMs = 250;
// A group that is overdue may take a moment to end and to be taken off.
constexpr int kOverdueMs = 20;

int64_t monotonic_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

// Written by the agent alone, read by both.
struct Guard::Deadlines {
  struct Slot {
    std::atomic<int32_t> group{0};  // 0: free
    std::atomic<int64_t> end_by{0};
  };
  std::array<Slot, kGroupsMax> slots;
  std::atomic<int32_t> used{0};  // slots up to here may be taken

  Slot* of(pid_t group) {
    const auto end = slots.begin() + used.load();
    const auto found = std::find_if(slots.begin(), end, [&](const Slot& slot) { return slot.group == group; });
    return found == end ? nullptr : &*found;
  }

  // The earliest; INT64_MAX: there is none.
  int64_t next() const {
    int64_t next = INT64_MAX;
    for (int i = 0; i < used; ++i) {
      if (slots[static_cast<size_t>(i)].group > 0) next = std::min(next, slots[static_cast<size_t>(i)].end_by.load());
    }
    return next;
  }

  void end_overdue(int64_t now) {
    for (int i = 0; i < used; ++i) {
      const Slot& slot = slots[static_cast<size_t>(i)];
      if (slot.group > 0 && slot.end_by <= now) ::kill(-slot.group, SIGKILL);
    }
  }
};

namespace {

// The guard's own part: from here on nothing allocates, as the fork may come from a process with threads.

// Another agent above us must not take this guard for a worker of its own: ours has work left when both agents die.
void forget_environment() {
  for (char** entry = environ; *entry; ++entry) std::memset(*entry, 0, std::strlen(*entry));
}

void close_all_but(int fd) {
  ::dup2(fd, 0);
  if (::syscall(SYS_close_range, 1, ~0U, 0) == 0) return;
  for (int other = 1; other < 65536; ++other) ::close(other);  // before Linux 5.9
}

struct Hunt {
  std::string_view entry;
  int found = 0;
};

void kill_if_ours(void* context, pid_t pid) {
  Hunt& hunt = *static_cast<Hunt*>(context);
  if (pid == ::getpid() || !environ_has(pid, hunt.entry)) return;
  ++hunt.found;
  ::kill(pid, SIGKILL);
}

struct Groups {
  std::array<pid_t, kGroupsMax> ids;
  size_t count = 0;

  // A negative message takes the group off.
  void apply(int32_t message) {
    if (message > 0 && count < ids.size()) ids[count++] = message;
    if (message < 0) count = static_cast<size_t>(std::remove(ids.begin(), ids.begin() + count, -message) - ids.begin());
  }

  void kill_all() {
    const auto gone = [](pid_t group) { return ::kill(-group, SIGKILL) != 0; };
    count = static_cast<size_t>(std::remove_if(ids.begin(), ids.begin() + count, gone) - ids.begin());
  }
};

struct Pipes {
  struct Kept {
    int32_t number = 0;  // the agent's name for it
    int pipe = -1;
    int file = -1;
  };
  std::array<Kept, kPipesMax> list;
  size_t count = 0;

  void add(int32_t number, int pipe, int file) {
    if (count == list.size()) {
      ::close(pipe);
      ::close(file);
      return;
    }
    list[count++] = {number, pipe, file};
  }

  void take_off(int32_t number) {
    for (size_t i = 0; i < count; ++i) {
      if (list[i].number != number) continue;
      ::close(list[i].pipe);
      ::close(list[i].file);
      list[i--] = list[--count];
    }
  }

  // Those who wrote are dead by now.
  void save_all() {
    for (size_t i = 0; i < count; ++i) save(list[i]);
  }

  static void save(const Kept& kept) {
    char block[kBlock];
    if (::lseek(kept.file, 0, SEEK_END) < 0) return;
    for (int blocks = 0; blocks < kBlocksMax; ++blocks) {
      const ssize_t got = ::read(kept.pipe, block, sizeof block);
      if (got <= 0) return;
      for (ssize_t done = 0; done < got;) {
        const ssize_t n = ::write(kept.file, block + done, static_cast<size_t>(got - done));
        if (n <= 0) return;
        done += n;
      }
    }
  }
};

// False: the agent is gone.
bool receive(Groups& groups, Pipes& pipes) {
  Message message;
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))];
  msghdr envelope{};
  envelope.msg_iov = &part;
  envelope.msg_iovlen = 1;
  envelope.msg_control = control;
  envelope.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(0, &envelope, MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EINTR;
  if (got == 0) return false;
  if (got != sizeof message) return true;
  groups.apply(message.group);
  if (message.pipe < 0) pipes.take_off(-message.pipe);
  const cmsghdr* header = CMSG_FIRSTHDR(&envelope);
  if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(kDescriptors * sizeof(int))) {
    int descriptors[kDescriptors];
    std::memcpy(descriptors, CMSG_DATA(header), sizeof descriptors);
    pipes.add(message.pipe, descriptors[0], descriptors[1]);
  }
  return true;
}

// Waits for the agent's end, and ends groups whose time has come.
template <class Times>
void wait_for_end(Groups& groups, Pipes& pipes, Times& times) {
  while (true) {
    const int64_t left = times.next() - monotonic_ns();
    pollfd agent{.fd = 0, .events = POLLIN, .revents = 0};
    const int wait =
        times.next() == INT64_MAX ? -1 : static_cast<int>(std::clamp<int64_t>(left / 1'000'000, 0, kLookMs));
    const int got = ::poll(&agent, 1, left <= 0 ? kOverdueMs : wait);
    if (got > 0 && !receive(groups, pipes)) return;
    times.end_overdue(monotonic_ns());
  }
}

template <class Times>
[[noreturn]] void guard_main(int fd, std::string_view entry, Times& times) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, "rubato-guard");
  if (::chdir("/") != 0) ::_exit(1);
  forget_environment();
  close_all_but(fd);

  Groups groups;
  Pipes pipes;
  wait_for_end(groups, pipes, times);

  for (int round = 0; round < kRoundsMax; ++round) {
    groups.kill_all();
    Hunt hunt{.entry = entry};
    each_process(kill_if_ours, &hunt);
    if (hunt.found == 0) break;
    const timespec pause{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kRoundPause).count()};
    ::nanosleep(&pause, nullptr);
  }
  pipes.save_all();
  ::_exit(0);
}

}  // namespace

Guard::Guard(Runtime& runtime, std::string token)
    : entry_(fmt::format("{}={}", kAgentToken, token)), socket_(runtime.io()) {
  void* const shared = ::mmap(nullptr, sizeof(Deadlines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    throw Error(ErrorCode::kFailed, fmt::format("no memory for the guard process: {}", std::strerror(errno)));
  deadlines_.reset(new (shared) Deadlines);
  start();
  if (pid_ < 0) {
    throw Error(ErrorCode::kFailed, fmt::format("cannot start the guard process: {}", std::strerror(errno)), "",
                "raise the limit of processes (ulimit -u)");
  }
}

Guard::~Guard() {
  alive_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (pid_ > 0) reap_within(pid_, kPatience);
}

void Guard::dismiss() {
  if (pid_ <= 0) return;
  alive_.reset();
  ::kill(pid_, SIGKILL);
  reap_within(std::exchange(pid_, -1), kPatience);
}

void Guard::start() {
  pid_ = -1;
  int ends[2];
  if (starts_left_-- <= 0 || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) guard_main(theirs.get(), entry_, *deadlines_);
  if (pid < 0) return;
  pid_ = pid;
  socket_.assign(ours.release());
  for (const pid_t group : groups_) send_group(group);
  for (const auto& [pipe, file] : kept_) send_pipe(pipe, file);
  watch();
}

void Guard::watch() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                       if (error || alive.expired()) return;
                       // The guard never writes: it is gone.
                       socket_.close();
                       reap_within(pid_, kPatience);
                       start();
                     });
}

// Neither waits: if the guard is stopped and the queue is full, the token will find what it missed.
void Guard::send_group(int32_t group) {
  const Message message{.group = group};
  if (socket_.is_open()) ::send(socket_.native_handle(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Guard::send_pipe(int32_t pipe, int file) {
  Message message{.pipe = pipe};
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))] = {};
  msghdr envelope{};
  envelope.msg_iov = &part;
  envelope.msg_iovlen = 1;
  if (pipe > 0) {
    envelope.msg_control = control;
    envelope.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&envelope);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(kDescriptors * sizeof(int));
    const int descriptors[kDescriptors] = {pipe, file};
    std::memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
  }
  if (socket_.is_open()) ::sendmsg(socket_.native_handle(), &envelope, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Guard::add(pid_t group) {
  groups_.insert(group);
  send_group(group);
}

void Guard::Unmap::operator()(Deadlines* deadlines) const { ::munmap(deadlines, sizeof *deadlines); }

void Guard::end_by(pid_t group, Instant time) {
  const int64_t at = std::max<int64_t>(1, time.time_since_epoch().count());
  if (Deadlines::Slot* const slot = deadlines_->of(group)) {
    slot->end_by = at;
    return;
  }
  Deadlines::Slot* slot = deadlines_->of(0);
  if (!slot && deadlines_->used < static_cast<int32_t>(kGroupsMax))
    slot = &deadlines_->slots[static_cast<size_t>(deadlines_->used++)];
  if (!slot) return;
  slot->end_by = at;
  slot->group = group;
  send_group(0);  // it waits for a message, while there is no time to wait for
}

void Guard::remove(pid_t group) {
  if (Deadlines::Slot* const slot = deadlines_->of(group)) slot->group = 0;
  groups_.erase(group);
  send_group(-group);
}

void Guard::keep(int pipe, int file) {
  kept_[pipe] = file;
  send_pipe(pipe, file);
}

void Guard::let_go(int pipe) {
  if (kept_.erase(pipe) > 0) send_pipe(-pipe, -1);
}

}  // namespace rubato::os
