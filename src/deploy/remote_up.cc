#include "deploy/remote_up.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

#include "client/remote.h"
#include "client/session.h"
#include "core/sha256.h"
#include "core/text.h"
#include "deploy/candidates.h"
#include "deploy/remote_machine.h"
#include "model/provider_kind.h"
#include "os/files.h"
#include "provider/external_config.h"
#include "provider/node_plan.h"
#include "provider/node_scripts.h"
#include "provider/pod_address.h"
#include "terminal/document.h"
#include "terminal/render_cluster.h"

namespace rubato::cli {
namespace {

using nlohmann::json;
using provider::Command;
using provider::CommandResult;
using provider::SshTarget;

constexpr Duration kBootMax = 300s;  // from an address to an sshd that answers
// Its sshd may answer before whoever writes the keys there has done so (Google's guest agent, cloud-init).
constexpr Duration kKeysMax = 90s;
constexpr Duration kKeysLook = 2s;  // refusals are counted by some (fail2ban)
constexpr Duration kBootLook = 300ms;

// What the head's machine has already. Standard input is the cluster file, $NAME its cluster, $PROGRAM the name of our
// binary there, $KEY not empty when the head needs a key of its own.
constexpr std::string_view kLookScript = R"sh(umask 077
s=${XDG_STATE_HOME:-}; case $s in /*) ;; *) s=$HOME/.local/state ;; esac
d=$s/rubato/clusters/$NAME
mkdir -p "$d/incoming" "$d/ssh" && cat >"$d/incoming/new" && mv "$d/incoming/new" "$d/incoming/cluster.yaml" || exit 1
echo "folder $d"
if [ -x "$HOME/.rubato/bin/$PROGRAM" ]; then
  echo "program $HOME/.rubato/bin/$PROGRAM"; ln -sfn "$PROGRAM" "$HOME/.rubato/bin/rubato"
fi
[ -r "$d/mounts.hash" ] && echo "staged $(cat "$d/mounts.hash")"
if [ -n "$KEY" ] && [ ! -f "$d/ssh/id_ed25519" ]; then
  ssh-keygen -q -t ed25519 -N '' -C "rubato-$NAME" -f "$d/ssh/id_ed25519" </dev/null
fi
[ -r "$d/ssh/id_ed25519.pub" ] && echo "key $(cat "$d/ssh/id_ed25519.pub")"
for f in "$s"/rubato/clusters/*/head/daemon.pid "$HOME"/.rubato/clusters/*/nodes/*/daemon.pid; do
  [ -r "$f" ] && kill -0 "$(cat "$f")" 2>/dev/null && f=${f##*/clusters/} && echo "cluster ${f%%/*}"
done
exit 0)sh";

constexpr std::string_view kAllowScript = R"sh(for f in ~/.rubato/clusters/*/nodes/*/daemon.pid; do
  [ -r "$f" ] && kill -0 "$(cat "$f")" 2>/dev/null && f=${f##*/clusters/} && echo "cluster ${f%%/*}"
done
umask 077; mkdir -p ~/.ssh && touch ~/.ssh/authorized_keys || exit 1
grep -qxF "$KEY" ~/.ssh/authorized_keys && exit 0
[ -s ~/.ssh/authorized_keys ] && [ -n "$(tail -c1 ~/.ssh/authorized_keys)" ] && echo >> ~/.ssh/authorized_keys
printf '%s\n' "$KEY" >> ~/.ssh/authorized_keys)sh";

class RemoteUp {
 public:
  RemoteUp(const ParsedCommand& parsed, const Shell& shell, const ClusterText& wanted)
      : parsed_(parsed),
        shell_(shell),
        wanted_(wanted),
        tools_(shell.cluster_tools()),
        remote_(shell.remote()),
        api_(shell.open_api(place_of(shell.env, wanted.file.name))),
        place_(place_of(shell.env, wanted.file.name)),
        line_(shell) {}

