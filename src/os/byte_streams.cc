#include "os/byte_streams.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>

#include "core/text.h"
#include "os/http_client.h"
#include "os/http_wire.h"
#include "os/unix_address.h"

namespace rubato::os {
namespace {

constexpr Duration kNoDescriptorPause = 100ms;

namespace asio = boost::asio;
using boost::system::error_code;
using http_wire::Stream;
using http_wire::Wire;
using http_wire::WireStream;

constexpr size_t kReadMax = 64 << 10;
// So much a pipe that poll() calls writable takes without blocking (pipe(7)).
constexpr size_t kPipeBytes = 4096;
constexpr int kBacklog = 64;

std::string reason_of(int number) { return to_lower(std::strerror(number)); }

int listen_at(const sockaddr* address, socklen_t size, int family, const std::string& where) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd >= 0 && ::bind(fd, address, size) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int number = errno;
  if (fd >= 0) ::close(fd);
  const bool taken = number == EADDRINUSE;
  throw Error(taken ? ErrorCode::kConflict : ErrorCode::kFailed, "cannot listen at " + where + ": " + reason_of(number),
              where, taken ? "another program listens there: choose another port" : "");
}

std::pair<uint64_t, uint64_t> file_at(const std::string& path) {
  struct stat found {};
  if (path.empty() || ::stat(path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino};
}

}  // namespace

Task<UpgradeResult> RealUpgrades::upgrade(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) {
  return http_upgrade(runtime_, std::move(endpoint), std::move(tls), std::move(request), deadline);
}

Task<std::unique_ptr<ByteStream>> connect_stream(Runtime& runtime, Endpoint endpoint, Instant deadline) {
  const auto wire = std::make_shared<Wire>(runtime, nullptr);
  error_code error;
  const asio::ip::address address = asio::ip::make_address(endpoint.host, error);
  if (!error) {
    const Stream::endpoint to(asio::ip::tcp::endpoint(address, endpoint.port));
    error = co_await wire->connect(to, deadline);
  }
  if (error) {
    wire->close();
    throw Error(ErrorCode::kUnavailable, to_string(endpoint) + ": " + to_lower(error.message()), to_string(endpoint));
  }
  co_return std::make_unique<WireStream>(wire);
}

// ---- listening ----

struct StreamListener::Accepting {
  Accepting(Runtime& runtime, int fd) : came(runtime), descriptor(runtime.io(), ::dup(fd)) {}
  Event came;
  asio::posix::stream_descriptor descriptor;
  bool pending = false;
};

StreamListener::StreamListener(const Endpoint& endpoint) : path_(is_unix(endpoint) ? endpoint.host : "") {
  if (!path_.empty()) {
    ::unlink(path_.c_str());
    const UnixAddress address(path_);
    const mode_t before = ::umask(077);
    try {
      fd_ = listen_at(address.data(), address.size(), AF_UNIX, path_);
    } catch (const Error&) {
      ::umask(before);
      throw;
    }
    ::umask(before);
    file_ = file_at(path_);
    return;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  if (::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr) != 1) {
    throw Error(ErrorCode::kUsage, "'" + endpoint.host + "' is no IPv4 address", to_string(endpoint));
  }
  fd_ = listen_at(reinterpret_cast<const sockaddr*>(&address), sizeof address, AF_INET, to_string(endpoint));
}

StreamListener::StreamListener(StreamListener&& other) noexcept
    : path_(other.path_),
      fd_(std::exchange(other.fd_, -1)),
      file_(other.file_),
      accepting_(std::move(other.accepting_)) {}

StreamListener::~StreamListener() {
  if (fd_ >= 0) ::close(fd_);
}

bool StreamListener::is_in_place() const { return path_.empty() || file_at(path_) == file_; }

Task<std::unique_ptr<ByteStream>> StreamListener::accept(Runtime& runtime) {
  if (!accepting_) accepting_ = std::make_shared<Accepting>(runtime, fd_);
  while (true) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      const auto wire = std::make_shared<Wire>(runtime, nullptr);
      Stream::socket socket(runtime.io());
      socket.assign(path_.empty() ? Stream(AF_INET, IPPROTO_TCP) : Stream(AF_UNIX, 0), fd);
      wire->adopt(std::move(socket));
      co_return std::make_unique<WireStream>(wire);
    }
    // Without a descriptor to spare the socket stays readable: waiting for that would be no wait.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      const Instant later = runtime.now() + kNoDescriptorPause;
      co_await Sleep(runtime, later);
      continue;
    }
    if (!accepting_->pending) {
      accepting_->pending = true;
      accepting_->descriptor.async_wait(asio::posix::descriptor_base::wait_read, [shared = accepting_](error_code) {
        shared->pending = false;
        shared->came.notify();
      });
    }
    co_await accepting_->came.wait();
  }
}

