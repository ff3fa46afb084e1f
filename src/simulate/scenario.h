// Scenario: what `rubato simulate` plays: a cluster file, a workload, the cloud that makes the nodes, and faults.
//
// Read strictly: a key that is not known is an error with its place and the nearest key. docs/simulate.md lists all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "core/yaml.h"
#include "model/cluster_spec.h"
#include "model/resources.h"
#include "model/worker_sizes.h"

namespace rubato::simulate {

// Uniform between the two.
struct Span {
  Duration from{}, to{};
};

// How much work a job is: fixed, uniform, exponential (mean) or log-normal (median, sigma).
struct Work {
  enum class Kind { kFixed, kUniform, kExponential, kLogNormal } kind = Kind::kFixed;
  Duration a = 10min, b = 10min;  // fixed: a; uniform: a to b; exponential: mean a; log-normal: median a
  double sigma = 0;
};

struct Burst {
  std::vector<Duration> at;
  std::optional<Duration> every;
  int jobs = 1;
  Duration within{};
};

// Jobs that tell how well they train, and are sized by it: what one of them is like.
struct AdaptiveKind {
  double batch = 128, max_batch = 4096;
  int64_t local_max = 256;    // of one worker's batch
  Duration step = 200ms;      // of one worker, with the first batch
  Span exchange{20ms, 20ms};  // of gradients, between two workers
  double noise = 10;          // of gradients of the first batch: their variance over their mean, squared
  Duration tells_every = 30s;
  double error = 0.03;
  bool declares = true;
};

// One kind of jobs, and when they come.
struct JobKind {
  std::string name = "job";
  double per_hour = 0;  // Poisson
  double swing = 0;     // 0..1: so much more at noon and less at midnight than on average
  std::optional<Duration> every;
  std::vector<Burst> bursts;
  Duration from{};
  std::optional<Duration> until;  // of arrivals; absent: the scenario's duration
  std::optional<int> count;       // at most so many

  std::vector<WorkerSizes> workers{{1, 1, 1}};  // one of these, each as likely
  Resources per_worker;
  Work work;
  double efficiency = 1.0;  // of each doubling of the workers: 0.9 makes two workers 1.8 times as fast as one
  Duration checkpoint_every = 10min;
  double crashes_per_worker_hour = 0;
  int max_restarts = 3;
  std::vector<int> priorities{0};
  int owners = 1;
  Duration timeout{};              // zero: none
  Span ends_within{500ms, 500ms};  // a worker that is told to end takes so long
  std::optional<AdaptiveKind> adaptive;
  double stopped = 0;  // chance that its owner stops it
  Span stopped_after{1min, 10min};
};

// The cluster file is changed while the cluster runs.
struct FileChange {
  Duration at{};
  std::string text;  // the file from then on
};

// When a fault strikes. Both may be given.
struct Pace {
  std::vector<Duration> at;
  std::optional<Duration> every;  // on average; the times between are exponential
  Duration lasts{};
  bool given() const { return every || !at.empty(); }
};

struct Faults {
  Duration from{};
  std::optional<Duration> until;  // absent: three quarters of the duration

  double reclaims_per_node_hour = 0;  // of spot nodes
  Pace reclaim;                       // of any node, whatever its market
  Span reclaim_notice{2min, 2min};

  struct StockOut : Pace {
    std::vector<std::string> offerings;  // "type", "type/zone", "type/zone/spot"; a part may be *; empty: any one
  };
  std::vector<StockOut> stock_outs;
  Pace throttling;
  double slow_boot = 0;  // chance
  double slow_boot_factor = 10;
  double boot_failure = 0;  // chance that a machine never gets as far as an agent
  Pace partition;           // of a node from everybody
  Pace head_partition;      // of the head from half of the nodes
  Pace head_crash, agent_crash, node_crash, freeze, clock_jump, disk_full, head_disk_full;
  // SIGSTOP and SIGCONT of the head, of an agent; the head's whole machine stands still.
  Pace head_pause, agent_pause, head_freeze;
  double pause_new_head = 0;       // chance that a head is stopped in the first second after its start
  double crash_after_failure = 0;  // chance that another agent is killed within a second after a worker failed
  Duration clock_jump_by = 10min;
};

struct CloudSettings {
  Span boot{30s, 60s};
  Span agent_start{};  // of every second machine, from the start of its agent to that one's first word
  Span remove{1s, 5s};
  Span call{100ms, 500ms};
  Duration list_lag{};
  // As hosts of one's own: a machine that the head does not reach is not ended when its node is removed.
  bool machines_stay = false;
  std::map<std::string, int> quota;       // by type: so many nodes the account may have
  std::map<std::string, double> prices;   // by type, per hour, where the cluster file has none
  double spot_price = 0.35;               // of the on-demand price, where the file has no price for spot
  std::map<std::string, Resources> have;  // by type, where the file leaves resources open
};

struct HeadTimes {
  Duration heartbeat = 3s;
  Duration adoption = 15s;
  Span commit{500us, 5ms};  // of the journal
};

enum class Fidelity {
  kReal,   // real agents with simulated processes
  kLight,  // scripted agents that speak the same protocol over the same network; for thousands of nodes
};
std::string_view to_string(Fidelity fidelity);

struct Scenario {
  std::string file;  // its name, for people
  std::string name = "scenario";
  Duration duration = 1h;
  Duration patience = 30min;  // a demand that could be served is, within this time after the last fault
  bool settle = true;         // go on after the duration until all jobs have ended and idle nodes are gone
  Fidelity fidelity = Fidelity::kReal;
  std::string cluster_text, cluster_file;
  ClusterSpec spec;
  CloudSettings cloud;
  HeadTimes head;
  std::vector<JobKind> workload;
  bool adaptive = false;   // some of these jobs are
  std::string trace_file;  // CSV, read by the caller; relative to the scenario
  Faults faults;
  std::vector<FileChange> changes;  // in the order of time
  std::vector<std::string> expect;  // marks that the seeds, taken together, must reach

  Duration faults_until() const { return faults.until.value_or(duration * 3 / 4); }
};

// `read` gives the text of a file named in the scenario (the cluster file), or throws. Throws the first error.
using ReadFile = std::function<std::string(const std::string& path)>;
Scenario read_scenario(std::string_view text, const std::string& file, const ReadFile& read);

// A small one with comments, for `rubato simulate --example`.
std::string_view example_scenario();

}  // namespace rubato::simulate
