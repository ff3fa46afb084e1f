// How a job's round is formed, its plan included where its workers may live on to the next one. Pure.
#pragma once

#include <string>

#include "cluster/observed.h"
#include "cluster/state.h"
#include "elastic/round.h"

namespace rubato::reconcile {

// The round that a job gathers, when all its seats are ready.
elastic::Round form_round(const cluster::State& state, const cluster::Observed& observed, const cluster::Job& job);

// "resized 2→3 in place": what a started plan changes; empty: all begin together.
std::string describe_change(const cluster::Job& job);

// Some workers have ended well, and the others have never trained: there is nothing left for them.
bool is_over(const cluster::Observed& observed, const cluster::Job& job);

}  // namespace rubato::reconcile