  int run() {
    const auto hold = take_folder(*tools_, shell_, lock_of(place_), [this] { return api_->pause(kHoldLook); });
    tools_->files().set_mode(place_.folder, 0700);
    known_ = read_remote(tools_->files(), place_);
    if (!find_head()) return 0;
    check_head_stays();
    head_ = known_.value_or(remote_from(wanted_.file, shell_.env));
    if (made_) {
      head_.host = remote_from(wanted_.file, shell_.env).host;
      head_.key = remote_from(wanted_.file, shell_.env).key;
      head_.instance = made_->instance;
      head_.provider_folder = file_folder_;
      head_.power_off = !made_->machines_stay;
      write_remote(tools_->files(), place_, head_);
    }
    target_ = target_of(tools_->files(), place_, head_);
    live(1, "reaching " + provider::to_string(target_));
    connect();
    inspect();
    hash_files();
    if (!parsed_.has("dry-run")) {
      put_program();
      put_provider();
      stage_files();
      allow_head();
      warn_of_others();
    } else if (program_.empty()) {
      show_first_plan();
      return 0;
    }
    return up_there();
  }

 private:
  // What the first `up` in a cloud is about to make, and what it costs. Throws when the person says no.
  void ask_for_money() {
    const ProviderKind& kind = provider_kind(wanted_.file.provider.type);
    const bool priced = kind.offer_of != nullptr && !kind.instance_type_key.empty();  // pods have no price of their own
    if (known_ || !priced || !shell_.asks || parsed_.has("yes")) return;
    line_.clear();
    shell_.err(candidates_text(wanted_.file, live_prices()));
    shell_.err("Proceed? [Y/n] ");
    const std::string line = shell_.read_line();
    const std::string answer = to_lower(trim(line));
    if ((answer.empty() && !line.empty()) || answer == "y" || answer == "yes") return;
    throw Error(ErrorCode::kFailed, "nothing was made", "", "rubato up -y does not ask");
  }

  // Without them, what is known without asking counts.
  LivePrices live_prices() {
    try {
      return remote_->live_prices(wanted_.file);
    } catch (const Error& error) {
      shell_.err(fmt::format("note: the spot prices of now cannot be read: {}\n", error.message));
      return {};
    }
  }

  // False: there is none, and none is to be made.
  bool find_head() {
    if (wanted_.file.provider.head) return true;
    if (!provider_kind(wanted_.file.provider.type).can_make_head) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("the provider '{}' cannot make the head's machine from here yet", wanted_.file.provider.type),
          wanted_.file.place("provider.type"),
          "use provider: {type: local, head_ip: ..., worker_ips: [...]}, or an external one");
    }
    const std::string file_folder = std::filesystem::absolute(wanted_.path).lexically_normal().parent_path().string();
    if (parsed_.has("dry-run")) {
      const json plan = {{"changes", json::array()}, {"cluster", place_.name}, {"starts_head", true}};
      if (!known_)
        shell_.out(parsed_.has("json") ? json_text(plan)
                                       : fmt::format("would make a machine for the head of '{}'\n", place_.name));
      if (known_) wanted_.file.provider.head = known_->host;
      return known_.has_value();
    }
    ask_for_money();
    live(1, "a machine for the head from " + provider_name(wanted_.file));
    file_folder_ = file_folder;
    // A machine that somebody pays for is never forgotten, whatever happens next: `down` finds it by the file.
    tools_->files().write_atomically(place_.folder + "/cluster.yaml", wanted_.text);
    provider::HeadMachineSettings settings = head_settings_here(place_, wanted_.file, file_folder, shell_.env);
    settings.on_progress = [this](const std::string& text) { live(1, text); };
    made_ = remote_->make_head_machine(wanted_.file, std::move(settings));
    line_.clear();
    for (const std::string& note : made_->notes) shell_.err(note + "\n");
    wanted_.file.provider.head = made_->host;
    if (wanted_.file.auth.ssh_private_key.empty()) wanted_.file.auth.ssh_private_key = made_->key_file;
    // Those that are there already let the head in as hosts of one's own do.
    wanted_.file.provider.workers = made_->hosts;
    return true;
  }

  // Of a cluster that is nowhere yet; the words are those of the head's own plan.
  void show_first_plan() const {
    json changes = json::array();
    const auto add = [&](const std::string& type, int count, const std::string& why) {
      changes.push_back({{"action", "add"}, {"node_type", type}, {"count", count}, {"why", why}});
    };
    add(wanted_.file.head_type, 1, "the head's machine is a node too");
    for (const auto& [name, type] : wanted_.file.types) {
      if (type.min_workers > 0) add(name, type.min_workers, fmt::format("min_workers is {}", type.min_workers));
    }
    json plan = {{"changes", std::move(changes)}, {"cluster", place_.name}, {"starts_head", true}};
    plan["head"] = target_.host;
    shell_.out(parsed_.has("json") ? json_text(plan)
                                   : fmt::format("would start the head of '{}' on {}\n", place_.name, target_.host) +
                                         plan_text(read_document<api::Configured>(plan).changes, {}));
  }

