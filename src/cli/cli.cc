#include "cli/cli.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "api/openapi.h"
#include "build_stamp.h"
#include "cli/allocate_command.h"
#include "cli/aws_command.h"
#include "cli/commands.h"
#include "cli/complete_command.h"
#include "cli/completion.h"
#include "cli/config_commands.h"
#include "cli/doctor.h"
#include "cli/doctor_cluster.h"
#include "cli/doctor_heads.h"
#include "cli/dataset_command.h"
#include "cli/gcp_command.h"
#include "cli/help.h"
#include "cli/job_commands.h"
#include "cli/kubernetes_command.h"
#include "cli/petctl_command.h"
#include "cli/plan_command.h"
#include "cli/pod_command.h"
#include "cli/run_flags.h"
#include "cli/scale_commands.h"
#include "cli/simulate_command.h"
#include "cli/status_commands.h"
#include "cli/submit_command.h"
#include "cli/suggest.h"
#include "cli/top_command.h"
#include "cli/where_commands.h"
#include "client/api_client.h"
#include "client/fetch_command.h"
#include "client/remote.h"
#include "core/random.h"
#include "daemon/daemon_command.h"
#include "daemon/head_command.h"
#include "daemon/run_command.h"
#include "deploy/cluster_commands.h"
#include "deploy/cluster_tools.h"
#include "deploy/machine_commands.h"
#include "os/machine.h"
#include "os/probe.h"
#include "os/python.h"
#include "os/runtime.h"
#include "os/terminal.h"
#include "world/network.h"

namespace rubato::cli {
namespace {

constexpr uint16_t kDefaultRendezvousPort = 29400;

LaunchSpec read_run(const ParsedCommand& parsed, const Shell& shell, RunVerb verb) {
  try {
    LaunchSpec spec = launch_spec(parsed, shell.env, os::read_machine_facts(shell.env), verb);
    // Workers are told where their error files are, and may change their folder.
    std::error_code none;
    if (!spec.log_dir.empty()) spec.log_dir = std::filesystem::absolute(spec.log_dir, none).lexically_normal().string();
    if (none) throw Error(ErrorCode::kUsage, "the current folder is not there any more", "", "cd somewhere else");
    check_script(spec, os::script_kind(spec.program));
    return spec;
  } catch (Error& error) {
    // The exit codes of torchrun: whoever calls us in its place may look at them.
    if (error.code == ErrorCode::kUsage && is_refused_by_argparse(parsed)) throw;
    if (error.code == ErrorCode::kUsage) error.code = ErrorCode::kFailed;
    write_launcher_error(error, shell.env);
    throw;
  }
}

int do_run(const ParsedCommand& parsed, const Shell& shell) {
  return shell.launch(read_run(parsed, shell, RunVerb::kRun));
}
int do_launch(const ParsedCommand& parsed, const Shell& shell) {
  return shell.launch(read_run(parsed, shell, RunVerb::kLaunch));
}

int do_doctor(const ParsedCommand& parsed, const Shell& shell) {
  if (!parsed.positionals.empty()) return doctor_cluster(parsed, shell);
  os::ProbeRequest request{.python = parsed.value("python"), .env = shell.env};
  if (const Given* given = parsed.find("endpoint")) {
    const Endpoint endpoint = parse_endpoint(given->values.back(), kDefaultRendezvousPort);
    request.endpoint_host = endpoint.host;
    request.endpoint_port = endpoint.port;
  }
  std::vector<Finding> findings = judge(os::probe_machine(request));
  for (Finding& finding : judge_heads(shell.env)) findings.push_back(std::move(finding));
  shell.out(parsed.has("json") ? findings_json(findings) : findings_table(findings, shell.colour));
  return doctor_exit_code(findings);
}

int do_version(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.has("json")) {
    const nlohmann::ordered_json json = {
        {"version", RUBATO_VERSION}, {"commit", RUBATO_COMMIT}, {"build", RUBATO_BUILD}, {"compiler", RUBATO_COMPILER}};
    shell.out(json.dump() + "\n");
  } else {
    shell.out(
        fmt::format("rubato {} (commit {}, {}, {})\n", RUBATO_VERSION, RUBATO_COMMIT, RUBATO_BUILD, RUBATO_COMPILER));
  }
  return 0;
}

// `rubato help config`. False: it is no group of commands.
bool show_group(const std::vector<std::string>& argv, const Shell& shell) {
  const std::string text = argv.size() == 1 ? group_help(argv.front(), shell.colour) : "";
  shell.out(text);
  return !text.empty();
}

int do_help(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.positionals.empty()) {
    shell.out(overall_help(shell.colour));
    return 0;
  }
  const FoundCommand found = find_command(parsed.positionals);
  if (found.command == nullptr && show_group(parsed.positionals, shell)) return 0;
  if (found.command == nullptr) throw unknown_command(parsed.positionals);
  shell.out(command_help(*found.command, shell.colour));
  return 0;
}

