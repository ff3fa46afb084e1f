// A request of AdaptDL's supervisor protocol, below the path that its server gave to a job's workers. Pure.
//
//   GET healthz
//   GET discover/NAMESPACE/JOB/GROUP?timeout=30   the addresses of all workers by rank; 408: ask again
//   PUT hints/NAMESPACE/JOB                       what the job has found out about itself
//
// Its client sends no credentials: the path above says which job asks, the names below it say nothing more.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/time.h"

namespace rubato {

struct SupervisorRequest {
  enum class Verb { kHealth, kDiscover, kHints, kMalformed, kUnknown };
  Verb verb = Verb::kUnknown;
  uint64_t group = 0;       // of kDiscover
  Duration patience = 30s;  // of kDiscover: how long the answer may take
};

// `parts`: of the path, from the verb on. `timeout`: of the query, as written.
SupervisorRequest read_supervisor_request(std::string_view method, std::span<const std::string_view> parts,
                                          const std::optional<std::string>& timeout);

inline constexpr size_t kHintsBytesMax = size_t{64} << 10;

}  // namespace rubato