// ---- standard streams ----

// Asio makes what it waits for non-blocking, and so for all who share it. So it waits for an epoll of our own, which is
// readable when the descriptor is ready.
struct DescriptorStream::Ready {
  Ready(Runtime& runtime, int fd)
      : changed(runtime),
        readable(runtime.io(), epoll_of(fd, EPOLLIN)),
        writable(runtime.io(), epoll_of(fd, EPOLLOUT)) {}

  static int epoll_of(int fd, uint32_t events) {
    const int out = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = events;
    CHECK(out >= 0 && ::epoll_ctl(out, EPOLL_CTL_ADD, fd, &event) == 0);
    return out;
  }

  Event changed;
  asio::posix::stream_descriptor readable, writable;
  bool reading = false, writing = false;  // a wait is under way
};

DescriptorStream::DescriptorStream(Runtime& runtime, int fd) : runtime_(runtime), fd_(fd) {
  struct stat found {};
  const bool waits =
      ::fstat(fd, &found) == 0 && (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode) || ::isatty(fd) == 1);
  if (waits) ready_ = std::make_shared<Ready>(runtime, fd);
}

Task<void> DescriptorStream::wait(bool for_write) {
  if (!ready_) co_return;
  bool& pending = for_write ? ready_->writing : ready_->reading;
  if (!pending) {
    pending = true;
    asio::posix::stream_descriptor& waited = for_write ? ready_->writable : ready_->readable;
    waited.async_wait(asio::posix::descriptor_base::wait_read, [shared = ready_, for_write](error_code) {
      (for_write ? shared->writing : shared->reading) = false;
      shared->changed.notify();
    });
  }
  while (pending) co_await ready_->changed.wait();
}

Task<std::string> DescriptorStream::read() {
  std::string out(kReadMax, '\0');
  while (true) {
    co_await wait(false);
    const ssize_t got = ::read(fd_, out.data(), out.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    out.resize(got > 0 ? static_cast<size_t>(got) : 0);
    co_return out;
  }
}

Task<bool> DescriptorStream::write(std::string bytes) {
  for (size_t at = 0; at < bytes.size();) {
    co_await wait(true);
    const size_t most = ready_ ? std::min(kPipeBytes, bytes.size() - at) : bytes.size() - at;
    const ssize_t put = ::write(fd_, bytes.data() + at, most);
    if (put < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (put < 0) co_return false;
    at += static_cast<size_t>(put);
  }
  co_return true;
}

// ---- the terminal ----

struct RawKeys::Before {
  termios state{};
};

RawKeys::RawKeys() {
  auto before = std::make_unique<Before>();
  if (::tcgetattr(0, &before->state) != 0) return;
  termios raw = before->state;
  ::cfmakeraw(&raw);
  if (::tcsetattr(0, TCSADRAIN, &raw) == 0) before_ = std::move(before);
}

RawKeys::~RawKeys() { restore(); }

void RawKeys::restore() {
  if (before_) ::tcsetattr(0, TCSADRAIN, &before_->state);
}

std::optional<std::pair<int, int>> terminal_size() {
  winsize size{};
  if (::ioctl(0, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return std::pair<int, int>(size.ws_col, size.ws_row);
}

void go_to_background() {
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorCode::kFailed, "cannot start a process: " + reason_of(errno));
  if (child > 0) ::_exit(0);
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  if (null > 2) ::close(null);
}

}  // namespace rubato::os
