// Where the output of one worker goes: the terminal, files, or both with a prefix (torchrun's -r and -t).
#pragma once

#include <memory>
#include <string>

#include "model/launch_spec.h"
#include "world/world.h"

namespace rubato::agent {

// The two targets for spawn(), as the choices say. `folder` holds stdout.log and stderr.log.
struct OutputPlan {
  OutputTarget out, err;
  bool piped() const { return out.kind == OutputTarget::Kind::kPipe || err.kind == OutputTarget::Kind::kPipe; }
};
OutputPlan plan_output(const LaunchSpec& spec, int local_rank, const std::string& folder);

// Copies a teed worker's pipes to its files and, line by line with a "[role0]:" prefix, to our own streams.
// Ends when the pipes do.
Task<void> tee_output(World& world, Process& process, std::string prefix, std::string folder, bool show);

}  // namespace rubato::agent
