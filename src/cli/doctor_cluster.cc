#include "cli/doctor_cluster.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/cloud_commands.h"
#include "client/cluster_target.h"
#include "client/remote.h"
#include "client/session.h"
#include "core/text.h"
#include "os/files.h"
#include "provider/external_config.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr int64_t kDiskFailKib = 100 << 10;  // rubato itself, and a little
constexpr int64_t kDiskWarnKib = 5 << 20;
constexpr Duration kStartMax = 1s;  // until the last of the calls that are made at once is under way
constexpr double kClockWarnSeconds = 5, kClockFailSeconds = 300;  // certificates are young when a node starts

// One line for each fact. What a host has not got says nothing.
// It only looks: Python writes no byte code, and podman, which makes its store at a first call, only tells its version.
constexpr std::string_view kHostScript = R"sh(export PYTHONDONTWRITEBYTECODE=1
echo "user $(id -un)"
echo "machine $(uname -m)"
echo "clock $(date +%s)"
echo "disk $(df -Pk "$HOME" | awk 'NR == 2 {print $4}')"
[ -w "$HOME" ] && echo "home yes"
if [ "$(id -u)" = 0 ]; then echo "sudo root"; elif sudo -n true 2>/dev/null; then echo "sudo yes"; fi
command -v ssh >/dev/null && command -v ssh-keygen >/dev/null && echo "ssh yes"
command -v docker >/dev/null && echo "docker $(docker version --format '{{.Server.Version}}' 2>&1 | tail -n 1)"
command -v podman >/dev/null && echo "podman $(podman --version 2>&1 | tail -n 1 | sed 's/^podman version //')"
p=$(command -v python3 || command -v python) && {
  echo "python $("$p" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>&1 | tail -n 1)"
  t=$("$p" -c 'import torch; print(torch.__version__, torch.cuda.device_count())' 2>&1 | tail -n 1)
  echo "torch $t"
}
n=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') && echo "gpu $n"
ls /dev/nvidia[0-9]* 2>/dev/null | wc -l | sed 's/^/devices /'
echo "clock-last $(date +%s)"
exit 0)sh";

Finding good(std::string check, std::string found) { return {std::move(check), Health::kOk, std::move(found), ""}; }
Finding odd(std::string check, std::string found, std::string fix) {
  return {std::move(check), Health::kWarn, std::move(found), std::move(fix)};
}
Finding bad(std::string check, std::string found, std::string fix) {
  return {std::move(check), Health::kFail, std::move(found), std::move(fix)};
}

