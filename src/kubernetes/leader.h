// Leader election: of several processes the one that holds a Lease (coordination.k8s.io/v1) acts.
//
// Clocks of machines differ, so that times in the Lease are for people: a holder is given up when its Lease has not
// changed for its whole duration by our own clock, as in client-go. The holder renews every third of it, and stops
// acting at two thirds without success, so that nobody else can be leader meanwhile. A process that was stopped finds
// its time over before it knows anything else: holds() is asked before each write (Client::guard_writes).
#pragma once

#include <optional>
#include <string>

#include "core/log.h"
#include "kubernetes/client.h"

namespace rubato::kubernetes {

struct LeaderTerms {
  Duration lease = 15s;
  Duration renew_every = 5s;
  Duration give_up_after = 10s;
};

// What a Lease said when we last looked.
struct LeaseSeen {
  std::string holder;  // empty: nobody
  std::string resource_version;
  Duration duration = 15s;
  Instant changed{};  // when we first saw this version
};

enum class LeaseMove { kCreate, kTake, kRenew, kWait };
// Pure. `seen` nullopt: there is no Lease.
LeaseMove decide_lease(const std::optional<LeaseSeen>& seen, const std::string& self, Instant now);

class Leader {
 public:
  Leader(Client& client, ObjectName lease, std::string self, Log log, LeaderTerms terms = {});

  // Returns when this process is the leader.
  Task<void> acquire();
  // Returns when it is not any more: whoever acts must stop at once.
  Task<void> keep();
  // Whether nobody else can be leader now.
  bool holds() const;
  // Lets the next one have it at once. For an orderly end.
  Task<void> release();

 private:
  Task<bool> try_once();  // true: we hold it now
  Task<void> write(bool create);

  Client& client_;
  const ObjectName lease_;
  const std::string self_;
  Log log_;
  const LeaderTerms terms_;
  std::optional<LeaseSeen> seen_;
  std::optional<Instant> held_;  // when it was last ours: before the request that made it so
  int64_t transitions_ = 0;
  std::string acquired_at_;
};

}  // namespace rubato::kubernetes
