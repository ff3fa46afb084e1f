#include "cli/kubernetes_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "build_stamp.h"
#include "cli/command_world.h"
#include "client/session.h"
#include "core/text.h"
#include "daemon/daemon_world.h"
#include "elasticjob/controller.h"
#include "elasticjob/deployment.h"
#include "elasticjob/explain.h"
#include "elasticjob/install.h"
#include "elasticjob/scale.h"
#include "elasticjob/submit.h"
#include "elasticjob/supervisor.h"
#include "kubernetes/leader.h"
#include "os/http_server.h"
#include "rest/url.h"
#include "terminal/render_events.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

kubernetes::AccessSettings access_settings(const ParsedCommand& parsed, const Shell& shell) {
  kubernetes::AccessSettings settings;
  settings.env = shell.env;
  settings.kubeconfig = parsed.value("kubeconfig");
  settings.context = parsed.value("context");
  return settings;
}

std::vector<elasticjob::Kind> adopted_kinds(const ParsedCommand& parsed) {
  std::vector<elasticjob::Kind> out;
  const Given* given = parsed.find("adopt");
  if (given == nullptr) return out;
  for (const std::string& text : given->values) {
    const auto kind = elasticjob::parse_kind(text);
    std::vector<std::string> names;
    for (const elasticjob::Kind known : elasticjob::kAllKinds) {
      if (known != elasticjob::Kind::kElasticJob) names.emplace_back(to_string(known));
    }
    if (!kind || *kind == elasticjob::Kind::kElasticJob)
      throw bad_value(*given, "no such kind can be adopted", "write one of: " + join(names, ", "));
    if (std::find(out.begin(), out.end(), *kind) == out.end()) out.push_back(*kind);
  }
  return out;
}

elasticjob::DeploymentSettings deployment_settings(const ParsedCommand& parsed) {
  elasticjob::DeploymentSettings settings;
  settings.namespace_name = parsed.value("namespace", settings.namespace_name);
  settings.image = parsed.value("image", "rubato:" RUBATO_VERSION);
  settings.watched_namespace = parsed.value("watch");
  settings.adopted = adopted_kinds(parsed);
  if (const Given* given = parsed.find("replicas")) settings.replicas = int_value(*given, 0, 100);
  return settings;
}

struct OperatorRun {
  kubernetes::AccessSettings access;
  elasticjob::ControllerSettings controller;
  bool leader_elect = false;
  std::string lease_namespace;
  std::string supervisor_url;  // as pods reach this operator; empty: they do not
};

// How the operator ends: a signal (0), or leadership is lost (1) and whoever started us starts us again.
struct OperatorEnd {
  explicit OperatorEnd(Loop& loop) : changed(loop) {}
  void set(int value) {
    if (!code) code = value;
    changed.notify();
  }
  std::optional<int> code;
  std::exception_ptr failure;
  Event changed;
};

Task<void> act(elasticjob::Controller& controller, OperatorEnd& end) {
  try {
    Task<void> running = controller.run();
    co_await std::move(running);
  } catch (const Error&) {
    end.failure = std::current_exception();
  }
  end.set(1);
}

Task<void> lead(kubernetes::Leader& leader, OperatorEnd& end) {
  Task<void> keeping = leader.keep();
  co_await std::move(keeping);
  end.set(1);
}

Task<void> obey_signals(DaemonWorld& daemon, OperatorEnd& end) {
  co_await daemon.signals.channel().pop();
  end.set(0);
}

Task<int> control(kubernetes::Client& client, DaemonWorld& daemon, OperatorRun run, kubernetes::Leader* leader) {
  if (leader != nullptr) client.guard_writes([leader] { return leader->holds(); });
  elasticjob::Controller controller(client, std::move(run.controller), daemon.log);
  OperatorEnd end(daemon.runtime);
  Scope scope(daemon.runtime);
  scope.spawn(act(controller, end));
  if (leader != nullptr) scope.spawn(lead(*leader, end));
  scope.spawn(obey_signals(daemon, end));
  while (!end.code) co_await end.changed.wait();
  if (end.failure) std::rethrow_exception(end.failure);
  co_return *end.code;
}

Task<bool> acquire(kubernetes::Leader& leader) {
  Task<void> acquiring = leader.acquire();
  co_await std::move(acquiring);
  co_return true;
}

