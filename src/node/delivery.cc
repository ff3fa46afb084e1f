#include "node/delivery.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "archive/folder_stream.h"
#include "core/sha256.h"
#include "core/turns.h"
#include "node/last_lines.h"

namespace rubato::node {

using elastic::OutputAck;

namespace {

constexpr Duration kDeliverConnectMax = 5s;
constexpr Duration kDeliverSilenceMax = 10s;
constexpr Duration kDeliverWelcomeMax = 10s;
constexpr Duration kAckMax = 60s;
// The head unpacks all of it before this answer.
constexpr Duration kUnpackMax = 600s;
constexpr size_t kPartsAhead = 4;
// An output that changes while it is sent is begun anew so often.
constexpr int kBeginnings = 3;
constexpr Duration kPauseFirst = 500ms;
constexpr Duration kPauseMax = 30s;
// What the head has no room for is sent all over again.
constexpr Duration kRefusedPauseMax = 300s;
constexpr int kFruitlessMax = 5;

enum class Outcome { kKept, kRefused, kBroken };

// One connection to the head, greeted.
class DeliveryLink {
 public:
  DeliveryLink(World& world, const NodeSettings& settings) : world_(world), settings_(settings) {}

  Task<bool> open() {
    Endpoint head = settings_.head;
    if (settings_.find_head) head = settings_.find_head().value_or(head);
    const Instant deadline = world_.clock.now() + kDeliverConnectMax;
    ConnectResult result =
        co_await world_.network.connect(std::move(head), settings_.key, deadline, kDeliverSilenceMax);
    if (!result.connection) {
      words = result.failure ? result.failure->words : "no connection";
      co_return false;
    }
    connection_ = std::move(result.connection);
    elastic::Delivery delivery;
    delivery.node = settings_.node;
    send(elastic::ToHead(std::move(delivery)));
    const std::optional<elastic::ToAgent> answer = co_await receive(kDeliverWelcomeMax);
    co_return answer&& std::holds_alternative<elastic::Welcome>(*answer);
  }

  void send(const elastic::ToHead& message) { connection_->send(encode(message)); }

  // nullopt: the connection is of no use any more.
  Task<std::optional<elastic::ToAgent>> receive(Duration most) {
    const Instant deadline = world_.clock.now() + most;
    auto received = co_await with_deadline(world_.clock.loop(), deadline, connection_->receive());
    if (!received || !*received) {
      words = "the connection broke";
      co_return std::nullopt;
    }
    try {
      co_return elastic::decode_to_agent(**received);
    } catch (const Error& error) {
      words = error.message;
    }
    co_return std::nullopt;
  }

  Task<std::optional<OutputAck>> receive_ack(Duration most) {
    const std::optional<elastic::ToAgent> answer = co_await receive(most);
    if (!answer) co_return std::nullopt;
    const auto* ack = std::get_if<OutputAck>(&*answer);
    if (!ack) co_return std::nullopt;
    co_return *ack;
  }

  Task<Outcome> deliver(JobId job) {
    send(elastic::ToHead(elastic::OutputOffer{job}));
    std::optional<OutputAck> ack = co_await receive_ack(kUnpackMax);
    for (int beginning = 0; ack && ack->state == OutputAck::State::kMore && beginning < kBeginnings; ++beginning) {
      ack = co_await stream(job, ack->have);
    }
    if (!ack) co_return Outcome::kBroken;
    words = ack->reason;
    if (ack->state == OutputAck::State::kMore) words = "it changes while it is sent";
    co_return ack->state == OutputAck::State::kKept ? Outcome::kKept : Outcome::kRefused;
  }

  uint64_t progress = 0;  // parts and lines that the head has taken
  std::string words;      // why it did not work

