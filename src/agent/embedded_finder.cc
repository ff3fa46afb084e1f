// The default backend: the agent at the endpoint hosts the rendezvous; when it is lost, the oldest survivor does.
//
// Where the endpoint is a name of all machines (`*NAME`), nobody can tell by it who hosts: the agent with is_host=1
// begins, every agent that has joined opens the endpoint's port on its own machine and shows newcomers the way, and
// addresses take the name's place: a refusal at the name proves nobody's death.
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
constexpr Duration kScoutInterval = 100ms;
// A group that lost its first host goes on elsewhere. An agent that starts at the endpoint again must hear of it
// before it forms a group of its own: one connection attempt to a machine that was down, one pause, one trip.
constexpr Duration kOlderHostAfter = kAskMax + kScoutInterval + 100ms;
constexpr Duration kSayTryingAfter = 3s;
constexpr size_t kDoorsMax = 4;  // of a name of all machines, asked at a time

class EmbeddedFinder final : public Finder {
 public:
  explicit EmbeddedFinder(const FinderContext& context)
      : context_(context),
        world_(context.world),
        is_entry_(context.spec.endpoint.starts_with('*')),
        endpoint_(parse_endpoint(context.spec.endpoint.substr(is_entry_ ? 1 : 0), 29400)),
        doorway_(context.world, context.self),
        role_(context.world, context.self, context.key, context.spec.run_id, context.events, doorway_) {
    const bool private_group = is_loopback(endpoint_.host);
    interface_ = private_group ? "127.0.0.1" : "";
    if (!private_group) context_.terms.first_round_after = kOlderHostAfter;
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

  void following(const View& view) override {
    if (!role_.active())
      doorway_.point_to(Moved{found_.host, found_.port, view.legacy.epoch, view.legacy.round, context_.self});
  }
  void settled(const View& view) override {
    following(view);
    if (is_entry_ && !at_endpoint_) bind_endpoint();
    // A successor that has not formed a round yet still has to account for the agents of the host before it.
    if (role_.active() && !role_.coordinator().incumbent()) return;
    last_ = view;
    if (!role_.active()) last_host_ = found_;
  }
  Endpoint found() const override { return found_; }
  Task<void> farewell() override { co_await role_.ended(); }
  Task<void> hand_over(std::string reason) override { co_await role_.hand_over(std::move(reason)); }
  uint16_t peer_port() const override { return peer_port_; }
  bool hosting() const override { return role_.active(); }

  Task<void> watch() override {
    while (true) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kScoutInterval);
      if (!role_.active()) continue;
      if (last_ && !at_endpoint_ && !is_entry_ && last_host_ == endpoint_ && role_.coordinator().provisional()) {
        const bool local = co_await world_.network.is_local(endpoint_.host);
        const bool free = local && bind_endpoint();
        if (free && role_.active()) role_.coordinator().declare_dead(last_->host, last_->host_in_round);
        if (!role_.active()) continue;
      }
      if (last_ && (role_.coordinator().provisional() || !role_.coordinator().incumbent())) {
        std::vector<Endpoint> elsewhere = co_await find_doors();
        const auto better = co_await find_missing(world_, context_.key, context_.self, *last_, last_host_,
                                                  std::move(elsewhere), role_);
        if (better && role_.active()) role_.coordinator().supersede(*better);
      }
      const bool away = role_.active() && !role_.coordinator().provisional() && !at_endpoint_;
      if (away && !is_entry_) co_await claim_endpoint();
    }
  }

 private:
  // Where a host that this agent has never heard of may be found. At a name of all machines, some of them: those that
  // this agent knew may all have been replaced while it was cut off.
  Task<std::vector<Endpoint>> find_doors() {
    std::vector<Endpoint> doors;
    if (!is_entry_) {
      if (!at_endpoint_) doors.push_back(endpoint_);
      co_return doors;
    }
    const Instant deadline = world_.clock.now() + kConnectMax;
    auto found = co_await with_deadline(world_.clock.loop(), deadline, world_.network.resolve(endpoint_.host));
    if (!found) co_return doors;
    const std::vector<std::string> ours = world_.network.addresses();
    std::erase_if(*found, [&](const std::string& address) { return std::ranges::find(ours, address) != ours.end(); });
    while (!found->empty() && doors.size() < kDoorsMax) {
      const auto pick = found->begin() + static_cast<int64_t>(world_.random.below(found->size()));
      doors.push_back({*pick, endpoint_.port});
      found->erase(pick);
    }
    co_return doors;
  }

  Task<ConnectResult> connect(Endpoint endpoint, Duration most) {
    const Instant deadline = world_.clock.now() + most;
    co_return co_await world_.network.connect(std::move(endpoint), context_.key, deadline, context_.terms.heartbeat);
  }

  std::unique_ptr<Connection> take(ConnectResult result, const Endpoint& endpoint) {
    found_ = endpoint;
    if (is_entry_ && endpoint == endpoint_) found_.host = result.connection->peer_address();
    return std::move(result.connection);
  }

  // Where others reach this agent once it listens at the endpoint.
  Endpoint own_endpoint() {
    if (!is_entry_) return endpoint_;
    Endpoint own = endpoint_;
    const std::vector<std::string> addresses = world_.network.addresses();
    if (!context_.spec.local_addr.empty()) {
      own.host = context_.spec.local_addr;
    } else if (!addresses.empty()) {
      own.host = addresses.front();
    }
    return own;
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
        found_ = own_endpoint();
        Rendezvous machine(context_.terms, world_.clock.now());
        role_.begin(std::move(machine), found_, nullptr);
        co_return role_.connect();
      }
      const Duration most = std::clamp<Duration>(deadline - world_.clock.now(), 50ms, kConnectMax);
      ConnectResult result = co_await connect(endpoint_, most);
      if (result.connection) co_return take(std::move(result), endpoint_);
      const ConnectFailure& failure = *result.failure;
      // Node 0 of a static group hosts even behind an address that it does not see as its own (NAT), unless some
      // other agent does.
      if (context_.spec.backend == Backend::kStatic && context_.spec.node_rank == 0) local = true;
      if (failure.kind == ConnectFailure::Kind::kRejected || world_.clock.now() >= deadline) {
        throw unreachable(failure, attempt, local);
      }
      if (!said && world_.clock.now() >= since + kSayTryingAfter) {
        said = true;
        world_.console.err(fmt::format("rubato: {}; trying for another {} (is the first agent up?)\n", failure.message,
                                       format_duration(deadline - world_.clock.now())));
      }
      co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
      pause = std::min(pause * 3 / 2, kRetryMax);
    }
  }

  Error unreachable(const ConnectFailure& failure, int attempts, bool local) const {
    const std::string where = to_string(endpoint_);
    const std::string tried =
        fmt::format("{} ({} tries in {})", failure.message, attempts, format_duration(context_.terms.join_timeout));
    switch (failure.kind) {
      case ConnectFailure::Kind::kRejected:
        return Error(ErrorCode::kConflict, failure.message, where,
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
    Dead dead;
    while (world_.clock.now() < deadline) {
      const bool may_live = !last.host_leaves && !dead.has(last.host);
      if (past.host && last.host != context_.self && may_live && !past.unanswered.contains(*past.host)) {
        ConnectResult result = co_await connect(*past.host, kAskMax);
        if (result.connection) co_return take(std::move(result), *past.host);
        if (result.failure->kind == ConnectFailure::Kind::kRefused) dead.add(last.host, last.host_in_round);
      }
      for (const Successor& next : last.successors) {
        // The last host was asked above, unless it was this agent itself.
        if ((next.id == last.host && next.id != context_.self) || dead.has(next.id)) continue;
        const Endpoint there{next.address, next.port};
        if (next.id == context_.self) {
          // On one machine the endpoint is free again: take it before a newcomer does. Asked before the role begins:
          // nothing may come between that and our own connection.
          bool local = false;
          if (!is_entry_) local = co_await world_.network.is_local(endpoint_.host);
          // That it is free proves that the host which had it is gone.
          if (local && bind_endpoint() && past.host == endpoint_) dead.add(last.host, last.host_in_round);
          found_ = there;
          Rendezvous machine(last.legacy, lost_host(past), dead, world_.clock.now());
          role_.begin(std::move(machine), there, nullptr);
          co_return role_.connect();
        }
        if (past.unanswered.contains(there)) continue;
        ConnectResult result = co_await connect(there, kAskMax);
        if (result.connection) co_return take(std::move(result), there);
        if (result.failure->kind == ConnectFailure::Kind::kRefused) dead.add(next.id, next.in_round);
      }
      if (past.host != endpoint_ && (!at_endpoint_ || is_entry_)) {
        ConnectResult result = co_await connect(endpoint_, kAskMax);
        if (result.connection) co_return take(std::move(result), endpoint_);
      }
      past.unanswered.clear();
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kRetryFirst);
    }
    throw Error(ErrorCode::kUnavailable,
                fmt::format("lost the host of the rendezvous and found no other in {}",
                            format_duration(context_.terms.join_timeout)),
                to_string(past.host.value_or(endpoint_)), "check the network between the machines");
  }

  // A successor hosts away from the endpoint: agents that join there must still find the group.
  Task<void> claim_endpoint() {
    const bool local = co_await world_.network.is_local(endpoint_.host);
    if (local && bind_endpoint()) co_return;
    ConnectResult result = co_await connect(endpoint_, kAskMax);
    if (!result.connection || !role_.active()) co_return;
    result.connection->send(encode(role_.coordinator().whereabouts(), world_.clock.now()));
  }

  FinderContext context_;
  World& world_;
  const bool is_entry_;
  const Endpoint endpoint_;
  std::string interface_;
  uint16_t peer_port_ = 0;
  bool at_endpoint_ = false;
  Endpoint found_;
  std::optional<View> last_;           // the last word of a host
  std::optional<Endpoint> last_host_;  // where it came from, when that was another agent
  Doorway doorway_;
  HostRole role_;
};

}  // namespace

std::unique_ptr<Finder> make_embedded_finder(const FinderContext& context) {
  return std::make_unique<EmbeddedFinder>(context);
}

}  // namespace rubato::agent
