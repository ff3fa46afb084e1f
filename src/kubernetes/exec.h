// ExecSession: a command in a container of a pod, by way of the API server (WebSocket; v5 of its channels, or v4 where
// the cluster is older than 1.30).
//
// Reading is one task, all that writes may be others. Cancel = destroy: the connection is closed; the command there
// sees the end of its input, and goes on if it does not care.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/scope.h"
#include "kubernetes/client.h"
#include "kubernetes/exec_channels.h"
#include "kubernetes/websocket.h"
#include "world/byte_stream.h"

namespace rubato::kubernetes {

struct ExecOrder {
  ObjectName pod;
  std::string container;  // empty: the only one
  std::vector<std::string> argv;
  bool tty = false;
};

struct ExecOutput {
  bool is_stderr = false;
  std::string bytes;
};

class ExecSession {
 public:
  // Of a stream that speaks WebSocket already. `framed`: the input goes in pieces (exec_channels.h).
  ExecSession(World& world, std::unique_ptr<ByteStream> stream, bool framed);
  ExecSession(const ExecSession&) = delete;

  // nullopt: it has ended, and exit_code() tells how. Throws kUnavailable when the connection was lost before, kFailed
  // when the command could not be run.
  Task<std::optional<ExecOutput>> read();
  int exit_code() const { return end_.exit_code; }

  // No effect when the connection is gone: read() tells.
  Task<void> write(std::string bytes);
  Task<void> end_input();
  Task<void> resize(int columns, int rows);
  // Now and then, so that nobody in between takes the connection for a dead one.
  Task<void> ping();
  // Whether read() has waited for as long in vain, though the server answers pings. False while the server may be held
  // up by input that the command does not take.
  bool is_silent(Duration longest) const;

 private:
  Task<void> send(WebSocketKind kind, std::string payload);
  void answer_ping(std::string payload);
  void hear_pong(const std::string& payload);

  World& world_;
  const std::unique_ptr<ByteStream> stream_;
  const bool framed_;
  WebSocketDecoder decoder_;
  std::vector<WebSocketMessage> messages_;  // that came and were not read yet
  size_t next_ = 0;
  bool has_end_ = false, closed_ = false, input_ended_ = false, sending_ = false, broken_ = false;
  ExecEnd end_;
  Event sent_;
  std::optional<Instant> reads_since_;  // read() waits for the server
  uint64_t input_ = 0;                  // bytes that were sent to the command
  std::optional<uint64_t> passed_;      // how many of them the server has passed on; nullopt: it answered no ping
  std::optional<std::string> pong_;     // owed to the server, behind what is being sent
  Scope pongs_;
};

// Throws what the server refuses: kUnavailable also for a container that does not run (yet), kNotFound for a pod that
// is not there, kAuth.
Task<std::unique_ptr<ExecSession>> open_exec(Client& client, HttpUpgrades& upgrades, ExecOrder order);

}  // namespace rubato::kubernetes
