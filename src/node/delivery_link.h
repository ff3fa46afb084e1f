// DeliveryLink: one connection to the head beside the agent's own (elastic::Delivery), on which files travel.
//
//   offer ──▶ the head has so many bytes ──▶ the cargo from there on, a few parts ahead of their acknowledgements
//   ──▶ the hash of all of it ──▶ kept, or from the start again: it has changed since
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "archive/tree.h"
#include "elastic/node_wire.h"
#include "node/node_settings.h"
#include "world/world.h"

namespace rubato::node {

// The bytes of a tar.zst, a piece at a time. Throws when it cannot be read.
class CargoSource {
 public:
  virtual ~CargoSource() = default;
  virtual std::optional<std::string> next() = 0;  // nullopt after the last; at most kOutputPartMax
  virtual uint64_t files() const = 0;             // after the last
  virtual uint64_t content_bytes() const = 0;
};

// A folder, or some of it, made into a tar.zst on the way. The same folder gives the same bytes.
std::shared_ptr<CargoSource> folder_source(Files& files, const std::string& folder, const archive::TreeOptions& tree);

struct Cargo {
  JobId job;
  std::optional<elastic::CheckpointItem> checkpoint;  // none: the job's output
  std::function<std::shared_ptr<CargoSource>()> open;
  std::function<bool()> is_current;  // asked before the end: false drops it, for it has changed. Unset: it has not
  uint64_t bytes_per_s = 0;          // 0: as fast as it goes
};

enum class Delivered { kKept, kRefused, kBroken };

class DeliveryLink {
 public:
  DeliveryLink(World& world, const NodeSettings& settings) : world_(world), settings_(settings) {}

  Task<bool> open(elastic::Delivery::Purpose purpose = elastic::Delivery::Purpose::kOutputs);

  void send(const elastic::ToHead& message) { connection_->send(encode(message)); }
  // nullopt: the connection is of no use any more.
  Task<std::optional<elastic::ToAgent>> receive(Duration most);

  Task<Delivered> deliver(Cargo cargo);

  // Adds what is missing of a checkpoint's bytes to the file, of which `have` are there. False: the connection broke.
  // Throws kNotFound when the head has none of it.
  Task<bool> fetch(JobId job, elastic::CheckpointItem item, std::string path, uint64_t have);

  uint64_t progress = 0;     // parts and lines that the head has taken
  std::string problem;         // why it did not work
  bool unreadable = false;   // it was refused here: its own files cannot be sent
  elastic::OutputPart sent;  // of the last cargo that was sent to its end: its hash and counts, its size as the offset

 private:
  Task<std::optional<elastic::OutputAck>> receive_ack(Duration most);
  Task<std::optional<elastic::OutputAck>> stream(const Cargo& cargo, uint64_t from);
  Task<std::optional<elastic::OutputAck>> stream_parts(const Cargo& cargo, uint64_t from);
  Task<std::optional<elastic::OutputAck>> send_part(elastic::OutputPart part, size_t ahead);
  Task<void> beside(std::function<void()> work);
  Task<void> keep_pace(uint64_t bytes, uint64_t bytes_per_s);

  World& world_;
  const NodeSettings& settings_;
  std::unique_ptr<Connection> connection_;
  std::deque<std::optional<uint64_t>> ends_;  // of parts without an answer; nullopt: the last one
  Instant next_part_{};                       // with a bound on bytes per second
};

}  // namespace rubato::node
