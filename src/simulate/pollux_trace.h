// The applications and workloads of Pollux' artifact (OSDI'21), as its simulator reads them: measured times of a step
// by placement, and what each batch size learned in each epoch.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "policy/goodput.h"

namespace rubato::simulate {

using CsvTexts = std::map<std::string, std::string>;  // by file name

struct TraceTimes {
  double step = 0, sync = 0;  // of a step, and of its share in the network
};

// One application: placements.csv, scalability.csv and validation-BATCH.csv. Throws usage Errors with file:line.
class PolluxApplication {
 public:
  PolluxApplication(std::string name, const CsvTexts& files);

  const std::string& name() const { return name_; }
  const policy::BatchLimits& limits() const { return limits_; }
  int epochs() const { return epochs_; }

  // Iterations at the initial batch size after so many epochs.
  double progress_after(int epochs) const { return progress_[static_cast<size_t>(epochs)]; }
  double total_iterations(double batch_size) const;  // at that batch size
  policy::GradStats grad_stats(double batch_size, int epoch) const;

  // `placement`: replicas on each node. Placements that were measured are interpolated by batch size; others between
  // numbers of nodes, at the same number of replicas a node.
  TraceTimes times(std::vector<int> placement, double atomic_bsz) const;

 private:
  struct Epochs {
    std::vector<double> progress, iteration, sqr, var;
  };
  using Curve = std::map<double, TraceTimes>;  // by atomic batch size

  void read_placements(std::string_view text, const std::string& file);
  void read_scalability(std::string_view text, const std::string& file);
  void read_validation(std::string_view text, const std::string& file, int batch);
  TraceTimes on_column(double nodes, double replicas, double atomic_bsz) const;

  std::string name_;
  policy::BatchLimits limits_;
  int epochs_ = 0;
  std::vector<double> progress_;
  std::map<double, Epochs> validation_;                // by batch size
  std::map<std::vector<int>, Curve> placements_;       // smallest rotation first
  std::map<double, std::map<double, Curve>> columns_;  // by nodes, then replicas
};

struct PolluxJob {
  std::string name;
  double submit_s = 0;
  std::string application;
  int num_replicas = 1;
  double batch_size = 1;
};

// name,time,application,num_replicas,batch_size
std::vector<PolluxJob> read_pollux_workload(std::string_view text, const std::string& file);

}  // namespace rubato::simulate
