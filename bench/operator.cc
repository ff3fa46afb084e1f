// bench_operator: `rubato operator` with 1,000 jobs of 8 pods: its memory, how long a change of one pod takes until the
// status is sent, how long a whole resync takes, how many calls a steady job costs.
//
// The controller, its client and its loop are the real ones, in real time; the API server is played in this process and
// makes each page when it is asked for. So memory is an upper bound. Prints JSON.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/timestamp.h"
#include "daemon/daemon_world.h"
#include "elasticjob/controller.h"
#include "elasticjob/manifest.h"
#include "elasticjob/pod_manifest.h"

namespace rubato {
namespace {

using elasticjob::Job;
using elasticjob::Kind;
using nlohmann::json;

constexpr int kJobs = 1'000;
constexpr int kPods = 8;
constexpr int kRounds = 400;
constexpr Duration kBetweenRounds = 25ms;  // under the client's own rate
constexpr const char* kMade = "2026-11-16T12:00:00Z";

double resident_mb() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// What real servers add: who wrote which field.
json managed_fields() {
  json out = json::array();
  for (const char* manager : {"rubato", "kubelet"}) {
    json fields = json::object();
    for (int i = 0; i < 40; ++i) fields["f:spec"][fmt::format("f:field-{}", i)]["f:inner"] = json::object();
    out.push_back({{"manager", manager}, {"operation", "Update"}, {"time", kMade}, {"fieldsV1", std::move(fields)}});
  }
  return out;
}

json job_document(int number) {
  json container = {{"name", "trainer"},
                    {"image", "registry.example.com/team/training:1"},
                    {"command", {"python", "train.py", "--epochs", "90", "--data", "/data/imagenet"}},
                    {"env", json::array()},
                    {"resources", {{"limits", {{"nvidia.com/gpu", 8}, {"cpu", "32"}, {"memory", "128Gi"}}}}}};
  for (int i = 0; i < 10; ++i)
    container["env"].push_back({{"name", fmt::format("SETTING_{}", i)}, {"value", "a value of some length"}});
  return {{"metadata",
           {{"name", fmt::format("job-{}", number)},
            {"namespace", "training"},
            {"uid", fmt::format("0c3a1b52-uid-of-job-{}", number)},
            {"generation", 1},
            {"resourceVersion", "5"},
            {"creationTimestamp", kMade},
            {"managedFields", managed_fields()}}},
          {"spec",
           {{"minReplicas", 2},
            {"maxReplicas", kPods},
            {"template", {{"spec", {{"containers", json::array({std::move(container)})}}}}}}}};
}

json pod_document(const Job& job, int index, bool ready, int version) {
  elasticjob::MakePod order;
  order.index = index;
  order.is_host = index == 0;
  elasticjob::LauncherDelivery delivery;
  delivery.image = "registry.example.com/rubato:0.1.0";
  json pod = elasticjob::make_pod(job, order, delivery);
  pod["metadata"]["uid"] = fmt::format("{}-{}", job.uid, index);
  pod["metadata"]["resourceVersion"] = std::to_string(version);
  pod["metadata"]["managedFields"] = managed_fields();
  pod["spec"]["nodeName"] = "node-of-the-pod";
  json running = {{"running", {{"startedAt", kMade}}}};
  pod["status"] = {
      {"phase", "Running"},
      {"startTime", kMade},
      {"conditions",
       json::array({{{"type", "Ready"}, {"status", ready ? "True" : "False"}, {"lastTransitionTime", kMade}}})},
      {"containerStatuses", json::array({{{"name", "trainer"}, {"state", std::move(running)}}})}};
  return pod;
}

// A job as it is when it has been running for a while: its status says all of it.
json steady_job(int number) {
  json document = job_document(number);
  const Job job = elasticjob::read_job(Kind::kElasticJob, document);
  std::vector<elasticjob::Pod> pods;
  for (int index = 0; index < kPods; ++index) pods.push_back(elasticjob::read_pod(pod_document(job, index, true, 5)));
  const elasticjob::Decision decision = elasticjob::decide(job, pods, {}, *parse_time(kMade));
  document.merge_patch(elasticjob::status_patch(job, decision.status));
  return document;
}

int query_number(const std::string& target, const std::string& key) {
  const size_t at = target.find(key + "=");
  return at == std::string::npos ? 0 : std::atoi(target.c_str() + at + key.size() + 1);
}

class PlayedServer final : public Network {
 public:
  explicit PlayedServer(Loop& loop) : pod_events(loop), watching(loop), patched(loop), loop_(loop) {}

