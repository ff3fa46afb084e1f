// Fd: owns a file descriptor.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace rubato::os {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

  // The same file on a number above the standard streams, for a process that was started with one of them closed.
  // `least` keeps room for the numbers that a child's descriptors are moved to.
  Fd above(int least) && {
    if (fd_ < 0 || fd_ >= least) return std::move(*this);
    Fd moved(::fcntl(fd_, F_DUPFD_CLOEXEC, least));
    reset();
    return moved;
  }

 private:
  int fd_ = -1;
};

}  // namespace rubato::os
