#include "policy/scale_outcome.h"

#include <algorithm>
#include <cmath>

namespace rubato::policy {
namespace {

constexpr int kPendingLeast = 5;  // Ray's UPSCALING_INITIAL_NUM_NODES

// Hands out the bundles of each shape to the picks, gangs first.
class Seating {
 public:
  Seating(const ScaleInput& input, const Work& work)
      : input_(input), work_(work), source_(work.first.begin(), work.first.end() - 1), used_(work.counts.size(), 0) {}

  void seat(size_t node, const Pick& pick, std::vector<Seated>& out) {
    for (int64_t left = pick.count; left > 0;) {
      const WorkSource& from = work_.sources[source_[pick.shape]];
      const int64_t some = std::min(left, from.count - used_[pick.shape]);
      if (from.bundles == WorkSource::kWhole) {
        const Gang& gang = input_.gangs[static_cast<size_t>(from.gang)];
        for (size_t at = 0; at < gang.bundles.size(); ++at) {
          out.push_back({node, from.gang, at, gang.bundles[at].count});
        }
      } else {
        out.push_back({node, from.gang, from.bundles, some});
      }
      left -= some;
      used_[pick.shape] += some;
      if (used_[pick.shape] < from.count) continue;
      ++source_[pick.shape];
      used_[pick.shape] = 0;
    }
  }

 private:
  const ScaleInput& input_;
  const Work& work_;
  std::vector<uint32_t> source_;
  std::vector<int64_t> used_;
};

int coming(const ScaleInput& input, const std::string* type) {
  int sum = 0;
  for (const ScaleLaunching& one : input.launching) sum += type == nullptr || one.type == *type ? one.count : 0;
  return sum;
}

// Which of the opened nodes are asked for now; `urgent` ones first.
void defer(const ScaleProblem& problem, const Draft& draft, const std::vector<char>& urgent, Outcome& out) {
  const Supply& supply = draft.packing.supply;
  std::vector<int> room(supply.types());
  for (size_t type = 0; type < room.size(); ++type) {
    room[type] = pending_max(problem.input, supply.name(type)) - coming(problem.input, &supply.name(type));
  }
  int all = std::numeric_limits<int>::max();
  if (problem.input.launch_concurrency) all = *problem.input.launch_concurrency - coming(problem.input, nullptr);
  for (const bool first : {true, false}) {
    for (size_t at = 0; at < draft.packing.nodes.size(); ++at) {
      const PackNode& node = draft.packing.nodes[at];
      if (node.origin != PackNode::Origin::kOpened || static_cast<bool>(urgent[at]) != first) continue;
      if (all <= 0) {
        out.deferred[at] = ScaleLimit::kConcurrency;
      } else if (!first && room[node.type] <= 0) {
        out.deferred[at] = ScaleLimit::kUpscalingSpeed;
      } else {
        out.launched[at] = true;
        --all;
        --room[node.type];
      }
    }
  }
}

}  // namespace

int pending_max(const ScaleInput& input, const std::string& type) {
  int64_t running = std::count_if(input.nodes.begin(), input.nodes.end(), [&](const ScaleNode& node) {
    return !node.head && !node.leaving && node.type == type;
  });
  for (const ScaleFull& one : input.full) running += one.type == type ? one.count : 0;
  // With none running the first one counts, as in Ray: a high speed has no slow start.
  const double most = input.upscaling_speed * static_cast<double>(std::max<int64_t>(running, 1));
  return std::max(kPendingLeast, static_cast<int>(std::min(most, 1e9)));
}

Outcome outcome_of(const ScaleProblem& problem, const Draft& draft) {
  Outcome out;
  const std::vector<PackNode>& nodes = draft.packing.nodes;
  out.launched.assign(nodes.size(), false);
  out.deferred.assign(nodes.size(), ScaleLimit::kNone);
  std::vector<char> urgent(nodes.size(), false);
  Seating seating(problem.input, draft.work(problem));
  for (size_t at = 0; at < nodes.size(); ++at) {
    const size_t before = out.seated.size();
    for (const GangSeat& seat : nodes[at].seats) out.seated.push_back({at, seat.gang, seat.bundles, seat.count});
    for (const Pick& pick : nodes[at].picks) seating.seat(at, pick, out.seated);
    urgent[at] = nodes[at].wanted || std::any_of(out.seated.begin() + static_cast<std::ptrdiff_t>(before),
                                                 out.seated.end(), [](const Seated& one) { return one.gang >= 0; });
  }
  defer(problem, draft, urgent, out);
  return out;
}

}  // namespace rubato::policy
