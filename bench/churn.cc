// bench_churn [HOURS]: a day of a simulated cluster with the real head and agents; what the head keeps, and the memory
// of this process, with the simulated disks (journal and logs grow there as on real ones) and the simulator's own
// list of past workers told apart. Prints JSON.
#include <malloc.h>
#include <stdlib.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "sim/churn_testing.h"

namespace rubato::sim {
namespace {

double heap_mb() { return static_cast<double>(mallinfo2().uordblks) / 1e6; }

double disk_mb(ClusterSim& cluster) {
  double bytes = 0;
  // An entry of a map costs about this much beside what it holds.
  constexpr double kEntry = 100;
  for (const auto& [offset, record] : cluster.journal.records())
    bytes += static_cast<double>(record.capacity()) + kEntry;
  for (const auto& [offset, snapshot] : cluster.journal.snapshots()) bytes += static_cast<double>(snapshot.capacity());
  for (int i = 1; i <= cluster.sim.machines(); ++i) {
    for (const auto& [path, file] : cluster.sim.machine(i).disk().files())
      bytes += static_cast<double>(path.capacity() + file.bytes.capacity()) + 2 * kEntry;
  }
  return bytes / 1e6;
}

// The simulator remembers every worker there was, for its invariants.
double past_workers_mb(const ClusterSim& cluster) {
  const std::vector<WorkerRecord>& past = cluster.sim.workers.past();
  double bytes = static_cast<double>(past.capacity() * sizeof(WorkerRecord));
  constexpr size_t kInside = 15;  // a std::string holds so many characters itself
  for (const WorkerRecord& worker : past) {
    for (const std::string* text : {&worker.run_id, &worker.master})
      bytes += text->capacity() > kInside ? static_cast<double>(text->capacity() + 17) : 0;
  }
  return bytes / 1e6;
}

int run(int hours) {
  Churn churn(7, 30, Churn::Pace{});
  nlohmann::json rows = nlohmann::json::array();
  for (const int hour : {1, 2, 6, 12, 18, 24}) {
    if (hour > hours) break;
    if (!churn.run_to(hour * 1h)) return 1;
    const Churn::Sizes sizes = churn.sizes();
    rows.push_back({{"hour", hour},
                    {"jobs_submitted", churn.submitted},
                    {"nodes_lost", churn.nodes_lost},
                    {"heads_lost", churn.heads_lost},
                    {"jobs_kept", sizes.jobs},
                    {"kept_beside", sizes.beside},
                    {"open_logs", sizes.open_logs},
                    {"state_kb", static_cast<double>(sizes.state_bytes) / 1e3},
                    {"heap_mb", heap_mb()},
                    {"simulated_disk_mb", disk_mb(churn.cluster)},
                    {"simulated_workers_mb", past_workers_mb(churn.cluster)}});
    fprintf(stderr, "hour %d\n", hour);
  }
  puts(rows.dump(1).c_str());
  return churn.cluster.broken.empty() ? 0 : 1;
}

}  // namespace
}  // namespace rubato::sim

int main(int argc, char** argv) { return rubato::sim::run(argc > 1 ? atoi(argv[1]) : 24); }