// False: a signal came first.
Task<bool> wait_for_leadership(DaemonWorld& daemon, kubernetes::Leader& leader) {
  Task<bool> leading = acquire(leader);
  Task<std::optional<int>> signalled = daemon.signals.channel().pop();
  Task<std::variant<bool, std::optional<int>>> racing = race(daemon.runtime, std::move(leading), std::move(signalled));
  const std::variant<bool, std::optional<int>> first = co_await std::move(racing);
  co_return first.index() == 0;
}

// What workers of adaptive jobs report to. Each operator has one, whether it leads or not.
class ServedSupervisor {
 public:
  ServedSupervisor(DaemonWorld& daemon, const OperatorRun& run, std::string key)
      : client_(daemon.world, kubernetes::open_access(daemon.world, run.access)),
        supervisor_(client_, std::move(key), daemon.log),
        server_(
            os::make_http_server(daemon.runtime, listened(run.supervisor_url), TlsFiles{}, HttpLimits{}, daemon.log)),
        scope_(daemon.runtime) {
    elasticjob::Supervisor& supervisor = supervisor_;
    HttpHandler handler = [&supervisor](ServerRequest request) { return supervisor.handle(std::move(request)); };
    HttpAdmit admit = [&supervisor](const ServerRequest& head) { return supervisor.admit(head); };
    scope_.spawn(server_->serve(std::move(handler), std::move(admit)));
  }

 private:
  // On every interface: a pod's address is not known before it runs.
  static Endpoint listened(const std::string& url) {
    return Endpoint{"", rest::parse_url(url, "--supervisor-url").endpoint.port};
  }

  kubernetes::Client client_;
  elasticjob::Supervisor supervisor_;
  std::unique_ptr<HttpServer> server_;
  Scope scope_;
};

Task<std::unique_ptr<ServedSupervisor>> serve_supervisor(DaemonWorld& daemon, kubernetes::Client& client,
                                                         OperatorRun& run, std::string home) {
  if (run.supervisor_url.empty()) co_return nullptr;
  Task<std::string> fetching = elasticjob::fetch_supervisor_key(client, std::move(home));
  const std::string key = co_await std::move(fetching);
  run.controller.supervisor.url = run.supervisor_url;
  run.controller.supervisor.key = key;
  co_return std::make_unique<ServedSupervisor>(daemon, run, key);
}

Task<int> run_operator(DaemonWorld& daemon, OperatorRun run) {
  kubernetes::Client client(daemon.world, kubernetes::open_access(daemon.world, run.access));
  const std::string home = run.lease_namespace.empty() ? client.access().namespace_name() : run.lease_namespace;
  Task<std::unique_ptr<ServedSupervisor>> opening = serve_supervisor(daemon, client, run, home);
  const std::unique_ptr<ServedSupervisor> supervisor = co_await std::move(opening);
  const std::string server = client.access().server().host();
  // Of its own: a queue of other requests must not cost the leader its lease.
  kubernetes::Client lease_client(daemon.world, kubernetes::open_access(daemon.world, run.access));
  std::unique_ptr<kubernetes::Leader> leader;
  if (run.leader_elect) {
    const std::string self = fmt::format("{}_{}", daemon.machine.hostname, daemon.random.hex(12));
    const kubernetes::ObjectName lease{home, elasticjob::kOperatorName};
    leader = std::make_unique<kubernetes::Leader>(lease_client, lease, self, daemon.log);
    Task<bool> waiting = wait_for_leadership(daemon, *leader);
    const bool ours = co_await std::move(waiting);
    if (!ours) co_return 0;
  }
  daemon.log.info("operator is up",
                  {{"server", server},
                   {"namespace", run.controller.namespace_name.empty() ? "all" : run.controller.namespace_name},
                   {"version", RUBATO_VERSION}});
  Task<int> controlling = control(client, daemon, std::move(run), leader.get());
  const int code = co_await std::move(controlling);
  if (code == 0 && leader) {
    Task<void> releasing = leader->release();
    co_await std::move(releasing);
  }
  co_return code;
}

Task<int> install(World& world, kubernetes::AccessSettings access, elasticjob::DeploymentSettings settings,
                  const Shell& shell) {
  kubernetes::Client client(world, kubernetes::open_access(world, access));
  elasticjob::Progress progress = [&shell](std::string_view line) { shell.err(fmt::format("{}\n", line)); };
  Task<void> installing = elasticjob::install(client, std::move(settings), std::move(progress));
  co_await std::move(installing);
  co_return 0;
}

