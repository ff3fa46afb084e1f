// The words that `exec`, `submit FILE` and `attach` have run on a machine: pure, for this machine and others alike.
//
// A command of a person runs in a login shell that is interactive (the usual .bashrc does nothing in one that is not),
// in the cluster's container if it has one, in a screen or tmux if that was asked for. `--stop` is part of the words:
// the head's machine ends the cluster when the command has ended, also when whoever typed it has gone.
//
// Each cluster has sessions of its own: a tmux server `rubato-NAME`, screens called `rubato-NAME.`. So `attach` finds
// what `exec` or an earlier `attach` began, and never a session that the person has there for other things.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/cluster_file.h"

namespace rubato::cli {

enum class Multiplexer { kNone, kScreen, kTmux };

// Where the words run, and in what.
struct PlaceCommand {
  std::string cluster;
  std::string program;  // the path of rubato on that machine, for --stop and for the person's own use
  bool here = false;    // this machine: its environment is ours already
  Multiplexer multiplexer = Multiplexer::kNone;
  std::optional<std::string> container;  // its name
  bool podman = false;
};

struct ExecCommand : PlaceCommand {
  std::string script;  // for bash
  bool terminal = false;
  bool stop = false;
  bool power_off = false;  // after --stop: the machine has no other use, and nobody is there to end it
};
// For `sh -c`, or for the shell that sshd starts.
std::string exec_line(const ExecCommand& exec);

struct AttachCommand : PlaceCommand {
  bool fresh = false;  // a new screen or tmux
};
std::string attach_line(const AttachCommand& exec);

// What a line with a multiplexer ends with when the machine has none.
inline constexpr int kNoMultiplexer = 127;
std::string_view to_string(Multiplexer multiplexer);  // the program's name

// "8899" or "8899:80": local and remote. Throws a usage Error.
struct PortPair {
  int local = 0, remote = 0;
};
PortPair parse_port_pair(const std::string& text);

// The words of a person as a line for bash: one is such a line, several are a program and its arguments.
std::string person_line(const std::vector<std::string>& arguments);

}  // namespace rubato::cli
