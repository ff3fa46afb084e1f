#include "os/ssh_master.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "os/fd.h"

namespace rubato::os {
namespace {

constexpr uint32_t kVersion = 4;
constexpr uint32_t kRequest = 1;  // we have one only
constexpr uint32_t kNoEscape = 0xffffffff;
constexpr size_t kMessageMax = 256 * 1024;
constexpr int kConnectionBroke = 255;

enum Type : uint32_t {
  kHello = 0x00000001,
  kNewSession = 0x10000002,
  kExit = 0x80000004,
  kOpened = 0x80000006,
};

class Message {
 public:
  explicit Message(uint32_t type) { number(type); }
  Message& number(uint32_t value) {
    const uint32_t wire = htonl(value);
    body_.append(reinterpret_cast<const char*>(&wire), sizeof wire);
    return *this;
  }
  Message& text(std::string_view value) {
    number(static_cast<uint32_t>(value.size()));
    body_ += value;
    return *this;
  }
  const std::string& body() const { return body_; }

 private:
  std::string body_;
};

// The number at a place of a message; nullopt: the message is shorter.
std::optional<uint32_t> number_at(std::string_view message, size_t index) {
  uint32_t wire = 0;
  if (message.size() < (index + 1) * sizeof wire) return std::nullopt;
  std::memcpy(&wire, message.data() + index * sizeof wire, sizeof wire);
  return ntohl(wire);
}

// Blocks; false and nullopt when the other side is gone.
class Wire {
 public:
  explicit Wire(const std::string& path) {
    sockaddr_un address{};
    if (path.empty() || path.size() >= sizeof address.sun_path) return;
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) fd_ = std::move(fd);
  }

  int fd() const { return fd_.get(); }

  bool send(const Message& message) const {
    const std::string bytes = Message(static_cast<uint32_t>(message.body().size())).body() + message.body();
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(fd_.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
    }
    return true;
  }

  bool send_descriptor(int descriptor) const {
    char byte = 0;
    iovec part = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    ssize_t sent = -1;
    do sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == 1;
  }

  std::optional<std::string> receive() const {
    const std::optional<std::string> head = read(sizeof(uint32_t));
    const uint32_t size = head ? number_at(*head, 0).value_or(0) : 0;
    if (size < sizeof(uint32_t) || size > kMessageMax) return std::nullopt;
    return read(size);
  }

 private:
  std::optional<std::string> read(size_t size) const {
    std::string bytes(size, '\0');
    for (size_t at = 0; at < size;) {
      const ssize_t got = ::recv(fd_.get(), bytes.data() + at, size - at, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      at += static_cast<size_t>(got);
    }
    return bytes;
  }

  Fd fd_;
};

volatile sig_atomic_t ended_by = 0;
volatile sig_atomic_t session_fd = -1;

void end_session(int signal) {
  const int saved = errno;
  ended_by = signal;
  if (session_fd >= 0) ::shutdown(session_fd, SHUT_RDWR);  // whoever waits for the master sees its end
  errno = saved;
}

// The master closes a session whose client goes; we stay, for what is to be done after it.
class SignalsEndSession {
 public:
  explicit SignalsEndSession(int fd) {
    ended_by = 0;
    session_fd = fd;
    struct sigaction end {};
    end.sa_handler = end_session;
    for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &end, &before_[i]);
  }
  SignalsEndSession(const SignalsEndSession&) = delete;
  ~SignalsEndSession() {
    for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
    session_fd = -1;
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)]{};
};

// The master makes what it is given non-blocking, and that is a property of the open file, which we share with others.
class StreamFlags {
 public:
  StreamFlags() {
    for (int fd = 0; fd < 3; ++fd) flags_[fd] = ::fcntl(fd, F_GETFL);
  }
  StreamFlags(const StreamFlags&) = delete;
  ~StreamFlags() {
    for (int fd = 0; fd < 3; ++fd) {
      if (flags_[fd] >= 0) ::fcntl(fd, F_SETFL, flags_[fd]);
    }
  }
  bool all_open() const { return flags_[0] >= 0 && flags_[1] >= 0 && flags_[2] >= 0; }

 private:
  int flags_[3];
};

bool greeted(const Wire& wire) {
  if (!wire.send(Message(kHello).number(kVersion))) return false;
  const std::optional<std::string> hello = wire.receive();
  return hello && number_at(*hello, 0) == kHello && number_at(*hello, 1) == kVersion;
}

bool opened(const Wire& wire, const std::string& command, const std::vector<std::string>& environment) {
  Message request(kNewSession);
  request.number(kRequest).text("");                // reserved
  request.number(0).number(0).number(0).number(0);  // no terminal, X11, agent, subsystem
  request.number(kNoEscape).text("").text(command);
  for (const std::string& one : environment) request.text(one);
  if (!wire.send(request)) return false;
  for (int fd = 0; fd < 3; ++fd) {
    if (!wire.send_descriptor(fd)) return false;
  }
  const std::optional<std::string> reply = wire.receive();
  return reply && number_at(*reply, 0) == kOpened && number_at(*reply, 1) == kRequest;
}

}  // namespace

std::optional<ExitStatus> run_over_master(const std::string& socket, const std::string& command,
                                          const std::vector<std::string>& environment) {
  const Wire wire(socket);
  const StreamFlags flags;
  if (wire.fd() < 0 || !flags.all_open() || !greeted(wire)) return std::nullopt;
  const SignalsEndSession signals(wire.fd());
  ExitStatus status;
  bool told = false;
  if (opened(wire, command, environment)) {
    // The exit comes before the last of the output; the end of the connection, after it.
    while (const std::optional<std::string> message = wire.receive()) {
      if (number_at(*message, 0) != kExit) continue;
      status.code = static_cast<int>(number_at(*message, 2).value_or(kConnectionBroke));
      told = true;
    }
    if (!told) status.code = kConnectionBroke;
  } else if (ended_by == 0) {
    return std::nullopt;
  }
  if (!told) status.signal = ended_by;
  return status;
}

}  // namespace rubato::os
