// SimStore: one linearizable store server (as an etcd cluster looks from outside) in virtual time.
// ProgramStore: the Store seam as one program sees it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/network.h"
#include "sim/program_network.h"
#include "world/store.h"

namespace rubato::sim {

class SimStore {
 public:
  explicit SimStore(SimNetwork& network);  // node 0 of the network, "etcd"
  ~SimStore();

  // Down: no request is answered, no lease expires. When it is up again every lease has its full time, as a new
  // etcd leader grants it. Data survives. To part single machines from it, cut them from node().
  void set_up(bool up);
  NodeId node() const { return node_.id; }

  // etcd's minimum is 1.5 election timeouts, in whole seconds; with its defaults 2 s.
  Duration lease_ttl_min = 2s;
  Duration commit_delay = 2ms;  // a quorum's fsync

  const std::map<std::string, StoreEntry>& entries() const { return entries_; }
  int64_t revision() const { return revision_; }

  // For ProgramStore: what a request does when it has arrived.
  CommitResult commit(const std::vector<StoreCondition>& conditions, const std::vector<StoreWrite>& writes);
  int64_t grant(Duration ttl);
  bool renew(int64_t lease);
  void revoke(int64_t lease);

  // A request on its way. The client may be gone before it arrives: it is carried out all the same.
  class Exchange;
  std::shared_ptr<Exchange> send(Node& client, LocalLoop& loop, std::function<void()> apply, Duration work);

  void mark_lost_answer() { simulator_.mark("store.answer_lost"); }

  class Watcher;  // one watching client

 private:
  friend class Exchange;
  friend class Watcher;
  struct Lease;
  void apply_write(const StoreWrite& write);
  void erase(const std::string& key);
  void publish(const std::string& key, const std::optional<std::string>& value);
  bool reaches(const Node& client) const { return network_.round_trip(client.id, node_.id); }
  void network_changed();

  SimNetwork& network_;
  Simulator& simulator_;
  Node& node_;
  int64_t revision_ = 1;  // as a fresh etcd's
  int64_t next_lease_ = 1;
  std::map<std::string, StoreEntry> entries_;
  std::map<std::string, int64_t> lease_of_;
  std::map<int64_t, std::unique_ptr<Lease>> leases_;
  std::map<uint64_t, Watcher*> watchers_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::shared_ptr<Exchange>> exchanges_;
};

class ProgramStore final : public Store {
 public:
  ProgramStore(SimStore& store, Node& node, LocalLoop& loop) : store_(store), node_(node), loop_(loop) {}

  Task<std::optional<StoreEntry>> get(std::string key, Instant deadline) override;
  Task<std::vector<StoreEntry>> scan(std::string prefix, Instant deadline) override;
  Task<CommitResult> commit(std::vector<StoreCondition> conditions, std::vector<StoreWrite> writes,
                            Instant deadline) override;
  Task<int64_t> grant_lease(Duration ttl, Instant deadline) override;
  Task<bool> renew_lease(int64_t lease, Instant deadline) override;
  Task<void> revoke_lease(int64_t lease, Instant deadline) override;
  Task<void> watch(std::string prefix, Channel<StoreChange>& changes) override;

 private:
  Task<void> ask(std::function<void()> apply, Duration work, Instant deadline);

  SimStore& store_;
  Node& node_;
  LocalLoop& loop_;
};

}  // namespace rubato::sim
