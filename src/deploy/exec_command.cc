// `rubato exec`, `rubato submit CLUSTER.yaml` and `rubato attach`: a command or a shell on a machine of the cluster,
// with the person's terminal.
#include <fmt/format.h>

#include <filesystem>

#include "client/cluster_target.h"
#include "client/remote.h"
#include "client/session.h"
#include "core/text.h"
#include "deploy/cluster_commands.h"
#include "deploy/machine_commands.h"
#include "deploy/machine_shell.h"
#include "os/files.h"
#include "os/machine.h"
#include "provider/pod_address.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kProgramThere = "~/.rubato/bin/rubato";

ParsedCommand parsed_for(const ClusterTarget& target, const ParsedCommand& from) {
  ParsedCommand out;
  if (target.typed) {
    out.positionals.push_back(target.text->path);
    if (const Given* name = from.find("cluster-name")) out.given.emplace("cluster-name", *name);
  } else {
    Given name;
    name.values = {target.place.name};
    name.origin = "--cluster";
    out.given.emplace("cluster", std::move(name));
  }
  out.given.emplace("yes", Given{});
  return out;
}

Multiplexer multiplexer_of(const ParsedCommand& parsed) {
  if (parsed.has("screen") && parsed.has("tmux")) {
    throw Error(ErrorCode::kUsage, "--screen excludes --tmux", "", "drop one of them");
  }
  if (parsed.has("screen")) return Multiplexer::kScreen;
  return parsed.has("tmux") ? Multiplexer::kTmux : Multiplexer::kNone;
}

void set_container(PlaceCommand& exec, const std::optional<provider::ContainerSpec>& container) {
  if (!container) return;
  exec.container = container->container.name;
  exec.podman = container->use_podman;
}

std::vector<provider::SshForward> forwards_of(const ParsedCommand& parsed) {
  std::vector<provider::SshForward> out;
  const Given* given = parsed.find("port-forward");
  if (given == nullptr) return out;
  for (const std::string& text : given->values) {
    const PortPair ports = parse_port_pair(text);
    provider::SshForward one;
    one.listen = fmt::format("127.0.0.1:{}", ports.local);
    one.to = fmt::format("127.0.0.1:{}", ports.remote);
    out.push_back(std::move(one));
  }
  return out;
}

// A line on the head's machine, with our terminal.
class HeadLine {
 public:
  HeadLine(const ParsedCommand& parsed, const Shell& shell, const ClusterTarget& target)
      : shell_(shell), target_(target), forwards_(forwards_of(parsed)) {}

  bool terminal() const { return shell_.asks && shell_.width > 0; }

  std::string program() const {
    if (target_.here()) return os::own_program();
    return target_.remote->program.empty() ? std::string(kProgramThere) : target_.remote->program;
  }

  // The same, in a screen or tmux: that the machine has none is told.
  int run(const std::string& line, bool terminal, Multiplexer multiplexer, const std::string& machine) {
    const int code = run(line, terminal);
    if (multiplexer == Multiplexer::kNone || code != kNoMultiplexer) return code;
    const std::string_view program = to_string(multiplexer);
    throw Error(ErrorCode::kUsage, fmt::format("there is no {} on {}", program, machine), "",
                fmt::format("install it there (apt-get install {}), for new nodes by setup_commands; or drop --{}",
                            program, program));
  }

  std::string machine() const { return target_.here() ? "this machine" : target_.remote->host.host; }

  int run(const std::string& line, bool terminal) {
    const std::unique_ptr<Remote> remote = shell_.remote();
    if (target_.here()) {
      for (const auto& one : forwards_) {
        if (one.listen != one.to) {
          throw Error(ErrorCode::kUsage, "the head is this machine: its ports are here already", "",
                      "use the remote port");
        }
      }
      return remote->in_front_here({"bash", "-c", line});
    }
    os::RealFiles files;
    provider::SshTarget way = target_of(files, target_.place, *target_.remote);
    if (!forwards_.empty()) way.control_folder.clear();  // a shared connection would keep the ports after the command
    provider::SshOptions options;
    options.tty = terminal;
    options.batch = !shell_.asks;
    options.forwards = forwards_;
    options.command = line;
    options.control_persist = kLaptopPersist;
    const int code = remote->in_front(way, options);
    // ssh's own failure, or the command's: the machine tells, with the reason and the fix.
    if (code == 255) remote->connect(way);
    return code;
  }

  // In the pod of another node, straight through the API server.
  int run_in_pod(const std::string& node, const std::string& line) {
    os::RealFiles files;
    RemoteHead worker = *target_.remote;
    worker.host.host = provider::sibling_pod(worker.host.host, target_.place.name, node);
    provider::SshOptions options;
    options.tty = true;
    options.forwards = forwards_;
    options.command = line;
    return shell_.remote()->in_front(target_of(files, target_.place, worker), options);
  }

