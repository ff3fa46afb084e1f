// Folders and files from one machine to another: with rsync when both have it, else as a tar stream through the
// runner, with the same result. docs/files.md has the rules for people.
//
// Which entries go and which are removed is decided here in both cases (sync_tree.h); rsync and tar only carry them.
// Modes, times and links are kept, owners are not: what arrives belongs to who logs in.
#pragma once

#include <string>

#include "provider/command_runner.h"
#include "provider/run_here.h"
#include "world/world.h"

namespace rubato::provider {

// How rsync gets there besides the runner. Neither given: it does not, as into a container.
struct SyncRoute {
  bool rsync_here = false;  // the machine is this one
  std::string rsync_shell;  // for -e, with `rsync_host`
  std::string rsync_host;
};

// What CommandRunner::upload and download promise. They throw what run() throws, and kFailed when a file cannot be
// read or written, with the words of the program that found out.
Task<void> sync_up(World& world, RunnerSettings settings, CommandRunner& runner, SyncRoute route, std::string local,
                   std::string remote, SyncOptions options);
Task<void> sync_down(World& world, RunnerSettings settings, CommandRunner& runner, SyncRoute route, std::string remote,
                     std::string local, SyncOptions options);

}  // namespace rubato::provider