  std::unique_ptr<Listener> listen(const Endpoint&, const ChannelKey&, Duration) override { throw none(); }
  Task<ConnectResult> connect(Endpoint, ChannelKey, Instant, Duration) override { throw none(); }
  Task<bool> is_local(std::string) override { co_return false; }
  Task<std::vector<std::string>> resolve(std::string) override { co_return std::vector<std::string>(); }
  std::unique_ptr<PortLease> lease_port(uint16_t) override { throw none(); }
  std::vector<std::string> addresses() override { return {}; }

  Task<HttpResponse> call(Endpoint, TlsFiles, HttpRequest request, Instant) override {
    HttpResponse response;
    response.status = 200;
    const double began = cpu_ms();
    if (request.method == "GET") {
      response.body = list(request.target);
    } else {
      ++calls;
      response.body = patch(request);
    }
    cpu_of_server_ms += cpu_ms() - began;
    co_return response;
  }

  Task<HttpResponse> stream(Endpoint, TlsFiles, HttpRequest request, Instant, Channel<std::string>& chunks) override {
    HttpResponse response;
    response.status = 200;
    if (request.target.find("/pods") == std::string::npos) {
      while (true) co_await Sleep(loop_, loop_.now() + 1h);
    }
    ++pod_watches;
    watching.notify();
    while (true) {
      const std::optional<std::string> line = co_await pod_events.pop();
      if (!line) break;
      chunks.push(*line);
      if (line->find("\"ERROR\"") != std::string::npos) break;
    }
    co_return response;
  }

  Channel<std::string> pod_events;
  Event watching, patched;
  int pod_watches = 0;
  int calls = 0;  // that change something
  double cpu_of_server_ms = 0;
  std::string last_patched;

 private:
  static Error none() { return Error(ErrorCode::kFailed, "only calls and watches"); }

  std::string list(const std::string& target) {
    const bool pods = target.find("/pods") != std::string::npos;
    const bool jobs = target.find("/elasticjobs") != std::string::npos;
    const int all = pods ? kJobs * kPods : jobs ? kJobs : 0;
    const int first = query_number(target, "continue");
    const int last = std::min(all, first + query_number(target, "limit"));
    json items = json::array();
    for (int i = first; i < last; ++i) items.push_back(pods ? pod(i) : steady_job(i));
    json metadata = {{"resourceVersion", "10"}};
    if (last < all) metadata["continue"] = std::to_string(last);
    return json{{"metadata", std::move(metadata)}, {"items", std::move(items)}}.dump();
  }

  static json pod(int number) {
    const Job job = elasticjob::read_job(Kind::kElasticJob, job_document(number / kPods));
    return pod_document(job, number % kPods, true, 5);
  }

  std::string patch(const HttpRequest& request) {
    const size_t at = request.target.find("/job-");
    last_patched = request.target.substr(at + 1, request.target.find('/', at + 1) - at - 1);
    json document = steady_job(std::atoi(last_patched.c_str() + 4));
    document.merge_patch(json::parse(request.body));
    document["metadata"]["resourceVersion"] = std::to_string(++version_);
    patched.notify();
    return document.dump();
  }

