// Membership: one agent's place in its group, through losses of the host. It joins, beats, hands the host's views to
// the launcher, and says when the workers must be stopped because nobody can vouch for their generation any more.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "agent/finder.h"
#include "core/scope.h"

namespace rubato::agent {

class Membership {
 public:
  struct HostLost {
    Endpoint host;
    bool closed = false;
    bool left = false;  // it said goodbye
  };
  struct Fence {};  // stop the workers now, hard: others may start a newer generation
  using Update = std::variant<elastic::View, HostLost, Fence, Error>;
  using Sink = std::function<void(Update)>;

  Membership(World& world, const LaunchSpec& spec, AgentId self, Finder& finder, EventLog& events, Sink sink);

  // Runs until cancelled. An Error update means that it has given up.
  Task<void> run();

  // To the host, if there is one now. Views are repeated to a new host, so nothing needs to be kept.
  void say(const elastic::Message& message);

  // What the launcher is doing, for a host that has to take our word for it.
  void set_workers(Generation generation, bool running, bool succeeded);

 private:
  Task<void> keep_joined();
  Task<void> session(std::unique_ptr<Connection> connection);
  Task<bool> handle(const std::string& text, Connection& connection);
  bool accept(const elastic::View& view);
  Task<void> watch_fence();
  void fence();
  elastic::Join introduce(const Connection& connection) const;
  Duration heartbeat() const;
  bool nobody_elsewhere() const;
  void notice_stall(Instant now);

  World& world_;
  const LaunchSpec& spec_;
  AgentId self_;
  Finder& finder_;
  EventLog& events_;
  Sink sink_;

  Past past_;
  Connection* connection_ = nullptr;
  bool answered_ = false;  // the other side has sent a view
  bool joined_ = false;    // and it was the word of a host
  std::optional<Instant> provisional_since_;
  Instant heard_{};    // when we last said something that the other side has surely heard
  Instant vouched_{};  // the same, of a real host: the workers may run until fence_after() this
  int64_t answer_us_ = 0;  // of the host's clock: its last answer to a beat
  int64_t proof_us_ = 0;   // and an instant before heard_; 0: none is known
  Instant joined_at_{};
  Instant wakes_at_ = Instant::max();  // when the session does something next, if this process does not stand still
  Instant stalled_{};                  // it stood still until then, and nobody can have taken over meanwhile
  bool own_host_ = false;              // the last session was with this agent itself
  Instant lost_{};
  bool fenced_ = true;
  Generation my_round_ = 0;  // the last generation in which this agent had a place
  Generation fenced_round_ = 0;
  bool workers_running_ = false;
  bool workers_succeeded_ = false;
  Event changed_;
};

}  // namespace rubato::agent
