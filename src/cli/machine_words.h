// The words that `exec`, `submit FILE` and `attach` have run on a machine: pure, for this machine and others alike.
//
// A command of a person runs in a login shell that is interactive (the usual .bashrc does nothing in one that is not),
// in the cluster's container if it has one, in a screen or tmux if that was asked for. `--stop` is part of the words:
// the head's machine ends the cluster when the command has ended, also when whoever typed it has gone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/cluster_file.h"

namespace rubato::cli {

enum class Multiplexer { kNone, kScreen, kTmux };

struct ExecWords {
  std::string cluster;
  std::string script;   // for bash
  std::string program;  // the path of rubato on that machine, for --stop and for the command's own use
  bool terminal = false;
  bool stop = false;
  bool here = false;  // this machine: its environment is ours already
  Multiplexer multiplexer = Multiplexer::kNone;
  std::optional<std::string> container;  // its name
  bool podman = false;
};
// For `sh -c`, or for the shell that sshd starts.
std::string exec_line(const ExecWords& words);

struct AttachWords {
  std::string cluster;
  std::string program;
  Multiplexer multiplexer = Multiplexer::kNone;
  bool fresh = false;  // a new screen or tmux
  std::optional<std::string> container;
  bool podman = false;
};
std::string attach_line(const AttachWords& words);

// "8899" or "8899:80": local and remote. Throws a usage Error.
struct PortPair {
  int local = 0, remote = 0;
};
PortPair parse_port_pair(const std::string& text);

// The words of a person as a line for bash: one is such a line, several are a program and its arguments.
std::string person_line(const std::vector<std::string>& words);

}  // namespace rubato::cli
