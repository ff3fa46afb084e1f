// The default backend: the agent at the endpoint hosts the rendezvous; when it is lost, the oldest survivor does.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "agent/finder.h"
#include "elastic/wire.h"

namespace rubato::agent {

using namespace elastic;

namespace {

constexpr Duration kRetryFirst = 50ms;
constexpr Duration kRetryMax = 1s;
constexpr Duration kConnectMax = 2s;  // for the first contact
constexpr Duration kAskMax = 400ms;   // for one survivor, while the group has no host
constexpr Duration kScoutInterval = 300ms;
constexpr Duration kSayTryingAfter = 3s;

class EmbeddedFinder final : public Finder {
 public:
  explicit EmbeddedFinder(const FinderContext& context)
      : context_(context),
        world_(context.world),
        endpoint_(parse_endpoint(context.spec.endpoint, 29400)),
        doorway_(context.world),
        role_(context.world, context.self, context.spec.run_id, context.events, doorway_) {
    const bool private_group = is_loopback(endpoint_.host);
    interface_ = private_group ? "127.0.0.1" : "";
    const Endpoint any{interface_, 0};
    auto listener = world_.network.listen(any, context_.key, context_.terms.heartbeat);
    peer_port_ = listener->port();
    doorway_.open(std::move(listener));
  }

  Task<std::unique_ptr<Connection>> find(Past past) override {
    if (!role_.active()) doorway_.hold();
    if (const std::optional<Moved> successor = role_.take_successor()) past.hint = successor;
    if (past.hint) {
      const Endpoint there{past.hint->host, past.hint->port};
      ConnectResult result = co_await connect(there, kAskMax);
      if (result.connection) co_return take(std::move(result), there);
    }
    if (past.view) co_return co_await regroup(std::move(past));
    co_return co_await first_contact(past.since);
  }

  void settled(const View& view) override {
    if (!role_.active()) doorway_.point_to(Moved{found_.host, found_.port, view.legacy.epoch});
    known_.clear();
    for (const Successor& other : view.successors) {
      if (other.id != context_.self) known_.insert(Endpoint{other.address, other.port});
    }
  }
  Endpoint found() const override { return found_; }
  Task<void> farewell() override { co_await role_.ended(); }
  uint16_t peer_port() const override { return peer_port_; }

  Task<void> watch() override {
    while (true) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kScoutInterval);
      if (!role_.active()) continue;
      if (role_.coordinator().provisional()) {
        co_await look_for_better_host();
      } else if (!at_endpoint_) {
        co_await claim_endpoint();
      }
    }
  }

 private:
  Task<ConnectResult> connect(Endpoint endpoint, Duration most) {
    const Instant deadline = world_.clock.now() + most;
    co_return co_await world_.network.connect(std::move(endpoint), context_.key, deadline, context_.terms.heartbeat);
  }

  std::unique_ptr<Connection> take(ConnectResult result, const Endpoint& endpoint) {
    found_ = endpoint;
    return std::move(result.connection);
  }

  // True when this agent now listens at the endpoint.
  bool bind_endpoint() {
    try {
      const Endpoint here{interface_, endpoint_.port};
      doorway_.open(world_.network.listen(here, context_.key, context_.terms.heartbeat));
      at_endpoint_ = true;
    } catch (const Error& error) {
      if (error.code != ErrorCode::kConflict) throw;
    }
    return at_endpoint_;
  }

  Task<std::unique_ptr<Connection>> first_contact(Instant since) {
    const Instant deadline = since + context_.terms.join_timeout;
    bool local = false;
    if (context_.spec.is_host) {
      local = *context_.spec.is_host;
    } else {
      local = co_await world_.network.is_local(endpoint_.host);
    }
    Duration pause = kRetryFirst;
    bool said = context_.spec.quiet;
    for (int attempt = 1;; ++attempt) {
      if (local && bind_endpoint()) {
        found_ = endpoint_;
        Rendezvous machine(context_.terms, world_.clock.now());
        role_.begin(std::move(machine), endpoint_, nullptr);
        co_return role_.connect();
      }
      const Duration most = std::clamp<Duration>(deadline - world_.clock.now(), 50ms, kConnectMax);
      ConnectResult result = co_await connect(endpoint_, most);
      if (result.connection) co_return take(std::move(result), endpoint_);
      const ConnectFailure& failure = *result.failure;
      if (failure.kind == ConnectFailure::Kind::kRejected || world_.clock.now() >= deadline) {
        throw unreachable(failure, attempt, local);
      }
      if (!said && world_.clock.now() >= since + kSayTryingAfter) {
        said = true;
        world_.console.err(fmt::format("rubato: {}; trying for another {} (is the first agent up?)\n", failure.words,
                                       format_duration(deadline - world_.clock.now())));
      }
      co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
      pause = std::min(pause * 3 / 2, kRetryMax);
    }
  }