  // A machine that was just made needs a while until its sshd answers, and then lets us in. One that is known is what
  // it is.
  void connect() {
    const bool is_new = made_ && (!known_ || known_->instance != made_->instance);
    const WallTime begun = shell_.now();
    std::optional<WallTime> refused;
    Duration pause = kBootLook;
    while (true) {
      try {
        remote_->connect(target_);
        return;
      } catch (const Error& error) {
        const bool boots = error.code == ErrorCode::kUnavailable && shell_.now() - begun < kBootMax;
        if (error.code == ErrorCode::kUsage && !refused) refused = shell_.now();
        const bool has_no_keys = is_new && error.code == ErrorCode::kUsage && shell_.now() - *refused < kKeysMax;
        if (!made_ || (!boots && !has_no_keys)) throw;
        live(1, boots ? fmt::format("waiting for {} to boot", target_.host)
                      : fmt::format("waiting for {} to let us in: {}", target_.host, error.message));
        pause = boots ? kBootLook : kKeysLook;
      }
      if (!api_->pause(pause)) throw Error(ErrorCode::kFailed, "interrupted while waiting");
    }
  }

  // The provider's program goes on where the head is.
  void put_provider() {
    if (!made_) return;
    std::vector<std::string> paths;
    if (provider::is_external(wanted_.file)) {
      paths = provider::external_files(tools_->files(), wanted_.file, file_folder_);
    }
    for (const std::string& path : paths) {
      live(3, "the provider's program: " + path);
      provider::SyncOptions options;
      options.exclude = {"__pycache__"};
      remote_->upload(target_, file_folder_ + "/" + path, head_.folder + "/provider/" + path, options);
    }
    Command command;
    command.script = fmt::format(
        "umask 077; mkdir -p {0}/provider && cat > {0}/provider-carry.new && mv {0}/provider-carry.new "
        "{0}/provider-carry.json",
        shell_quote(head_.folder));
    command.input = made_->carry.dump() + "\n";
    const CommandResult result = remote_->run(target_, std::move(command));
    if (!result.ok()) throw failed_there("writing for the provider", target_, result, "is its disk full?");
  }

  void check_head_stays() const {
    if (!known_ || (made_ && !made_->machines_stay)) return;  // a cloud's machine may come back with another address
    const RemoteHead wanted = remote_from(wanted_.file, shell_.env);
    if (known_->host.host == wanted.host.host) return;
    throw Error(
        ErrorCode::kConflict,
        fmt::format("the head of '{}' is {}, the file says {}", place_.name, known_->host.host, wanted.host.host),
        wanted_.file.place("provider.head"), fmt::format("run rubato down {} first", place_.name));
  }

  void live(int step, const std::string& progress) { line_.show(fmt::format("[{}/5] {}", step, progress)); }
  // An `up` that changes nothing on the way there says nothing of it.
  void report(int step, const std::string& progress) {
    line_.clear();
    if (!std::exchange(said_, true)) {
      shell_.err(fmt::format("[1/5] {} is reached\n", provider::to_string(target_)));
    }
    shell_.err(fmt::format("[{}/5] {}\n", step, progress));
  }

  static std::string workers_text(size_t count) { return fmt::format("{} worker{}", count, count == 1 ? "" : "s"); }

  // Those that a key of the head's lets in; pods are reached through the API server.
  bool has_workers() const {
    return (made_ && !provider::is_pod(made_->host.host)) || !wanted_.file.provider.workers.empty();
  }