Task<int> uninstall(World& world, kubernetes::AccessSettings access, elasticjob::DeploymentSettings settings,
                    bool purge, const Shell& shell) {
  kubernetes::Client client(world, kubernetes::open_access(world, access));
  elasticjob::Progress progress = [&shell](std::string_view line) { shell.err(fmt::format("{}\n", line)); };
  Task<void> removing = elasticjob::uninstall(client, std::move(settings), purge, std::move(progress));
  co_await std::move(removing);
  co_return 0;
}

Task<int> submit_documents(World& world, kubernetes::AccessSettings access, std::vector<nlohmann::json> documents,
                           std::string namespace_name, const Shell& shell) {
  kubernetes::Client client(world, kubernetes::open_access(world, access));
  if (namespace_name.empty()) namespace_name = client.access().namespace_name();
  elasticjob::Progress progress = [&shell](std::string_view line) { shell.out(fmt::format("{}\n", line)); };
  Task<void> submitting =
      elasticjob::submit_manifest(client, std::move(documents), std::move(namespace_name), std::move(progress));
  co_await std::move(submitting);
  co_return 0;
}

Task<int> print_why(World& world, kubernetes::AccessSettings access, kubernetes::ObjectName job, bool as_json,
                    const Shell& shell) {
  kubernetes::Client client(world, kubernetes::open_access(world, access));
  if (job.namespace_name.empty()) job.namespace_name = client.access().namespace_name();
  const api::Why why = co_await elasticjob::fetch_explanation(client, std::move(job));
  shell.out(as_json ? json_text(api::to_json(why)) : why_text(why, style_of(shell)));
  co_return 0;
}

Task<int> scale_job(World& world, kubernetes::AccessSettings access, kubernetes::ObjectName job, int workers,
                    const Shell& shell) {
  kubernetes::Client client(world, kubernetes::open_access(world, access));
  if (job.namespace_name.empty()) job.namespace_name = client.access().namespace_name();
  Task<std::string> scaling = elasticjob::scale(client, std::move(job), workers);
  const std::string outcome = co_await std::move(scaling);
  shell.out(outcome + "\n");
  co_return 0;
}

struct LogRequest {
  std::string job, worker, container, namespace_name;
  bool follow = false;
};

Task<void> pump(kubernetes::Client& client, kubernetes::Request request, Channel<std::string>& chunks,
                std::optional<HttpResponse>& answer, std::exception_ptr& failure) {
  try {
    Task<HttpResponse> streaming = client.stream_text(std::move(request), chunks);
    answer = co_await std::move(streaming);
  } catch (const Error&) {
    failure = std::current_exception();
  }
  chunks.close();
}

Task<int> print_log(World& world, kubernetes::AccessSettings access, LogRequest wanted, const Shell& shell) {
  kubernetes::Client client(world, kubernetes::open_access(world, access));
  const std::string home = wanted.namespace_name.empty() ? client.access().namespace_name() : wanted.namespace_name;
  const kubernetes::ObjectName pod{home, fmt::format("{}-worker-{}", elasticjob::base_name(wanted.job), wanted.worker)};
  kubernetes::Request request = kubernetes::log_request(pod, wanted.container, wanted.follow);
  Channel<std::string> chunks(world.clock.loop());
  std::optional<HttpResponse> answer;
  std::exception_ptr failure;
  Scope scope(world.clock.loop());
  scope.spawn(pump(client, std::move(request), chunks, answer, failure));
  // The status is known at the end only: a refusal is short, and no log begins like it.
  std::string head;
  while (true) {
    std::optional<std::string> chunk = co_await chunks.pop();
    if (!chunk) break;
    if (chunk->starts_with("{\"kind\":\"Status\"")) {
      head += *chunk;
    } else {
      shell.out(*chunk);
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (answer->status >= 400) {
    answer->body = head;
    throw kubernetes::read_refusal(*answer, "log of pod " + to_string(pod));
  }
  co_return 0;
}

}  // namespace

int operator_command(const ParsedCommand& parsed, const Shell& shell) {
  OperatorRun run;
  run.access = access_settings(parsed, shell);
  run.leader_elect = parsed.has("leader-elect");
  run.lease_namespace = parsed.value("lease-namespace");
  run.supervisor_url = parsed.value("supervisor-url");
  if (!run.supervisor_url.empty()) {
    const rest::Url url = rest::parse_url(run.supervisor_url, "--supervisor-url");
    if (url.https || !url.path.empty())
      throw Error(ErrorCode::kUsage, "workers reach the operator by http, without a path", run.supervisor_url,
                  "--supervisor-url http://HOST:PORT");
  }
  run.controller.namespace_name = parsed.value("namespace");
  for (const elasticjob::Kind kind : adopted_kinds(parsed)) run.controller.kinds.push_back(kind);
  run.controller.delivery.image = parsed.value("launcher-image");
  run.controller.delivery.path = parsed.value("launcher-path", "rubato");
  DaemonWorld daemon("operator");
  return daemon.run(run_operator(daemon, std::move(run)));
}

int k8s_install_command(const ParsedCommand& parsed, const Shell& shell) {
  CommandWorld command;
  return command.runtime.run(
      install(command.world, access_settings(parsed, shell), deployment_settings(parsed), shell));
}

int k8s_uninstall_command(const ParsedCommand& parsed, const Shell& shell) {
  CommandWorld command;
  return command.runtime.run(uninstall(command.world, access_settings(parsed, shell), deployment_settings(parsed),
                                       parsed.has("purge"), shell));
}

int k8s_manifests_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.has("helm")) {
    shell.out(elasticjob::helm_templates());
    return 0;
  }
  shell.out(elasticjob::manifests_text({elasticjob::elastic_job_crd()}));
  if (parsed.has("crd")) return 0;
  shell.out("---\n" + elasticjob::manifests_text(elasticjob::operator_objects(deployment_settings(parsed))));
  return 0;
}