 private:
  // From this offset to the end; the last answer to it.
  Task<std::optional<OutputAck>> stream(JobId job, uint64_t from) {
    const std::string folder = output_folder(settings_.folder, job);
    std::optional<std::string> trouble;
    try {
      world_.files.make_folders(folder);
      const auto tar = std::make_shared<archive::FolderTar>(world_.files, folder);
      const auto hash = std::make_shared<Sha256>();
      Turns turns(world_.clock.loop());
      uint64_t at = 0;
      ends_.clear();
      while (true) {
        const auto chunk = std::make_shared<std::optional<std::string>>();
        std::function<void()> work = [tar, hash, chunk] {
          *chunk = tar->next();
          if (*chunk) hash->update(**chunk);
        };
        co_await beside(std::move(work));
        if (!*chunk) break;
        const std::string& bytes = **chunk;
        const uint64_t end = at + bytes.size();
        if (end > from) {
          const uint64_t begin = std::max(at, from);
          elastic::OutputPart part;
          part.job = job;
          part.offset = begin;
          part.bytes = bytes.substr(begin - at);
          const std::optional<OutputAck> ack = co_await send_part(std::move(part), kPartsAhead);
          if (!ack || ack->state != OutputAck::State::kMore) co_return ack;
        }
        at = end;
        co_await turns.step();
      }
      elastic::OutputPart last;
      last.job = job;
      last.offset = at;
      last.last = true;
      last.hash = hash->hex();
      last.files = tar->counts().files;
      last.content_bytes = tar->counts().content_bytes;
      co_return co_await send_part(std::move(last), 1);
    } catch (const Error& error) {
      trouble = error.message;
    }
    send(elastic::ToHead(elastic::OutputTrouble{job, *trouble}));
    OutputAck refused;
    refused.job = job;
    refused.state = OutputAck::State::kRefused;
    refused.reason = *trouble;
    co_return refused;
  }

  // Reading and compressing would keep the agent's loop from its beats.
  Task<void> beside(std::function<void()> work) {
    if (settings_.offload) {
      Task<void> done = settings_.offload(std::move(work));
      co_await std::move(done);
    } else {
      work();
    }
  }

