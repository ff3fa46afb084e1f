#include "policy/scale_again.h"

#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "policy/scale_layout.h"

namespace rubato::policy {
namespace {

constexpr int64_t kBundlesMax = 400;  // as many as are exchanged between nodes
constexpr size_t kNodesMax = 200;
constexpr size_t kTypesMax = 4;  // so many questions

class Matcher {
 public:
  Matcher(const ScaleProblem& problem, const Draft& start, const EarlierQuestion& earlier)
      : problem_(problem), earlier_(earlier), draft_(start), taken_(start.packing.nodes.size(), false) {}

  std::optional<Draft> match(const Draft& found) {
    std::vector<size_t> at;  // by node of `found`
    for (const PackNode& node : found.packing.nodes) {
      const auto target = target_of(node);
      if (target) {
        taken_[*target] = true;
      } else if (!node.picks.empty() || !node.seats.empty()) {
        return std::nullopt;
      }
      at.push_back(target.value_or(kNone));
    }
    draft_.requested.assign(draft_.packing.nodes.size(), false);
    for (size_t from = 0; from < at.size(); ++from) {
      if (at[from] == kNone) continue;
      move(found.packing.nodes[from], draft_.packing.nodes[at[from]]);
      draft_.requested[at[from]] = from < found.requested.size() && found.requested[from];
    }
    draft_.gangs_apart = found.gangs_apart;
    draft_.failures = found.failures;
    draft_.request_left = found.request_left;
    draft_.style = found.style;
    draft_.packing.stock = Stock(draft_.work(problem_).shapes, found.packing.stock.counts(), kStockCells);
    draft_.packing.pack(draft_.style.pack);  // beside them, nodes may be coming that were not counted on
    draft_.requested.resize(draft_.packing.nodes.size(), false);
    weigh_draft(problem_, draft_);
    return std::move(draft_);
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  bool stands_for(const PackNode& node, const PackNode& now) const {
    switch (node.origin) {
      case PackNode::Origin::kThere:
        return now.origin == node.origin && now.index == node.index;
      case PackNode::Origin::kComing:
        return now.origin == node.origin && now.index == earlier_.known[node.index] && now.ordinal == node.ordinal;
      case PackNode::Origin::kOpened:
        return now.type == node.type && (now.origin == PackNode::Origin::kOpened ||
                                         (now.origin == PackNode::Origin::kComing && earlier_.since[now.index]));
    }
    return false;
  }

  std::optional<size_t> target_of(const PackNode& node) {
    std::vector<PackNode>& nodes = draft_.packing.nodes;
    for (size_t at = 0; at < nodes.size(); ++at) {
      if (!taken_[at] && stands_for(node, nodes[at])) return at;
    }
    if (node.origin != PackNode::Origin::kOpened || !draft_.packing.open(node.type)) return std::nullopt;
    nodes.back().wanted = node.wanted;
    taken_.push_back(false);
    return nodes.size() - 1;
  }

  static void move(const PackNode& from, PackNode& to) {
    to.room = from.room;
    to.picks = from.picks;
    to.seats = from.seats;
    to.fresh = to.fresh && from.picks.empty() && from.seats.empty();
  }

  const ScaleProblem& problem_;
  const EarlierQuestion& earlier_;
  Draft draft_;
  std::vector<char> taken_;
};

}  // namespace

namespace {

// Without the launches, but those of this type.
EarlierQuestion question_before(const ScaleInput& now, const std::string& type) {
  EarlierQuestion out{.input = now};
  out.input.launching.clear();
  for (size_t at = 0; at < now.launching.size(); ++at) {
    out.since.push_back(now.launching[at].type != type);
    if (out.since.back()) continue;
    out.known.push_back(at);
    out.input.launching.push_back(now.launching[at]);
  }
  return out;
}

}  // namespace

bool is_asked_again(const ScaleProblem& problem, size_t nodes) {
  const std::vector<int64_t>& counts = problem.work.counts;
  return nodes <= kNodesMax && may_exchange(problem.input, problem.supply) &&
         std::accumulate(counts.begin(), counts.end(), int64_t{0}) <= kBundlesMax;
}

std::vector<EarlierQuestion> earlier_questions(const ScaleProblem& problem) {
  const ScaleInput& input = problem.input;
  if (input.launching.empty() || !is_asked_again(problem, problem.nodes.size())) return {};
  std::set<std::string> types;
  for (const ScaleLaunching& one : input.launching) types.insert(one.type);
  // Before all launches; and before those of all types but one, which were coming already then.
  std::vector<EarlierQuestion> out{question_before(input, "")};
  if (types.size() < 2 || types.size() > kTypesMax) return out;
  for (const std::string& type : types) out.push_back(question_before(input, type));
  return out;
}

std::optional<Draft> found_again(const ScaleProblem& problem, const Draft& start, const EarlierQuestion& earlier,
                                 const Draft& found) {
  return Matcher(problem, start, earlier).match(found);
}

}  // namespace rubato::policy
