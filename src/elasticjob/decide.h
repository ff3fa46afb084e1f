// decide: from a job and its pods to what is done next. Pure: the same input gives the same actions.
//
//   Pending ----> Running <----> Restarting       Suspended: no pods; from any of these, and back
//      \             |               |
//       +------------+---------------+----> Succeeded | Failed       final: pods are cleaned up, nothing is made again
//
// The state is all in the API's objects. Each pod carries the number of failures that its job had when it was made, so
// that a failed pod is counted once, however often the operator sees it or restarts: failures = max(attempt + 1). The
// failure is written down before the failed pod is deleted.
//
// A group opens its rendezvous in one pod (is_host) only when no pod of the job can be in a group: all others join what
// is there, so that two groups of a job never train at once. Whoever hosts it later, the launchers agree on themselves.
//
// Pods of a rigid job (AdaptDL's) are told their rank and number: a group of another size, or one that lost a pod, ends
// as a whole (SIGTERM: they save and leave) and a new group is made when the last of its pods is gone.
#pragma once

#include <vector>

#include "elasticjob/job.h"

namespace rubato::elasticjob {

struct MakePod {
  int index = 0;
  int attempt = 0;
  bool is_host = false;
  int group = 0;  // of a rigid job
  bool operator==(const MakePod&) const = default;
};

struct RemovePod {
  std::string name, uid;
  std::string reason;  // for the log and the event: "scaled down", "failed", ...
  bool operator==(const RemovePod&) const = default;
};

struct Decision {
  Status status;
  std::vector<RemovePod> remove;
  std::vector<MakePod> make;
  bool remove_job = false;        // its time after the end is over
  std::optional<WallTime> again;  // decide again then, even if nothing changed
};

// What the operator met when it last acted for this job; forgotten when it restarts.
struct Trouble {
  Block block;  // the server refused a pod: quota, admission
};

Decision decide(const Job& job, const std::vector<Pod>& pods, const Trouble& trouble, WallTime now);

// How long a failed pod waits before it is replaced: 10 s, doubled by each failure, at most 5 min.
Duration backoff_after(int failures);

}  // namespace rubato::elasticjob
