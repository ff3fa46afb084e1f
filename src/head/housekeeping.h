// Housekeeping: what no job needs any more leaves the head's disk.
//
//   jobs/ID             when the state has forgotten the job (it remembers the last kEndedMax that have ended) and
//                       nothing in it was written for a week: it holds what people have trained
//   packages/*.tar.zst  when no job that it remembers names it, and it is not about to be submitted
//   packages/*.part     when nobody has gone on with the upload for a day
#pragma once

#include <string>
#include <vector>

#include "cluster/state.h"
#include "core/log.h"
#include "core/task.h"
#include "head/state_readers.h"
#include "world/world.h"

namespace rubato::head {

// The paths below `folder`, the cluster's, that can go at this time. Takes long where many jobs have been.
std::vector<std::string> retired(Files& files, const std::string& folder, const cluster::State& state, WallTime now);

// Looks for them again and again, beside the loop, and removes them in turns. The readers outlive this.
Task<void> keep_house(World& world, std::string folder, StateReaders& readers, Log log);

}  // namespace rubato::head
