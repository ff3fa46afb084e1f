// How a script gets into a shell on another machine: by standard input, not by argument. A shell there is started with
// words that never vary; it reads one line, the script, and leaves the rest of its input to the script. So no secret is
// seen in `ps`, no length is too much for an argument, and nothing depends on the quoting rules of a login shell.
#pragma once

#include <string>
#include <string_view>

#include "provider/command_runner.h"

namespace rubato::provider {

// The words that start the shell, for a login shell on the other side (sh, bash, zsh, fish, csh).
std::string shell_command(bool login);
// The same as arguments, without a shell around them.
std::vector<std::string> shell_argv(bool login);

// The line that it reads first: the exports and the script. Throws kUsage for a NUL byte or a name that is none.
std::string script_line(const Command& command);

// ssh says 255 when it failed itself. The shell says this line when its script had that code.
inline constexpr std::string_view kOwn255 = "rubato: the command itself ended with 255";

// What bash complains about when it has no terminal, and kOwn255.
bool is_shell_noise(std::string_view line);

}  // namespace rubato::provider
