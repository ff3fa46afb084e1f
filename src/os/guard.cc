#include "os/guard.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
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

[[noreturn]] void guard_main(int fd, std::string_view entry) {
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
  while (receive(groups, pipes)) {
  }

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
  if (pid == 0) guard_main(theirs.get(), entry_);
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

void Guard::remove(pid_t group) {
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
