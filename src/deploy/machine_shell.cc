#include "deploy/machine_shell.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/text.h"
#include "provider/command_runner.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

// So that `rubato status` and the like, typed there, mean this cluster.
std::string surroundings(const PlaceCommand& exec) {
  std::string out = fmt::format("export RUBATO_CLUSTER={}", shell_quote(exec.cluster));
  const size_t slash = exec.program.rfind('/');
  // A container has its own home, with rubato in the usual place.
  const std::string folder = exec.container ? "~/.rubato/bin" : exec.program.substr(0, slash);
  if (slash != std::string::npos) out += fmt::format(" PATH={}:\"$PATH\"", provider::quote_path(folder));
  return out + "; ";
}

// A login shell complains when it is interactive without a terminal, and profiles may, too: nobody asked for that.
// Without bash, as in small images, it is sh. Nobody types into it: bash-completion, which takes longer to load than
// all the rest, is told that it is there already.
std::string in_login_shell(const std::string& script, bool terminal) {
  const std::string start =
      "exec sh -c 'command -v bash >/dev/null 2>&1 && export BASH_COMPLETION_VERSINFO=0 && "
      "exec bash --login -i -c \"$0\"; exec sh -l -c \"$0\"' ";
  // In parentheses: an `exit` of the shell itself would say "logout".
  const std::string inside = "(unset BASH_COMPLETION_VERSINFO; " + script + "\n)";
  if (terminal) return start + shell_quote(inside);
  return "exec 4>&2 2>/dev/null; " + start + shell_quote("exec 2>&4 4>&-; " + inside);
}

// Without a terminal nothing tells a command that whoever typed it was killed: rubato itself watches there. One of an
// older version does not know how, and a machine may have none any more.
std::string while_heard(const PlaceCommand& exec, const std::string& line) {
  const std::string program = provider::quote_path(exec.program);
  const std::string quoted = shell_quote(line);
  return fmt::format("{0} while-heard true 2>/dev/null && exec {0} while-heard sh -c {1}; exec sh -c {1}", program,
                     quoted);
}

const char* container_tool(const PlaceCommand& exec) { return exec.podman ? "podman" : "docker"; }

std::string in_container(const PlaceCommand& exec, bool terminal, const std::string& line) {
  return fmt::format("{} exec {} {} sh -c {}", container_tool(exec), terminal ? "-it" : "-i",
                     shell_quote(*exec.container), shell_quote(line));
}

// What runs in a container does not hear that its client has ended, and no signal reaches it: whatever carries the mark
// in its environment is ended from outside, within the grace of while-heard.
constexpr std::string_view kEndMarked =
    R"sh(for s in TERM 0 0 KILL; do
  left=
  for p in /proc/[0-9]*; do
    if grep -qs "RUBATO_EXEC=$0" "$p/environ"; then left=1; kill -$s "${p#/proc/}"; fi
  done
  [ -n "$left" ] || exit 0
  sleep 1
done)sh";

// In the background, and waited for: a shell that waits for a program in front takes no signal.
std::string in_container_while_heard(const PlaceCommand& exec, const std::string& line) {
  const std::string script = fmt::format(
      "m=$$-$(date +%s); exec 3<&0\n"
      "end() {{ trap '' TERM HUP; {0} exec {1} sh -c {2} \"$m\" </dev/null >/dev/null 2>&1; exit 143; }}\n"
      "trap end TERM HUP\n"
      "{0} exec -i -e RUBATO_EXEC=$m {1} sh -c {3} <&3 3<&- & wait $!",
      container_tool(exec), shell_quote(*exec.container), shell_quote(std::string(kEndMarked)), shell_quote(line));
  return while_heard(exec, script);
}

// The person's own shell. A profile may set PATH anew (Debian's does), so ours is added after it, by a login shell that
// becomes the one that is typed into. Shells of another kind get what they inherit.
std::string shell_line(const PlaceCommand& exec) {
  const std::string before = surroundings(exec);
  const std::string start = "-l -c " + shell_quote(before + "exec \"$0\" -i");
  if (exec.container) {
    const std::string inside = fmt::format("sh=$(command -v bash || echo sh); exec \"$sh\" {} \"$sh\"", start);
    return "exec " + in_container(exec, true, inside);
  }
  return fmt::format(
      "sh=${{SHELL:-bash}}; case \"${{sh##*/}}\" in bash|zsh|ksh|dash|sh) exec \"$sh\" {} \"$sh\" ;; esac; "
      "{}exec \"$sh\" -l",
      start, before);
}

std::string down_words(const ExecCommand& exec) {
  std::string out = fmt::format("{} down -y --here --cluster {} </dev/null", provider::quote_path(exec.program),
                                shell_quote(exec.cluster));
  if (exec.power_off) out += " && { sudo -n shutdown -h now || shutdown -h now; }";
  return out;
}

