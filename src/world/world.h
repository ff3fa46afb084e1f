// World: everything outside the program, as one struct of seams. Shells get it by reference; it outlives them.
#pragma once

#include <map>
#include <string>

#include "core/random.h"
#include "world/clock.h"
#include "world/files.h"
#include "world/network.h"
#include "world/processes.h"
#include "world/store.h"

namespace rubato {

// Standard output and error: data goes to out, progress and words to err. A write never blocks on a reader for long
// and a closed pipe is not an error.
class Console {
 public:
  virtual ~Console() = default;
  virtual void out(std::string_view text) = 0;
  virtual void err(std::string_view text) = 0;
};

// What this machine, and this process on it, is; read once.
struct MachineFacts {
  int pid = 0;
  std::string hostname;
  std::string machine_id;  // the same for two agents on one machine (or container), different for others
  int cpus = 1;
  int gpus = 0;
};

struct World {
  Clock& clock;
  Network& network;
  Processes& processes;
  Files& files;
  Console& console;
  Random& random;
  const MachineFacts& machine;
};

}  // namespace rubato
