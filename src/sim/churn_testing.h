// A cluster that never rests: jobs come and end, some crash, nodes die, now and then the head does. For tests and
// bench/churn.cc, which watch whether anything grows with time.
#pragma once

#include <fmt/format.h>

#include "sim/cluster_testing.h"

namespace rubato::sim {

class Churn {
 public:
  struct Pace {
    Duration job_every = 4s;
    Duration node_loss_every = 5min;
    Duration head_loss_every = 5h;  // not a divisor of 12 h: a head that is watched then has been up for hours
  };

  Churn(uint64_t seed, int nodes, Pace pace) : cluster(seed, nodes, 2 * nodes), pace_(pace), random_{seed} {
    cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random& random) {
      WorkerModel model;
      model.start_delay = 500ms;
      model.runs = std::chrono::milliseconds(2000 + random.below(20'000));
      if (random.chance(0.02)) model.crash_after = 1s;
      model.output = "epoch 1\nepoch 2\n";
      return model;
    };
    cluster.start_head();
    again(pace.job_every, [this] { submit(); });
    again(pace.node_loss_every, [this] { lose_node(); });
    again(pace.head_loss_every, [this] { lose_head(); });
  }

  // Until this much time has passed since the beginning and a head is up.
  bool run_to(Duration time) {
    cluster.sim.simulator.run_until([] { return false; }, Instant{} + time);
    return cluster.run_until([this] { return cluster.head_up(); }, 10min);
  }

  // All that a head keeps, as numbers that must stay the same in the long run.
  struct Sizes {
    size_t jobs, requests, nodes, indexes, beside, open_logs, state_bytes;
  };
  Sizes sizes() {
    const cluster::State& state = cluster.state();
    return Sizes{state.jobs.size(),
                 state.requests.size(),
                 state.nodes.size(),
                 state.active.size() + state.queued.size() + state.ended_jobs.size() + state.jobs_on.size(),
                 cluster.controller().remembered(),
                 cluster.controller().logs().open_files(),
                 cluster::encode_snapshot(state).size()};
  }

  ClusterSim cluster;
  uint64_t submitted = 0, nodes_lost = 0, heads_lost = 0;

 private:
  void again(Duration every, std::function<void()> what) {
    cluster.sim.simulator.at(cluster.sim.now() + every, [this, every, what] {
      what();
      again(every, what);
    });
  }

  void submit() {
    // A client that has its answer goes away.
    std::erase_if(cluster.wishes, [](const Wish& wish) { return wish.job.has_value(); });
    Wish wish;
    const int workers = static_cast<int>(1 + random_.below(3));
    wish.spec = sim_job(workers, workers + static_cast<int>(random_.below(3)));
    wish.spec.owner = fmt::format("owner-{}", random_.below(5));
    wish.spec.priority = static_cast<int>(random_.below(2));
    wish.request_id = fmt::format("request-{}", ++submitted);
    cluster.wishes.push_back(std::move(wish));
  }

  void lose_node() {
    const std::vector<rubato::NodeId> nodes = cluster.machines.list();
    if (nodes.empty()) return;
    ++nodes_lost;
    const rubato::NodeId node = nodes[random_.below(nodes.size())];
    if (random_.chance(0.5)) {
      cluster.machines.agent(node).kill();
    } else {
      cluster.sim.machine(cluster.machines.machine_of(node)).crash();
    }
  }

  void lose_head() {
    if (!cluster.head_up()) return;
    ++heads_lost;
    cluster.kill_head();
    cluster.sim.simulator.at(cluster.sim.now() + 5s, [this] { cluster.start_head(); });
  }

  const Pace pace_;
  Random random_;
};

}  // namespace rubato::sim
