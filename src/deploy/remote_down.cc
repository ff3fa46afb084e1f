// `rubato down` of a cluster whose head is another machine: see remote_up.h.
#include <fmt/format.h>

#include "client/remote.h"
#include "client/session.h"
#include "core/text.h"
#include "deploy/remote_machine.h"
#include "deploy/remote_up.h"
#include "model/provider_kind.h"
#include "provider/node_scripts.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using provider::Command;
using provider::SshTarget;

constexpr Duration kPurgeMax = 90s;
constexpr Duration kPurgeGrace = 10s;

constexpr std::string_view kForbidScript = R"sh(f=~/.ssh/authorized_keys; [ -n "$KEY" ] && [ -f "$f" ] || exit 0
umask 077; grep -vxF "$KEY" "$f" > "$f.rubato"; cat "$f.rubato" > "$f"; rm -f "$f.rubato")sh";

// "$NAME": the cluster's folder, when its head did not remove it; and the one in which clusters have theirs, when this
// was the last.
constexpr std::string_view kTidyStateScript = R"sh(
s=${XDG_STATE_HOME:-}; case $s in /*) ;; *) s=$HOME/.local/state ;; esac
rm -rf "$s/rubato/clusters/$NAME" || exit 1
rmdir "$s/rubato/clusters" "$s/rubato" 2>/dev/null
true)sh";

bool same_host(const RemoteHead& a, const RemoteHead& b) { return a.host.host == b.host.host; }

class RemoteShutdown {
 public:
  RemoteShutdown(const ParsedCommand& parsed, const Shell& shell, const ClusterTarget& target)
      : parsed_(parsed),
        shell_(shell),
        target_(target),
        place_(target.place),
        tools_(shell.cluster_tools()),
        remote_(shell.remote()),
        api_(shell.open_api(target.place)) {}

  int run() {
    const auto hold = take_folder(*tools_, shell_, lock_of(place_), [this] { return api_->pause(kHoldLook); });
    known_ = read_remote(tools_->files(), place_);
    machines_ = read_machines(tools_->files(), place_);
    if (!known_ && !(purges() && !machines_.empty())) {
      // An `up` that ended in the middle has left machines that only the cloud knows.
      if (is_cloud() && !parsed_.has("workers-only")) end_machines();
      if (!ended_ || !found_) shell_.err(fmt::format("'{}' is not running\n", place_.name));
      if (purges()) tools_->files().remove_tree(place_.folder);
      return 0;
    }
    gather_machines();
    const int code = end_head();
    if (code != 0) return code;
    if (parsed_.has("workers-only")) return 0;
    end_machines();
    return purges() ? purge() : forget();
  }

 private:
  bool purges() const { return parsed_.has("purge"); }

  // All that ever belonged: what was written down, and what the file says.
  void gather_machines() {
    if (known_) {
      head_ = *known_;
    } else if (machines_.head) {
      head_ = *machines_.head;
    }
    if (head_.public_key.empty()) head_.public_key = machines_.public_key;
    if (known_ && !known_->power_off) machines_.head = *known_;
    way_ = target_of(tools_->files(), place_, head_);
    if (!target_.text) return;
    for (const HostAddress& host : target_.text->file.provider.workers) {
      add_worker(worker_from(target_.text->file, host, shell_.env));
    }
  }

  void add_worker(RemoteHead worker) {
    for (const RemoteHead& one : machines_.workers) {
      if (same_host(one, worker)) return;
    }
    machines_.workers.push_back(std::move(worker));
  }

  // Ends the head there, with its nodes. Not 0: that failed, and nothing is forgotten.
  int end_head() {
    if (head_.host.host.empty()) return 0;
    try {
      remote_->connect(way_);
      const bool there = is_there();
      if (there) return down_there();
      if (known_) shell_.err(fmt::format("'{}' is not running on {}\n", place_.name, way_.host));
      return 0;
    } catch (const Error& error) {
      // A connection that was opened before may be that to a machine which is off since.
      if (error.code != ErrorCode::kUnavailable || parsed_.has("workers-only")) throw;
      if (makes_machines()) {
        if (is_cloud() && !parsed_.has("yes") &&
            !confirmed(shell_, fmt::format("{}; end all machines of '{}'?", error.message, place_.name))) {
          shell_.err("nothing was changed\n");
          return 1;
        }
        end_machines();
        if (!machines_stay_) {
          head_is_gone_ = true;
          shell_.err(fmt::format("note: {}; its machines were ended by {}\n", error.message,
                                 provider_name(target_.text->file)));
          return 0;
        }
      }
      if (!purges()) throw;
      if (!parsed_.has("yes") &&
          !confirmed(shell_, fmt::format("{}; purge '{}' on its other machines?", error.message, place_.name))) {
        shell_.err("nothing was changed\n");
        return 1;
      }
      unreached_.emplace_back(head_, error.message);
      return 0;
    }
  }

  bool makes_machines() const {
    return target_.text && provider_kind(target_.text->file.provider.type).can_make_head;
  }
  bool is_cloud() const { return target_.text && asks_cloud(target_.text->file); }

  // Whether the head's machine has the cluster; for a purge, with a program that can end it.
  bool is_there() {
    Command command;
    command.script = fmt::format("test -d {} || exit 3; test -x {}", provider::quote_path(head_.folder),
                                 provider::quote_path(head_.program));
    if (head_.folder.empty()) return false;
    const provider::CommandResult result = remote_->run(way_, std::move(command));
    if (result.ok() && !head_.program.empty()) return true;
    if (result.exit_code == 3 || !purges()) return false;
    head_.program = remote_->put_program(way_);
    return true;
  }

  int down_there() {
    std::vector<std::string> argv = {head_.program, "down", "--here", "--cluster", place_.name};
    for (const char* flag : {"yes", "workers-only", "keep-min-workers", "purge"}) {
      if (parsed_.has(flag)) argv.push_back(fmt::format("--{}", flag));
    }
    if (parsed_.has("timeout")) argv.insert(argv.end(), {"--timeout", parsed_.value("timeout")});
    provider::SshOptions options;
    options.tty = shell_.asks;
    options.command = "exec " + shell_join(argv);
    const int code = remote_->in_front(way_, options);
    if (code == kSshLost) {
      throw Error(ErrorCode::kUnavailable, fmt::format("the connection to {} was lost", way_.host), "",
                  "run rubato down again");
    }
    return code;
  }

  // Its machine goes last: until here it was needed.
  void end_machines() {
    if (ended_ || !makes_machines() || (!known_ && !is_cloud())) return;
    const ClusterFile& file = target_.text->file;
    LiveLine line(shell_);
    provider::HeadMachineSettings settings = head_settings_here(place_, file, head_.provider_folder, shell_.env);
    settings.on_progress = [&line](const std::string& text) { line.show(text); };
    const provider::HeadMachine ended = remote_->end_head_machine(file, std::move(settings));
    line.clear();
    for (const std::string& note : ended.notes) shell_.err(note + "\n");
    found_ = ended.found;
    for (const HostAddress& host : ended.hosts) add_worker(worker_from(file, host, shell_.env));
    machines_stay_ = ended.machines_stay;
    ended_ = true;
  }

  // The key that let the head into its workers has no use without a head. Which machines there were is kept: a purge
  // goes there.
  int forget() {
    if (!head_.public_key.empty()) {
      const auto outcomes = run_on(machines_.workers, std::string(kForbidScript));
      for (size_t i = 0; i < outcomes.size(); ++i) {
        if (outcomes[i].result && outcomes[i].result->ok()) continue;
        shell_.err(fmt::format("note: the head's key is still in ~/.ssh/authorized_keys of {} (rubato-{})\n",
                               machines_.workers[i].host.host, place_.name));
      }
    }
    if (ended_ && !machines_stay_) machines_ = {};
    if (!machines_.empty()) {
      machines_.public_key = head_.public_key;
      write_machines(tools_->files(), place_, machines_);
    }
    forget_head();
    return 0;
  }

  void forget_head() {
    remote_->disconnect(way_);
    tools_->files().remove_tree(tunnel_socket(tools_->files(), place_));
    tools_->files().remove_tree(place_.token_file());
    tools_->files().remove_tree(place_.remote_file());
  }

  // Goes to every machine; what was not cleaned stays written down, for the next purge.
  int purge() {
    if (ended_ && !machines_stay_) machines_ = {};
    std::vector<RemoteHead> workers = machines_.workers;
    std::erase_if(workers, [&](const RemoteHead& one) { return machines_.head && same_host(one, *machines_.head); });
    const std::string script = purge_words();
    const auto outcomes = run_on(workers, script + "(" + std::string(kForbidScript) + ")\n");
    size_t cleaned = 0;
    for (size_t i = 0; i < outcomes.size(); ++i) cleaned += keep_if_left(workers[i], outcomes[i]) ? 0 : 1;
    // The head's machine last: workers may be reached over it.
    if (machines_.head && unreached_head().empty() && !head_is_gone_) {
      const auto outcome = run_on({*machines_.head}, script + std::string(kTidyStateScript));
      cleaned += keep_if_left(*machines_.head, outcome.front()) ? 0 : 1;
    }
    if (unreached_.empty()) {
      forget_head();
      remove_place(tools_->files(), place_);
      shell_.err(fmt::format("nothing of '{}' is left here{}\n", place_.name, on_machines(cleaned)));
      return 0;
    }
    keep_unreached(cleaned);
    return 1;
  }

  static std::string on_machines(size_t count) {
    return count == 0 ? "" : fmt::format(", nor on {} machine{}", count, count == 1 ? "" : "s");
  }

  std::string unreached_head() const {
    for (const auto& [machine, why] : unreached_) {
      if (machines_.head && same_host(machine, *machines_.head)) return why;
    }
    return "";
  }

  std::string purge_words() const {
    std::string docker_rm;
    if (target_.text && target_.text->file.docker.enabled()) {
      docker_rm = fmt::format("{} rm -f {} >/dev/null 2>&1", target_.text->file.docker.use_podman ? "podman" : "docker",
                              shell_quote(target_.text->file.docker.container_name));
    }
    return provider::purge_script(place_.name, docker_rm, kPurgeGrace).insert(0, "(") + ") || exit 1\n";
  }

  bool keep_if_left(const RemoteHead& machine, const Remote::Outcome& outcome) {
    if (outcome.result && outcome.result->ok()) return false;
    unreached_.emplace_back(
        machine, outcome.error ? outcome.error->message
                               : fmt::format("it could not be cleaned{}", provider::last_output(*outcome.result)));
    return true;
  }

  void keep_unreached(size_t cleaned) {
    KnownMachines left;
    left.public_key = head_.public_key;
    std::vector<std::string> names;
    for (const auto& [machine, why] : unreached_) {
      names.push_back(machine.host.host);
      shell_.err(fmt::format("note: {} was not cleaned: {}\n", machine.host.host, why));
      if (machines_.head && same_host(machine, *machines_.head)) {
        left.head = *machines_.head;
      } else {
        left.workers.push_back(machine);
      }
    }
    write_machines(tools_->files(), place_, left);
    if (!left.head) forget_head();
    shell_.err(
        fmt::format("'{}' is purged{}, but not on {}: what it has there stays until this is run again: "
                    "rubato down --purge {}\n",
                    place_.name, cleaned == 0 ? "" : fmt::format(" on {} machine{}", cleaned, cleaned == 1 ? "" : "s"),
                    join(names, ", "), place_.name));
  }

  // On all at once; those that do not answer are asked by way of the head.
  std::vector<Remote::Outcome> run_on(const std::vector<RemoteHead>& machines, const std::string& script) {
    std::vector<Remote::Outcome> outcomes = remote_->run_all(host_commands_for(machines, script, false));
    std::vector<RemoteHead> again;
    std::vector<size_t> index;
    for (size_t i = 0; i < machines.size(); ++i) {
      const bool silent = outcomes[i].error && outcomes[i].error->code == ErrorCode::kUnavailable;
      if (!silent || same_host(machines[i], head_) || !unreached_head().empty() || head_is_gone_) continue;
      again.push_back(machines[i]);
      index.push_back(i);
    }
    if (!again.empty()) {
      std::vector<Remote::Outcome> second = remote_->run_all(host_commands_for(again, script, true));
      for (size_t i = 0; i < again.size(); ++i) {
        if (second[i].result) outcomes[index[i]] = std::move(second[i]);
      }
    }
    for (const RemoteHead& machine : machines) {
      if (!same_host(machine, head_)) remote_->disconnect(target_of(tools_->files(), place_, machine));
    }
    return outcomes;
  }

  std::vector<Remote::HostCommand> host_commands_for(const std::vector<RemoteHead>& machines, const std::string& script,
                                          bool by_way_of_head) {
    std::vector<Remote::HostCommand> out;
    for (const RemoteHead& machine : machines) {
      Remote::HostCommand one;
      one.target = target_of(tools_->files(), place_, machine);
      if (by_way_of_head) {
        one.target.proxy_command.clear();
        one.target.proxy_jump = to_string(head_.host);
      }
      one.command.script = script;
      one.command.env = {{"KEY", head_.public_key}, {"NAME", place_.name}};
      one.command.timeout = kPurgeMax;
      out.push_back(std::move(one));
    }
    return out;
  }

  const ParsedCommand& parsed_;
  const Shell& shell_;
  const ClusterTarget& target_;
  const ClusterPlace place_;
  const std::unique_ptr<ClusterTools> tools_;
  const std::unique_ptr<Remote> remote_;
  const std::unique_ptr<Api> api_;
  std::optional<RemoteHead> known_;  // it is up, as far as we know
  KnownMachines machines_;
  RemoteHead head_;
  SshTarget way_;
  bool ended_ = false, found_ = false, machines_stay_ = false, head_is_gone_ = false;
  std::vector<std::pair<RemoteHead, std::string>> unreached_;  // and why
};

}  // namespace

int remote_down(const ParsedCommand& parsed, const Shell& shell, const ClusterTarget& target) {
  return RemoteShutdown(parsed, shell, target).run();
}

}  // namespace rubato::cli
