#include "os/child.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "os/proc_scan.h"
#include "os/runtime.h"

namespace rubato::os {

namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kWaitingBytesMax = 1 << 20;  // beyond it the pipe fills and the worker waits for us
constexpr auto kLookAgain = 2ms;              // for a reader to catch up, or for a zombie to become ours
// A killed process that the kernel cannot end (a hung driver) is left to Family::sweep.
constexpr auto kKillPatience = 200ms;

ExitStatus to_status(const siginfo_t& info) {
  return info.si_code == CLD_EXITED ? ExitStatus{.code = info.si_status} : ExitStatus{.signal = info.si_status};
}

// write() without SIGPIPE, which would end us; EPIPE says the same.
ssize_t write_quietly(int fd, const std::string& bytes) {
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  const int error = errno;
  if (written < 0 && error == EPIPE && !was_pending) {
    const timespec at_once{};
    ::sigtimedwait(&pipe, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

// Whether it is a Python interpreter with a handler of its own for this signal.
bool is_python_that_handles(pid_t pid, int signal) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::error_code error;
  const std::string program = std::filesystem::read_symlink(folder + "/exe", error).filename().string();
  if (error || !program.starts_with("python")) return false;
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);) {
    unsigned long long caught = 0;
    if (std::sscanf(line.c_str(), "SigCgt: %llx", &caught) == 1) return (caught >> (signal - 1) & 1) != 0;
  }
  return false;
}

}  // namespace

ChildProcess::ChildProcess(Runtime& runtime, std::shared_ptr<Family> family, Start start)
    : family_(std::move(family)),
      pid_(start.pid),
      warm_(start.warm),
      own_group_(start.own_group),
      leaves_daemons_(start.leaves_daemons),
      tokens_(std::move(start.tokens)),
      pidfd_(runtime.io()),
      loop_(runtime),
      exited_(runtime),
      output_(runtime),
      out_(runtime.io(), false),
      err_(runtime.io(), true),
      in_(runtime.io()),
      input_moved_(runtime),
      look_again_(runtime, [this] {
        if (!status_) check_end();
        resume_paused();
      }) {
  family_->enter(pid_, *this);
  Fd pidfd = open_pidfd(pid_);
  if (pidfd) pidfd_.assign(pidfd.release());  // without one, SIGCHLD tells the end
  watch_end();
  if (start.in) in_.assign(start.in.release());
  open(out_, std::move(start.out), std::move(start.out_keep));
  open(err_, std::move(start.err), std::move(start.err_keep));
  if (!out_.descriptor.is_open() && !err_.descriptor.is_open()) output_.close();
}

ChildProcess::~ChildProcess() {
  alive_.reset();
  let_go(out_);
  let_go(err_);
  if (status_) return;
  ::kill(target(), SIGKILL);
  family_->leave(pid_);
  reap_within(pid_, kKillPatience);
  family_->sweep();
}

void ChildProcess::signal_group(int signal) {
  if (signal == 0) check_end();
  if (status_) return;
  if (signal != 0) signalled_ = true;
  // A Python script that handles it is to save, and ends its own children then. A DataLoader's children would die of it
  // at once, and PyTorch would end the script for that before it has saved.
  const bool is_request = signal != 0 && signal != SIGKILL && signal != SIGSTOP && signal != SIGCONT;
  ::kill(is_request && own_group_ && is_python_that_handles(pid_, signal) ? pid_ : target(), signal);
}

void ChildProcess::end_by(Instant time) {
  if (!status_ && own_group_) family_->end_by(pid_, time);
}

Task<ExitStatus> ChildProcess::wait() {
  while (!status_) co_await exited_.wait();
  co_return *status_;
}

Task<void> ChildProcess::write(std::string bytes) {
  CHECK(!input_closes_);
  const uint64_t target = input_taken_ + input_.size() + bytes.size();
  input_ += bytes;
  bytes.clear();
  give_input();
  while (input_taken_ < target && in_.is_open()) co_await input_moved_.wait();
  if (input_taken_ < target) {
    throw Error(ErrorCode::kUnavailable, status_ ? "the process has ended" : "the process has closed its input");
  }
}

void ChildProcess::close_input() {
  input_closes_ = true;
  give_input();
}

void ChildProcess::give_input() {
  while (in_.is_open() && !input_waits_ && !input_.empty()) {
    const ssize_t written = write_quietly(in_.native_handle(), input_);
    if (written >= 0) {
      input_.erase(0, static_cast<size_t>(written));
      input_taken_ += static_cast<uint64_t>(written);
      input_moved_.notify();
    } else if (errno == EAGAIN) {
      input_waits_ = true;
      in_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                     [this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                       if (alive.expired()) return;
                       input_waits_ = false;
                       if (!error) give_input();
                     });
    } else if (errno != EINTR) {
      end_input();
    }
  }
  if (input_closes_ && input_.empty()) end_input();
}

void ChildProcess::end_input() {
  if (!in_.is_open()) return;
  boost::system::error_code ignored;
  in_.close(ignored);
  input_.clear();
  input_moved_.notify();
}

void ChildProcess::watch_end() {
  if (!pidfd_.is_open()) return;
  pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                      if (!error && !alive.expired()) check_end();
                    });
}

