#include "node/delivery_link.h"

#include <fmt/format.h>

#include <algorithm>

#include "archive/folder_stream.h"
#include "core/scope.h"
#include "core/sha256.h"
#include "core/turns.h"

namespace rubato::node {

using elastic::CheckpointItem;
using elastic::OutputAck;

namespace {

constexpr Duration kDeliverConnectMax = 5s;
constexpr Duration kDeliverSilenceMax = 10s;
constexpr Duration kDeliverWelcomeMax = 10s;
constexpr Duration kAckMax = 60s;
// The head unpacks, or hashes, all of it before this answer.
constexpr Duration kUnpackMax = 600s;
constexpr size_t kPartsAhead = 4;
// A cargo that changes while it is sent is begun anew so often.
constexpr int kBeginnings = 3;

class FolderSource final : public CargoSource {
 public:
  FolderSource(Files& files, const std::string& folder, const archive::TreeOptions& tree) : tar_(files, folder, tree) {}
  std::optional<std::string> next() override { return tar_.next(); }
  uint64_t files() const override { return tar_.counts().files; }
  uint64_t content_bytes() const override { return tar_.counts().content_bytes; }

 private:
  archive::FolderTar tar_;
};

}  // namespace

std::shared_ptr<CargoSource> folder_source(Files& files, const std::string& folder, const archive::TreeOptions& tree) {
  return std::make_shared<FolderSource>(files, folder, tree);
}

Task<bool> DeliveryLink::open(elastic::Delivery::Purpose purpose) {
  Endpoint head = settings_.head;
  if (settings_.find_head) head = settings_.find_head().value_or(head);
  const Instant deadline = world_.clock.now() + kDeliverConnectMax;
  ConnectResult result = co_await world_.network.connect(std::move(head), settings_.key, deadline, kDeliverSilenceMax);
  if (!result.connection) {
    problem = result.failure ? result.failure->message : "no connection";
    co_return false;
  }
  connection_ = std::move(result.connection);
  elastic::Delivery delivery;
  delivery.node = settings_.node;
  delivery.purpose = purpose;
  send(elastic::ToHead(std::move(delivery)));
  const std::optional<elastic::ToAgent> answer = co_await receive(kDeliverWelcomeMax);
  co_return answer&& std::holds_alternative<elastic::Welcome>(*answer);
}

Task<std::optional<elastic::ToAgent>> DeliveryLink::receive(Duration most) {
  const Instant deadline = world_.clock.now() + most;
  auto received = co_await with_deadline(world_.clock.loop(), deadline, connection_->receive());
  if (!received || !*received) {
    problem = "the connection broke";
    co_return std::nullopt;
  }
  try {
    co_return elastic::decode_to_agent(**received);
  } catch (const Error& error) {
    problem = error.message;
  }
  co_return std::nullopt;
}

Task<std::optional<OutputAck>> DeliveryLink::receive_ack(Duration most) {
  const std::optional<elastic::ToAgent> answer = co_await receive(most);
  if (!answer) co_return std::nullopt;
  const auto* ack = std::get_if<OutputAck>(&*answer);
  if (!ack) co_return std::nullopt;
  co_return *ack;
}

Task<Delivered> DeliveryLink::deliver(Cargo cargo) {
  sent = {};
  unreadable = false;
  send(elastic::ToHead(elastic::OutputOffer{cargo.job, cargo.checkpoint}));
  std::optional<OutputAck> ack = co_await receive_ack(kUnpackMax);
  for (int beginning = 0; ack && ack->state == OutputAck::State::kMore && beginning < kBeginnings; ++beginning) {
    ack = co_await stream(cargo, ack->have);
  }
  if (!ack) co_return Delivered::kBroken;
  problem = ack->reason;
  if (ack->state == OutputAck::State::kMore) problem = "it changes while it is sent";
  co_return ack->state == OutputAck::State::kKept ? Delivered::kKept : Delivered::kRefused;
}

// From this offset to the end; the last answer to it.
Task<std::optional<OutputAck>> DeliveryLink::stream(const Cargo& cargo, uint64_t from) {
  std::string trouble;
  try {
    co_return co_await stream_parts(cargo, from);
  } catch (const Error& error) {
    trouble = error.message;
  }
  if (!cargo.checkpoint) send(elastic::ToHead(elastic::OutputTrouble{cargo.job, trouble}));
  unreadable = true;
  OutputAck refused;
  refused.job = cargo.job;
  refused.state = OutputAck::State::kRefused;
  refused.reason = trouble;
  co_return refused;
}

Task<std::optional<OutputAck>> DeliveryLink::stream_parts(const Cargo& cargo, uint64_t from) {
  const std::shared_ptr<CargoSource> source = cargo.open();
  const auto hash = std::make_shared<Sha256>();
  Turns turns(world_.clock.loop());
  uint64_t at = 0;
  ends_.clear();
  while (true) {
    const auto chunk = std::make_shared<std::optional<std::string>>();
    std::function<void()> work = [source, hash, chunk] {
      *chunk = source->next();
      if (*chunk) hash->update(**chunk);
    };
    co_await beside(std::move(work));
    if (!*chunk) break;
    const std::string& bytes = **chunk;
    const uint64_t end = at + bytes.size();
    if (end > from) {
      const uint64_t begin = std::max(at, from);
      elastic::OutputPart part;
      part.job = cargo.job;
      part.checkpoint = cargo.checkpoint;
      part.offset = begin;
      part.bytes = bytes.substr(begin - at);
      co_await keep_pace(part.bytes.size(), cargo.bytes_per_s);
      const std::optional<OutputAck> ack = co_await send_part(std::move(part), kPartsAhead);
      if (!ack || ack->state != OutputAck::State::kMore) co_return ack;
    }
    at = end;
    co_await turns.step();
  }
  if (cargo.is_current && !cargo.is_current()) throw Error(ErrorCode::kConflict, "it was changed while it was sent");
  elastic::OutputPart last;
  last.job = cargo.job;
  last.checkpoint = cargo.checkpoint;
  last.offset = at;
  last.last = true;
  last.hash = hash->hex();
  last.files = source->files();
  last.content_bytes = source->content_bytes();
  sent = last;
  co_return co_await send_part(std::move(last), 1);
}

// Reading and compressing would keep the agent's loop from its beats.
Task<void> DeliveryLink::beside(std::function<void()> work) {
  if (settings_.offload) {
    Task<void> done = settings_.offload(std::move(work));
    co_await std::move(done);
  } else {
    work();
  }
}

Task<void> DeliveryLink::keep_pace(uint64_t bytes, uint64_t bytes_per_s) {
  if (bytes_per_s == 0) co_return;
  const Instant now = world_.clock.now();
  next_part_ = std::max(next_part_, now) + seconds(static_cast<double>(bytes) / static_cast<double>(bytes_per_s));
  // A little ahead, for timers are coarse.
  if (next_part_ - now > 50ms) co_await Sleep(world_.clock.loop(), next_part_);
}

// Returns when fewer than `ahead` parts are without an answer: the newest answer, kMore when there is none yet.
Task<std::optional<OutputAck>> DeliveryLink::send_part(elastic::OutputPart part, size_t ahead) {
  ends_.push_back(part.last ? std::nullopt : std::optional<uint64_t>(part.offset + part.bytes.size()));
  send(elastic::ToHead(std::move(part)));
  OutputAck newest;
  while (ends_.size() >= ahead) {
    const std::optional<uint64_t> end = ends_.front();
    ends_.pop_front();
    const std::optional<OutputAck> ack = co_await receive_ack(end ? kAckMax : kUnpackMax);
    if (!ack) co_return std::nullopt;
    ++progress;
    newest = *ack;
    if (newest.state == OutputAck::State::kRefused) co_return newest;
    // Somebody else brings the same, or the head has lost its part: from the offer again, on a new connection.
    if (end && newest.state == OutputAck::State::kMore && newest.have != *end) co_return std::nullopt;
    if (end && newest.state == OutputAck::State::kKept) co_return newest;
  }
  co_return newest;
}

Task<bool> DeliveryLink::fetch(JobId job, CheckpointItem item, std::string path, uint64_t have) {
  while (have < item.packed_bytes) {
    elastic::PackageWanted wanted;
    wanted.hash = item.hash;
    wanted.offset = have;
    wanted.checkpoint_of = job;
    send(elastic::ToHead(std::move(wanted)));
    const std::optional<elastic::ToAgent> answer = co_await receive(kAckMax);
    const auto* part = answer ? std::get_if<elastic::PackagePart>(&*answer) : nullptr;
    if (!part || part->hash != item.hash || part->offset != have) co_return false;
    if (part->bytes.empty()) {
      throw Error(ErrorCode::kNotFound, fmt::format("the head has no more of the checkpoint '{}'", item.name));
    }
    const auto bytes = std::make_shared<std::string>(part->bytes);
    std::function<void()> work = [&files = world_.files, path, bytes] { files.open_append(path)->append(*bytes); };
    co_await beside(std::move(work));
    have += bytes->size();
    co_await keep_pace(bytes->size(), settings_.checkpoint_bytes_per_s);
  }
  co_return true;
}

}  // namespace rubato::node
