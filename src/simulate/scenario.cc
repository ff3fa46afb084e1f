#include "simulate/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "model/byte_amounts.h"
#include "model/job_spec.h"
#include "simulate/coverage.h"
#include "simulate/past.h"

namespace rubato::simulate {
namespace {

constexpr int kJobsMax = 10'000'000;
constexpr double kPerHourMax = 1e6;
constexpr int64_t kQuotaMax = 1'000'000;

double number(const Yaml& node, double least, double most) {
  const double value = node.as_double();
  if (value < least || value > most) node.fail(fmt::format("{} is not between {} and {}", value, least, most));
  return value;
}

Duration positive(const Yaml& node) {
  const Duration value = node.as_duration();
  if (value <= 0s) node.fail("it must be longer than nothing", "write 10s, 5min, 2h");
  return value;
}

// "30s", or {from: 20s, to: 60s}.
Span span_of(const Yaml& node, std::string_view what) {
  if (node.is_scalar()) {
    const Duration both = node.as_duration();
    return Span{both, both};
  }
  StrictMapping fields(node, std::string(what));
  Span span;
  span.from = fields.require("from").as_duration();
  const Yaml to = fields.require("to");
  span.to = to.as_duration();
  fields.finish();
  if (span.to < span.from) to.fail("'to' is before 'from'");
  return span;
}

std::vector<Duration> durations(const Yaml& node) {
  std::vector<Duration> out;
  if (node.is_sequence()) {
    for (const Yaml& one : node.items()) out.push_back(one.as_duration());
  } else {
    out.push_back(node.as_duration());
  }
  return out;
}

Work work_of(const Yaml& node) {
  Work work;
  if (node.is_scalar()) {
    work.a = positive(node);
    return work;
  }
  StrictMapping fields(node, "work");
  if (const auto mean = fields.find("mean")) {
    work.kind = Work::Kind::kExponential;
    work.a = positive(*mean);
  } else if (const auto median = fields.find("median")) {
    work.kind = Work::Kind::kLogNormal;
    work.a = positive(*median);
    work.sigma = number(fields.require("sigma"), 0, 5);
  } else if (fields.find("from")) {
    work.kind = Work::Kind::kUniform;
    const Span span = span_of(node, "work");
    work.a = span.from;
    work.b = span.to;
    fields.allow("to");
  } else {
    node.fail("work is none of the known kinds",
              "write 2h, {from: 1h, to: 3h}, {mean: 2h} or {median: 1h, sigma: 1.2}");
  }
  fields.finish();
  return work;
}

WorkerSizes sizes_of(const Yaml& node) {
  try {
    return parse_worker_sizes(node.as_string());
  } catch (const Error& error) {
    if (!error.where.empty()) throw;
    node.fail(error.message, error.hint);
  }
}

Resources resources_of(const Yaml& node) {
  if (!node.is_mapping()) node.fail("resources are a mapping of names to amounts", "write {CPU: 4, GPU: 1}");
  nlohmann::json amounts = nlohmann::json::object();
  for (const Yaml::Entry& entry : node.entries()) {
    const std::string name = entry.key.as_string();
    const std::string text = entry.value.as_string();
    if (counted_in_bytes(name) && text.find_first_not_of("0123456789.") != std::string::npos) {
      amounts[name] = text;
    } else {
      amounts[name] = entry.value.as_double();
    }
  }
  try {
    return resources_from_json(amounts);
  } catch (const Error& error) {
    node.fail(error.message, error.hint);
  }
}

Burst burst_of(const Yaml& node) {
  StrictMapping fields(node, "a burst");
  Burst burst;
  if (const auto at = fields.find("at")) burst.at = durations(*at);
  if (const auto every = fields.find("every")) burst.every = positive(*every);
  burst.jobs = static_cast<int>(fields.require("jobs").as_int(1, kJobsMax));
  if (const auto within = fields.find("within")) burst.within = within->as_duration();
  fields.finish();
  if (burst.at.empty() && !burst.every) node.fail("a burst needs a time", "write at: 1h, or every: 2h");
  return burst;
}

void read_arrivals(StrictMapping& fields, JobKind& kind) {
  if (const auto rate = fields.find("per_hour")) kind.per_hour = number(*rate, 0, kPerHourMax);
  if (const auto swing = fields.find("swing")) kind.swing = number(*swing, 0, 1);
  if (const auto every = fields.find("every")) kind.every = positive(*every);
  if (const auto bursts = fields.find("bursts")) {
    for (const Yaml& one : bursts->items()) kind.bursts.push_back(burst_of(one));
  }
  if (const auto from = fields.find("from")) kind.from = from->as_duration();
  if (const auto until = fields.find("until")) kind.until = until->as_duration();
  if (const auto count = fields.find("count")) kind.count = static_cast<int>(count->as_int(0, kJobsMax));
  if (kind.per_hour == 0 && !kind.every && kind.bursts.empty())
    fields.node().fail("nothing says when these jobs come", "write per_hour: 20, every: 5min, or bursts: [...]");
}

AdaptiveKind adaptive_of(const Yaml& node) {
  StrictMapping fields(node, "adaptive");
  AdaptiveKind kind;
  if (const auto batch = fields.find("batch")) kind.batch = number(*batch, 1, 1e6);
  kind.max_batch = kind.batch;
  if (const auto most = fields.find("max_batch")) kind.max_batch = number(*most, kind.batch, 1e9);
  kind.local_max = static_cast<int64_t>(2 * kind.batch);
  if (const auto most = fields.find("local_max")) {
    kind.local_max = most->as_int(1, 1'000'000'000);
    if (static_cast<double>(kind.local_max) < kind.batch) most->fail("one worker has no room for the first batch");
  }
  if (const auto step = fields.find("step")) kind.step = positive(*step);
  if (const auto exchange = fields.find("exchange")) kind.exchange = span_of(*exchange, "exchange");
  if (const auto noise = fields.find("noise")) kind.noise = number(*noise, 0, 1e9);
  if (const auto every = fields.find("tells_every")) kind.tells_every = positive(*every);
  if (const auto error = fields.find("error")) kind.error = number(*error, 0, 0.9);
  if (const auto declares = fields.find("declares")) kind.declares = declares->as_bool();
  fields.finish();
  return kind;
}

JobKind kind_of(const Yaml& node) {
  StrictMapping fields(node, "the workload");
  JobKind kind;
  if (const auto name = fields.find("name")) {
    kind.name = name->as_string();
    if (!valid_job_name(kind.name)) name->fail(fmt::format("'{}' is not a name for jobs", kind.name));
  }
  read_arrivals(fields, kind);
  if (const auto workers = fields.find("workers")) {
    kind.workers.clear();
    if (workers->is_sequence()) {
      for (const Yaml& one : workers->items()) kind.workers.push_back(sizes_of(one));
      if (kind.workers.empty()) workers->fail("the list is empty", "write [1, 2, 2:8]");
    } else {
      kind.workers.push_back(sizes_of(*workers));
    }
  }
  kind.per_worker.set(kCpu, 1000);
  if (const auto resources = fields.find("resources")) kind.per_worker = resources_of(*resources);
  kind.work = work_of(fields.require("work"));
  if (const auto efficiency = fields.find("efficiency")) kind.efficiency = number(*efficiency, 0.5, 1);
  if (const auto every = fields.find("checkpoint_every")) kind.checkpoint_every = positive(*every);
  if (const auto crashes = fields.find("crashes_per_worker_hour"))
    kind.crashes_per_worker_hour = number(*crashes, 0, 1e4);
  if (const auto most = fields.find("max_restarts")) kind.max_restarts = static_cast<int>(most->as_int(0, 1000));
  if (const auto priorities = fields.find("priorities")) {
    kind.priorities.clear();
    for (const Yaml& one : priorities->items()) kind.priorities.push_back(static_cast<int>(one.as_int(-1000, 1000)));
    if (kind.priorities.empty()) priorities->fail("the list is empty", "write [0, 10]");
  }
  if (const auto owners = fields.find("owners")) kind.owners = static_cast<int>(owners->as_int(1, 10'000));
  if (const auto timeout = fields.find("timeout")) kind.timeout = positive(*timeout);
  if (const auto ends = fields.find("ends_within")) kind.ends_within = span_of(*ends, "ends_within");
  if (const auto adaptive = fields.find("adaptive")) {
    if (fields.find("efficiency"))
      adaptive->fail("'adaptive' and 'efficiency' both say how fast it is", "remove one of them");
    kind.adaptive = adaptive_of(*adaptive);
  }
  if (const auto stopped = fields.find("stopped")) {
    StrictMapping stops(*stopped, "stopped");
    kind.stopped = number(stops.require("chance"), 0, 1);
    if (const auto after = stops.find("after")) kind.stopped_after = span_of(*after, "after");
    stops.finish();
  }
  fields.finish();
  return kind;
}

void read_pace(StrictMapping& fields, Pace& pace, bool lasts) {
  if (const auto at = fields.find("at")) pace.at = durations(*at);
  if (const auto every = fields.find("every")) pace.every = positive(*every);
  if (lasts) {
    if (const auto span = fields.find("lasts")) pace.lasts = positive(*span);
  }
  if (!pace.given()) fields.node().fail("nothing says when it strikes", "write every: 1h, or at: [20min, 2h]");
}

void read_pace(StrictMapping& faults, const char* key, Pace& pace, std::optional<Duration> lasts) {
  const auto node = faults.find(key);
  if (!node) return;
  StrictMapping fields(*node, key);
  pace.lasts = lasts.value_or(0s);
  read_pace(fields, pace, lasts.has_value());
  fields.finish();
}

Faults::StockOut stock_out_of(const Yaml& node) {
  StrictMapping fields(node, "a stock-out");
  Faults::StockOut out;
  out.lasts = 20min;
  read_pace(fields, out, true);
  if (const auto offerings = fields.find("offerings")) out.offerings = offerings->as_strings();
  fields.finish();
  return out;
}

void read_market_faults(StrictMapping& fields, Faults& faults) {
  if (const auto node = fields.find("spot_reclaim")) {
    StrictMapping reclaim(*node, "spot_reclaim");
    if (const auto rate = reclaim.find("per_node_hour")) faults.reclaims_per_node_hour = number(*rate, 0, 1000);
    if (faults.reclaims_per_node_hour == 0 || reclaim.find("every") || reclaim.find("at"))
      read_pace(reclaim, faults.reclaim, false);
    if (const auto notice = reclaim.find("notice")) faults.reclaim_notice = span_of(*notice, "notice");
    reclaim.finish();
  }
  if (const auto node = fields.find("stock_out")) {
    if (node->is_sequence()) {
      for (const Yaml& one : node->items()) faults.stock_outs.push_back(stock_out_of(one));
    } else {
      faults.stock_outs.push_back(stock_out_of(*node));
    }
  }
  if (const auto node = fields.find("slow_boot")) {
    StrictMapping slow(*node, "slow_boot");
    faults.slow_boot = number(slow.require("chance"), 0, 1);
    if (const auto factor = slow.find("factor")) faults.slow_boot_factor = number(*factor, 1, 1000);
    slow.finish();
  }
  if (const auto node = fields.find("boot_failure")) {
    StrictMapping failure(*node, "boot_failure");
    faults.boot_failure = number(failure.require("chance"), 0, 1);
    failure.finish();
  }
}

Faults faults_of(const Yaml& node) {
  StrictMapping fields(node, "faults");
  Faults faults;
  if (const auto from = fields.find("from")) faults.from = from->as_duration();
  if (const auto until = fields.find("until")) faults.until = until->as_duration();
  read_market_faults(fields, faults);
  read_pace(fields, "throttling", faults.throttling, 1min);
  read_pace(fields, "partition", faults.partition, 20s);
  read_pace(fields, "head_partition", faults.head_partition, 20s);
  read_pace(fields, "head_crash", faults.head_crash, 5s);
  read_pace(fields, "agent_crash", faults.agent_crash, std::nullopt);
  read_pace(fields, "node_crash", faults.node_crash, std::nullopt);
  read_pace(fields, "freeze", faults.freeze, 10s);
  read_pace(fields, "agent_pause", faults.agent_pause, 2s);
  read_pace(fields, "head_freeze", faults.head_freeze, 20s);
  if (const auto pause = fields.find("head_pause")) {
    StrictMapping pauses(*pause, "head_pause");
    faults.head_pause.lasts = 20s;
    if (const auto chance = pauses.find("new_head")) faults.pause_new_head = number(*chance, 0, 1);
    read_pace(pauses, faults.head_pause, true);
    pauses.finish();
  }
  if (const auto crash = fields.find("crash_after_failure")) {
    StrictMapping crashes(*crash, "crash_after_failure");
    faults.crash_after_failure = number(crashes.require("chance"), 0, 1);
    crashes.finish();
  }
  read_pace(fields, "disk_full", faults.disk_full, 1min);
  read_pace(fields, "head_disk_full", faults.head_disk_full, 20s);
  if (const auto jump = fields.find("clock_jump")) {
    StrictMapping jumps(*jump, "clock_jump");
    if (const auto by = jumps.find("by")) faults.clock_jump_by = positive(*by);
    read_pace(jumps, faults.clock_jump, false);
    jumps.finish();
  }
  fields.finish();
  return faults;
}

CloudSettings cloud_of(const Yaml& node) {
  StrictMapping fields(node, "cloud");
  CloudSettings cloud;
  if (const auto boot = fields.find("boot")) cloud.boot = span_of(*boot, "boot");
  if (const auto start = fields.find("agent_start")) cloud.agent_start = span_of(*start, "agent_start");
  if (const auto remove = fields.find("remove")) cloud.remove = span_of(*remove, "remove");
  if (const auto call = fields.find("call")) cloud.call = span_of(*call, "call");
  if (const auto lag = fields.find("list_lag")) cloud.list_lag = lag->as_duration();
  if (const auto stay = fields.find("machines_stay")) cloud.machines_stay = stay->as_bool();
  if (const auto quota = fields.find("quota")) {
    for (const Yaml::Entry& entry : quota->entries())
      cloud.quota[entry.key.as_string()] = static_cast<int>(entry.value.as_int(0, kQuotaMax));
  }
  if (const auto prices = fields.find("prices")) {
    for (const Yaml::Entry& entry : prices->entries())
      cloud.prices[entry.key.as_string()] = number(entry.value, 0, 1e6);
  }
  if (const auto spot = fields.find("spot_price")) cloud.spot_price = number(*spot, 0, 1);
  if (const auto have = fields.find("have")) {
    for (const Yaml::Entry& entry : have->entries()) cloud.have[entry.key.as_string()] = resources_of(entry.value);
  }
  fields.finish();
  return cloud;
}

HeadTimes head_of(const Yaml& node) {
  StrictMapping fields(node, "head");
  HeadTimes head;
  if (const auto heartbeat = fields.find("heartbeat")) head.heartbeat = positive(*heartbeat);
  if (const auto adoption = fields.find("adoption")) head.adoption = positive(*adoption);
  if (const auto commit = fields.find("commit")) head.commit = span_of(*commit, "commit");
  fields.finish();
  return head;
}

Fidelity fidelity_of(const Yaml& node) {
  const std::string text = node.as_string();
  for (const Fidelity fidelity : {Fidelity::kReal, Fidelity::kLight}) {
    if (text == to_string(fidelity)) return fidelity;
  }
  node.fail(fmt::format("agents are real or light, not '{}'", text));
}

// The lines of a mapping in a file, the lines before it empty, so that errors in it have the right place.
std::string lines_of(std::string_view text, const Yaml& mapping, const Yaml& document) {
  size_t next = std::string_view::npos;  // the line of the key that follows
  for (const Yaml::Entry& entry : document.entries()) {
    if (entry.key.line() > mapping.line()) next = std::min(next, entry.key.line());
  }
  std::string out;
  size_t line = 1;
  for (const std::string_view part : split(text, '\n')) {
    if (line >= next) break;
    // It may begin behind its key, in braces.
    if (line == mapping.line()) {
      out += std::string(mapping.column() - 1, ' ') + std::string(part.substr(mapping.column() - 1));
    } else if (line > mapping.line()) {
      out += part;
    }
    out += '\n';
    ++line;
  }
  return out;
}

void read_cluster(const Yaml& node, std::string_view text, const Yaml& document, const std::string& file,
                  const ReadFile& read, Scenario& scenario) {
  if (node.is_mapping()) {
    scenario.cluster_text = lines_of(text, node, document);
    scenario.cluster_file = file;
  } else {
    const std::string path = node.as_string();
    try {
      scenario.cluster_text = read(path);
    } catch (const Error& error) {
      node.fail(error.message, error.hint);
    }
    scenario.cluster_file = path;
  }
  scenario.spec = read_cluster_spec(scenario.cluster_text, scenario.cluster_file);
}

// Each is a change of the file that the one before has left.
void read_changes(const Yaml& list, Scenario& scenario) {
  std::string text = scenario.cluster_text;
  for (const Yaml& node : list.items()) {
    StrictMapping fields(node, "a change");
    FileChange change;
    change.at = fields.require("at").as_duration();
    const Yaml set = fields.require("set");
    fields.finish();
    if (!scenario.changes.empty() && change.at < scenario.changes.back().at)
      node.fail("the changes are not in the order of their times");
    for (const std::string& one : set.is_sequence() ? set.as_strings() : std::vector{set.as_string()}) {
      try {
        text = changed_file(text, scenario.cluster_file, one);
      } catch (const Error& error) {
        set.fail(error.message, error.hint);
      }
    }
    change.text = text;
    scenario.changes.push_back(std::move(change));
  }
}

// A slip in a name would be a mark that is never reached.
void check_marks(const Yaml& list, const std::vector<std::string>& marks) {
  for (const std::string& mark : marks) {
    if (known_mark(mark)) continue;
    std::vector<std::string_view> all;
    for (const auto& some : {fault_marks(), cloud_marks(), node_transitions(), job_transitions()})
      all.insert(all.end(), some.begin(), some.end());
    const auto near = nearest_of(mark, all);
    list.fail(fmt::format("there is no mark '{}'", mark),
              near ? fmt::format("did you mean '{}'?", *near) : "see those that --seeds prints");
  }
}

// Types that the scenario names must be there, and have resources.
void check_types(const Scenario& scenario, const Yaml& document) {
  const auto check = [&](const std::string& name) {
    if (scenario.spec.types.contains(name)) return;
    std::vector<std::string> names;
    for (const auto& [type, values] : scenario.spec.types) names.push_back(type);
    const auto near = nearest(name, names);
    document.fail(fmt::format("the cluster has no node type '{}'", name),
                  near ? fmt::format("did you mean {}?", *near) : "see the cluster file's types");
  };
  for (const Faults::StockOut& fault : scenario.faults.stock_outs) {
    for (const std::string& offering : fault.offerings) {
      const auto parts = split(offering, '/');
      if (parts.size() != 3)
        document.fail(fmt::format("'{}' is no offering", offering), "write TYPE/ZONE/MARKET, * for any: gpu/*/spot");
      if (parts[0] != "*") check(std::string(parts[0]));
    }
  }
  for (const auto& [name, count] : scenario.cloud.quota) check(name);
  for (const auto& [name, price] : scenario.cloud.prices) check(name);
  for (const auto& [name, amounts] : scenario.cloud.have) check(name);
  for (const auto& [name, type] : scenario.spec.types) {
    if (type.resources.empty() && !scenario.cloud.have.contains(name))
      document.fail(
          fmt::format("the node type '{}' says no resources, and a simulated machine has none by itself", name),
          fmt::format("write cloud: {{have: {{{}: {{CPU: 8}}}}}}", name));
  }
}

}  // namespace

std::string_view to_string(Fidelity fidelity) {
  switch (fidelity) {
    case Fidelity::kReal:
      return "real";
    case Fidelity::kLight:
      return "light";
  }
  return "unknown";
}

Scenario read_scenario(std::string_view text, const std::string& file, const ReadFile& read) {
  const Yaml document = Yaml::parse(text, file);
  if (!document.is_mapping())
    document.fail("the scenario is empty, or not a mapping", "see 'rubato simulate --example'");
  StrictMapping fields(document, "the scenario");
  Scenario scenario;
  scenario.file = file;
  if (const auto name = fields.find("name")) scenario.name = name->as_string();
  if (const auto duration = fields.find("duration")) scenario.duration = positive(*duration);
  if (const auto patience = fields.find("patience")) scenario.patience = positive(*patience);
  if (const auto settle = fields.find("settle")) scenario.settle = settle->as_bool();
  if (const auto agents = fields.find("agents")) scenario.fidelity = fidelity_of(*agents);
  if (const auto cloud = fields.find("cloud")) scenario.cloud = cloud_of(*cloud);
  if (const auto head = fields.find("head")) scenario.head = head_of(*head);
  if (const auto workload = fields.find("workload")) {
    for (const Yaml& one : workload->items()) scenario.workload.push_back(kind_of(one));
  }
  const auto adapts = [](const JobKind& kind) { return kind.adaptive.has_value(); };
  scenario.adaptive = std::ranges::any_of(scenario.workload, adapts);
  if (scenario.adaptive && scenario.fidelity == Fidelity::kLight)
    document.fail("light agents hear nothing of what adaptive jobs tell", "remove 'agents: light'");
  if (const auto trace = fields.find("trace")) scenario.trace_file = trace->as_string();
  if (const auto faults = fields.find("faults")) scenario.faults = faults_of(*faults);
  if (const auto expect = fields.find("expect")) {
    scenario.expect = expect->as_strings();
    check_marks(*expect, scenario.expect);
  }
  const auto changes = fields.find("changes");
  const Yaml cluster = fields.require("cluster");
  fields.finish();
  read_cluster(cluster, text, document, file, read, scenario);
  if (changes) read_changes(*changes, scenario);
  check_types(scenario, document);
  return scenario;
}

std::string_view example_scenario() {
  return R"(# A day of a small GPU cluster on spot machines. Run it: rubato simulate FILE --html report.html
name: spot-day
duration: 24h
cluster:                      # a cluster file, inline; or its path
  cluster_name: example
  provider: {type: external, command: [cloud], availability_zone: "a,b"}
  autoscaling: {max_workers: 12, spot: prefer, on_demand_base: 1}
  head_type: cpu
  node_types:
    cpu: {resources: {CPU: 16}, min_workers: 0, max_workers: 4, price_per_hour: 0.68}
    gpu: {resources: {CPU: 16, GPU: 4}, min_workers: 0, max_workers: 8, spot: true, price_per_hour: 6.12,
          spot_price_per_hour: 2.14}
cloud:
  boot: {from: 40s, to: 90s}  # until a machine's agent is started
workload:
  - name: train               # elastic: takes 1 to 8 GPUs, two are 1.8 times as fast as one
    per_hour: 4
    swing: 0.8                # many at noon, few at night
    workers: [1, 1:4, 2:8]
    resources: {CPU: 4, GPU: 1}
    work: {median: 90min, sigma: 1}
    efficiency: 0.9
  - name: prepare
    bursts: [{every: 6h, jobs: 20, within: 2min}]
    resources: {CPU: 2}
    work: {from: 5min, to: 20min}
faults:
  spot_reclaim: {per_node_hour: 0.15, notice: 2min}
  stock_out: {every: 8h, lasts: 30min}
  head_crash: {every: 12h}
)";
}

}  // namespace rubato::simulate
