// A host of a job, at work: `rubato aws-host ORDER`, started by its user data.
//
//   worker   fetch script and key ──▶ wait for the meeting place ──▶ rubato run ──▶ report ──▶ tear the job down
//   rdzv     fetch the key ──▶ wait for the meeting place: is it this host? ──▶ rubato rendezvous | stay idle
//
// The place where the agents meet is written once by the client, and by the agent that takes over when its host is
// lost. A rendezvous host that takes the place of a lost one stays idle: the workers have a host among themselves, and
// a second one would split the job.
#pragma once

#include <string>

#include "aws/settings.h"
#include "petctl/node_order.h"
#include "world/world.h"

namespace rubato::petctl {

struct HostWork {
  NodeOrder order;
  aws::Environment env;
};

// The exit code of what it ran.
Task<int> run_host(World& world, HostWork work);

// Unpacks a .tar, .tar.gz or .tar.zst into a folder that is not there yet. Throws kUsage for what is refused.
void unpack_archive(Files& files, const std::string& path, const std::string& folder);

}  // namespace rubato::petctl