void ChildProcess::check_end() {
  if (status_) return;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    // A warm worker that was killed before the process between us had ended: it is about to become our child.
    if (errno == ECHILD) look_again_.set(loop_.now() + kLookAgain);
    return;
  }
  if (info.si_pid != pid_) return;
  // The zombie still holds the group's number: until it is reaped nobody else can have it.
  const ExitStatus status = to_status(info);
  const bool leaves = leaves_daemons_ && !signalled_ && status.ok();
  if (!leaves) ::kill(target(), SIGKILL);
  family_->leave(pid_);
  // Before the others are looked through: that would reap it too, and waitid() says 0 of a child that is not there.
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
  if (leaves) {
    family_->let_live(tokens_);
  } else if (leaves_daemons_) {
    family_->take_back();  // the whole has not ended well
  }
  ended(status);
}

void ChildProcess::ended(const ExitStatus& status) {
  status_ = status;
  boost::system::error_code ignored;
  pidfd_.close(ignored);
  family_->sweep();
  end_input();
  // A descendant that escaped the kill may hold the pipes open for ever: take what is there and go.
  take_the_rest(out_);
  take_the_rest(err_);
  exited_.notify();
}

void ChildProcess::open(Stream& stream, Fd pipe, Fd keep) {
  if (!pipe) return;
  stream.keep = std::move(keep);
  stream.descriptor.assign(pipe.release());
  read_when_ready(stream);
}

void ChildProcess::read_when_ready(Stream& stream) {
  if (!stream.descriptor.is_open()) return;
  if (waiting_bytes() > kWaitingBytesMax) {
    // The channel does not tell when it is read.
    stream.paused = true;
    look_again_.set(loop_.now() + kLookAgain);
    return;
  }
  stream.descriptor.async_wait(
      boost::asio::posix::stream_descriptor::wait_read,
      [this, &stream, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
        if (error || alive.expired() || !stream.descriptor.is_open()) return;
        read_once(stream);
        read_when_ready(stream);
      });
}

// The kernel moves the bytes from the pipe into the file in one call: there is no moment at which they are in neither,
// and we could be killed.
ssize_t ChildProcess::read_keeping(Stream& stream, std::string& bytes) {
  auto at = static_cast<loff_t>(stream.kept);
  const ssize_t moved =
      ::splice(stream.descriptor.native_handle(), nullptr, stream.keep.get(), &at, bytes.size(), SPLICE_F_NONBLOCK);
  if (moved <= 0) return moved;
  for (ssize_t have = 0; have < moved;) {
    const auto from = static_cast<off_t>(stream.kept) + have;
    const ssize_t n = ::pread(stream.keep.get(), bytes.data() + have, static_cast<size_t>(moved - have), from);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // the disk is broken: zeros in place of these bytes
    have += n;
  }
  stream.kept += static_cast<uint64_t>(moved);
  return moved;
}

ssize_t ChildProcess::read_some(Stream& stream, std::string& bytes) {
  if (stream.keep) {
    const ssize_t moved = read_keeping(stream, bytes);
    if (moved >= 0 || errno == EAGAIN || errno == EINTR) return moved;
    // No room on the disk, or one that cannot do this: from now on these bytes are only given out.
    stream.keep.reset();
  }
  return ::read(stream.descriptor.native_handle(), bytes.data(), bytes.size());
}

bool ChildProcess::read_once(Stream& stream) {
  std::string bytes(kReadBytes, '\0');
  const ssize_t got = read_some(stream, bytes);
  if (got > 0) {
    bytes.resize(static_cast<size_t>(got));
    bytes.shrink_to_fit();
    chunk_sizes_.push_back(bytes.size());
    waiting_bytes_ += bytes.size();
    OutputChunk chunk{.is_stderr = stream.is_stderr, .bytes = std::move(bytes), .end = stream.kept};
    output_.push(std::move(chunk));
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  close(stream);
  return false;
}

void ChildProcess::take_the_rest(Stream& stream) {
  if (!stream.descriptor.is_open()) return;
  // As much as the pipe can hold, in case somebody still writes.
  const int capacity = ::fcntl(stream.descriptor.native_handle(), F_GETPIPE_SZ);
  for (int reads = 0; reads <= capacity / static_cast<int>(kReadBytes) && read_once(stream); ++reads) {
  }
  close(stream);
}

void ChildProcess::let_go(Stream& stream) {
  if (stream.descriptor.is_open()) family_->let_go(stream.descriptor.native_handle());
  stream.keep.reset();
}

void ChildProcess::close(Stream& stream) {
  let_go(stream);
  boost::system::error_code ignored;
  stream.descriptor.close(ignored);
  stream.paused = false;
  if (!out_.descriptor.is_open() && !err_.descriptor.is_open()) output_.close();
}

size_t ChildProcess::waiting_bytes() {
  for (; chunk_sizes_.size() > output_.size(); chunk_sizes_.pop_front()) waiting_bytes_ -= chunk_sizes_.front();
  return waiting_bytes_;
}

void ChildProcess::resume_paused() {
  for (Stream* stream : {&out_, &err_}) {
    if (!stream->paused) continue;
    stream->paused = false;
    read_when_ready(*stream);
  }
}

}  // namespace rubato::os
