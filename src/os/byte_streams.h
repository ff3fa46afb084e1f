// ByteStreams of this machine: sockets, the standard streams of a program that passes bytes on, HTTP upgrades.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "os/runtime.h"
#include "world/byte_stream.h"

namespace rubato::os {

class RealUpgrades final : public HttpUpgrades {
 public:
  explicit RealUpgrades(Runtime& runtime) : runtime_(runtime) {}
  Task<UpgradeResult> upgrade(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) override;

 private:
  Runtime& runtime_;
};

// Throws kUnavailable.
Task<std::unique_ptr<ByteStream>> connect_stream(Runtime& runtime, Endpoint endpoint, Instant deadline);

// Listens from its construction on. An endpoint whose host is a path is a unix socket: what is there is replaced.
class StreamListener {
 public:
  explicit StreamListener(const Endpoint& endpoint);  // throws kConflict, kFailed
  StreamListener(StreamListener&&) noexcept;
  ~StreamListener();  // leaves the socket's file

  // The runtime is the same in all calls.
  Task<std::unique_ptr<ByteStream>> accept(Runtime& runtime);
  // The socket's file is the one that was made here; true for a port.
  bool is_in_place() const;

 private:
  struct Accepting;
  const std::string path_;
  int fd_ = -1;
  std::pair<uint64_t, uint64_t> file_;  // device and inode
  std::shared_ptr<Accepting> accepting_;
};

// An open descriptor, which stays open and keeps its flags: others may share it. A terminal, a pipe and a socket are
// waited for; other files are read and written at once.
class DescriptorStream final : public ByteStream {
 public:
  DescriptorStream(Runtime& runtime, int fd);
  Task<std::string> read() override;
  Task<bool> write(std::string bytes) override;
  void end_write() override {}

 private:
  struct Ready;
  Task<void> wait(bool for_write);

  Runtime& runtime_;
  const int fd_;
  std::shared_ptr<Ready> ready_;  // null: never waited for
};

// Standard input is a terminal whose keys go through unchanged as long as this lives.
class RawKeys {
 public:
  RawKeys();
  RawKeys(const RawKeys&) = delete;
  ~RawKeys();
  void restore();

 private:
  struct Before;
  std::unique_ptr<Before> before_;  // null: it is no terminal
};
// Columns and rows of the terminal at standard input; nullopt: it is none.
std::optional<std::pair<int, int>> terminal_size();

// The caller's process ends with 0, and this one goes on without its terminal and standard streams. Before any thread.
void go_to_background();

}  // namespace rubato::os
