// The etcd backend: etcd says who hosts the rendezvous (a key under a lease) and keeps what the next host must know.
// Agents talk to the host directly, as in the embedded backend; etcd is asked when there is none, and before a
// generation starts. A host that is not the owner of the key any more cannot start one.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/finder.h"

namespace rubato::agent {

using namespace elastic;

namespace {

constexpr Duration kReachMax = 1s;
constexpr Duration kPollMax = 500ms;
constexpr Duration kStoreMax = 5s;
constexpr Duration kDoubtPoll = 50ms;
constexpr Duration kScoutPause = 100ms;
// What the next host must know outlives its host, but not the job: another job may have the same id.
constexpr Duration kStateKept = 60s;
// A host that etcd does not answer goes on for this long while all its agents are with it: etcd is away, most likely.
// An agent that was not with it, and finds nobody who was, waits for longer before it takes over.
constexpr Duration kDoubtMax = 45s;
static_assert(kDoubtMax < kStateKept);
// etcd may need a second or two to elect a leader, and no lease can be renewed meanwhile.
constexpr Duration kLeaseMin = 5s;

class EtcdFinder final : public Finder {
 public:
  EtcdFinder(const FinderContext& context, Store& store)
      : context_(context),
        world_(context.world),
        store_(store),
        prefix_("/rubato/" + context.spec.run_id + "/"),
        host_key_(prefix_ + "host"),
        state_key_(prefix_ + "state"),
        ttl_(std::max(2 * context.terms.heartbeat, kLeaseMin)),
        changed_(context.world.clock.loop()),
        changes_(context.world.clock.loop()),
        doorway_(context.world, context.self),
        role_(context.world, context.self, context.key, context.spec.run_id, context.events, doorway_),
        scope_(context.world.clock.loop()) {
    context_.terms.needs_quorum = false;
    const Endpoint any{"", 0};
    auto listener = world_.network.listen(any, context_.key, context_.terms.heartbeat);
    peer_port_ = listener->port();
    doorway_.open(std::move(listener));
  }

  Task<std::unique_ptr<Connection>> find(Past past) override {
    if (!role_.active()) doorway_.hold();
    const Instant deadline = past.since + context_.terms.join_timeout;
    std::optional<Error> trouble;
    while (world_.clock.now() < deadline) {
      try {
        std::unique_ptr<Connection> connection = co_await try_once(past, deadline);
        if (connection) co_return connection;
        trouble.reset();
      } catch (const Error& error) {
        // etcd may be electing a leader: it has until the time for joining is over.
        if (error.code != ErrorCode::kUnavailable) throw;
        trouble = error;
      }
      if (trouble) say_once("rubato: " + trouble->message + "; trying on\n");
      co_await changed_.wait_until(world_.clock.now() + (again_at_once_ ? 0ns : kPollMax));
      again_at_once_ = false;
    }
    if (trouble) throw *trouble;
    throw Error(ErrorCode::kUnavailable,
                fmt::format("found no host for the rendezvous '{}' in {}: {}", context_.spec.run_id,
                            format_duration(context_.terms.join_timeout), last_output_),
                context_.spec.endpoint, "check that the machines of the job reach each other");
  }

  void following(const View&) override {}  // in etcd there are no would-be hosts
  void settled(const View& view) override {
    // A successor that has not formed a round yet still has to account for the agents of the host before it.
    if (role_.active() && !role_.coordinator().incumbent()) return;
    last_ = view;
    if (!role_.active()) last_host_ = found_;
    if (!role_.active())
      doorway_.point_to(Moved{found_.host, found_.port, view.legacy.epoch, view.legacy.round, context_.self});
  }
  Endpoint found() const override { return found_; }
  uint16_t peer_port() const override { return peer_port_; }
  bool hosting() const override { return role_.active(); }

  Task<void> watch() override {
    scope_.spawn(store_.watch(prefix_, changes_));
    scope_.spawn(count_survivors());
    while (true) {
      co_await changes_.pop();
      changed_.notify();
    }
  }

  // Nobody waits for the lease to run out.
  Task<void> hand_over(std::string reason) override {
    if (!role_.active() || created_ == 0) co_return;
    co_await role_.hand_over(std::move(reason));
    try {
      co_await remove_host(created_, world_.clock.now() + kStoreMax);
    } catch (const Error&) {
      // It runs out by itself.
    }
  }

