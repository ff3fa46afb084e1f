// bench_head_scale [FOLDER]: a real head with a SQLite journal in FOLDER (default: here), in real time, with
// 1,000 agents and 10,000 queued jobs. The agents are coroutines of this process that speak the real protocol over
// pipes in memory and have no workers; so its memory is an upper bound of the head's.
#include <fmt/format.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/daemon_world.h"
#include "head/controller.h"
#include "os/sqlite_journal.h"
#include "reconcile/decide.h"

namespace rubato {
namespace {

using elastic::JobOrderState;
using nlohmann::json;

constexpr int kNodes = 1'000;
constexpr int kQueued = 10'000;
constexpr int kRounds = 400;     // of the steady phase
constexpr int kSubmitters = 64;  // clients at once
constexpr Duration kHeartbeat = 3s;
// What a person calls a transition of a job; records about waiting are not among them.
constexpr const char* kTransitions[] = {"job-submitted", "job-placed", "job-started", "seat-done", "job-ended"};

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

using Line = std::shared_ptr<Channel<std::string>>;

class PipeEnd final : public Connection {
 public:
  PipeEnd(Line in, Line out, std::string peer) : in_(std::move(in)), out_(std::move(out)), peer_(std::move(peer)) {}
  ~PipeEnd() override {
    in_->close();
    out_->close();
  }
  void send(std::string message) override { out_->push(std::move(message)); }
  Task<std::optional<std::string>> receive() override { return in_->pop(); }
  End ended() const override { return in_->closed() ? End::kClosed : End::kOpen; }
  std::string local_address() const override { return "127.0.0.1"; }
  std::string peer_address() const override { return "127.0.0.1"; }
  std::string peer_name() const override { return peer_; }

 private:
  Line in_, out_;
  std::string peer_;
};

class PipeListener final : public Listener {
 public:
  explicit PipeListener(Loop& loop) : loop_(loop), waiting_(loop) {}
  uint16_t port() const override { return 1; }
  Task<std::unique_ptr<Connection>> accept() override {
    std::optional<std::unique_ptr<Connection>> next = co_await waiting_.pop();
    co_return std::move(*next);
  }
  std::unique_ptr<Connection> connect(const std::string& peer) {
    const auto up = std::make_shared<Channel<std::string>>(loop_), down = std::make_shared<Channel<std::string>>(loop_);
    waiting_.push(std::make_unique<PipeEnd>(up, down, peer));
    return std::make_unique<PipeEnd>(down, up, "head");
  }

 private:
  Loop& loop_;
  Channel<std::unique_ptr<Connection>> waiting_;
};

// One node's agent. Workers take no time at all once `release` is given; until then they run.
class PipeAgent {
 public:
  PipeAgent(os::Runtime& runtime, provider::NodeOrder order) : runtime_(runtime), order_(std::move(order)) {}

  Task<void> run(PipeListener& listener) {
    connection_ = listener.connect("node/" + order_.node.value);
    elastic::Hello hello;
    hello.version = "bench";
    hello.node = order_.node;
    hello.agent = AgentId{"agent-" + order_.node.value};
    hello.info.id = hello.agent;
    hello.info.host = hello.info.address = order_.node.value;
    hello.resources = order_.type.resources;
    connection_->send(encode(elastic::ToHead(hello), runtime_.now()));
    Instant beat = runtime_.now() + kHeartbeat / 6;
    while (true) {
      const auto received = co_await with_deadline(runtime_, beat, connection_->receive());
      if (!received) {
        elastic::NodeBeat sentence;
        sentence.orders = orders_.revision;
        connection_->send(encode(elastic::ToHead(sentence), runtime_.now()));
        beat = runtime_.now() + kHeartbeat / 6;
        continue;
      }
      if (!*received) co_return;
      elastic::ToAgent message = elastic::decode_to_agent(**received);
      if (std::holds_alternative<elastic::Goodbye>(message)) co_return;
      auto* orders = std::get_if<elastic::Orders>(&message);
      if (!orders) continue;
      orders_ = std::move(*orders);
      report();
    }
  }

