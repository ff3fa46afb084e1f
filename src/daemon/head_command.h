// `rubato head` and `rubato agent`: the daemons' own main programs, started by `up` and by the head.
#pragma once

#include <string>

namespace rubato::cli {

struct HeadStart {
  bool accept_loss = false;     // a journal that is damaged is gone on with; what is missing is told in it
  std::string restarted_after;  // its supervisor starts it: how the head before ended
};

// Serves the cluster in DIR until it is shut down. Returns the exit code of the process.
int head_command(const std::string& dir, const HeadStart& start);

// Serves the node in DIR until its head removes it. Returns the exit code of the process.
int agent_command(const std::string& dir);

// Brings what a dead agent has left in DIR to the head. 0: all of it.
int deliver_command(const std::string& dir);

}  // namespace rubato::cli
