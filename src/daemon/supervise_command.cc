// `rubato supervise`: the process that keeps a cluster's head alive. It is started by `rubato up`, by the head when its
// supervisor was killed, or by the user's systemd.
#include <fmt/format.h>

#include "client/head_end.h"
#include "client/supervision.h"
#include "core/error.h"
#include "core/text.h"
#include "daemon/daemon_command.h"
#include "daemon/supervisor_watch.h"
#include "os/daemons.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/supervisor.h"

namespace rubato::cli {
namespace {

// Under systemd, the environment of who typed `rubato up` is in a file.
std::vector<std::string> environment_of(os::RealFiles& files, const std::string& dir, const Environment& own) {
  std::vector<std::string> out;
  const std::optional<std::string> kept =
      read_wanted(files, dir) == kKeptBySystemd ? files.read(environment_file(dir)) : std::nullopt;
  if (kept) {
    for (const std::string_view entry : split(*kept, '\0')) {
      if (!entry.empty()) out.emplace_back(entry);
    }
    return out;
  }
  for (const auto& [name, value] : own) out.push_back(name + "=" + value);
  return out;
}

// What happens to the head is told in its own log. A full disk is no reason to end.
Log head_log(os::RealFiles& files, const std::string& dir) {
  const std::string path = dir + "/head/daemon.log";
  Log log(
      [&files, path](LogLevel, std::string_view line) {
        try {
          files.open_append(path)->append(std::string(line) + "\n");
        } catch (const Error&) {
        }
      },
      [] { return os::wall_now(); });
  return log.with({{"who", "supervisor"}});
}

}  // namespace

int supervise_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string dir = parsed.value("dir");
  if (dir.empty()) throw Error(ErrorCode::kUsage, "--dir is missing", "", "this is started by 'rubato up'");
  os::RealFiles files;
  if (!files.exists(dir)) throw Error(ErrorCode::kUsage, fmt::format("there is no folder '{}'", dir), "", "rubato up");
  const Log log = head_log(files, dir);
  const std::string program = os::own_program();
  os::SupervisorSettings settings;
  settings.folder = dir + "/head";
  settings.spec = [&](const std::string& after) {
    DaemonSpec spec;
    spec.folder = dir + "/head";
    spec.argv = {program, "head", "--dir", dir};
    spec.env = environment_of(files, dir, shell.env);
    if (!after.empty()) spec.argv.insert(spec.argv.end(), {"--restarted-after", after});
    if (files.exists(accept_loss_file(dir))) spec.argv.push_back("--accept-journal-loss");
    files.remove_tree(accept_loss_file(dir));
    files.remove_tree(head_end_file(dir));
    return spec;
  };
  settings.is_wanted = [&] { return !read_wanted(files, dir).empty(); };
  settings.has_ended_for_good = [&] { return has_ended_for_good(files, dir); };
  settings.note = [&](const os::Supervision& seen) {
    try {
      write_supervision(files, dir, seen);
    } catch (const Error& error) {
      log.warning("cannot write down what the supervisor has seen", {{"error", error.message}});
    }
  };
  settings.replace = [&] {
    if (read_wanted(files, dir) != kKeptByRubato) return;  // systemd starts another one itself
    os::RealDaemons().start(supervisor_spec(program, dir, shell.env));
  };
  settings.before = read_supervision(files, dir);
  settings.before.ends_in_a_row = 0;
  os::supervise(settings, log);
  return 0;
}

}  // namespace rubato::cli
