// `rubato connect`: knows a cluster that was started from another machine, without changing it: (1) reach the head's
// machine over SSH, (2) read where its head listens, and the token, (3) write down what `up` would have written here.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>

#include "client/cluster_target.h"
#include "client/remote.h"
#include "client/session.h"
#include "core/text.h"
#include "deploy/cluster_tools.h"
#include "deploy/machine_commands.h"
#include "deploy/remote_machine.h"
#include "deploy/remote_up.h"
#include "os/etcd_json.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

// What the head's machine has of the cluster $NAME; changes nothing. Each part is a line of its name and its bytes in
// base64, as some have several lines.
constexpr std::string_view kReadScript = R"sh(
s=${XDG_STATE_HOME:-}; case $s in /*) ;; *) s=$HOME/.local/state ;; esac
d=$s/rubato/clusters/$NAME
[ -f "$d/head/head.json" ] || exit 3
part() { [ -r "$2" ] && echo "$1 $(base64 <"$2" | tr -d '\n')"; }
echo "folder $(printf %s "$d" | base64 | tr -d '\n')"
p=$(readlink -f "$HOME/.rubato/bin/rubato") && [ -x "$p" ] && echo "program $(printf %s "$p" | base64 | tr -d '\n')"
part head "$d/head/head.json"; part token "$d/token"; part ca "$d/ca.pem"
part text "$d/cluster.yaml"; part key "$d/ssh/id_ed25519.pub"
exit 0)sh";
constexpr int kNotUpThere = 3;

class ConnectCommand {
 public:
  ConnectCommand(const ParsedCommand& parsed, const Shell& shell, ClusterText wanted)
      : parsed_(parsed),
        shell_(shell),
        wanted_(std::move(wanted)),
        place_(place_of(shell.env, wanted_.file.name)),
        tools_(shell.cluster_tools()),
        remote_(shell.remote()),
        api_(shell.open_api(place_)) {}

  int run() {
    check_file();
    const bool new_here = !tools_->files().exists(place_.folder);
    const auto hold = take_folder(*tools_, shell_, lock_of(place_), [this] { return api_->pause(kHoldLook); });
    try {
      tools_->files().set_mode(place_.folder, 0700);
      find_head();
      read_head();
    } catch (const Error&) {
      if (new_here) tools_->files().remove_tree(place_.folder);
      throw;
    }
    write_down();
    const json status = get(*shell_.open_api(place_), "status");
    if (parsed_.has("json")) shell_.out(json_text(status));
    const size_t nodes = list_in(status, "nodes").size();
    shell_.err(
        fmt::format("connected to '{}' on {}: {} node{}; nothing was changed there\n  rubato status --cluster {}\n",
                    place_.name, target_.host, nodes, nodes == 1 ? "" : "s", place_.name));
    return 0;
  }

 private:
  void check_file() const {
    if (tools_->files().exists(place_.head_file())) {
      throw Error(ErrorCode::kConflict, fmt::format("the head of '{}' is this machine", place_.name), "",
                  "nothing is to be done: rubato status");
    }
    if (wanted_.file.provider.this_machine()) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is a cluster of the machine that starts it", wanted_.path), "",
                  "go to that machine, or start one here: rubato up " + wanted_.path);
    }
  }

  // A file that does not name the head's machine has a provider that makes it, and may find it.
  void find_head() {
    if (wanted_.file.provider.head) return;
    const std::string folder = std::filesystem::absolute(wanted_.path).lexically_normal().parent_path().string();
    made_ = remote_->find_head_machine(wanted_.file, head_settings_here(place_, wanted_.file, folder, shell_.env));
    if (!made_) {
      throw Error(ErrorCode::kUsage, "the file does not say which machine has the head", wanted_.path,
                  "its provider makes it: copy the cluster's folder from the machine that ran rubato up, or use ssh");
    }
    if (!made_->found) {
      throw Error(ErrorCode::kNotFound, fmt::format("'{}' has no head that runs", place_.name), wanted_.path,
                  "start it with: rubato up " + wanted_.path);
    }
    wanted_.file.provider.head = made_->host;
    provider_folder_ = folder;
  }

  void read_head() {
    head_ = remote_from(wanted_.file, shell_.env);
    if (made_) {
      head_.instance = made_->instance;
      head_.provider_folder = provider_folder_;
      head_.power_off = !made_->machines_stay;
    }
    target_ = target_of(tools_->files(), place_, head_);
    remote_->connect(target_);
    provider::Command command;
    command.script = std::string(kReadScript);
    command.env = {{"NAME", place_.name}};
    const provider::CommandResult result = remote_->run(target_, std::move(command));
    if (result.exit_code == kNotUpThere) {
      throw Error(ErrorCode::kNotFound, fmt::format("'{}' is not up on {}", place_.name, target_.host), "",
                  "start it with: rubato up " + wanted_.path);
    }
    if (!result.ok()) throw failed_there("reading", target_, result, "what does its shell print?");
    for (const std::string_view one : split(result.out, '\n')) {
      if (const auto parts = split_once(one, ' '))
        parts_[std::string(parts->first)] = os::etcd_json::decode(parts->second);
    }
    const json document = json::parse(parts_["head"], nullptr, false);
    const json api = document.is_object() ? document.value("api", json::object()) : json::object();
    head_.api_port = static_cast<uint16_t>(int_in(api, "port"));
    head_.api_tls = api.value("tls", false);
    head_.folder = parts_["folder"];
    head_.program = parts_["program"];
    head_.public_key = std::string(trim(parts_["key"]));
    if (head_.api_port == 0 || parts_["token"].empty()) {
      throw Error(ErrorCode::kFailed, fmt::format("{} does not tell how '{}' is reached", target_.host, place_.name),
                  "", "does your user there own the cluster? rubato up " + wanted_.path + " starts a dead head again");
    }
  }

  // As remote_up's: what is in force is what the head has, not what this file says.
  void write_down() {
    Files& files = tools_->files();
    // One that leads to the same port is in use by the shared connection.
    const std::optional<RemoteHead> before = read_remote(files, place_);
    if (!before || before->api_port != head_.api_port) files.remove_tree(tunnel_socket(files, place_));
    files.write_atomically(place_.token_file(), std::string(trim(parts_["token"])) + "\n");
    files.set_mode(place_.token_file(), 0600);
    files.write_atomically(place_.folder + "/ca.pem", parts_["ca"]);
    files.write_atomically(place_.folder + "/cluster.yaml", parts_["text"].empty() ? wanted_.text : parts_["text"]);
    write_remote(files, place_, head_);
    if (head_.power_off) return;  // machines that a provider makes go for good, and leave nothing to clean
    KnownMachines machines = read_machines(files, place_);
    machines.head = head_;
    machines.public_key = head_.public_key;
    for (const HostAddress& host : wanted_.file.provider.workers) {
      RemoteHead worker = worker_from(wanted_.file, host, shell_.env);
      std::erase_if(machines.workers, [&](const RemoteHead& one) { return one.host.host == worker.host.host; });
      machines.workers.push_back(std::move(worker));
    }
    write_machines(files, place_, machines);
  }

  const ParsedCommand& parsed_;
  const Shell& shell_;
  ClusterText wanted_;  // with the head's machine, once its provider has found it
  std::optional<provider::HeadMachine> made_;
  std::string provider_folder_;
  const ClusterPlace place_;
  const std::unique_ptr<ClusterTools> tools_;
  const std::unique_ptr<Remote> remote_;
  const std::unique_ptr<Api> api_;
  RemoteHead head_;
  provider::SshTarget target_;
  std::map<std::string, std::string> parts_;
};

}  // namespace

int connect_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string file = require_word(parsed, 0, "the cluster file", "rubato connect cluster.yaml");
  if (!is_cluster_file(file)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a cluster file", file), "",
                "a name is not enough to find its head: write rubato connect cluster.yaml");
  }
  const std::unique_ptr<ClusterTools> tools = shell.cluster_tools();
  ClusterText text = with_overrides(read_cluster_text(tools->files(), file), parsed);
  throw_first_error(text.file);
  return ConnectCommand(parsed, shell, std::move(text)).run();
}

}  // namespace rubato::cli