  Task<void> farewell() override {
    const bool hosted = role_.active();
    co_await role_.ended();
    if (!hosted || created_ == 0) co_return;
    try {
      std::vector<StoreCondition> mine{{host_key_, created_}};
      std::vector<StoreWrite> erase{{host_key_, std::nullopt, 0}, {state_key_, std::nullopt, 0}};
      co_await store_.commit(std::move(mine), std::move(erase), world_.clock.now() + kStoreMax);
      co_await store_.revoke_lease(lease_, world_.clock.now() + kStoreMax);
      co_await store_.revoke_lease(state_lease_, world_.clock.now() + kStoreMax);
    } catch (const Error&) {
      // The lease runs out by itself; the job's outcome does not depend on it.
    }
  }

 private:
  // After a takeover, a member that is known to be dead need not be waited for.
  Task<void> count_survivors() {
    while (true) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kScoutPause);
      if (!role_.active() || role_.coordinator().incumbent() || !last_) continue;
      std::vector<Endpoint> nowhere_else;
      co_await find_missing(world_, context_.key, context_.self, *last_, last_host_, std::move(nowhere_else), role_);
    }
  }

  // Null: not this time.
  Task<std::unique_ptr<Connection>> try_once(const Past& past, Instant deadline) {
    const Instant limit = std::min(deadline, world_.clock.now() + kStoreMax);
    const std::optional<StoreEntry> host = co_await store_.get(host_key_, limit);
    if (!host) {
      const bool won = co_await campaign(past, limit);
      if (!won) co_return nullptr;
      co_return role_.connect();
    }
    const Endpoint there = parse_endpoint(nlohmann::json::parse(host->value).at("address").get<std::string>(), 0);
    const Instant until = world_.clock.now() + kReachMax;
    ConnectResult result = co_await world_.network.connect(there, context_.key, until, context_.terms.heartbeat);
    if (result.connection) {
      found_ = there;
      co_return std::move(result.connection);
    }
    last_output_ = result.failure->message;
    if (result.failure->kind == ConnectFailure::Kind::kRejected) {
      throw Error(ErrorCode::kConflict, result.failure->message, to_string(there),
                  "use the same --rdzv-id and --rdzv-key-file on every machine");
    }
    if (result.failure->kind == ConnectFailure::Kind::kRefused) {
      // Its kernel says that the process is gone: no need to wait for the lease to run out.
      co_await remove_host(host->created, limit);
      again_at_once_ = true;
    }
    co_return nullptr;
  }

  Task<void> remove_host(int64_t created, Instant limit) {
    std::vector<StoreCondition> same{{host_key_, created}};
    std::vector<StoreWrite> erase{{host_key_, std::nullopt, 0}};
    co_await store_.commit(std::move(same), std::move(erase), limit);
  }

  std::string own_address() const {
    if (!context_.spec.local_addr.empty()) return context_.spec.local_addr;
    const auto addresses = world_.network.addresses();
    return addresses.empty() ? "127.0.0.1" : addresses.front();
  }

  Task<bool> campaign(const Past& past, Instant limit) {
    const Instant asked = world_.clock.now();
    state_lease_ = co_await store_.grant_lease(kStateKept, limit);
    lease_ = co_await store_.grant_lease(ttl_, limit);
    const Endpoint here{own_address(), peer_port_};
    const nlohmann::json card = {{"address", to_string(here)}, {"agent", context_.self.value}};
    std::vector<StoreCondition> absent{{host_key_, 0}};
    std::vector<StoreWrite> claim{{host_key_, card.dump(), lease_}};
    const CommitResult result = co_await store_.commit(std::move(absent), std::move(claim), limit);
    if (!result.committed) {
      co_await store_.revoke_lease(lease_, limit);
      co_await store_.revoke_lease(state_lease_, limit);
      co_return false;
    }
    created_ = result.revision;
    renewed_ = asked;
    const std::optional<StoreEntry> state = co_await store_.get(state_key_, limit);
    found_ = here;
    std::optional<Rendezvous> machine;
    if (state) {
      machine.emplace(succeed(state->value, past));
    } else {
      machine.emplace(context_.terms, world_.clock.now());
    }
    Coordinator::Confirm confirm = [this](View view) { return record(std::move(view)); };
    role_.begin(std::move(*machine), here, std::move(confirm));
    scope_.spawn(keep_lease(created_));
    co_return true;
  }