int do_docs(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.has("json") && !parsed.has("openapi"))
    throw Error(ErrorCode::kUsage, "--json needs --openapi", "", "write rubato docs --openapi --json");
  if (parsed.has("openapi")) {
    shell.out(parsed.has("json") ? api::openapi().dump(1) + "\n" : api::openapi_yaml());
  } else {
    shell.out(reference_markdown());
  }
  return 0;
}

int do_completion(const ParsedCommand& parsed, const Shell& shell) {
  shell.out(completion_script(parsed.positionals.empty() ? "" : parsed.positionals.front()));
  return 0;
}

// The daemons: started by us, hidden from people.
int do_daemon(const std::function<int(const std::string&)>& body, const ParsedCommand& parsed) {
  const std::string dir = parsed.value("dir");
  if (dir.empty()) throw Error(ErrorCode::kUsage, "--dir is missing", "", "this is started by 'rubato up'");
  CHECK(body);
  return body(dir);
}
int do_head(const ParsedCommand& parsed, const Shell& shell) {
  const HeadStart start{parsed.has("accept-journal-loss"), parsed.value("restarted-after")};
  return do_daemon([&](const std::string& dir) { return shell.head(dir, start); }, parsed);
}
int do_agent(const ParsedCommand& parsed, const Shell& shell) {
  return do_daemon(parsed.has("deliver") ? shell.deliver : shell.agent, parsed);
}

using Body = int (*)(const ParsedCommand&, const Shell&);

Body body_of(const Command& command) {  // tidy: long: a table
  static const std::map<const Command*, Body> bodies{
      {&run_table(), do_run},
      {&launch_table(), do_launch},
      {&doctor_table(), do_doctor},
      {&version_table(), do_version},
      {&completion_table(), do_completion},
      {&complete_table(), complete_command},
      {&help_table(), do_help},
      {&docs_table(), do_docs},
      {&head_table(), do_head},
      {&agent_table(), do_agent},
      {&daemon_table(), daemon_command},
      {&supervise_table(), supervise_command},
      {&while_heard_table(), while_heard_command},
      {&up_table(), up_command},
      {&down_table(), down_command},
      {&status_table(), status_command},
      {&exec_table(), exec_command},
      {&connect_table(), connect_command},
      {&attach_table(), attach_command},
      {&rsync_up_table(), rsync_up_command},
      {&rsync_down_table(), rsync_down_command},
      {&get_head_ip_table(), get_head_ip_command},
      {&get_worker_ips_table(), get_worker_ips_command},
      {&monitor_table(), monitor_command},
      {&clusters_table(), clusters_command},
      {&top_table(), top_command},
      {&events_table(), events_command},
      {&why_table(), why_command},
      {&replay_table(), replay_command},
      {&drain_table(), drain_command},
      {&node_lost_table(), node_lost_command},
      {&request_table(), request_command},
      {&audit_table(), audit_command},
      {&submit_table(), submit_command},
      {&jobs_table_command(), jobs_command},
      {&job_show_table(), job_show_command},
      {&logs_table(), logs_command},
      {&stop_table(), stop_command},
      {&rerun_table(), rerun_command},
      {&fetch_table(), fetch_command},
      {&simulate_table(), simulate_command},
      {&plan_table(), plan_command},
      {&allocate_table(), allocate_command},
      {&cp_table(), cp_command},
      {&dataset_get_table(), dataset_get_command},
      {&aws_whoami_table(), aws_whoami_command},
      {&aws_policy_table(), aws_policy_command},
      {&gcp_whoami_table(), gcp_whoami_command},
      {&gcp_policy_table(), gcp_policy_command},
      {&petctl_run_job_table(), petctl_run_job_command},
      {&petctl_kill_job_table(), kill_job_command},
      {&petctl_list_hosts_table(), list_hosts_command},
      {&petctl_upload_table(), petctl_upload_command},
      {&aws_run_job_table(), aws_run_job_command},
      {&aws_status_table(), aws_status_command},
      {&aws_logs_table(), aws_logs_command},
      {&aws_resize_table(), aws_resize_command},
      {&aws_kill_job_table(), kill_job_command},
      {&aws_bake_table(), aws_bake_command},
      {&aws_host_table(), aws_host_command},
      {&rendezvous_table(), rendezvous_command},
      {&operator_table(), operator_command},
      {&k8s_install_table(), k8s_install_command},
      {&k8s_uninstall_table(), k8s_uninstall_command},
      {&k8s_manifests_table(), k8s_manifests_command},
      {&k8s_logs_table(), k8s_logs_command},
      {&k8s_scale_table(), k8s_scale_command},
      {&k8s_copy_binary_table(), k8s_copy_binary_command},
      {&k8s_shell_table(), k8s_shell_command},
      {&k8s_forward_table(), k8s_forward_command},
      {&k8s_relay_table(), k8s_relay_command},
      {&config_check_table(), config_check_command},
      {&config_show_table(), config_show_command},
      {&config_explain_table(), config_explain_command},
      {&config_migrate_table(), config_migrate_command},
      {&config_schema_table(), config_schema_command},
  };
  return bodies.at(&command);
}

