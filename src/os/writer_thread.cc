#include "os/writer_thread.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "os/fd.h"
#include "os/runtime.h"

namespace rubato::os {

namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;  // so much of one stream is written in one call
constexpr auto kEndPatience = 1s;

// One stream. All but `fd` and `io` are read and written under the thread's mutex.
struct Target {
  int fd = -1;
  Fd owned;
  size_t pending = 0;
  int error = 0;
  bool abandoned = false;                 // its outlet is gone, and did not wait any longer
  boost::asio::io_context* io = nullptr;  // null: nobody waits on a loop any more
  std::weak_ptr<Event> moved;
  bool told = false;
};

struct Item {
  std::shared_ptr<Target> target;
  std::string bytes;
};

}  // namespace

struct WriterThread::State {
  std::mutex mutex;
  std::condition_variable wake;   // of the thread
  std::condition_variable moved;  // of those who wait without a loop
  std::deque<Item> items;
  bool started = false;
  bool stop = false;
};

namespace {

using State = WriterThread::State;

// With the mutex held.
void tell(const std::shared_ptr<State>& state, const std::shared_ptr<Target>& target) {
  state->moved.notify_all();
  if (!target->io || std::exchange(target->told, true)) return;
  boost::asio::post(*target->io, [state, target] {
    {
      const std::lock_guard lock(state->mutex);
      target->told = false;
    }
    if (const std::shared_ptr<Event> moved = target->moved.lock()) moved->notify();
  });
}

// How many bytes were taken; -1 with errno set.
ssize_t write_some(int fd, std::string_view bytes) {
  while (true) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0) return n;
    if (errno == EAGAIN) {  // somebody who shares the stream does not want to wait in it; we do
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, 1000);
    } else if (errno != EINTR) {
      return -1;
    }
  }
}

void write_item(const std::shared_ptr<State>& state, const Item& item, std::unique_lock<std::mutex>& lock) {
  Target& target = *item.target;
  std::string_view left = item.bytes;
  while (!left.empty() && target.error == 0 && !target.abandoned) {
    lock.unlock();
    const ssize_t n = write_some(target.fd, left);
    const int error = errno;
    lock.lock();
    if (n < 0) {
      target.error = error;
    } else {
      left.remove_prefix(static_cast<size_t>(n));
      target.pending -= static_cast<size_t>(n);
    }
    tell(state, item.target);
  }
  target.pending -= left.size();
  tell(state, item.target);
}

void run(std::shared_ptr<State> state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->wake.wait(lock, [&] { return state->stop || !state->items.empty(); });
    if (state->items.empty()) return;
    Item item = std::move(state->items.front());
    state->items.pop_front();
    write_item(state, item, lock);
    // The last one to hold a target closes its file, which may take long as well.
    lock.unlock();
    item.target.reset();
    lock.lock();
  }
}

// Signals are the loop's.
void start_thread(const std::shared_ptr<State>& state) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(run, state).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

class QueuedOutlet final : public Outlet {
 public:
  QueuedOutlet(Runtime& runtime, std::shared_ptr<WriterThread> thread, int fd, Fd owned, std::string name)
      : thread_(std::move(thread)),
        target_(std::make_shared<Target>()),
        moved_(std::make_shared<Event>(runtime)),
        name_(std::move(name)) {
    target_->fd = fd;
    target_->owned = std::move(owned);
    target_->io = &runtime.io();
    target_->moved = moved_;
  }

  ~QueuedOutlet() override {
    std::unique_lock lock(state().mutex);
    const auto done = [&] { return target_->pending == 0 || target_->error != 0; };
    if (target_->owned) state().moved.wait_for(lock, kEndPatience, done);
    target_->abandoned = true;
    target_->io = nullptr;
  }

  void write(std::string_view bytes) override {
    if (bytes.empty()) return;
    const std::lock_guard lock(state().mutex);
    if (target_->error != 0) return;
    if (target_->pending + bytes.size() > kPendingMax) {
      dropped_ += bytes.size();
      return;
    }
    if (dropped_ > 0) {
      const size_t lost = std::exchange(dropped_, 0);
      push(fmt::format("rubato: {} bytes are left out here: nobody read them\n", lost));
    }
    push(bytes);
    if (!std::exchange(state().started, true)) start_thread(thread_->state());
    state().wake.notify_one();
  }

  size_t pending() const override {
    const std::lock_guard lock(state().mutex);
    return target_->error != 0 ? 0 : target_->pending;
  }

  const std::string& failure() const override {
    const std::lock_guard lock(state().mutex);
    if (target_->error != 0 && failure_.empty()) {
      failure_ = fmt::format("cannot write '{}': {}", name_, std::strerror(target_->error));
    }
    return failure_;
  }

  Task<bool> drained(size_t pending_max, Instant deadline) override {
    return wait_drained(*this, moved_, pending_max, deadline);
  }

 private:
  static Task<bool> wait_drained(const QueuedOutlet& self, std::shared_ptr<Event> moved, size_t pending_max,
                                 Instant deadline) {
    while (self.pending() > pending_max) {
      if (moved->loop().now() >= deadline) co_return false;
      co_await moved->wait_until(deadline);
    }
    co_return true;
  }

  // Neighbours of one stream become one write.
  void push(std::string_view bytes) {
    target_->pending += bytes.size();
    std::deque<Item>& items = state().items;
    if (!items.empty() && items.back().target == target_ && items.back().bytes.size() + bytes.size() <= kPieceBytes) {
      items.back().bytes += bytes;
    } else {
      items.push_back({target_, std::string(bytes)});
    }
  }

  State& state() const { return *thread_->state(); }

  std::shared_ptr<WriterThread> thread_;
  std::shared_ptr<Target> target_;
  std::shared_ptr<Event> moved_;
  std::string name_;
  mutable std::string failure_;
  size_t dropped_ = 0;
};

bool same_file(int a, int b) {
  struct stat one {
  }, other{};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

WriterThread::WriterThread() : state_(std::make_shared<State>()) {}

WriterThread::~WriterThread() {
  const std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->wake.notify_one();
}

LoopOutlets::LoopOutlets(Runtime& runtime) : runtime_(runtime), disk_(std::make_shared<WriterThread>()) {
  const auto first = std::make_shared<WriterThread>();
  const auto second = same_file(STDOUT_FILENO, STDERR_FILENO) ? first : std::make_shared<WriterThread>();
  out_ = std::make_unique<QueuedOutlet>(runtime, first, STDOUT_FILENO, Fd(), "standard output");
  err_ = std::make_unique<QueuedOutlet>(runtime, second, STDERR_FILENO, Fd(), "standard error");
}

std::unique_ptr<Outlet> LoopOutlets::open(const std::string& path) {
  // To open a pipe that nobody reads yet would wait for ever; with O_NONBLOCK it fails, and as a reader of our own
  // (O_RDWR) we may write what its buffer holds.
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!file && errno == ENXIO) file = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) {
    const int error = errno;
    throw Error(ErrorCode::kFailed, fmt::format("cannot open '{}': {}", path, std::strerror(error)), path,
                error == ENOSPC ? "free some space on that disk" : "");
  }
  ::fcntl(file.get(), F_SETFL, O_APPEND);
  const int fd = file.get();
  auto thread = S_ISREG(facts.st_mode) ? disk_ : std::make_shared<WriterThread>();
  return std::make_unique<QueuedOutlet>(runtime_, std::move(thread), fd, std::move(file), path);
}

}  // namespace rubato::os