  Loop& loop_;
  int version_ = 100;
};

std::string event_of(int job_number, int index, bool ready, int version) {
  const Job job = elasticjob::read_job(Kind::kElasticJob, job_document(job_number));
  return json{{"type", "MODIFIED"}, {"object", pod_document(job, index, ready, version)}}.dump() + "\n";
}

double ms_since(Loop& loop, Instant began) {
  return std::chrono::duration<double, std::milli>(loop.now() - began).count();
}

// Of changes of one pod each, until the status is sent: by the clock, and of the CPU. Sorted.
struct Changes {
  std::vector<double> took_ms, cpu_ms;
};

Task<Changes> change_pods(PlayedServer& server, Loop& loop, Random& random) {
  Changes out;
  for (int round = 0; round < kRounds; ++round) {
    const int job = static_cast<int>(random.below(kJobs)), index = static_cast<int>(random.below(kPods));
    const std::string name = fmt::format("job-{}", job);
    for (const bool ready : {false, true}) {
      std::string event = event_of(job, index, ready, 1'000 + 2 * round + (ready ? 1 : 0));
      const int before = server.calls;
      const double cpu_before = cpu_ms() - server.cpu_of_server_ms;
      const Instant began = loop.now();
      server.pod_events.push(std::move(event));
      while (server.calls == before || server.last_patched != name) co_await server.patched.wait();
      out.took_ms.push_back(ms_since(loop, began));
      out.cpu_ms.push_back(cpu_ms() - server.cpu_of_server_ms - cpu_before);
      co_await Sleep(loop, loop.now() + kBetweenRounds);
    }
  }
  std::sort(out.took_ms.begin(), out.took_ms.end());
  std::sort(out.cpu_ms.begin(), out.cpu_ms.end());
  co_return out;
}

Task<int> measure(cli::DaemonWorld& daemon) {
  Loop& loop = daemon.runtime;
  PlayedServer server(loop);
  World world{daemon.world.clock,     server,
              daemon.world.processes, daemon.world.files,
              daemon.world.console,   daemon.world.random,
              daemon.world.machine};
  kubernetes::ChosenContext chosen;
  chosen.cluster.server = "http://api:80";
  auto access = std::make_unique<kubernetes::Access>(world, chosen, std::map<std::string, std::string>{});
  kubernetes::Client client(world, std::move(access));
  elasticjob::ControllerSettings settings;
  settings.delivery.image = "registry.example.com/rubato:0.1.0";
  elasticjob::Controller controller(client, settings, Log());
  const double empty_mb = resident_mb();
  Instant began = loop.now();
  Scope scope(loop);
  scope.spawn(controller.run());
  while (server.pod_watches == 0) co_await server.watching.wait();
  const double first_list_ms = ms_since(loop, began);
  // All jobs have had their turn, and nothing is to be done.
  co_await Sleep(loop, loop.now() + 3s);
  const int steady_calls = server.calls;
  const double memory_mb = resident_mb();
  const Changes changes = co_await change_pods(server, loop, daemon.random);
  began = loop.now();
  const double cpu_before = cpu_ms() - server.cpu_of_server_ms;
  server.pod_events.push("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n");
  while (server.pod_watches < 2) co_await server.watching.wait();
  const double resync_ms = ms_since(loop, began);
  const double resync_cpu_ms = cpu_ms() - server.cpu_of_server_ms - cpu_before;
  co_await Sleep(loop, loop.now() + 1s);
  const json result = {{"jobs", kJobs},
                       {"pods", kJobs * kPods},
                       {"memory_mb_before", empty_mb},
                       {"memory_mb", memory_mb},
                       {"memory_mb_after_resync", resident_mb()},
                       {"calls_of_steady_jobs", steady_calls},
                       {"first_list_ms_with_server", first_list_ms},
                       {"resync_ms_with_server", resync_ms},
                       {"resync_cpu_ms", resync_cpu_ms},
                       {"change_ms_p50", changes.took_ms[changes.took_ms.size() / 2]},
                       {"change_ms_p99", changes.took_ms[changes.took_ms.size() * 99 / 100]},
                       {"change_cpu_ms_p99", changes.cpu_ms[changes.cpu_ms.size() * 99 / 100]}};
  puts(result.dump(1).c_str());
  co_return 0;
}

}  // namespace
}  // namespace rubato

int main() {
  rubato::cli::DaemonWorld daemon("bench");
  return daemon.run(rubato::measure(daemon));
}