  Error unreachable(const ConnectFailure& failure, int attempts, bool local) const {
    const std::string where = to_string(endpoint_);
    const std::string tried = fmt::format("{} ({} tries in {})", failure.words, attempts,
                                          format_duration(context_.terms.join_timeout));
    switch (failure.kind) {
      case ConnectFailure::Kind::kRejected:
        return Error(ErrorCode::kConflict, failure.words, where,
                     "another program or another job has this port, or the agents have different --rdzv-id or "
                     "--rdzv-key-file: use another port, or the same id and key on every machine");
      case ConnectFailure::Kind::kRefused:
        return Error(ErrorCode::kUnavailable, "no agent listens at the rendezvous endpoint: " + tried, where,
                     local ? "start the agent that owns this endpoint"
                           : fmt::format("start an agent on {} first; this machine does not have that address, so it "
                                         "cannot host ('rubato doctor --endpoint {}')",
                                         endpoint_.host, where));
      case ConnectFailure::Kind::kUnreachable:
        return Error(ErrorCode::kUnavailable, "the rendezvous endpoint does not answer: " + tried, where,
                     fmt::format("check the name, the route and the firewall for TCP port {} ('rubato doctor "
                                 "--endpoint {}')",
                                 endpoint_.port, where));
    }
    return Error(ErrorCode::kUnavailable, tried, where);
  }

  // The host is lost: ask it once more, then the survivors from the oldest on; the first that is this agent takes over.
  Task<std::unique_ptr<Connection>> regroup(Past past) {
    const Instant deadline = past.since + context_.terms.join_timeout;
    const View& last = *past.view;
    std::set<AgentId> dead;
    while (world_.clock.now() < deadline) {
      if (past.host && !dead.contains(last.host)) {
        ConnectResult result = co_await connect(*past.host, kAskMax);
        if (result.connection) co_return take(std::move(result), *past.host);
        if (result.failure->kind == ConnectFailure::Kind::kRefused) dead.insert(last.host);
      }
      for (const Successor& next : last.successors) {
        if (next.id == last.host) continue;
        const Endpoint there{next.address, next.port};
        if (next.id == context_.self) {
          found_ = there;
          Rendezvous machine(last.legacy, dead, world_.clock.now());
          role_.begin(std::move(machine), there, nullptr);
          co_return role_.connect();
        }
        if (dead.contains(next.id)) continue;
        ConnectResult result = co_await connect(there, kAskMax);
        if (result.connection) co_return take(std::move(result), there);
        if (result.failure->kind == ConnectFailure::Kind::kRefused) dead.insert(next.id);
      }
      if (past.host != endpoint_) {
        ConnectResult result = co_await connect(endpoint_, kAskMax);
        if (result.connection) co_return take(std::move(result), endpoint_);
      }
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kRetryFirst);
    }
    throw Error(ErrorCode::kUnavailable,
                fmt::format("lost the host of the rendezvous and found no other in {}",
                            format_duration(context_.terms.join_timeout)),
                to_string(past.host.value_or(endpoint_)), "check the network between the machines");
  }

  // Without a quorum this agent may not host: others may have a host that may.
  Task<void> look_for_better_host() {
    std::set<Endpoint> places = known_;
    if (!at_endpoint_) places.insert(endpoint_);
    for (const Endpoint& place : places) {
      ConnectResult result = co_await connect(place, kAskMax);
      if (!result.connection) continue;
      result.connection->send(encode(Where{}, world_.clock.now()));
      const Instant deadline = world_.clock.now() + kAskMax;
      auto answer = co_await with_deadline(world_.clock.loop(), deadline, result.connection->receive());
      if (!answer || !*answer || !role_.active()) continue;
      const Message message = decode(**answer, world_.clock.now());
      const auto* moved = std::get_if<Moved>(&message);
      if (!moved || Endpoint{moved->host, moved->port} == found_) continue;
      // A would-be host yields to the last real one; a host in office only to a newer one.
      const Coordinator& ours = role_.coordinator();
      const uint64_t needed = ours.incumbent() ? ours.legacy().epoch + 1 : ours.legacy().epoch - 1;
      if (moved->epoch >= needed) {
        role_.coordinator().supersede(*moved);
        co_return;
      }
    }
  }

  // A successor hosts away from the endpoint: agents that join there must still find the group.
  Task<void> claim_endpoint() {
    const bool local = co_await world_.network.is_local(endpoint_.host);
    if (local && bind_endpoint()) co_return;
    ConnectResult result = co_await connect(endpoint_, kAskMax);
    if (!result.connection || !role_.active()) co_return;
    const Moved here{found_.host, found_.port, role_.coordinator().legacy().epoch};
    result.connection->send(encode(here, world_.clock.now()));
  }

  FinderContext context_;
  World& world_;
  Endpoint endpoint_;
  std::string interface_;
  uint16_t peer_port_ = 0;
  bool at_endpoint_ = false;
  Endpoint found_;
  std::set<Endpoint> known_;  // doorways of the oldest members, as of the last view
  Doorway doorway_;
  HostRole role_;
};

}  // namespace

std::unique_ptr<Finder> make_embedded_finder(const FinderContext& context) {
  return std::make_unique<EmbeddedFinder>(context);
}

}  // namespace rubato::agent