  // The workers that are here end, or (always) those that will come, too.
  void release(bool always) {
    always_ = always;
    ending_ = true;
    report();
    ending_ = false;
  }
  void die() { connection_.reset(); }
  bool busy() const {
    return std::ranges::any_of(orders_.job_orders, [](const auto& e) { return e.phase == elastic::Phase::kRunning; });
  }

 private:
  void report() {
    if (!connection_) return;
    elastic::Reports reports;
    for (const elastic::JobOrder& job_order : orders_.job_orders) {
      elastic::JobOrderReport report;
      report.job = job_order.job;
      report.generation = job_order.generation;
      if (job_order.phase == elastic::Phase::kGathering) {
        report.state = JobOrderState::kReady;
        report.port = 5000;
      } else if (job_order.phase == elastic::Phase::kRunning) {
        report.state = always_ || ending_ ? JobOrderState::kSucceeded : JobOrderState::kRunning;
      } else {
        report.state = JobOrderState::kGone;
      }
      reports.job_orders.push_back(std::move(report));
    }
    connection_->send(encode(elastic::ToHead(reports), runtime_.now()));
  }

  os::Runtime& runtime_;
  const provider::NodeOrder order_;
  std::unique_ptr<Connection> connection_;
  elastic::Orders orders_;
  bool always_ = false, ending_ = false;
};

class PipeProvider final : public provider::NodeProvider {
 public:
  PipeProvider(os::Runtime& runtime, PipeListener& listener)
      : runtime_(runtime), listener_(listener), scope_(runtime) {}

  Task<void> create(provider::NodeOrder order) override {
    std::unique_ptr<PipeAgent>& agent = agents[order.node];
    agent = std::make_unique<PipeAgent>(runtime_, order);
    scope_.spawn(agent->run(listener_));
    co_return;
  }
  Task<void> remove(provider::NodeRemoval) override { co_return; }
  Task<std::vector<NodeId>> list() override { co_return std::vector<NodeId>{}; }

  std::map<NodeId, std::unique_ptr<PipeAgent>> agents;

 private:
  os::Runtime& runtime_;
  PipeListener& listener_;
  Scope scope_;
};

JobSpec some_job(int number) {
  JobSpec spec;
  spec.name = fmt::format("train-{}", number);
  spec.program = "train.py";
  spec.args = {"--epochs", "3", "--data", "/data/imagenet"};
  spec.per_worker.set(kCpu, 1000);
  spec.owner = fmt::format("owner-{}", number % 20);
  spec.priority = number % 3;
  return spec;
}

// The part of a histogram that came after an earlier look at it, in words.
class DecisionTimes {
 public:
  explicit DecisionTimes(Metrics& metrics)
      : all_(metrics.histogram("rubato_decision_seconds", "Time to decide one turn.", {})), before_(counts()) {}

  json summary() const {
    const std::vector<uint64_t> now = counts();
    std::vector<uint64_t> fresh;
    for (size_t i = 0; i < now.size(); ++i) fresh.push_back(now[i] - before_[i]);
    return {{"decisions", fresh.back()},
            {"p50_ms_at_most", at(fresh, 0.5)},
            {"p99_ms_at_most", at(fresh, 0.99)},
            {"max_ms_at_most", at(fresh, 1)}};
  }

 private:
  std::vector<uint64_t> counts() const {
    std::vector<uint64_t> counts;
    for (size_t i = 0; i < all_.bounds().size(); ++i) counts.push_back(all_.count_at_most(i));
    counts.push_back(all_.count());
    return counts;
  }
  json at(const std::vector<uint64_t>& fresh, double part) const {
    for (size_t i = 0; i < all_.bounds().size(); ++i) {
      if (static_cast<double>(fresh[i]) >= part * static_cast<double>(fresh.back())) return 1000 * all_.bounds()[i];
    }
    return "more than all buckets";
  }

  const Histogram& all_;
  std::vector<uint64_t> before_;
};

class Bench {
 public:
  Bench(cli::DaemonWorld& daemon, Journal& journal, std::string folder)
      : daemon_(daemon),
        runtime_(daemon.runtime),
        listener_(daemon.runtime),
        provider_(daemon.runtime, listener_),
        controller_(daemon.world, journal, provider_, settings(std::move(folder)), metrics_, Log()),
        scope_(daemon.runtime) {}

