// The rendezvous part of `rubato run`'s flags: which backend, where, and which rank.
#pragma once

#include "model/launch_spec.h"
#include "terminal/flags.h"

namespace rubato::cli {

// Needs min_nodes and max_nodes in `spec`; fills the rendezvous fields and node_rank.
void read_rendezvous(const ParsedCommand& parsed, LaunchSpec& spec);

}  // namespace rubato::cli