  // Returns when fewer than `ahead` parts are without an answer: the newest answer, kMore when there is none yet.
  Task<std::optional<OutputAck>> send_part(elastic::OutputPart part, size_t ahead) {
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

  World& world_;
  const NodeSettings& settings_;
  std::unique_ptr<Connection> connection_;
  std::deque<std::optional<uint64_t>> ends_;  // of parts without an answer; nullopt: the last one
};

Task<uint64_t> send_lines(DeliveryLink& link, elastic::LogLines lines) {
  link.send(elastic::ToHead(std::move(lines)));
  const std::optional<elastic::ToAgent> answer = co_await link.receive(kAckMax);
  const auto* ack = answer ? std::get_if<elastic::LogAck>(&*answer) : nullptr;
  if (!ack) throw Error(ErrorCode::kUnavailable, "the head does not take the lines: " + link.words);
  ++link.progress;
  co_return ack->sequence;
}

// One try; false: not all of it. Counts in `progress` what got through.
Task<bool> deliver_once(World& world, const NodeSettings& settings, uint64_t& progress) {
  DeliveryLink link(world, settings);
  const bool opened = co_await link.open();
  if (!opened) co_return false;
  bool all = true;
  bool refused = false;
  try {
    KeepLines keep = [&link](elastic::LogLines lines) { return send_lines(link, std::move(lines)); };
    co_await send_last_lines(world, settings.folder, std::move(keep));
    for (const JobId& job : outputs_here(world.files, settings.folder)) {
      const Outcome outcome = co_await link.deliver(job);
      if (outcome == Outcome::kBroken) throw Error(ErrorCode::kUnavailable, link.words);
      refused = outcome == Outcome::kRefused;
      all = !refused;
      if (refused) break;  // answers to parts that were under way are still to come
    }
    if (all) {
      link.send(elastic::ToHead(elastic::DeliveryEnd{}));
      (void)co_await link.receive(kAckMax);
    }
  } catch (const Error& error) {
    world.console.err(fmt::format("not delivered: {}\n", error.message));
    all = false;
  }
  // What is refused over and over is no progress.
  progress = refused ? 0 : link.progress;
  co_return all;
}

bool has_spools(Files& files, const std::string& node_folder) {
  const std::string spool = node_folder + "/spool";
  return files.exists(spool) && !files.list(spool).empty();
}

}  // namespace

std::string output_folder(const std::string& node_folder, const JobId& job) {
  return node_folder + "/outputs/" + job.value;
}

std::vector<JobId> outputs_here(Files& files, const std::string& node_folder) {
  std::vector<JobId> jobs;
  const std::string folder = node_folder + "/outputs";
  if (!files.exists(folder)) return jobs;
  for (const Files::Entry& entry : files.list(folder)) {
    if (entry.kind == Files::Entry::Kind::kFolder) jobs.push_back(JobId{entry.name});
  }
  return jobs;
}

OutputSender::OutputSender(World& world, const NodeSettings& settings, std::function<void()> stir,
                           std::function<void(const std::string&)> say)
    : world_(world), settings_(settings), stir_(std::move(stir)), say_(std::move(say)), changed_(world.clock.loop()) {}

void OutputSender::follow(std::set<JobId> wanted) {
  std::erase_if(delivered_, [&](const JobId& job) { return !wanted.contains(job); });
  // A head that says it again may have been away when it was tried last.
  if (wanted == wanted_ && (refused_ || all_delivered())) return;
  wanted_ = std::move(wanted);
  changed_.notify();
}

bool OutputSender::all_delivered() const { return std::ranges::includes(delivered_, wanted_); }

Task<void> OutputSender::run() {
  Duration pause = kPauseFirst;
  while (true) {
    while (all_delivered()) {
      pause = kPauseFirst;
      co_await changed_.wait();
    }
    const bool good = co_await deliver_round();
    if (good) continue;
    // A word from the head may change it; else it is tried again.
    co_await changed_.wait_until(world_.clock.now() + pause);
    pause = std::min<Duration>(2 * pause, refused_ ? kRefusedPauseMax : kPauseMax);
  }
}

Task<bool> OutputSender::deliver_round() {
  refused_ = false;
  DeliveryLink link(world_, settings_);
  const bool opened = co_await link.open();
  while (opened) {
    const auto next = std::ranges::find_if(wanted_, [this](const JobId& job) { return !delivered_.contains(job); });
    if (next == wanted_.end()) co_return true;
    const JobId job = *next;
    const Outcome outcome = co_await link.deliver(job);
    if (outcome != Outcome::kKept) {
      refused_ = outcome == Outcome::kRefused;
      link.words = fmt::format("the output of {}: {}", job.value, link.words);
      break;
    }
    say_(fmt::format("delivered the output of {}", job.value));
    last_words_.clear();
    if (wanted_.contains(job)) delivered_.insert(job);
    stir_();
  }
  if (link.words != last_words_) say_("not delivered: " + link.words);
  last_words_ = link.words;
  co_return false;
}

Task<bool> deliver_all(World& world, NodeSettings settings) {
  if (!has_spools(world.files, settings.folder) && outputs_here(world.files, settings.folder).empty()) co_return true;
  Duration pause = kPauseFirst;
  for (int fruitless = 0; fruitless < kFruitlessMax;) {
    uint64_t progress = 0;
    const bool all = co_await deliver_once(world, settings, progress);
    if (all) co_return true;
    fruitless = progress > 0 ? 0 : fruitless + 1;
    if (progress > 0) pause = kPauseFirst;
    co_await Sleep(world.clock.loop(), world.clock.now() + pause);
    pause = std::min(2 * pause, kPauseMax);
  }
  co_return false;
}

}  // namespace rubato::node
