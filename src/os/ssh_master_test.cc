#include "os/ssh_master.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "os/fd.h"

namespace rubato::os {
namespace {

// The master's side of OpenSSH's protocol, as a test wants it to behave. tests/e2e has the real one.
class Master {
 public:
  explicit Master(std::function<void(Master&)> play) : path_("/tmp/rubato-master-" + std::to_string(::getpid())) {
    std::filesystem::remove(path_);
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, path_.size());
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    thread_ = std::thread([this, play] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // they are for the thread that runs the command
      client_ = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      play(*this);
      client_.reset();
    });
  }
  Master(const Master&) = delete;
  ~Master() {
    thread_.join();
    std::filesystem::remove(path_);
  }

  const std::string& path() const { return path_; }

  void send(const std::vector<uint32_t>& numbers) {
    std::string bytes = wire(static_cast<uint32_t>(numbers.size() * 4));
    for (const uint32_t one : numbers) bytes += wire(one);
    EXPECT_EQ(::send(client_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  std::string receive() {
    const std::string head = read(4);
    return head.empty() ? "" : read(number(head));
  }
  Fd receive_descriptor() {
    char byte = 0;
    iovec part = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    EXPECT_EQ(::recvmsg(client_.get(), &message, MSG_CMSG_CLOEXEC), 1);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header != nullptr) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return Fd(fd);
  }
  void greet() {
    send({1, 4});
    receive();
  }
  // What a client asks for and gives along.
  void take_session() {
    request = receive();
    for (Fd& fd : streams) fd = receive_descriptor();
  }

  std::string request;
  Fd streams[3];

 private:
  static std::string wire(uint32_t value) {
    value = htonl(value);
    return std::string(reinterpret_cast<const char*>(&value), 4);
  }
  static uint32_t number(const std::string& bytes) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data(), 4);
    return ntohl(value);
  }
  std::string read(size_t size) {
    std::string bytes(size, '\0');
    return ::recv(client_.get(), bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size) ? bytes : "";
  }

  const std::string path_;
  Fd listener_, client_;
  std::thread thread_;
};

TEST(SshMaster, RunsTheCommandWithOurStreams) {
  std::string request;
  bool writes = false;
  {
    Master master([&](Master& self) {
      self.greet();
      self.take_session();
      self.send({0x80000006, 1, 9});
      self.send({0x80000004, 9, 7});
      // What comes after the exit is waited for: the last of the output.
      writes = ::write(self.streams[2].get(), "", 0) == 0;
      request = self.request;
    });
    const auto status = run_over_master(master.path(), "exit 7", {"LANG=C"});
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(status->code, 7);
    EXPECT_EQ(status->signal, 0);
  }
  EXPECT_TRUE(writes);
  EXPECT_NE(request.find(std::string("\0\0\0\6exit 7", 10)), std::string::npos);
  EXPECT_NE(request.find(std::string("\0\0\0\6LANG=C", 10)), std::string::npos);
}

TEST(SshMaster, LeavesTheStreamsAsTheyWere) {
  const int before = ::fcntl(2, F_GETFL);
  Master master([](Master& self) {
    self.greet();
    self.take_session();
    ::fcntl(self.streams[2].get(), F_SETFL, ::fcntl(self.streams[2].get(), F_GETFL) | O_NONBLOCK);
    self.send({0x80000006, 1, 9});
    self.send({0x80000004, 9, 0});
  });
  EXPECT_TRUE(run_over_master(master.path(), "true", {})->ok());
  EXPECT_EQ(::fcntl(2, F_GETFL), before);
}

TEST(SshMaster, WhatWasNotRunIsLeftToSsh) {
  EXPECT_EQ(run_over_master("/tmp/no-such-socket", "true", {}), std::nullopt);
  EXPECT_EQ(run_over_master("", "true", {}), std::nullopt);
  EXPECT_EQ(run_over_master(std::string(200, 'x'), "true", {}), std::nullopt);
  {
    Master other([](Master& self) { self.send({1, 5}); });
    EXPECT_EQ(run_over_master(other.path(), "true", {}), std::nullopt) << "another version";
  }
  {
    Master full([](Master& self) {
      self.greet();
      self.take_session();
      self.send({0x80000003, 1, 0});
    });
    EXPECT_EQ(run_over_master(full.path(), "true", {}), std::nullopt) << "refused";
  }
  Master dies([](Master& self) {
    self.greet();
    self.take_session();
  });
  EXPECT_EQ(run_over_master(dies.path(), "true", {}), std::nullopt) << "gone before it opened the session";
}

TEST(SshMaster, ABrokenConnectionHasSshsOwnCode) {
  Master master([](Master& self) {
    self.greet();
    self.take_session();
    self.send({0x80000006, 1, 9});
  });
  EXPECT_EQ(run_over_master(master.path(), "sleep 9", {})->code, 255);
}

TEST(SshMaster, ASignalEndsTheSessionAndNotUs) {
  Master master([](Master& self) {
    self.greet();
    self.take_session();
    self.send({0x80000006, 1, 9});
    ::kill(::getpid(), SIGTERM);
    EXPECT_EQ(self.receive(), "");  // the client hangs up
  });
  EXPECT_EQ(run_over_master(master.path(), "sleep 9", {})->signal, SIGTERM);
}

}  // namespace
}  // namespace rubato::os