  Task<json> run(const os::SqliteJournal& journal) {
    json result;
    result["rss_mb_before"] = resident_mb();
    co_await controller_.recover();
    scope_.spawn(controller_.run(listener_));
    co_await bring_up(result);
    co_await fill(result);
    co_await steady(result);
    decide_again(result);
    co_await drain(result, journal);
    co_return result;
  }

 private:
  static head::HeadSettings settings(std::string folder) {
    head::HeadSettings settings;
    settings.folder = std::move(folder);
    settings.version = "bench";
    settings.heartbeat = kHeartbeat;
    return settings;
  }

  using Condition = std::function<bool()>;
  Task<void> until(Condition condition) {
    const Instant deadline = runtime_.now() + 300s;
    while (!condition()) {
      if (runtime_.now() > deadline) throw Error(ErrorCode::kUnavailable, "the cluster does not move on");
      co_await Sleep(runtime_, runtime_.now() + 2ms);
    }
  }
  double since(Instant begin) const { return to_seconds(runtime_.now() - begin); }
  const cluster::State& state() const { return controller_.state(); }
  size_t up() const {
    return static_cast<size_t>(std::ranges::count_if(state().nodes, [](const auto& e) { return e.second.usable(); }));
  }
  double transitions() {
    double sum = 0;
    for (const char* type : kTransitions)
      sum += metrics_.counter("rubato_events_total", "Records committed to the journal, by type.", {{"type", type}})
                 .value();
    return sum;
  }

  Task<void> bring_up(json& result) {
    const Instant begin = runtime_.now();
    const std::string text = fmt::format(
        "cluster_name: bench\nprovider: {{type: local}}\nmax_workers: {0}\navailable_node_types:\n  small:\n"
        "    resources: {{CPU: 1}}\n    min_workers: {0}\n    max_workers: {0}\n",
        kNodes);
    controller_.submit_later(cluster::ClusterConfigured{read_cluster_spec(text, "bench.yaml"), text});
    const Condition all_up = [this] { return up() == kNodes; };
    co_await until(all_up);
    result["nodes"] = kNodes;
    result["nodes_up_s"] = since(begin);
    result["rss_mb_nodes"] = resident_mb();
  }

  Task<void> submit_one() {
    cluster::JobSubmitted submitted;
    submitted.job = JobId{"j-" + daemon_.random.hex(8)};
    submitted.spec = some_job(next_job_++);
    submitted.request_id = daemon_.random.hex(16);
    std::vector<cluster::Event> events;
    events.emplace_back(std::move(submitted));
    co_await controller_.submit(std::move(events));
  }
  Task<void> submit_until(int last) {
    while (next_job_ < last) co_await submit_one();
  }

  // As many clients do: each waits for its answer, then sends the next job.
  Task<void> fill(json& result) {
    const DecisionTimes times(metrics_);
    const Instant begin = runtime_.now();
    Scope clients(runtime_);
    for (int i = 0; i < kSubmitters; ++i) clients.spawn(submit_until(kNodes + kQueued));
    co_await clients.join();
    const double took_s = since(begin);
    const Condition all_run = [this] {
      return std::ranges::all_of(
          state().active, [this](const JobId& id) { return state().jobs.at(id).phase == cluster::JobPhase::kRunning; });
    };
    co_await until(all_run);
    result["queued"] = state().queued.size();
    result["running"] = state().active.size();
    result["durable_submits_per_s"] = (kNodes + kQueued) / took_s;
    result["decisions_while_filling"] = times.summary();
    result["rss_mb_full"] = resident_mb();
    result["snapshot_mb"] = static_cast<double>(cluster::encode_snapshot(state()).size()) / 1e6;
  }

