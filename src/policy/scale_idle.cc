// Which idle nodes go. A node with work on it, planned or running, never does; nor the head.
#include <fmt/format.h>

#include <algorithm>

#include "policy/scale_outcome.h"

namespace rubato::policy {
namespace {

class IdleDecider {
 public:
  IdleDecider(const ScaleProblem& problem, const Draft& draft, const Outcome& outcome)
      : problem_(problem), input_(problem.input), why_(input_.nodes.size()), keeps_(input_.nodes.size()) {
    bundles_.resize(input_.nodes.size(), 0);
    requested_.resize(input_.nodes.size(), false);
    for (const Seated& one : outcome.seated) {
      const PackNode& node = draft.packing.nodes[one.node];
      if (node.origin == PackNode::Origin::kThere) bundles_[node.index] += one.count;
    }
    for (size_t at = 0; at < draft.packing.nodes.size(); ++at) {
      const PackNode& node = draft.packing.nodes[at];
      if (node.origin == PackNode::Origin::kThere) requested_[node.index] = draft.requested[at];
      if (outcome.launched[at]) ++workers_[draft.packing.supply.name(node.type)];
    }
    for (const ScaleFull& one : input_.full) workers_[one.type] += one.count;
    for (const ScaleLaunching& one : input_.launching) workers_[one.type] += one.count;
    for (size_t at = 0; at < input_.nodes.size(); ++at) {
      const ScaleNode& node = input_.nodes[at];
      if (!node.head && !node.leaving && !problem.over[at]) ++workers_[node.type];
    }
  }

  IdleDecisions decide() {
    std::vector<size_t> idle;
    for (size_t at = 0; at < input_.nodes.size(); ++at) {
      const ScaleNode& node = input_.nodes[at];
      if (problem_.over[at]) {
        why_[at] = too_many(node);
      } else if (!node.head && !node.leaving && node.idle >= input_.idle_timeout && node.idle > Duration{}) {
        idle.push_back(at);
      }
    }
    // The most recently used stay.
    std::sort(idle.begin(), idle.end(), [&](size_t a, size_t b) {
      const ScaleNode &x = input_.nodes[a], &y = input_.nodes[b];
      return x.idle != y.idle ? x.idle > y.idle : x.id < y.id;
    });
    for (const size_t at : idle) consider(at);
    return result();
  }

 private:
  std::string too_many(const ScaleNode& node) const {
    const auto type = input_.types.find(node.type);
    if (type == input_.types.end()) return fmt::format("idle, and the type {} is not in the file any more", node.type);
    if (type->second.max_workers < problem_.supply.workers(*problem_.supply.find(node.type))) {
      return fmt::format("idle, and there are more than max_workers of {}: {}", node.type, type->second.max_workers);
    }
    return fmt::format("idle, and there are more than max_workers: {}", input_.max_workers);
  }

  void consider(size_t at) {
    const ScaleNode& node = input_.nodes[at];
    const auto type = input_.types.find(node.type);
    const int least = least_workers(input_, node.type);
    if (!node.keep.empty()) {
      keeps_[at] = node.keep;
    } else if (type != input_.types.end() && node.available && *node.available != type->second.resources) {
      keeps_[at] = "something runs there";
    } else if (bundles_[at] > 0) {
      keeps_[at] = fmt::format("{} waiting {} to it", bundles_[at], bundles_[at] == 1 ? "bundle goes" : "bundles go");
    } else if (requested_[at]) {
      keeps_[at] = "an explicit request needs it";
    } else if (workers_[node.type] <= least) {
      const bool by_file = type != input_.types.end() && type->second.min_workers == least;
      keeps_[at] = by_file ? fmt::format("min_workers of {} is {}", node.type, least)
                           : fmt::format("the cluster's use calls for {} workers", least);
    } else {
      --workers_[node.type];
      why_[at] = fmt::format("idle for {}, longer than {}; nothing that waits needs it", format_duration(node.idle),
                             format_duration(input_.idle_timeout));
    }
  }

  IdleDecisions result() const {
    using Kind = ScaleReason::Kind;
    IdleDecisions out;
    for (size_t at = 0; at < input_.nodes.size(); ++at) {
      const ScaleNode& node = input_.nodes[at];
      if (!why_[at].empty()) {
        out.terminations.push_back({node.id, why_[at]});
        ScaleReason reason{.kind = Kind::kTerminate, .subject = node.id.value, .text = why_[at]};
        if (!problem_.over[at]) {
          reason.changes.push_back(fmt::format("min_workers of {} above {}, or a longer idle time-out", node.type,
                                               least_workers(input_, node.type)));
        }
        out.reasons.push_back(std::move(reason));
      } else if (!keeps_[at].empty()) {
        out.reasons.push_back({.kind = Kind::kKeep,
                               .subject = node.id.value,
                               .text = fmt::format("idle for {}, but {}", format_duration(node.idle), keeps_[at])});
      }
    }
    return out;
  }

  const ScaleProblem& problem_;
  const ScaleInput& input_;
  std::vector<int64_t> bundles_;  // by node of the input
  std::vector<char> requested_;
  std::vector<std::string> why_;    // why it goes; empty: it stays
  std::vector<std::string> keeps_;  // why it stays though it is idle
  std::map<std::string, int> workers_;
};

}  // namespace

IdleDecisions decide_idle(const ScaleProblem& problem, const Draft& draft, const Outcome& outcome) {
  return IdleDecider(problem, draft, outcome).decide();
}

}  // namespace rubato::policy