int64_t number_of(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

class HostJudge {
 public:
  HostJudge(const HostFacts& facts, const HostWants& wants) : facts_(facts), wants_(wants) {}

  std::vector<Finding> judge() {
    if (facts_.direct && !judge_way()) return std::move(out_);
    if (facts_.login) {
      out_.push_back(bad("key", facts_.login->message, facts_.login->hint));
      return std::move(out_);
    }
    out_.push_back(good("key", "accepted"));
    judge_user();
    judge_disk();
    judge_clock();
    judge_programs();
    judge_python();
    return std::move(out_);
  }

 private:
  std::string said(const char* key) const {
    const auto found = facts_.said.find(key);
    return found == facts_.said.end() ? "" : found->second;
  }

  // False when there is no use in going on.
  bool judge_way() {
    if (facts_.resolved.addresses.empty()) {
      out_.push_back(bad("name", fmt::format("{} has no address: {}", facts_.host, facts_.resolved.error),
                         "check the name in the cluster file, /etc/hosts and the name server"));
      return false;
    }
    out_.push_back(good("name", facts_.resolved.addresses.front()));
    using Result = os::EndpointProbe::Result;
    const Result result = facts_.door ? facts_.door->result : Result::kUnreachable;
    if (result == Result::kConnected || result == Result::kPortTaken) {
      out_.push_back(good("port", fmt::format("{} answers", facts_.port)));
      return true;
    }
    const bool refused = result == Result::kRefused || result == Result::kPortFree;
    out_.push_back(bad("port",
                       fmt::format("{} {}", facts_.port, refused ? "is closed: no sshd listens" : "does not answer"),
                       refused ? "start sshd there, or set auth.ssh_port"
                               : "is the machine up, and does a firewall let SSH through from here?"));
    return false;
  }

  void judge_user() {
    out_.push_back(said("home").empty() ? bad("user", said("user") + ", whose home folder cannot be written",
                                              "give the user a home folder of its own")
                                        : good("user", said("user")));
  }

  void judge_disk() {
    const int64_t kib = number_of(said("disk"));
    const std::string sentence =
        fmt::format("{:.1f} GiB free in the home folder", static_cast<double>(kib) / (1 << 20));
    if (kib < kDiskFailKib) {
      out_.push_back(bad("disk", sentence, "make room: rubato alone needs 100 MiB"));
    } else if (kib < kDiskWarnKib) {
      out_.push_back(odd("disk", sentence, "packages, logs and checkpoints may need more"));
    } else {
      out_.push_back(good("disk", sentence));
    }
  }

  void judge_clock() {
    const auto seconds = [](WallTime at) { return static_cast<double>(to_ms(at.time_since_epoch())) / 1000.0; };
    // It read its clock, in whole seconds, first and last of all between our asking and its answer: however slow it is,
    // what it is off lies between these two.
    const double least = static_cast<double>(number_of(said("clock-last"))) - seconds(facts_.answered_at);
    const double most = static_cast<double>(number_of(said("clock"))) + 1 - seconds(facts_.asked_at);
    const double off = least > 0 ? least : std::min(most, 0.0);
    const std::string sentence = off == 0 ? std::string("as ours") : fmt::format("{:+.0f} s from ours", off);
    if (std::abs(off) >= kClockFailSeconds) {
      out_.push_back(
          bad("clock", sentence, "set the clock (timedatectl set-ntp true): certificates would not be valid"));
    } else if (std::abs(off) >= kClockWarnSeconds) {
      out_.push_back(odd("clock", sentence, "set the clock: times in logs and events will not agree"));
    } else {
      out_.push_back(good("clock", sentence));
    }
  }

  void judge_programs() {
    const std::string sudo = said("sudo");
    out_.push_back(sudo.empty() ? odd("sudo", "not without a password", "only needed if set-up commands use sudo")
                                : good("sudo", sudo == "root" ? "not needed: it is root" : "without a password"));
    const char* tool = wants_.podman ? "podman" : "docker";
    const std::string version = said(tool);
    const bool works = !version.empty() && std::isdigit(static_cast<unsigned char>(version.front()));
    if (works) {
      out_.push_back(good(tool, version));
    } else if (wants_.docker) {
      out_.push_back(bad(tool, version.empty() ? "not there" : version,
                         fmt::format("install {}, and let {} use it", tool, said("user"))));
    } else {
      out_.push_back(good(tool, version.empty() ? "not there, and not needed" : "does not run, and is not needed"));
    }
    if (wants_.is_head && said("ssh").empty()) {
      out_.push_back(
          bad("ssh", "no ssh and ssh-keygen: the head could not reach its workers", "install openssh-client"));
    }
  }

  void judge_python() {
    const std::string python = said("python");
    out_.push_back(python.empty() ? odd("Python", "not there", "install python3, or bring one with set-up commands")
                                  : good("Python", python));
    const std::string torch = said("torch");
    const bool works = !torch.empty() && std::isdigit(static_cast<unsigned char>(torch.front()));
    const auto parts = split_once(torch, ' ');
    if (!works) {
      out_.push_back(odd("PyTorch", torch.empty() ? "not there" : torch, "install it with set-up commands"));
    } else {
      out_.push_back(good("PyTorch", std::string(parts ? parts->first : torch)));
    }
    const int64_t devices = std::max(number_of(said("gpu")), number_of(said("devices")));
    const int64_t seen = parts ? number_of(std::string(parts->second)) : 0;
    if (devices > 0 && works && seen < devices) {
      out_.push_back(odd("GPU", fmt::format("{}, of which PyTorch sees {}", devices, seen),
                         "install a PyTorch that was built for CUDA, and a driver that fits it"));
    } else {
      out_.push_back(good("GPU", devices == 0 ? "none" : fmt::format("{}", devices)));
    }
  }

  const HostFacts& facts_;
  const HostWants& wants_;
  std::vector<Finding> out_;
};

std::map<std::string, std::string> read_facts(const std::string& text) {
  std::map<std::string, std::string> out;
  for (const std::string_view line : split(text, '\n')) {
    if (const auto parts = split_once(line, ' ')) out.emplace(parts->first, trim(parts->second));
  }
  return out;
}

struct Asked {
  HostFacts facts;
  HostWants wants;
  provider::SshTarget target;
};

// `workers`: those that the file names, or that its provider's program has.
std::vector<Asked> hosts_of(const ClusterTarget& target, const Shell& shell, const std::vector<HostAddress>& workers) {
  os::RealFiles files;
  const ClusterFile& file = target.text->file;
  std::vector<Asked> out;
  const auto add = [&](const std::string& role, const HostAddress& host, bool head) {
    Asked one;
    one.target = worker_target(files, target.place, file, host, shell.env);
    if (head && file.provider.head) one.target.host = remote_from(file, shell.env).host.host;
    one.target.control_folder.clear();  // a look, not a stay
    one.facts.host = one.target.host;
    one.facts.port = one.target.port == 0 ? 22 : one.target.port;
    one.facts.name = fmt::format("{} {}", role, one.target.host);
    one.facts.direct = one.target.proxy_command.empty() && one.target.proxy_jump.empty();
    one.wants.docker = file.docker.enabled();
    one.wants.podman = file.docker.use_podman;
    one.wants.is_head = head;
    out.push_back(std::move(one));
  };
  if (file.provider.head) {
    add("head", *file.provider.head, true);
  } else if (target.remote) {
    add("head", target.remote->host, true);
  }
  for (const HostAddress& worker : workers) {
    if (!target.remote || worker.host != target.remote->host.host) add("worker", worker, false);
  }
  return out;
}

// Names and ports of all that are reached from here, at once.
void probe(std::vector<Asked>& hosts) {
  std::vector<os::HostProbe> probes;
  std::vector<HostFacts*> about;
  for (Asked& one : hosts) {
    if (!one.facts.direct) continue;
    os::HostProbe probe;
    probe.host = one.facts.host;
    probe.port = static_cast<uint16_t>(one.facts.port);
    probes.push_back(std::move(probe));
    about.push_back(&one.facts);
  }
  os::probe_hosts(probes);
  for (size_t i = 0; i < probes.size(); ++i) {
    about[i]->resolved = std::move(probes[i].resolved);
    about[i]->door = std::move(probes[i].door);
  }
}

void ask(std::vector<Asked>& hosts, const Shell& shell) {
  probe(hosts);
  std::vector<Remote::HostCommand> host_commands;
  std::vector<size_t> index;
  for (size_t i = 0; i < hosts.size(); ++i) {
    HostFacts& facts = hosts[i].facts;
    if (facts.direct) {
      if (!facts.door) continue;
      using Result = os::EndpointProbe::Result;
      if (facts.door->result != Result::kConnected && facts.door->result != Result::kPortTaken) continue;
    }
    Remote::HostCommand one;
    one.target = hosts[i].target;
    one.command.script = std::string(kHostScript);
    one.command.login = true;
    one.command.timeout = 60s;
    host_commands.push_back(std::move(one));
    index.push_back(i);
  }
  const WallTime begin = shell.now();
  const std::vector<Remote::Outcome> outcomes = shell.remote()->run_all(std::move(host_commands));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    HostFacts& facts = hosts[index[i]].facts;
    facts.login = outcomes[i].error;
    if (!outcomes[i].result) continue;
    facts.said = read_facts(outcomes[i].result->out);
    facts.asked_at = begin;
    facts.answered_at = begin + std::chrono::duration_cast<WallTime::duration>(outcomes[i].result->took + kStartMax);
  }
}

