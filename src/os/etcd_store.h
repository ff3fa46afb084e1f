// EtcdStore: the Store in an etcd cluster (3.4 or newer), through etcd's JSON gateway over Network::call and stream.
//
// Fail-over: a call that finds no connection, no leader or no answer in time goes to the next endpoint, round and
// round with short pauses, until its deadline. The endpoints given are joined by those that the members advertise; an
// answer from another cluster counts as none. Reads are linearizable.
//
// Commits are exactly-once, although a server may die between applying one and answering. Each writes a marker key of
// its own beside the caller's keys, on the condition that the marker is absent:
//   first try  if conditions and no marker: write + marker "committed"
//   retries    the same; else, in the same transaction: no marker -> marker "void" (a straggling first try can then
//              no longer take effect): not committed; marker "committed" -> it was committed, at the marker's revision.
// So `committed == false` is sure, and no write happens twice. Only kUnavailable, at the deadline, leaves it open.
// Markers are below `marker_prefix` (hidden from scan and watch), are removed by the next commit and, after a crash,
// by a lease within 10 minutes.
//
// etcd's limits apply: 1.5 MiB a request, about 120 writes a commit, no key twice in one. Errors that another endpoint
// would answer too (no permission, no space, a malformed request) throw kFailed; a lease that is gone, kNotFound.
#pragma once

#include <string>
#include <vector>

#include "world/clock.h"
#include "world/network.h"
#include "world/store.h"

namespace rubato::os {

// Of "etcd://HOST:PORT,HOST:PORT". Throws a usage Error that names the text.
std::vector<Endpoint> etcd_endpoints(std::string_view address);

class EtcdStore final : public Store {
 public:
  // At least one endpoint. `network` and `clock` outlive the store, the store its tasks.
  EtcdStore(Network& network, Clock& clock, std::vector<Endpoint> endpoints, TlsFiles tls,
            std::string marker_prefix = "/rubato/commit/");

  Task<std::optional<StoreEntry>> get(std::string key, Instant deadline) override;
  Task<std::vector<StoreEntry>> scan(std::string prefix, Instant deadline) override;
  Task<CommitResult> commit(std::vector<StoreCondition> conditions, std::vector<StoreWrite> writes,
                            Instant deadline) override;
  Task<int64_t> grant_lease(Duration ttl, Instant deadline) override;
  Task<bool> renew_lease(int64_t lease, Instant deadline) override;
  Task<void> revoke_lease(int64_t lease, Instant deadline) override;

  // Begins with a synthetic "read again" change once the server has registered the watch: who reads then misses
  // nothing. After a lost server it goes on at another from the revision after the last one seen; where that has been
  // compacted away it begins anew. Throws only what no server would ever grant.
  Task<void> watch(std::string prefix, Channel<StoreChange>& changes) override;

  // Given and learned, for the curious.
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }

 private:
  struct Answer;
  struct Told;
  Told read_answer(const HttpResponse& response);
  Task<Told> ask(Endpoint endpoint, std::string path, std::string body, Instant deadline);
  Task<Answer> post(std::string path, std::string first, std::string again, Instant deadline);
  Task<void> learn_members(Instant deadline);
  void prefer_after(const Endpoint& failed);
  Endpoint after(const Endpoint& endpoint) const;
  std::vector<std::string> urls() const;

  Task<void> hold_marker_lease(Instant deadline);
  Task<CommitResult> commit_marked(std::vector<StoreCondition> conditions, std::vector<StoreWrite> writes,
                                   Instant deadline);

  Task<void> watch_at(Endpoint endpoint, std::string prefix, int64_t& next, Channel<StoreChange>& changes);
  Task<void> read_stream(Endpoint endpoint, HttpRequest request, Channel<std::string>& chunks, HttpResponse& head,
                         std::optional<Error>& refusal);
  Task<void> probe(Endpoint endpoint, Channel<std::string>& chunks);
  bool deliver(const std::string& line, int64_t& next, Channel<StoreChange>& changes) const;

  Network& network_;
  Clock& clock_;
  const std::vector<Endpoint> given_;
  const TlsFiles tls_;
  const std::string marker_prefix_;
  std::vector<Endpoint> endpoints_;  // given_, then the learned ones
  size_t preferred_ = 0;             // the one that answered last
  std::string cluster_;              // the id that the first answer bore
  Instant members_due_{};            // when to ask for the members again
  int64_t marker_lease_ = 0;
  Instant marker_lease_renewed_{};
  uint64_t commits_ = 0;
  std::vector<std::string> settled_markers_;  // to be removed by the next commit
};

}  // namespace rubato::os
