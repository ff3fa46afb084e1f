// Store: a small ordered key-value map with revisions, compare-and-commit, leases and watches.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/channel.h"
#include "core/task.h"

namespace rubato {

struct StoreEntry {
  std::string key;
  std::string value;
  int64_t created = 0;   // revision at which the key came to be
  int64_t modified = 0;  // revision of its last change
};

// All conditions must hold, else nothing is written.
struct StoreCondition {
  std::string key;
  int64_t created = 0;  // 0: the key must be absent; else: it must have been created at this revision
};
struct StoreWrite {
  std::string key;
  std::optional<std::string> value;  // nullopt deletes
  int64_t lease = 0;                 // 0: none
};
struct CommitResult {
  bool committed = false;
  int64_t revision = 0;
};

struct StoreChange {
  std::string key;
  std::optional<std::string> value;  // nullopt: deleted
  int64_t revision = 0;
};

// Every call throws kUnavailable when no server answers by the deadline.
class Store {
 public:
  virtual ~Store() = default;
  virtual Task<std::optional<StoreEntry>> get(std::string key, Instant deadline) = 0;
  virtual Task<std::vector<StoreEntry>> scan(std::string prefix, Instant deadline) = 0;
  virtual Task<CommitResult> commit(std::vector<StoreCondition> conditions, std::vector<StoreWrite> writes,
                                    Instant deadline) = 0;
  // Keys written under a lease vanish when it is not renewed for ttl (whole seconds, the server's minimum applies).
  virtual Task<int64_t> grant_lease(Duration ttl, Instant deadline) = 0;
  virtual Task<bool> renew_lease(int64_t lease, Instant deadline) = 0;  // false: it has expired
  virtual Task<void> revoke_lease(int64_t lease, Instant deadline) = 0;
  // Changes below the prefix from now on, through server losses; runs until cancelled. It may repeat a change,
  // and after a gap it delivers a synthetic change (empty key) that means "read again".
  virtual Task<void> watch(std::string prefix, Channel<StoreChange>& changes) = 0;
};

}  // namespace rubato
