#include "os/timer_host.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>

#include "core/line_buffer.h"
#include "os/fd.h"
#include "os/proc_scan.h"

namespace rubato::os {

namespace {

constexpr size_t kLineMax = 64 << 10;  // a writer's line is at most PIPE_BUF; what has no end is dropped
constexpr size_t kLinesMax = 100'000;  // that wait to be read

class NamedPipe final : public LinePipe {
 public:
  NamedPipe(Runtime& runtime, std::string path) : path_(std::move(path)), descriptor_(runtime.io()), lines_(runtime) {
    struct stat facts {};
    // As torch's server: what is left of an earlier one goes. A file that is no pipe is somebody's data.
    if (::lstat(path_.c_str(), &facts) == 0 && S_ISFIFO(facts.st_mode)) ::unlink(path_.c_str());
    if (::mkfifo(path_.c_str(), 0600) != 0) fail("make");
    // Also as a writer: without one, each reader would see an end between two requests.
    Fd pipe(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!pipe) fail("open");
    descriptor_.assign(pipe.release());
    read();
  }
  ~NamedPipe() override {
    alive_.reset();
    ::unlink(path_.c_str());
  }
  Channel<std::string>& lines() override { return lines_; }

 private:
  [[noreturn]] void fail(const char* doing) {
    throw Error(ErrorCode::kFailed, fmt::format("cannot {} the pipe '{}': {}", doing, path_, std::strerror(errno)),
                path_, "name another with TORCHELASTIC_TIMER_FILE");
  }

  void read() {
    descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                           [this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                             if (error || alive.expired()) return;
                             take();
                             read();
                           });
  }

  void take() {
    char block[4096];
    const ssize_t got = ::read(descriptor_.native_handle(), block, sizeof block);
    if (got <= 0) return;
    buffer_.add({block, static_cast<size_t>(got)});
    while (auto line = buffer_.next()) {
      if (lines_.size() < kLinesMax) lines_.push(std::move(*line));
    }
    if (buffer_.size() > kLineMax) buffer_ = {};
  }

  std::string path_;
  boost::asio::posix::stream_descriptor descriptor_;
  Channel<std::string> lines_;
  LineBuffer buffer_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace

std::unique_ptr<LinePipe> RealTimerHost::make_pipe(const std::string& path) {
  return std::make_unique<NamedPipe>(runtime_, path);
}

bool RealTimerHost::signal(int pid, int signal) {
  const std::string ours = fmt::format("{}={}", kAgentToken, processes_.family().token());
  return pid > 1 && environ_has(pid, ours) && ::kill(pid, signal) == 0;
}

}  // namespace rubato::os
