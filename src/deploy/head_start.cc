#include "deploy/head_start.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "client/head_end.h"
#include "client/head_settings.h"
#include "client/supervision.h"
#include "core/text.h"
#include "deploy/head_unit.h"
#include "terminal/layout.h"

namespace rubato::cli {
namespace {

constexpr Duration kHeadLook = 50ms;
constexpr Duration kSupervisorGoneWithin = 10s;
constexpr size_t kLogLinesShown = 8;
constexpr int kEndsTold = 3;  // so often in a row, and a person is told rather than made to wait

// The end of the log of a head that is not well.
std::string log_tail(ClusterTools& tools, const ClusterPlace& place) {
  const std::string text = tools.files().read(place.head_folder() + "/daemon.log").value_or("");
  const std::string trimmed(trim(text));
  const auto lines = split(trimmed, '\n');
  std::string out;
  for (size_t i = lines.size() - std::min(lines.size(), kLogLinesShown); i < lines.size(); ++i) {
    if (!lines[i].empty()) out += "\n    " + clean(lines[i]);
  }
  return out.empty() ? "" : "; the end of its log:" + out;
}

// What the head itself says of its end, or its last words.
Error explain_end(ClusterTools& tools, const ClusterPlace& place, const std::string& how) {
  if (const auto end = read_head_end(tools.files(), place.folder)) {
    return Error(ErrorCode::kFailed, fmt::format("the head of '{}' cannot start: {}", place.name, end->message),
                 place.head_folder() + "/daemon.log", end->hint);
  }
  return Error(ErrorCode::kFailed,
               fmt::format("the head of '{}' ended as it started{}{}", place.name, how, log_tail(tools, place)),
               place.head_folder() + "/daemon.log");
}

bool answers(Api& api) {
  try {
    ApiRequest request;
    request.target = "//healthz";
    request.limit = 2s;
    api.call(request);
    return true;
  } catch (const Error& error) {
    if (error.code != ErrorCode::kUnavailable && error.code != ErrorCode::kNotFound) throw;
    return false;
  }
}

void await_head(ClusterTools& tools, const ClusterPlace& place, Api& api, Duration timeout) {
  for (Duration waited = 0s; waited < timeout; waited += kHeadLook) {
    // In this order: a supervisor that is not there has no head to start any more.
    const bool is_kept = tools.daemons().running(place.supervisor_folder()).has_value();
    const bool runs = tools.daemons().running(place.head_folder()).has_value();
    if (answers(api)) return;
    if (!runs) {
      if (!is_kept || read_head_end(tools.files(), place.folder)) throw explain_end(tools, place, "");
      const os::Supervision seen = read_supervision(tools.files(), place.folder);
      if (seen.ends_in_a_row >= kEndsTold) {
        throw explain_end(tools, place, fmt::format(" ({}, {} times in a row)", seen.last_end, seen.ends_in_a_row));
      }
    }
    if (!api.pause(kHeadLook)) throw Error(ErrorCode::kFailed, "interrupted while the head starts");
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("the head of '{}' does not answer{}", place.name, log_tail(tools, place)),
              place.head_folder() + "/daemon.log");
}

HeadUnit unit_of(ClusterTools& tools, const ClusterPlace& place) {
  return head_unit(tools.program(), place.name, place.folder);
}

std::string environment_text(const Environment& env) {
  std::string text;
  for (const auto& [name, value] : env) text += fmt::format("{}={}", name, value) + '\0';
  return text;
}

// Where lingering is off, it is asked for only on behalf of a cluster of several machines, as for its agents: what runs
// on one's own machine alone goes with the login unless its owner has said otherwise.
bool start_unit(ClusterTools& tools, const Shell& shell, const ClusterPlace& place) {
  bool ask = false;
  try {
    ask = !read_head_settings(place.folder).provider.empty();
  } catch (const Error&) {
    ask = false;  // the head tells what is wrong with its settings
  }
  Files& files = tools.files();
  files.write_atomically(environment_file(place.folder), environment_text(shell.env));
  write_wanted(files, place.folder, kKeptBySystemd);
  const HeadUnit unit = unit_of(tools, place);
  if (tools.run_script(start_unit_script(unit, ask), unit_text(unit))) return true;
  files.remove_tree(environment_file(place.folder));
  return false;
}

void start_supervisor(ClusterTools& tools, const Shell& shell, const ClusterPlace& place) {
  tools.files().make_folders(place.supervisor_folder());
  tools.files().set_mode(place.supervisor_folder(), 0700);
  if (start_unit(tools, shell, place)) return;
  write_wanted(tools.files(), place.folder, kKeptByRubato);
  DaemonSpec spec;
  spec.folder = place.supervisor_folder();
  spec.argv = {tools.program(), "supervise", "--dir", place.folder};
  for (const auto& [name, value] : shell.env) spec.env.push_back(name + "=" + value);
  tools.daemons().start(spec);
}

// By force: one that is stopped (SIGSTOP) would not hear of anything else.
void kill_supervisor(ClusterTools& tools, const ClusterPlace& place, Api& api) {
  tools.daemons().signal(place.supervisor_folder(), SIGKILL);
  for (Duration waited = 0s; tools.daemons().running(place.supervisor_folder()); waited += kHeadLook) {
    if (waited >= kSupervisorGoneWithin || !api.pause(kHeadLook)) {
      throw Error(ErrorCode::kFailed, "the head's supervisor does not end, even when killed",
                  place.supervisor_folder());
    }
  }
}

// From here on nobody but us starts the head: a supervisor's stand-in starts another one only while it is wanted.
void stop_supervisor(ClusterTools& tools, const ClusterPlace& place, Api& api) {
  if (read_wanted(tools.files(), place.folder) == kKeptBySystemd) {
    tools.run_script(stop_unit_script(unit_of(tools, place)), "");
  }
  remove_wanted(tools.files(), place.folder);
  kill_supervisor(tools, place, api);
}

// The new supervisor begins to count anew; until it has written that down, the old one's count would be read.
void forget_ends(Files& files, const ClusterPlace& place) {
  os::Supervision seen = read_supervision(files, place.folder);
  if (std::exchange(seen.ends_in_a_row, 0) > 0) write_supervision(files, place.folder, seen);
}

void start_head_alone(ClusterTools& tools, const Shell& shell, const ClusterPlace& place, bool accept_loss) {
  DaemonSpec spec;
  spec.folder = place.head_folder();
  spec.argv = {tools.program(), "head", "--dir", place.folder};
  if (accept_loss) spec.argv.push_back("--accept-journal-loss");
  for (const auto& [name, value] : shell.env) spec.env.push_back(name + "=" + value);
  tools.daemons().start(spec);
}

}  // namespace

void start_head_process(ClusterTools& tools, const Shell& shell, const ClusterPlace& place, Api& api,
                        const StartHead& start) {
  Files& files = tools.files();
  if (start.is_supervised) {
    stop_supervisor(tools, place, api);
    forget_ends(files, place);
  }
  const std::optional<std::string> before = files.read(place.head_file());
  // One that was started again before we stopped its supervisor is as good as ours.
  if (!tools.daemons().running(place.head_folder())) {
    tools.make_identity(place, start.settings.listen);
    files.make_folders(place.head_folder());
    // A dead head's address would be asked until the new one has written its own.
    files.remove_tree(place.head_file());
    files.remove_tree(head_end_file(place.folder));
    files.write_atomically(head_settings_file(place.folder), settings_text(start.settings));
    shell.err(fmt::format("starting the head of '{}'\n", place.name));
  }
  if (start.is_supervised) {
    if (start.accept_loss) {
      files.make_folders(place.supervisor_folder());
      files.write_atomically(accept_loss_file(place.folder), "");
    }
    start_supervisor(tools, shell, place);
  } else {
    start_head_alone(tools, shell, place, start.accept_loss);
  }
  try {
    await_head(tools, place, api, start.timeout);
  } catch (const Error&) {
    if (!before) {
      if (start.is_supervised) end_supervision(tools, place, api);
      throw;
    }
    // The cluster is still one that should be up: whoever asks for it is told why it is not.
    if (!files.exists(place.head_file())) files.write_atomically(place.head_file(), *before);
    throw;
  }
}

void ensure_supervisor(ClusterTools& tools, const Shell& shell, const ClusterPlace& place) {
  const bool is_wanted = !read_wanted(tools.files(), place.folder).empty();
  if (is_wanted && tools.daemons().running(place.supervisor_folder())) return;
  start_supervisor(tools, shell, place);
}

void end_supervision(ClusterTools& tools, const ClusterPlace& place, Api& api) {
  const std::string keeper = read_wanted(tools.files(), place.folder);
  remove_wanted(tools.files(), place.folder);
  if (keeper == kKeptBySystemd) tools.run_script(remove_unit_script(unit_of(tools, place)), "");
  kill_supervisor(tools, place, api);
  tools.files().remove_tree(place.supervisor_folder());
}

}  // namespace rubato::cli
