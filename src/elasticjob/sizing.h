// sizing: how many workers an adaptive job is to have, from what its workers tell of themselves. Pure.
//
// Workers report AdaptDL's hints (supervisor.h), which are kept as an annotation of the job, and so is the size that
// follows from them. policy::allocate says how many workers are worth their money; a change must pay for itself:
//   - the group is whole, and the last change of size was some restarts ago;
//   - a larger group learns at least 5 % faster after its restart, a smaller one saves at least 15 % of the workers;
//   - nobody knows what lies beyond twice the workers that the job has been seen with;
//   - where workers found no room, the job is content with those that did, and asks again after ten minutes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "elasticjob/job.h"

namespace rubato::elasticjob {

inline constexpr const char* kAnnotationHints = "rubato.dev/hints";  // JobProfile, as AdaptDL's hints
inline constexpr const char* kAnnotationSized = "rubato.dev/size";   // SizeNote: chosen by the operator
inline constexpr double kLeastUtility = 0.5;                         // as a cluster file's

struct Sizing {
  std::optional<SizeNote> change;  // to be written down; the pods follow
  std::optional<WallTime> again;   // size again then, even if nothing changed
};
Sizing size_job(const Job& job, const std::vector<Pod>& pods, WallTime now);

// Of an adaptive job: what its size follows from, for `rubato why`.
std::string explain_size(const Job& job);

// Job::adaptive from the annotations; its bounds are given. What cannot be read counts as not there.
void read_adaptive(Job& job, const nlohmann::json& annotations, int least, int most, double least_utility);
// The merge patch that writes a size down.
nlohmann::json size_patch(const SizeNote& note);

// Whether these hints say more than those before: small drifts of measured values are not worth a write.
bool is_news(const JobProfile& before, const JobProfile& after);

}  // namespace rubato::elasticjob