int do_command(const Command& command, const std::vector<std::string>& args, const Shell& shell) {
  if (&command == &submit_table() && is_submit_to_cluster(submit_to_table(), args)) {
    return submit_to_command(submit_to_table(), parse_command(submit_to_table(), args, shell.env), shell);
  }
  const ParsedCommand parsed =
      takes_script(command) ? parse_with_arguments(command, args, shell.env) : parse_command(command, args, shell.env);
  if (parsed.help) {
    shell.out(command_help(command, shell.colour));
    return 0;
  }
  return body_of(command)(parsed, shell);
}

int dispatch(const std::vector<std::string>& given, const Shell& shell) {
  const std::vector<std::string> args = petctl_argv(given);
  if (args.empty()) {
    shell.err(overall_help(false));
    return 2;
  }
  const std::string& first = args.front();
  if (first == "--help" || first == "-h") {
    shell.out(overall_help(shell.colour));
    return 0;
  }
  if (first == "--version") return do_version({}, shell);
  const FoundCommand found = find_command(args);
  const bool asks_help = args.size() == 2 && (args[1] == "--help" || args[1] == "-h");
  if (found.command == nullptr && asks_help && show_group({first}, shell)) return 0;
  if (found.command == nullptr) throw unknown_command(args);
  return do_command(*found.command, {args.begin() + static_cast<long>(found.length), args.end()}, shell);
}

}  // namespace

int run_cli(const std::vector<std::string>& args, const Shell& shell) {
  try {
    return dispatch(args, shell);
  } catch (const Error& error) {
    shell.err(render(error));
    return exit_code(error);
  } catch (const std::exception& error) {
    shell.err(render(Error(ErrorCode::kFailed, error.what())));
    return 1;
  }
}

int main(int argc, char** argv) {
  Shell shell;
  shell.env = os::read_environment();
  const auto no_colour = shell.env.find("NO_COLOR");  // no-color.org: any value but the empty one
  const bool wanted = no_colour == shell.env.end() || no_colour->second.empty();
  shell.colour = wanted && isatty(STDOUT_FILENO) == 1 && shell.env["TERM"] != "dumb";
  // Lines of a log or of events must not wait for more of them.
  shell.out = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  shell.err = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  shell.launch = run_command;
  shell.head = head_command;
  shell.agent = agent_command;
  shell.deliver = deliver_command;
  shell.width = os::terminal_width(STDOUT_FILENO);
  shell.live = wanted && isatty(STDERR_FILENO) == 1 && shell.env["TERM"] != "dumb";
  shell.asks = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  shell.now = os::wall_now;
  shell.read_line = os::read_line;
  shell.read_input = os::read_input;
  shell.random_token = [] { return Random(os::entropy()).hex(16) + Random(os::entropy()).hex(16); };
  shell.remote = [&shell] { return real_remote(shell.env); };
  shell.open_api = [&shell](const ClusterPlace& place) { return open_api(place, shell.remote); };
  shell.cluster_tools = [&shell] { return real_cluster_tools(shell.env); };
  const int code = run_cli({argv + std::min(argc, 1), argv + argc}, shell);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fputs("error: standard output cannot be written\n", stderr);
  return code == 0 ? 1 : code;
}

}  // namespace rubato::cli
