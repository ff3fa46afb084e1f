// The inside of allocate: the input as dense numbers, shared by its steps. Include it nowhere else.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "policy/allocate.h"

namespace rubato::policy {

using Amounts = std::vector<int64_t>;  // by dimension; all of one decision have the same length

// Free room on the nodes while seats are given.
class SeatRoom {
 public:
  explicit SeatRoom(std::vector<Amounts> totals) : free_(totals), totals_(std::move(totals)) {}

  void settle() { totals_ = free_; }  // what is taken now is gone for good; the rest of a node counts as the node

  // Replicas of this size that still fit on the node, at most `most`.
  int fits(size_t node, const Amounts& need, int most) const { return times(free_[node], need, most); }
  bool empty(size_t node) const { return free_[node] == totals_[node]; }
  void take(size_t node, const Amounts& need, int count);
  void give_back(size_t node, const Amounts& need, int count);
  size_t size() const { return free_.size(); }

 private:
  static int times(const Amounts& room, const Amounts& need, int most);

  std::vector<Amounts> free_, totals_;
};

// How replicas of one size fit on the empty nodes of one kind.
struct KindShape {
  std::vector<int> caps;      // replicas by node, largest first; nodes without room left out
  std::vector<int64_t> sums;  // of the first nodes: sums[i] = caps[0] + ... + caps[i]
  int64_t fit = 0;            // of all nodes
  double unit_cost = 0;       // of one replica, in units of the kind's capacity

  int nodes_for(int64_t replicas) const;  // the fewest that hold so many
};

struct SizeOption {
  int kind = 0;
  int replicas = 0;
  double cost = 0;     // in units of that kind
  double speedup = 0;  // x(r)
  double value = 0;
};

struct JobWork {
  size_t index = 0;  // in the input
  const AllocateJob* job = nullptr;
  Amounts need;
  std::vector<size_t> seats;  // present nodes of its allocation, in its order
  bool intact = false;        // none was lost, all on one kind
  bool pinned = false;        // not preemptible, and has seats: they stay
  int current = 0;            // seats.size() while intact, else 0
  int current_kind = -1;
  bool profiled = false;
  double base_goodput = 0;                  // of one replica, of the reference kind
  double work_done_s = 0, work_left_s = 0;  // in seconds of one replica
  bool declared = false;
  double weight = 1;
  std::vector<SizeOption> options;  // by kind, then size
  int chosen = -1;                  // of options; -1: none
  std::vector<size_t> given;        // the seats of the decision
  double worth_seats = 0;           // of the desired nodes
};

struct Allocating {
  const AllocateInput& input;
  const AllocateOptions& options;
  std::vector<std::string> kinds;
  std::vector<int> kind_of;                   // by node
  std::vector<std::vector<size_t>> nodes_of;  // by kind
  std::map<std::string, size_t> node_index;
  std::vector<JobWork> jobs;                         // oldest first, then by id
  std::vector<double> capacity;                      // by kind, in units, without what pinned jobs hold
  std::map<Amounts, std::vector<KindShape>> shapes;  // by size of a replica: for each kind
};

// allocate_value.cc
void make_options(Allocating& all, const SeatRoom& room);
void weigh_jobs(Allocating& all);
void value_options(Allocating& all);
std::optional<GoodputModel> model_on(const AllocateJob& job, const std::string& kind);

// allocate_share.cc: sets JobWork::chosen.
void share_capacity(Allocating& all);

// allocate_seat.cc: sets JobWork::given, and `chosen` anew for jobs that had to take less.
void seat_jobs(Allocating& all, SeatRoom& room);

// allocate_explain.cc
std::string explain_allocation(const Allocating& all, const JobWork& work);

// allocate_nodes.cc: sets JobWork::worth_seats.
int64_t desired_nodes(Allocating& all);

}  // namespace rubato::policy
