// etcd_for_test: real etcd servers for tests. Header-only, needs nothing of os/ but the types of world/.
//
// EtcdForTest starts one etcd or a cluster on free loopback ports with a data folder of its own, waits until every
// member is healthy, and kills them all when it goes; the kernel kills them when the test process dies.
// Construct it on the main thread: the death signal is bound to the thread that forks.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "world/network.h"

namespace rubato::os {

// Removed with all that is in it.
class FolderForTest {
 public:
  FolderForTest() {
    // In memory: an etcd waits for its disk again and again, and others keep that busy. It takes 64 MiB at once.
    std::error_code none;
    const bool roomy = std::filesystem::space("/dev/shm", none).available > (uint64_t{2} << 30) && !none;
    path = roomy ? "/dev/shm/rubato-test-XXXXXX" : "/tmp/rubato-test-XXXXXX";
    if (!::mkdtemp(path.data())) throw std::runtime_error("mkdtemp failed");
  }
  FolderForTest(const FolderForTest&) = delete;
  ~FolderForTest() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

// ca.pem, server.pem (for 127.0.0.1 and localhost), client.pem and the keys X.key, made by openssl.
class CertificatesForTest {
 public:
  CertificatesForTest() {
    const std::string at = folder_.path + "/";
    const std::string key = " -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run("openssl req -x509" + key + " -days 2 -subj /CN=test-ca -keyout " + at + "ca.key -out " + at + "ca.pem");
    std::ofstream(at + "names") << "subjectAltName=IP:127.0.0.1,DNS:localhost\n"
                                << "extendedKeyUsage=serverAuth,clientAuth\n";
    for (const std::string who : {"server", "client"}) {
      run("openssl req" + key + " -subj /CN=" + who + " -keyout " + at + who + ".key -out " + at + who + ".csr");
      run("openssl x509 -req -days 2 -in " + at + who + ".csr -CA " + at + "ca.pem -CAkey " + at +
          "ca.key -CAcreateserial -extfile " + at + "names -out " + at + who + ".pem");
    }
  }
  std::string file(const std::string& name) const { return folder_.path + "/" + name; }

  // What a client needs that trusts this CA and shows its own certificate.
  TlsFiles client() const {
    TlsFiles tls;
    tls.use_tls = true;
    tls.ca = file("ca.pem");
    tls.certificate = file("client.pem");
    tls.key = file("client.key");
    return tls;
  }