 private:
  const Shell& shell_;
  const ClusterTarget& target_;
  const std::vector<provider::SshForward> forwards_;
};

// Ends the cluster when it goes, however that comes about.
class StopAfter {
 public:
  StopAfter(bool wanted, const ParsedCommand& parsed, const Shell& shell, const ClusterTarget& target)
      : wanted_(wanted), shell_(shell), down_(parsed_for(target, parsed)) {}
  StopAfter(const StopAfter&) = delete;
  ~StopAfter() {
    if (!wanted_) return;
    try {
      down_command(down_, shell_);
    } catch (const Error& error) {
      shell_.err(render(error));
    }
  }
  void leave_it() { wanted_ = false; }

 private:
  bool wanted_;
  const Shell& shell_;
  const ParsedCommand down_;
};

// Starts the cluster when that was asked for. What is known of it is then looked up anew.
ClusterTarget started(const ParsedCommand& parsed, const Shell& shell, const std::string& word) {
  ClusterTarget target = find_cluster(parsed, shell, word);
  if (!parsed.has("start")) {
    require_up(target, true);
    return target;
  }
  const ParsedCommand up = parsed_for(target, parsed);
  const int code = up_command(up, shell);
  if (code != 0) throw Error(ErrorCode::kFailed, fmt::format("'{}' is not up, so nothing was run", target.place.name));
  return find_cluster(parsed, shell, word);
}

// What is wrong with the words is said before a cluster is started for them, or ended after them.
void check_flags(const ParsedCommand& parsed, const ClusterTarget& target) {
  (void)multiplexer_of(parsed);
  (void)forwards_of(parsed);
  (void)container_asked(parsed, target);
  if (parsed.has("new") && multiplexer_of(parsed) == Multiplexer::kNone) {
    throw Error(ErrorCode::kUsage, "--new needs --screen or --tmux", "", "without them every shell is a new one");
  }
}

int exec_script(const ParsedCommand& parsed, const Shell& shell, const std::string& word,
                const std::function<std::string(HeadLine&, const ClusterTarget&)>& make_script) {
  const ClusterTarget known = find_cluster(parsed, shell, word);
  check_flags(parsed, known);
  const bool stop = parsed.has("stop");
  StopAfter stop_after(stop, parsed, shell, known);
  const ClusterTarget target = started(parsed, shell, word);
  HeadLine head(parsed, shell, target);
  ExecCommand exec;
  exec.cluster = target.place.name;
  exec.script = make_script(head, target);
  exec.program = head.program();
  exec.terminal = head.terminal();
  exec.stop = stop;
  exec.here = target.here();
  exec.multiplexer = multiplexer_of(parsed);
  set_container(exec, container_asked(parsed, target));
  exec.power_off = exec.multiplexer != Multiplexer::kNone && target.remote && target.remote->power_off;
  const int code = head.run(exec_line(exec), exec.terminal, exec.multiplexer, head.machine());
  if (exec.multiplexer == Multiplexer::kNone) return code;
  if (code == 0) {
    stop_after.leave_it();  // the command has only begun; what it runs in ends the cluster
    std::string attach = fmt::format("rubato attach {} --{}", target.as_typed(), to_string(exec.multiplexer));
    if (const Given* ports = parsed.find("port-forward")) {
      for (const std::string& port : ports->values) attach += " -p " + port;
    }
    shell.err(fmt::format("it runs; see it with: {}\n", attach));
    if (stop) {
      shell.err(fmt::format("the cluster ends with it; then forget it here with: rubato down {}\n", target.as_typed()));
    }
  }
  return code;
}

std::optional<HostAddress> host_of(const ClusterFile& file, const std::string& address) {
  for (const HostAddress& one : file.provider.workers) {
    if (one.host == address) return one;
  }
  return std::nullopt;
}

}  // namespace

int exec_command(const ParsedCommand& parsed, const Shell& shell) {
  std::vector<std::string> exec = parsed.positionals;
  const std::string word = take_cluster_word(parsed, exec);
  if (exec.empty()) {
    throw Error(ErrorCode::kUsage, "the command is missing", "",
                "write rubato exec CLUSTER 'COMMAND': a cluster file, or a name that rubato clusters lists");
  }
  return exec_script(parsed, shell, word, [&](HeadLine&, const ClusterTarget&) { return person_line(exec); });
}

bool is_submit_to_cluster(const Command& table, const std::vector<std::string>& exec) {
  for (size_t i = 0; i < exec.size(); ++i) {
    const std::string& word = exec[i];
    if (!word.starts_with('-')) return word.ends_with(".yaml") || word.ends_with(".yml");
    const std::string name = word.substr(word.find_first_not_of('-'), word.find('=') - word.find_first_not_of('-'));
    const Flag* known = nullptr;
    for (const Flag& flag : table.flags) {
      if (flag.name == name || (word.size() == 2 && flag.short_name == word[1])) known = &flag;
    }
    if (known == nullptr) return false;
    if (known->kind != FlagKind::kSwitch && word.find('=') == std::string::npos) ++i;
  }
  return false;
}

