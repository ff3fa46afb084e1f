// A job's log from the head to the terminal, across restarts of the head.
#pragma once

#include <optional>

#include "client/session.h"
#include "terminal/render_events.h"

namespace rubato::cli {

struct LogQuery {
  std::string job;  // its id
  bool follow = false;
  std::optional<int> rank;
  std::optional<WallTime> since;
  std::optional<int> tail;
  bool json = false;  // entries as they come, one a line
  LogStyle look;
};

// Prints each line once, in order. While following, a head that goes away is asked again for kHeadPatience, from the
// last line of each node that was printed.
StreamEnd print_logs(Api& api, const Shell& shell, const LogQuery& query);

// Follows the job to its end, with its lines (`query.follow`) or without, then tells how it ended: 0 when it succeeded,
// 1 when not, kInterruptedExit when Ctrl-C came first.
int follow_job(const Session& session, const Shell& shell, const LogQuery& query);

// The JobDetail once the job has ended; nullopt when Ctrl-C came first.
std::optional<nlohmann::json> wait_for_end(Api& api, const std::string& job);

// Of a job that has ended: waits until what its workers wrote on other machines is at the head, and says so. The
// JobDetail then; nullopt when Ctrl-C came first.
std::optional<nlohmann::json> wait_for_outputs(Api& api, const Shell& shell, nlohmann::json job);

}  // namespace rubato::cli
