// WorkerSizes: how many workers a job may have, as people write it: N, MIN:MAX or MIN:MAX:STEP.
#pragma once

#include <string>
#include <string_view>

namespace rubato {

inline constexpr int kWorkersMax = 100'000;

struct WorkerSizes {
  int min = 1;
  int max = 1;
  int step = 1;  // it runs on multiples only, and both bounds are such

  bool operator==(const WorkerSizes&) const = default;
};

// Throws a usage Error that names no place: the caller knows it.
WorkerSizes parse_worker_sizes(std::string_view text);
// The same text again, in its shortest form.
std::string to_string(const WorkerSizes& sizes);
// Throws a usage Error when one of them is out of range.
void check_worker_sizes(const WorkerSizes& sizes);

}  // namespace rubato
