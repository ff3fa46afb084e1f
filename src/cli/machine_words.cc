#include "cli/machine_words.h"

#include <fmt/format.h>

#include "cli/values.h"
#include "core/error.h"
#include "core/text.h"
#include "provider/command_runner.h"

namespace rubato::cli {
namespace {

// So that `rubato status` and the like, typed there, mean this cluster.
std::string surroundings(const std::string& cluster, const std::string& program) {
  std::string out = fmt::format("export RUBATO_CLUSTER={}", shell_quote(cluster));
  const size_t slash = program.rfind('/');
  if (slash != std::string::npos)
    out += fmt::format(" PATH={}:\"$PATH\"", provider::quote_path(program.substr(0, slash)));
  return out + "; ";
}

// A login shell complains when it is interactive without a terminal, and profiles may, too: nobody asked for that.
std::string in_login_shell(const std::string& script, bool terminal) {
  const std::string inside = "(" + script + "\n)";  // an `exit` of the shell itself would say "logout"
  if (terminal) return "exec bash --login -i -c " + shell_quote(inside);
  return "exec 4>&2 2>/dev/null; exec bash --login -i -c " + shell_quote("exec 2>&4 4>&-; " + inside);
}

std::string in_container(const std::string& name, bool podman, bool terminal, const std::string& line) {
  return fmt::format("{} exec {} {} bash -c {}", podman ? "podman" : "docker", terminal ? "-it" : "-i",
                     shell_quote(name), shell_quote(line));
}

// The command's end ends the cluster, whether or not somebody still listens.
std::string then_stop(const std::string& line, const ExecWords& words) {
  return fmt::format(
      "trap '' HUP PIPE; (trap - HUP PIPE; {}\n); rc=$?; {} down -y --here --cluster {} </dev/null; exit $rc", line,
      provider::quote_path(words.program), shell_quote(words.cluster));
}

std::string detached(const std::string& line, Multiplexer multiplexer, bool stays) {
  const std::string kept = stays ? line + "\nexec bash" : line;
  if (multiplexer == Multiplexer::kTmux) return "tmux new-session -d bash -c " + shell_quote(kept);
  return "screen -L -dm bash -c " + shell_quote(kept);
}

}  // namespace

std::string exec_line(const ExecWords& words) {
  const bool apart = words.multiplexer != Multiplexer::kNone;
  const bool terminal = words.terminal || apart;
  std::string script = surroundings(words.cluster, words.program) + words.script;
  if (!words.here || words.container) script = in_login_shell(script, terminal);
  if (words.container) script = in_container(*words.container, words.podman, terminal, script);
  if (words.stop) script = then_stop(script, words);
  if (apart) script = detached(script, words.multiplexer, !words.stop);
  return script;
}

std::string attach_line(const AttachWords& words) {
  std::string shell = "exec \"${SHELL:-bash}\" -l";
  if (words.container)
    shell =
        fmt::format("exec {} exec -it {} bash -l", words.podman ? "podman" : "docker", shell_quote(*words.container));
  const std::string before = surroundings(words.cluster, words.program);
  switch (words.multiplexer) {
    case Multiplexer::kNone:
      return before + shell;
    case Multiplexer::kScreen:
      return before + (words.fresh ? "exec screen -L" : "exec screen -L -xRR");
    case Multiplexer::kTmux:
      return before + (words.fresh ? "exec tmux new" : "tmux attach || exec tmux new");
  }
  return before + shell;
}

PortPair parse_port_pair(const std::string& text) {
  const auto port = [&](std::string_view part) {
    const auto value = parse_int(part);
    if (!value || *value < 1 || *value > 65535) {
      throw Error(ErrorCode::kUsage, fmt::format("--port-forward {}: expected a port, or LOCAL:REMOTE", text), "",
                  "write -p 8899");
    }
    return *value;
  };
  if (const auto parts = split_once(text, ':')) return {port(parts->first), port(parts->second)};
  return {port(text), port(text)};
}

std::string person_line(const std::vector<std::string>& words) {
  return words.size() == 1 ? words.front() : shell_join(words);
}

}  // namespace rubato::cli