// A provider's program of one's own: whether it starts, and answers. `hosts` gets the machines that it tells of.
std::vector<Finding> check_program(const ClusterTarget& target, const Shell& shell, std::vector<HostAddress>& hosts) {
  provider::ExternalSettings settings;
  settings.place = provider::ExternalPlace::kClient;
  settings.folder = std::filesystem::absolute(target.text->path).lexically_normal().parent_path().string();
  if (!target.typed && target.remote) settings.folder = target.remote->provider_folder;
  try {
    const provider::ExternalGreeting greeting = shell.remote()->greet_external(target.text->file, settings);
    hosts = greeting.hosts;
    std::string sentence = greeting.name;
    if (!greeting.version.empty()) sentence += " " + greeting.version;
    sentence += " answers";
    if (greeting.machines_stay) sentence += "; its machines stay when their nodes go";
    return {good("program", sentence)};
  } catch (const Error& error) {
    return {
        bad("program", error.message, error.hint.empty() ? "run it by hand: docs/external-providers.md" : error.hint)};
  }
}

// What is said of one host, or of the program, as the command prints it.
class Report {
 public:
  Report(const ParsedCommand& parsed, const Shell& shell) : json_(parsed.has("json")), shell_(shell) {}

  json add(const std::string& name, const std::vector<Finding>& findings) {
    well_ = well_ && doctor_exit_code(findings) == 0;
    if (!json_) {
      shell_.out(
          fmt::format("{}\n{}\n", paint(name, Hue::kBold, shell_.colour), findings_table(findings, shell_.colour)));
    }
    json checks = json::parse(findings_json(findings));
    checks["name"] = name;
    return checks;
  }
  bool well() const { return well_; }

 private:
  const bool json_;
  const Shell& shell_;
  bool well_ = true;
};

}  // namespace

std::vector<Finding> judge_host(const HostFacts& facts, const HostWants& wants) {
  return HostJudge(facts, wants).judge();
}

int doctor_cluster(const ParsedCommand& parsed, const Shell& shell) {
  const ClusterTarget target = find_cluster(parsed, shell, parsed.positionals.front());
  const bool external = target.text && provider::is_external(target.text->file);
  const bool cloud = is_cloud(target);
  if (!target.text || (!target.text->file.provider.head && !external && !cloud)) {
    throw Error(ErrorCode::kUsage, "this cluster file names no hosts", target.text ? target.text->path : "",
                "check this machine with: rubato doctor");
  }
  Report report(parsed, shell);
  json document = {{"hosts", json::array()}};
  std::vector<HostAddress> workers = target.text->file.provider.workers;
  if (external) document["provider"] = report.add("provider", check_program(target, shell, workers));
  if (cloud) document["provider"] = report.add(target.text->file.provider.type, check_cloud(target, shell));
  std::vector<Asked> hosts = hosts_of(target, shell, workers);
  ask(hosts, shell);
  for (const Asked& one : hosts) {
    json checks = report.add(one.facts.name, judge_host(one.facts, one.wants));
    checks["host"] = one.facts.host;
    document["hosts"].push_back(std::move(checks));
  }
  document["ok"] = report.well();
  if (parsed.has("json")) shell.out(json_text(document));
  return report.well() ? 0 : 1;
}

}  // namespace rubato::cli