// The command's end ends the cluster, whether or not somebody still listens.
std::string then_stop(const std::string& line, const ExecCommand& exec) {
  return fmt::format("trap '' HUP PIPE; (trap - HUP PIPE; {}\n); rc=$?; {}; exit $rc", line, down_words(exec));
}

// The same in a session, which may be killed with all that is in it: somebody outside waits for its end. A process is
// known by its number and the time when it started (field 22 of its stat, the 19th after its state).
constexpr std::string_view kWaitForEnd =
    R"sh(s() { sed -n 's/.*) [^ZX] //p' "/proc/$0/stat" 2>/dev/null | cut -d' ' -f19; }
t=$(s); while [ -n "$t" ] && [ "$(s)" = "$t" ]; do sleep 0.5; done
)sh";
std::string stop_outside(const std::string& line, const ExecCommand& exec) {
  const std::string log = provider::quote_path("~/.rubato/stop-" + exec.cluster + ".log");
  return fmt::format("setsid sh -c {} $$ >{} 2>&1 </dev/null &\n{}",
                     shell_quote(std::string(kWaitForEnd) + down_words(exec)), log, line);
}

std::string tmux_of(const PlaceCommand& exec) { return "tmux -L " + shell_quote("rubato-" + exec.cluster); }
// screen takes the beginning of a name for the name: the dot tells `lab` from `lab-2`.
std::string screen_of(const PlaceCommand& exec) {
  return "screen -L -S " + shell_quote("rubato-" + exec.cluster + ".");
}

// As one word that any shell takes for a command: tmux hands it to the person's.
std::string as_command(const std::string& line) { return "exec sh -c " + shell_quote(line); }

// Later windows are as the first.
std::string tmux_windows(const PlaceCommand& exec) {
  return " \\; set-option -g default-command " + shell_quote(as_command(shell_line(exec)));
}

// With what a login shell finds: the program may be where only the person's profile leads.
std::string with_multiplexer(const PlaceCommand& exec, bool terminal, const std::string& line) {
  const std::string script = fmt::format("{}command -v {} >/dev/null || exit {}; {}", surroundings(exec),
                                         to_string(exec.multiplexer), kNoMultiplexer, line);
  return exec.here ? script : in_login_shell(script, terminal);
}

std::string detached(const ExecCommand& exec, const std::string& line) {
  const std::string command = shell_quote(as_command(exec.stop ? line : line + "\n" + shell_line(exec)));
  if (exec.multiplexer == Multiplexer::kScreen) return screen_of(exec) + " -dm sh -c " + command;
  return tmux_of(exec) + " new-session -d " + command + tmux_windows(exec);
}

}  // namespace

std::string_view to_string(Multiplexer multiplexer) {
  switch (multiplexer) {
    case Multiplexer::kNone:
      return "";
    case Multiplexer::kScreen:
      return "screen";
    case Multiplexer::kTmux:
      return "tmux";
  }
  return "";
}

std::string exec_line(const ExecCommand& exec) {
  const bool apart = exec.multiplexer != Multiplexer::kNone;
  const bool terminal = exec.terminal || apart;
  std::string script = surroundings(exec) + exec.script;
  if (!exec.here || exec.container) script = in_login_shell(script, terminal);
  if (!exec.here && !exec.container && !terminal) script = while_heard(exec, script);
  if (exec.container) {
    const bool watched = !exec.here && !terminal;
    script = watched ? in_container_while_heard(exec, script) : in_container(exec, terminal, script);
  }
  if (exec.stop) {
    script = apart ? stop_outside(script, exec) : then_stop(script, exec);
  } else if (apart) {
    script = "(" + script + "\n)";  // a shell follows, which must outlive its `exec`
  }
  return apart ? with_multiplexer(exec, exec.terminal, detached(exec, script)) : script;
}

std::string attach_line(const AttachCommand& exec) {
  const std::string shell = shell_line(exec);
  switch (exec.multiplexer) {
    case Multiplexer::kNone:
      return shell;
    case Multiplexer::kScreen:
      return with_multiplexer(
          exec, true,
          fmt::format("exec {} {} sh -c {}", screen_of(exec), exec.fresh ? "" : "-xRR", shell_quote(shell)));
    case Multiplexer::kTmux:
      break;
  }
  const std::string tmux = tmux_of(exec);
  // `tmux attach || tmux new` would now and then meet the server that the first has started and that ends again.
  const std::string found = fmt::format("if {0} has-session 2>/dev/null; then exec {0} attach-session; fi; ", tmux);
  return with_multiplexer(exec, true,
                          fmt::format("{}exec {} new-session {}{}", exec.fresh ? "" : found, tmux,
                                      shell_quote(as_command(shell)), tmux_windows(exec)));
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

std::string person_line(const std::vector<std::string>& arguments) {
  return arguments.size() == 1 ? arguments.front() : shell_join(arguments);
}

}  // namespace rubato::cli
