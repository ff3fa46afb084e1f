// scale_input: a cluster's state as the question that policy::plan_scale answers.
//
// What is wanted, in this order:
//   min_workers   of the file; initial_workers for the first idle time-out of a new cluster;
//   requests      of people (`rubato request`): the cluster must be able to hold them, whatever runs there;
//   queued jobs   their MIN workers, all or nothing, higher priority and older first;
//   elastic jobs  what they lack of their MAX: a job that says 2:8 wants 8 as soon as they can be had.
// What is there: room on nodes, as if workers that are being stopped were gone already, and nodes on their way.
#pragma once

#include "cluster/observed.h"
#include "cluster/state.h"
#include "policy/scale.h"

namespace rubato::reconcile {

// `wake`: when the answer may differ though nothing happens (an idle time-out, the end of a back-off).
policy::ScaleInput scale_input(const cluster::State& state, WallTime now, cluster::Wake& wake);

// How long a node of this type may have nothing to do.
Duration idle_timeout(const ClusterSpec& spec, const std::string& type);

// What a node of this type holds: as the file says, or as the last one that joined had.
const Resources& resources_of(const cluster::State& state, const NodeType& type);

// The ways to get a node of this type: as the file says, or the one without zone, on demand.
std::vector<Offering> offerings_of(const NodeType& type);

// What one costs: 0 for nodes on hosts of one's own, estimated where nobody says it.
double price_of(const cluster::State& state, const NodeType& type, const Offering& offering);

// What would be launched and removed if the cluster had this file.
policy::ScalePlan plan_with(const cluster::State& state, const ClusterSpec& next, WallTime now);

// The demand in words: "3 workers of 1 CPU for 2 jobs", "a request for 8 CPU"; empty when there is none.
std::vector<std::string> demand_texts(const cluster::State& state, WallTime now);

}  // namespace rubato::reconcile