  void inspect() {
    // What the file says now of the way there, with what was found out before.
    const RemoteHead said = remote_from(wanted_.file, shell_.env);
    head_.host = said.host;
    head_.key = said.key;
    head_.proxy_command = said.proxy_command;
    head_.proxy_jump = said.proxy_jump;
    Command command;
    command.script = std::string(kLookScript);
    command.env = {{"NAME", place_.name}, {"PROGRAM", remote_->program_name()}, {"KEY", has_workers() ? "1" : ""}};
    command.input = wanted_.text;
    const CommandResult result = remote_->run(target_, std::move(command));
    if (!result.ok())
      throw failed_there("looking around", target_, result, "is its disk full, or the home folder not writable?");
    for (const std::string_view one : split(result.out, '\n')) {
      const auto parts = split_once(one, ' ');
      if (!parts) continue;
      if (parts->first == "folder") head_.folder = std::string(parts->second);
      if (parts->first == "program") program_ = std::string(parts->second);
      if (parts->first == "staged") staged_ = std::string(parts->second);
      if (parts->first == "key") public_key_ = std::string(parts->second);
    }
    note_others(target_.host, result.out);
    if (head_.folder.empty()) throw failed_there("looking around", target_, result, "what does its shell print?");
    if (has_workers() && public_key_.empty()) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} has no ssh-keygen: the head needs a key for its workers", target_.host), "",
                  "install openssh-client there");
    }
    if (parsed_.has("dry-run")) return;
    write_remote(tools_->files(), place_, head_);
    keep_machines();
  }

  // Whoever belongs now is found by a later purge, also when a file names it no more. Machines that a provider makes go
  // for good, and leave nothing to clean.
  void keep_machines() {
    if (head_.power_off) return;
    KnownMachines machines = read_machines(tools_->files(), place_);
    machines.head = head_;
    if (!public_key_.empty()) machines.public_key = public_key_;
    for (const HostAddress& host : wanted_.file.provider.workers) {
      RemoteHead worker = worker_from(wanted_.file, host, shell_.env);
      std::erase_if(machines.workers, [&](const RemoteHead& one) { return one.host.host == worker.host.host; });
      machines.workers.push_back(std::move(worker));
    }
    write_machines(tools_->files(), place_, machines);
  }

  // Another cluster's processes on the machine, as the scripts tell of them.
  void note_others(const std::string& host, const std::string& told) {
    for (const std::string_view one : split(told, '\n')) {
      const auto name = strip_prefix(one, "cluster ");
      if (name && *name != place_.name) others_[std::string(trim(*name))].insert(host);
    }
  }

  // Two clusters count the same CPUs and GPUs, each for itself.
  void warn_of_others() {
    if (parsed_.has("json")) return;
    for (const auto& [cluster, hosts] : others_) {
      line_.clear();
      shell_.err(fmt::format(
          "warning: {} {} nodes of the cluster '{}' too: both give the same CPUs and GPUs to their jobs\n"
          "  fix take {} out of one of the two files, or end the other: rubato down {}\n",
          join(hosts, ", "), hosts.size() == 1 ? "has" : "have", cluster, hosts.size() == 1 ? "it" : "them", cluster));
    }
  }

  void put_program() {
    if (!program_.empty()) return;
    live(2, "sending rubato to " + target_.host);
    program_ = remote_->put_program(target_);
    report(2, fmt::format("{} has rubato now", target_.host));
  }

  // One hash over all mounts: with it, whoever has the same needs nothing.
  void hash_files() {
    const auto& mounts = wanted_.file.files.mounts;
    if (mounts.empty()) return;
    live(3, "looking at the files of file_mounts");
    Sha256 hash;
    for (const auto& [there, here] : mounts) {
      const std::string path = std::filesystem::absolute(expand_home(here, shell_.env)).lexically_normal().string();
      const std::string one = remote_->tree_hash(path, provider::sync_options(wanted_.file));
      if (one == "absent") {
        throw Error(ErrorCode::kUsage, fmt::format("'{}' for {} is not here", here, there),
                    wanted_.file.place("files.mounts"), "make it, or take it out of file_mounts");
      }
      hash.update(fmt::format("{}:{}={};", there.size(), there, one));
      sources_.emplace(there, path);
    }
    files_hash_ = hash.hex();
  }

  void stage_files() {
    if (sources_.empty() || staged_ == files_hash_) return;
    provider::SyncSent sent;
    for (const auto& [there, path] : sources_) {
      live(3, fmt::format("files: {} -> {}", path, there));
      provider::SyncOptions options = provider::sync_options(wanted_.file);
      provider::SyncSent of_this;
      options.on_sent = [&](const provider::SyncSent& now) {
        of_this = now;
        live(3, fmt::format("files: {} -> {}, {}", path, there, sent_text(now)));
      };
      remote_->upload(target_, path, provider::staged_mount(head_.folder, there), std::move(options));
      sent.files += of_this.files;
      sent.bytes += of_this.bytes;
    }
    // Last: what was cut off before this is begun again.
    Command command;
    command.script =
        fmt::format("umask 077; cat > {0}.new && mv {0}.new {0}", shell_quote(head_.folder + "/mounts.hash"));
    command.input = files_hash_ + "\n";
    const CommandResult result = remote_->run(target_, std::move(command));
    if (!result.ok()) throw failed_there("writing the list of files", target_, result, "is its disk full?");
    report(3, fmt::format("{} of file_mounts: new contents on {} ({})",
                       sources_.size() == 1 ? "1 path" : fmt::format("{} paths", sources_.size()), target_.host,
                       sent_text(sent)));
  }

  // The head starts nodes on its workers with a key that was made there and never leaves it.
  void allow_head() {
    if (!has_workers()) return;
    std::vector<HostAddress> missing;
    const bool same_key = head_.public_key == public_key_;
    for (const HostAddress& one : wanted_.file.provider.workers) {
      const bool knows = same_key && std::find(head_.keyed.begin(), head_.keyed.end(), one.host) != head_.keyed.end();
      if (!knows) missing.push_back(one);
    }
    if (missing.empty()) return;
    live(4, fmt::format("the head's key for {}", workers_text(missing.size())));
    std::vector<Remote::Outcome> outcomes = tell_workers(missing, kAllowScript, false);
    retry_by_way_of_head(missing, outcomes);
    size_t done = 0;
    if (!same_key) keyed_now_.clear();
    for (size_t i = 0; i < missing.size(); ++i) {
      if (outcomes[i].result && outcomes[i].result->ok()) {
        note_others(missing[i].host, outcomes[i].result->out);
        keyed_now_.push_back(missing[i].host);
        ++done;
        continue;
      }
      line_.clear();
      const std::string why = outcomes[i].error
                                  ? outcomes[i].error->message
                                  : failed_there("~/.ssh/authorized_keys", target_, *outcomes[i].result, "").message;
      shell_.err(fmt::format("note: {} does not let the head in yet: {}\n", missing[i].host, why));
    }
    report(4, done == missing.size() ? fmt::format("{} let{} the head in", workers_text(done), done == 1 ? "s" : "")
                                  : fmt::format("{} of {} let the head in", done, workers_text(missing.size())));
  }

  std::vector<Remote::Outcome> tell_workers(const std::vector<HostAddress>& hosts, std::string_view script, bool jump) {
    std::vector<Remote::HostCommand> host_commands;
    for (const HostAddress& host : hosts) {
      Remote::HostCommand one;
      one.target = worker_target(tools_->files(), place_, wanted_.file, host, shell_.env);
      if (jump) {
        one.target.proxy_command.clear();
        one.target.proxy_jump = to_string(head_.host);
      }
      one.command.script = std::string(script);
      one.command.env = {{"KEY", public_key_}};
      one.command.timeout = 30s;
      host_commands.push_back(std::move(one));
    }
    return remote_->run_all(std::move(host_commands));
  }

  // Workers behind the head's machine are reached over it.
  void retry_by_way_of_head(const std::vector<HostAddress>& hosts, std::vector<Remote::Outcome>& outcomes) {
    std::vector<HostAddress> again;
    std::vector<size_t> index;
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (!outcomes[i].error || outcomes[i].error->code != ErrorCode::kUnavailable) continue;
      again.push_back(hosts[i]);
      index.push_back(i);
    }
    if (again.empty()) return;
    std::vector<Remote::Outcome> second = tell_workers(again, kAllowScript, true);
    for (size_t i = 0; i < again.size(); ++i) {
      if (second[i].result) outcomes[index[i]] = std::move(second[i]);
    }
  }

  std::vector<std::string> words_there() const {
    std::vector<std::string> argv = {program_, "up",          head_.folder + "/incoming/cluster.yaml",
                                      "--here", "--said-file", wanted_.path};
    if (made_) argv.insert(argv.end(), {"--head-address", made_->address});
    if (!files_hash_.empty()) argv.insert(argv.end(), {"--files-hash", files_hash_});
    for (const char* flag : {"yes", "dry-run", "no-restart", "restart-only", "json", "accept-journal-loss"}) {
      if (parsed_.has(flag)) argv.push_back(fmt::format("--{}", flag));
    }
    for (const char* flag : {"timeout", "store", "listen"}) {
      if (parsed_.has(flag)) argv.insert(argv.end(), {fmt::format("--{}", flag), parsed_.value(flag)});
    }
    return argv;
  }

  int up_there() {
    if (said_) report(5, "the head, on " + target_.host);
    line_.clear();
    provider::SshOptions options;
    options.tty = shell_.asks && !parsed_.has("json");
    options.command = "exec " + shell_join(words_there());
    const int code = remote_->in_front(target_, options);
    if (parsed_.has("dry-run")) return code;
    if (code == kSshLost) {
      throw Error(ErrorCode::kUnavailable, fmt::format("the connection to {} was lost", target_.host), "",
                  fmt::format("the cluster goes on starting: run rubato up {} again to watch it", wanted_.path));
    }
    remember(code == 0);
    return code;
  }

  // Also after a failure: the head may be up, and the person wants to ask it.
  void remember(bool well) {
    tools_->files().write_atomically(place_.folder + "/cluster.yaml", wanted_.text);
    head_.program = program_;
    head_.public_key = public_key_;
    // Who knows the key is believed only when all went well: a host that was made anew is told again next time.
    if (well) {
      head_.keyed.insert(head_.keyed.end(), keyed_now_.begin(), keyed_now_.end());
    } else {
      head_.keyed.clear();
    }
    Command command;
    const std::string folder = shell_quote(head_.folder);
    command.script = fmt::format("cat {0}/head/head.json && cat {0}/token && echo && cat {0}/ca.pem", folder);
    const CommandResult result = remote_->run(target_, std::move(command));
    if (result.ok()) {
      const auto first = split_once(result.out, '\n');
      const auto second = first ? split_once(trim(first->second), '\n') : std::nullopt;
      const json document = first ? json::parse(first->first, nullptr, false) : json();
      const json api = document.is_object() ? document.value("api", json::object()) : json::object();
      const auto port = static_cast<uint16_t>(int_in(api, "port"));
      if (port != head_.api_port) tools_->files().remove_tree(tunnel_socket(tools_->files(), place_));
      head_.api_port = port;
      head_.api_tls = api.value("tls", false);
      if (second) {
        tools_->files().write_atomically(place_.token_file(), std::string(trim(second->first)) + "\n");
        tools_->files().set_mode(place_.token_file(), 0600);
        tools_->files().write_atomically(place_.folder + "/ca.pem", std::string(trim(second->second)) + "\n");
      }
    }
    write_remote(tools_->files(), place_, head_);
    keep_machines();
  }

  const ParsedCommand& parsed_;
  const Shell& shell_;
  ClusterText wanted_;  // with the head's machine, once a program has made it
  std::optional<provider::HeadMachine> made_;  // of a provider that makes machines
  std::string file_folder_;
  const std::unique_ptr<ClusterTools> tools_;
  const std::unique_ptr<Remote> remote_;
  const std::unique_ptr<Api> api_;
  const ClusterPlace place_;
  LiveLine line_;
  bool said_ = false;                           // a line of a phase
  std::map<std::string, std::string> sources_;  // of file_mounts: there -> here
  std::optional<RemoteHead> known_;
  RemoteHead head_;
  SshTarget target_;
  std::string program_, staged_, public_key_, files_hash_;
  std::vector<std::string> keyed_now_;
  std::map<std::string, std::set<std::string>> others_;  // other clusters, with the hosts that they have of this one's
};

}  // namespace

std::unique_ptr<FolderHold> take_folder(ClusterTools& tools, const Shell& shell, const ClusterPlace& place,
                                        const std::function<bool()>& pause) {
  bool said = false;
  while (true) {
    if (auto hold = tools.try_hold(place)) return hold;
    if (!std::exchange(said, true)) {
      shell.err(fmt::format("waiting for another rubato up or down of '{}' to end\n", place.name));
    }
    if (!pause()) throw Error(ErrorCode::kFailed, "interrupted while waiting");
  }
}

int remote_up(const ParsedCommand& parsed, const Shell& shell, const ClusterText& wanted) {
  return RemoteUp(parsed, shell, wanted).run();
}

}  // namespace rubato::cli
