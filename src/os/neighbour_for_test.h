// Another user of this machine, who opens connections to a port and holds them. For tests that run as root.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace rubato::os {

class NeighbourForTest {
 public:
  static constexpr unsigned kUser = 65534;
  static bool possible() { return ::geteuid() == 0; }

  // Returns when all are connected. Each says `words`.
  NeighbourForTest(uint16_t port, int connections, std::string_view text) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::setresgid(kUser, kUser, kUser) != 0 || ::setresuid(kUser, kUser, kUser) != 0) ::_exit(1);
      for (int i = 0; i < connections; ++i) connect_to(port, text);
      (void)!::write(ready[1], "+", 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  NeighbourForTest(const NeighbourForTest&) = delete;
  ~NeighbourForTest() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  static void connect_to(uint16_t port, std::string_view text) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(1);
    (void)::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }

  pid_t child_ = -1;
};

}  // namespace rubato::os