  // The queue stays full: a job ends and one comes, again and again; now and then a node dies and is replaced.
  Task<void> steady(json& result) {
    const DecisionTimes times(metrics_);
    const Condition one_lost = [this] { return up() < kNodes; };
    const Condition all_up = [this] { return up() == kNodes; };
    for (int round = 0; round < kRounds; ++round) {
      PipeAgent& agent = *std::next(provider_.agents.begin(), round * 7 % kNodes)->second;
      if (round % 40 == 39) {
        agent.die();
        co_await until(one_lost);
        co_await until(all_up);
      } else if (agent.busy()) {
        agent.release(false);
      }
      co_await submit_one();
    }
    result["decisions_with_full_queue"] = times.summary();
    result["rss_mb_steady"] = resident_mb();
  }

  // Single decisions on a copy of that state, in CPU time: on a shared machine the wall clock also counts the others.
  void decide_again(json& result) const {
    cluster::State copy = state();
    reconcile::PlanMemory memory = controller_.plan_memory();
    std::vector<double> took_ms;
    for (int i = 0; i < kRounds; ++i) {
      std::vector<cluster::Event> events;
      const cluster::Job& job = copy.jobs.at(*std::next(copy.active.begin(), i % 500));
      if (i % 3 == 0) {
        events.emplace_back(cluster::JobSubmitted{JobId{fmt::format("j-new-{}", i)}, some_job(i), "", ""});
      } else if (i % 3 == 1 && job.phase == cluster::JobPhase::kRunning) {
        events.emplace_back(cluster::SeatDone{job.id, job.generation, job.seats.front().node});
      } else {
        events.emplace_back(cluster::NodeLost{std::next(copy.nodes.begin(), i % 500)->first, "silent"});
      }
      const double begin = cpu_ms();
      (void)reconcile::decide(copy, memory, {}, std::move(events), copy.time + 1ms);
      took_ms.push_back(cpu_ms() - begin);
    }
    std::ranges::sort(took_ms);
    result["decision_cpu_ms"] = {
        {"p50", took_ms[took_ms.size() / 2]}, {"p99", took_ms[took_ms.size() * 99 / 100]}, {"max", took_ms.back()}};
  }

  Task<void> drain(json& result, const os::SqliteJournal& journal) {
    const DecisionTimes times(metrics_);
    const Instant begin = runtime_.now();
    const double before = transitions();
    const uint64_t commits = journal.commits();
    for (auto& [node, agent] : provider_.agents) agent->release(true);
    // New nodes are not told to release: none comes in this phase.
    const Condition all_ended = [this] { return state().queued.empty() && state().active.empty(); };
    co_await until(all_ended);
    (void)co_await controller_.settled();
    const double took_s = since(begin);
    result["drained_jobs"] = next_job_;
    result["drain_s"] = took_s;
    result["durable_transitions_per_s"] = (transitions() - before) / took_s;
    result["commits_per_s"] = static_cast<double>(journal.commits() - commits) / took_s;
    result["decisions_while_draining"] = times.summary();
    result["rss_mb_end"] = resident_mb();
  }

  cli::DaemonWorld& daemon_;
  os::Runtime& runtime_;
  PipeListener listener_;
  PipeProvider provider_;
  Metrics metrics_;
  head::Controller controller_;
  int next_job_ = 0;
  Scope scope_;
};

Task<int> measure(cli::DaemonWorld& daemon, std::string folder) {
  const std::unique_ptr<os::SqliteJournal> journal =
      co_await os::SqliteJournal::open(daemon.runtime, folder + "/journal.db", folder + "/journal.note");
  Bench bench(daemon, *journal, folder);
  const json result = co_await bench.run(*journal);
  puts(result.dump(1).c_str());
  co_return 0;
}

int run(std::string where) {
  where += "/rubato-bench-XXXXXX";
  if (!::mkdtemp(where.data())) {
    perror(where.c_str());
    return 1;
  }
  int code = 0;
  {
    cli::DaemonWorld daemon("bench");
    code = daemon.run(measure(daemon, where));
  }
  std::filesystem::remove_all(where);
  return code;
}

}  // namespace
}  // namespace rubato

int main(int argc, char** argv) {
  if (argc > 2) {
    fputs("usage: bench_head_scale [FOLDER]     prints JSON\n", stderr);
    return 2;
  }
  return rubato::run(argc > 1 ? argv[1] : ".");
}
