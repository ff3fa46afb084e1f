// The channels of Kubernetes' exec over WebSocket ("v4.channel.k8s.io", "v5.channel.k8s.io"): the first byte of each
// message says whose it is. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rubato::kubernetes {

inline constexpr char kExecInput = 0, kExecOutput = 1, kExecError = 2, kExecStatus = 3, kExecResize = 4;
inline constexpr char kExecClose = '\xff';  // of v5 alone: the channel that the next byte names has ended

// The end of a command, as the last message of its channel tells it.
struct ExecEnd {
  bool ended = false;  // the command itself has; false: it could not be started, or its end is not known
  int exit_code = 0;
  bool unreached = false;  // nobody asked the container: it does not run (yet), or its node does not answer
  std::string message;     // the server's, for people
};
// Of a document without trust.
ExecEnd read_exec_status(std::string_view text);

std::string resize_message(int columns, int rows);

// v4 cannot say that the input has ended. So the command gets its input from a loop of the shell there, which reads
// pieces with their length before them: the argv around the command's, and the pieces.
std::vector<std::string> with_framed_input(const std::vector<std::string>& argv);
std::string framed_piece(std::string_view bytes);  // of no bytes: the end

}  // namespace rubato::kubernetes