int k8s_logs_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.positionals.empty()) throw Error(ErrorCode::kUsage, "which job?", "", "rubato k8s logs JOB");
  LogRequest wanted;
  wanted.job = parsed.positionals.front();
  wanted.worker = "0";
  if (const Given* given = parsed.find("worker")) wanted.worker = std::to_string(int_value(*given, 0, 1'000'000));
  wanted.container = parsed.value("container");
  wanted.namespace_name = parsed.value("namespace");
  wanted.follow = parsed.has("follow");
  CommandWorld command;
  return command.runtime.run(print_log(command.world, access_settings(parsed, shell), std::move(wanted), shell));
}

int why_kubernetes_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string job = require_word(parsed, 0, "the job", "rubato why --kubernetes JOB");
  CommandWorld command;
  return command.runtime.run(print_why(command.world, access_settings(parsed, shell), {parsed.value("namespace"), job},
                                       parsed.has("json"), shell));
}

int submit_manifest_command(const ParsedCommand& parsed, const Shell& shell) {
  if (!parsed.positionals.empty())
    throw Error(ErrorCode::kUsage, "a manifest says itself what runs: no script is needed", parsed.positionals.front(),
                "rubato submit --manifest JOB.yaml");
  CommandWorld command;
  const std::string file = parsed.value("manifest");
  const std::optional<std::string> text = file == "-" ? shell.read_input() : command.world.files.read(file);
  if (!text) throw Error(ErrorCode::kUsage, "cannot read the manifest", file, "is it there?");
  std::vector<nlohmann::json> documents = elasticjob::read_documents(*text, file);
  if (documents.empty()) throw Error(ErrorCode::kUsage, "the manifest is empty", file, "see docs/kubernetes.md");
  return command.runtime.run(submit_documents(command.world, access_settings(parsed, shell), std::move(documents),
                                              parsed.value("namespace"), shell));
}

int k8s_scale_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.positionals.size() != 2)
    throw Error(ErrorCode::kUsage, "which job, and how many workers?", "", "rubato k8s scale JOB WORKERS");
  Given workers;
  workers.values = {parsed.positionals[1]};
  workers.origin = "WORKERS";
  CommandWorld command;
  return command.runtime.run(scale_job(command.world, access_settings(parsed, shell),
                                       {parsed.value("namespace"), parsed.positionals[0]},
                                       int_value(workers, 1, 1'000'000), shell));
}

int k8s_copy_binary_command(const ParsedCommand& parsed, const Shell&) {
  if (parsed.positionals.empty()) throw Error(ErrorCode::kUsage, "where to?", "", "rubato k8s copy-binary PATH");
  const std::filesystem::path to = parsed.positionals.front();
  const std::filesystem::path part = to.string() + ".part";
  std::error_code error;
  std::filesystem::copy_file(os::own_program(), part, std::filesystem::copy_options::overwrite_existing, error);
  using std::filesystem::perms;
  const perms mode = perms::owner_all | perms::group_read | perms::group_exec | perms::others_read | perms::others_exec;
  if (!error) std::filesystem::permissions(part, mode, error);
  if (!error) std::filesystem::rename(part, to, error);
  if (error)
    throw Error(ErrorCode::kFailed, "cannot copy the launcher: " + error.message(), to.string(),
                "is its folder there and writable?");
  return 0;
}

}  // namespace rubato::cli
