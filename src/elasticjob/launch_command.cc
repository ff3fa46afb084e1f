#include "elasticjob/launch_command.h"

#include <fmt/format.h>

#include <algorithm>

namespace rubato::elasticjob {
namespace {

// A group may wait for its nodes for as long as the cluster's autoscaler needs; the job's own deadline ends it.
constexpr int kJoinTimeout_s = 7 * 24 * 3600;
// Pods of one job start within seconds of each other; a group that formed without some would change at once.
constexpr int kLastCall_s = 3;

std::string_view base_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// What the launcher needs after its workers, before the kubelet kills it with them.
constexpr int kGoodbye_s = 5;

bool is_python(std::string_view path) { return base_name(path).starts_with("python"); }

constexpr std::string_view kLauncherModules[] = {"torch.distributed.run", "torch.distributed.launch",
                                                 "torchelastic.distributed.launch", "torch.distributed.elastic.run"};

// How many arguments of the program are somebody else's launcher; 0: it is the training program itself.
size_t launcher_length(const std::vector<std::string>& program) {
  if (base_name(program[0]) == "torchrun") return 1;
  if (!is_python(program[0])) return 0;
  // Options of the interpreter in front: -u, -B, -X OPTION, -W FILTER.
  size_t at = 1;
  while (at < program.size() && program[at].starts_with('-') && program[at] != "-m" && program[at] != "-c") {
    at += program[at] == "-X" || program[at] == "-W" ? 2 : 1;
  }
  if (at + 1 >= program.size() || program[at] != "-m") return 0;
  for (const std::string_view module : kLauncherModules) {
    if (program[at + 1] == module) return at + 2;
  }
  return 0;
}

// Whether the value of the flag is the next argument.
bool takes_the_next(std::string_view flag) {
  if (flag == "-t" || flag == "-r") return true;  // --tee, --redirects
  if (!flag.starts_with("--") || flag.find('=') != std::string_view::npos) return false;
  for (const std::string_view alone : {"--no-python", "--no_python", "--module", "--run-path", "--run_path",
                                       "--standalone", "--virtual-local-rank", "--virtual_local_rank"}) {
    if (flag == alone) return false;
  }
  return true;
}

// Flags of the rendezvous in the manifest would lead elsewhere than the operator's.
bool is_rendezvous_flag(std::string_view flag) {
  for (const std::string_view known : {"--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf",
                                       "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id", "--rdzv_conf", "--node-rank",
                                       "--node_rank", "--master-addr", "--master_addr"}) {
    if (flag == known || (flag.starts_with(known) && flag[known.size()] == '=')) return true;
  }
  return flag == "--standalone";
}

}  // namespace

std::vector<std::string> launch_command(const Job& job, const LaunchPlace& place,
                                        const std::vector<std::string>& program) {
  std::vector<std::string> out{place.binary, "run"};
  out.push_back(fmt::format("--nnodes={}:{}", job.min_replicas, job.max_replicas));
  out.push_back("--nproc-per-node=" + job.nproc);
  out.push_back(fmt::format("--max-restarts={}", job.max_restarts));
  out.push_back(fmt::format("--grace={}s", std::max(1, place.grace_s - kGoodbye_s)));
  // The uid is the group's secret too: nobody who cannot read the job knows it.
  out.push_back(fmt::format("--rdzv-id={}-{}", job.name.name, job.uid));
  std::string conf = fmt::format("join_timeout={},last_call_timeout={}", kJoinTimeout_s, kLastCall_s);
  if (job.etcd.empty()) {
    out.push_back("--rdzv-backend=embedded");
    out.push_back(
        fmt::format("--rdzv-endpoint=*{}.{}.svc:{}", service_name(job), job.name.namespace_name, kRendezvousPort));
    conf += fmt::format(",is_host={}", place.is_host ? 1 : 0);
  } else {
    out.push_back("--rdzv-backend=etcd");
    out.push_back("--rdzv-endpoint=" + job.etcd);
  }
  if (!place.pod.empty()) conf += ",identity=" + place.pod;
  out.push_back("--rdzv-conf=" + conf);
  const size_t theirs = launcher_length(program);
  if (theirs == 0) {
    out.push_back("--no-python");
    out.insert(out.end(), program.begin(), program.end());
    return out;
  }
  bool in_flags = true;
  for (size_t i = theirs; i < program.size(); ++i) {
    in_flags = in_flags && program[i].starts_with('-');
    if (in_flags && is_rendezvous_flag(program[i])) {
      if (takes_the_next(program[i])) ++i;
      continue;
    }
    out.push_back(program[i]);
    // A flag's value in an argument of its own does not begin the program: torchrun's flags with values stay pairs.
    if (in_flags && takes_the_next(program[i]) && i + 1 < program.size()) out.push_back(program[++i]);
  }
  return out;
}

bool hides_a_launcher(const std::vector<std::string>& program) {
  if (program.empty()) return false;
  const std::string_view shell = base_name(program[0]);
  if (shell != "sh" && shell != "bash" && shell != "dash" && shell != "zsh") return false;
  for (const std::string& text : program) {
    if (text.find("torchrun") != std::string::npos) return true;
    for (const std::string_view module : kLauncherModules) {
      if (text.find(fmt::format("-m {}", module)) != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace rubato::elasticjob