 private:
  static void run(const std::string& command) {
    if (std::system((command + " >/dev/null 2>&1").c_str()) != 0) throw std::runtime_error("failed: " + command);
  }
  FolderForTest folder_;
};

// Whether no other test of this machine has this port: until this process ends, however it ends. The same name as in
// tests/e2e/harness.py; an abstract socket is no file, and cannot be left behind.
inline bool reserve_port_for_test(uint16_t port) {
  const std::string name = "rubato-test-port-" + std::to_string(port);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0) return true;  // stays open: that is the reservation
  ::close(fd);
  return false;
}

// Loopback ports that nobody listens on now, and that no other test gets. Outside of the ranges from which the kernel
// takes ports for clients and rubato those of masters: one of those could take it before it is listened on.
inline std::vector<uint16_t> free_ports_for_test(size_t count) {
  std::random_device dice;
  std::uniform_int_distribution<uint16_t> draw(15000, 19999);
  std::vector<uint16_t> ports;
  while (ports.size() < count) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(draw(dice));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (free && reserve_port_for_test(ntohs(address.sin_port))) ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

class EtcdForTest {
 public:
  // With certificates, clients must speak TLS and show one (certificates->client()).
  explicit EtcdForTest(size_t members = 1, const CertificatesForTest* certificates = nullptr)
      : certificates_(certificates) {
    const std::vector<uint16_t> ports = free_ports_for_test(3 * members);
    for (size_t i = 0; i < members; ++i) {
      members_.push_back(Member{ports[3 * i], ports[3 * i + 1], ports[3 * i + 2], -1});
      peers_ += (i ? "," : "") + name(i) + "=http://127.0.0.1:" + std::to_string(ports[3 * i + 1]);
    }
    for (size_t i = 0; i < members; ++i) start(i);
    for (size_t i = 0; i < members; ++i) wait_healthy(i);
  }
  EtcdForTest(const EtcdForTest&) = delete;
  ~EtcdForTest() {
    for (size_t i = 0; i < members_.size(); ++i) kill(i);
  }

  std::vector<Endpoint> endpoints() const {
    std::vector<Endpoint> all;
    for (const Member& member : members_) all.push_back(Endpoint{"127.0.0.1", member.client_port});
    return all;
  }
  TlsFiles tls() const { return certificates_ ? certificates_->client() : TlsFiles{}; }

  // kill -9; start() brings the member back with its data.
  void kill(size_t i) {
    if (members_[i].pid < 0) return;
    ::kill(members_[i].pid, SIGKILL);
    ::waitpid(members_[i].pid, nullptr, 0);
    members_[i].pid = -1;
  }
  void pause(size_t i) { ::kill(members_[i].pid, SIGSTOP); }
  void resume(size_t i) { ::kill(members_[i].pid, SIGCONT); }

  void start(size_t i) {
    const Member& m = members_[i];
    const std::string client = (certificates_ ? "https" : "http") + loopback(m.client_port);
    std::vector<std::string> arguments{"etcd", "--name", name(i), "--data-dir", folder_.path + "/" + name(i)};
    const auto add = [&arguments](const std::string& flag, const std::string& value) {
      arguments.push_back(flag);
      arguments.push_back(value);
    };
    add("--listen-client-urls", client);
    add("--advertise-client-urls", client);
    add("--listen-peer-urls", "http" + loopback(m.peer_port));
    add("--initial-advertise-peer-urls", "http" + loopback(m.peer_port));
    add("--listen-metrics-urls", "http" + loopback(m.metrics_port));
    add("--initial-cluster", peers_);
    add("--heartbeat-interval", "100");
    add("--election-timeout", "1000");
    if (knows_no_fsync()) arguments.push_back("--unsafe-no-fsync");
    if (certificates_) {
      add("--cert-file", certificates_->file("server.pem"));
      add("--key-file", certificates_->file("server.key"));
      add("--trusted-ca-file", certificates_->file("ca.pem"));
      arguments.push_back("--client-cert-auth");
    }
    members_[i].pid = spawn(arguments, log_path(i));
  }

  void wait_healthy(size_t i) {
    for (int tries = 0; tries < 600; ++tries) {
      if (fetch(members_[i].metrics_port, "/health").find("\"true\"") != std::string::npos) return;
      if (::waitpid(members_[i].pid, nullptr, WNOHANG) == members_[i].pid) {
        members_[i].pid = -1;
        break;
      }
      ::usleep(100'000);
    }
    throw std::runtime_error("etcd " + name(i) + " did not come up:\n" + log(i));
  }

  // The index of the member that leads now; throws when there is none for long.
  size_t leader() const {
    for (int tries = 0; tries < 600; ++tries) {
      for (size_t i = 0; i < members_.size(); ++i) {
        if (members_[i].pid < 0) continue;
        if (fetch(members_[i].metrics_port, "/metrics").find("\netcd_server_is_leader 1\n") != std::string::npos)
          return i;
      }
      ::usleep(50'000);
    }
    throw std::runtime_error("etcd has no leader");
  }

  std::string log(size_t i) const {
    std::ifstream in(log_path(i));
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

 private:
  struct Member {
    uint16_t client_port, peer_port, metrics_port;
    pid_t pid;
  };

  static std::string name(size_t i) { return "m" + std::to_string(i); }
  static std::string loopback(uint16_t port) { return "://127.0.0.1:" + std::to_string(port); }
  std::string log_path(size_t i) const { return folder_.path + "/" + name(i) + ".log"; }

  static bool knows_no_fsync() {
    static const bool knows = std::system("etcd --help 2>&1 | grep -q -e --unsafe-no-fsync") == 0;
    return knows;
  }

  static pid_t spawn(const std::vector<std::string>& arguments, const std::string& log_path) {
    std::vector<char*> argv;
    for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::dup2(log, 1);
      ::dup2(log, 2);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(log);
    return pid;
  }

  // A GET from the plain-text metrics port; empty when nobody answers.
  static std::string fetch(uint16_t port, const std::string& path) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const timeval patience{2, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    std::string answer;
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
      char buffer[16 << 10];
      for (ssize_t got; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) answer.append(buffer, got);
    }
    ::close(fd);
    return answer;
  }

  const CertificatesForTest* certificates_;
  FolderForTest folder_;
  std::vector<Member> members_;
  std::string peers_;
};

}  // namespace rubato::os