// As Ray has it: flags may stand between the file and the script.
int submit_to_command(const Command& table, const ParsedCommand& first, const Shell& shell) {
  ParsedCommand parsed = first;
  const std::string word = parsed.positionals.front();
  parsed.positionals.erase(parsed.positionals.begin());
  ParsedCommand rest = parse_command(table, parsed.positionals, shell.env);
  for (auto& [name, given] : rest.given) parsed.given.insert_or_assign(name, std::move(given));
  const std::vector<std::string> exec = rest.positionals;
  if (exec.empty()) {
    throw Error(ErrorCode::kUsage, "the script is missing", "", "write rubato submit cluster.yaml train.py [args]");
  }
  const std::string script = exec.front();
  std::error_code error;
  if (!std::filesystem::is_regular_file(script, error)) {
    throw Error(ErrorCode::kUsage, fmt::format("there is no script '{}' here", script), "",
                "it is copied from this machine to the head");
  }
  return exec_script(parsed, shell, word, [&](HeadLine&, const ClusterTarget& target) {
    std::string there = std::filesystem::absolute(script).string();
    if (!target.here()) {
      os::RealFiles files;
      const std::string name = std::filesystem::path(script).filename().string();
      const provider::SshTarget way = target_of(files, target.place, *target.remote);
      const auto container = container_asked(parsed, target);
      if (container) {
        shell.remote()->upload_inside(way, *container, there, "~/" + name, {});
      } else {
        shell.remote()->upload(way, there, "~/" + name, {});
      }
      there = name;
    }
    std::string line = there.starts_with('/') ? "" : "cd ~ && ";
    line += "\"$(command -v python || command -v python3 || echo python)\" " + shell_quote(there);
    if (exec.size() > 1) line += " " + shell_join({exec.begin() + 1, exec.end()});
    return line;
  });
}

namespace {

// The words that the head's machine reaches a worker with, by its own key: workers may have no address that is reached
// from here.
std::string through_head(const ClusterTarget& target, const std::string& address, const std::string& line) {
  const ClusterFile& file = target.text->file;
  HostAddress fallback;
  fallback.host = address;
  provider::SshTarget worker = provider::ssh_target(host_of(file, address).value_or(fallback), file.auth);
  const std::string folder = target.remote ? target.remote->folder : target.place.folder;
  worker.key_file = folder + "/ssh/id_ed25519";
  worker.known_hosts = folder + "/ssh/known_hosts";
  worker.proxy_command.clear();
  worker.proxy_jump.clear();
  provider::SshOptions options;
  options.tty = true;
  options.command = line;
  return "exec " + shell_join(provider::ssh_argv(worker, options));
}

}  // namespace

int attach_command(const ParsedCommand& parsed, const Shell& shell) {
  AttachCommand exec;
  exec.multiplexer = multiplexer_of(parsed);
  exec.fresh = parsed.has("new");
  std::vector<std::string> positionals = parsed.positionals;
  const std::string word = take_cluster_word(parsed, positionals);
  check_flags(parsed, find_cluster(parsed, shell, word));
  const ClusterTarget target = started(parsed, shell, word);
  HeadLine head(parsed, shell, target);
  exec.cluster = target.place.name;
  exec.program = head.program();
  exec.here = target.here();
  const std::string node = parsed.value("node", parsed.value("node-ip"));
  if (node.empty() || node == "head") {
    set_container(exec, container_asked(parsed, target));
    return head.run(attach_line(exec), true, exec.multiplexer, head.machine());
  }
  std::string address = node, type, id = node;
  try {
    const json found = get(*shell.open_api(target.place), "nodes/" + url_part(node));
    address = raw_in(found, "address");
    id = raw_in(found, "id");
    type = raw_in(found, "type");
  } catch (const Error& failed) {
    if (failed.code != ErrorCode::kNotFound || !target.text || !host_of(target.text->file, node)) throw;
  }
  const bool own_processes = !target.text || target.text->file.provider.this_machine();
  if (target.here() && own_processes) {
    const std::string folder = shell_quote(target.place.node_folders() + "/" + node);
    return head.run(fmt::format("cd {} && {}", folder, attach_line(exec)), true, exec.multiplexer, head.machine());
  }
  set_container(exec, container_asked(parsed, target, type.empty() ? target.text->file.head_type : type));
  exec.program = kProgramThere;
  if (!target.here() && provider::is_pod(target.remote->host.host)) {
    return head.run_in_pod(id, attach_line(exec));
  }
  return head.run(through_head(target, address, attach_line(exec)), true, exec.multiplexer, node);
}

}  // namespace rubato::cli