  // The group as its last host left it.
  Rendezvous succeed(const std::string& state, const Past& past) {
    const Message message = decode(state, world_.clock.now());
    const auto* stored = std::get_if<View>(&message);
    if (!stored) throw Error(ErrorCode::kFailed, "the state of the rendezvous cannot be read", state_key_);
    Past known;
    known.view = *stored;
    // The host missed us after it renewed its lease for the last time, so it has stopped when that ran out. One that we
    // lost longer ago may have renewed it without us, and think that all its agents are with it.
    const Instant last_renewal = world_.clock.now() - ttl_;
    const bool was_there = past.view && past.view->legacy.round == stored->legacy.round &&
                           past.heard + stored->legacy.terms.heartbeat >= last_renewal;
    known.heard = was_there ? past.heard : world_.clock.now();
    LostHost host = lost_host(known);
    if (!was_there) host.patience = kStateKept;
    last_ = *stored;
    last_host_.reset();
    return Rendezvous(stored->legacy, host, Dead{}, world_.clock.now());
  }

  // Writes the state, on condition that this agent still owns the host key. While etcd is away it tries on: nobody
  // else can become host meanwhile.
  Task<bool> record(View view) {
    while (true) {
      try {
        std::vector<StoreCondition> mine{{host_key_, created_}};
        std::vector<StoreWrite> state{{state_key_, encode(view, world_.clock.now()), state_lease_}};
        const Instant limit = world_.clock.now() + kStoreMax;
        const CommitResult result = co_await store_.commit(std::move(mine), std::move(state), limit);
        co_return result.committed;
      } catch (const Error& error) {
        if (error.code != ErrorCode::kUnavailable) throw;
        say_once("rubato: etcd does not answer, so no new generation can start: " + error.message + "\n");
      }
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kPollMax);
    }
  }

  // A host whose lease cannot be renewed goes on only while all its agents are with it; else another may be host.
  Task<void> keep_lease(int64_t term) {
    while (role_.active() && created_ == term) {
      const Instant asked = world_.clock.now();
      const Instant doubtful = renewed_ + fence_after(ttl_);
      bool lost = false;
      try {
        const Instant limit = asked < doubtful ? std::min(doubtful, asked + ttl_ / 4) : asked + kDoubtPoll;
        lost = !co_await store_.renew_lease(lease_, limit);
        // As etcd counts: from when it was asked, not from when it answered.
        if (!lost) renewed_ = asked;
        if (asked >= state_renewed_ + kStateKept / 4) {
          co_await store_.renew_lease(state_lease_, asked + ttl_ / 2);
          state_renewed_ = asked;
        }
      } catch (const Error&) {
        const Instant now = world_.clock.now();
        const bool together = role_.active() && role_.coordinator().all_in_touch(renewed_);
        lost = now >= doubtful && (!together || now >= renewed_ + kDoubtMax);
      }
      if (!role_.active() || created_ != term) co_return;
      if (lost) {
        created_ = 0;
        role_.end();
        co_return;
      }
      const Instant next =
          world_.clock.now() < renewed_ + fence_after(ttl_) ? renewed_ + ttl_ / 4 : world_.clock.now() + kDoubtPoll;
      co_await Sleep(world_.clock.loop(), std::max(next, world_.clock.now() + kDoubtPoll));
    }
  }

  void say_once(const std::string& text) {
    if (!std::exchange(said_, true)) world_.console.err(text);
  }

  FinderContext context_;
  World& world_;
  Store& store_;
  std::string prefix_, host_key_, state_key_;
  Duration ttl_;
  uint16_t peer_port_ = 0;
  Endpoint found_;
  std::optional<View> last_;
  std::optional<Endpoint> last_host_;
  int64_t lease_ = 0;
  int64_t state_lease_ = 0;
  Instant state_renewed_{};
  int64_t created_ = 0;  // the revision of our host key: our term
  Instant renewed_{};
  std::string last_output_ = "nobody hosts it";
  bool said_ = false;
  bool again_at_once_ = false;
  Event changed_;
  Channel<StoreChange> changes_;
  Doorway doorway_;
  HostRole role_;
  Scope scope_;
};

}  // namespace

std::unique_ptr<Finder> make_etcd_finder(const FinderContext& context, Store& store) {
  return std::make_unique<EtcdFinder>(context, store);
}

}  // namespace rubato::agent
