// How many nodes are worth their money: seats in the order of what they give, nodes in the order of what they cost.
#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/allocate_work.h"

namespace rubato::policy {
namespace {

constexpr double kGrowthMost = 2;        // times the present nodes, as AdaptDL
constexpr int64_t kNodesMoreLeast = 16;  // and at least so many more are thought of

// So many seats that each give so much of a first seat's speedup.
struct SeatWorth {
  double each = 0;
  double seats = 0;
  size_t owner = 0;  // of Allocating::jobs
};

struct Point {
  double cost = 0, speedup = 0;
};

// Only what no mix of other sizes beats: the upper hull from (0, 0).
void add_hull(std::vector<Point> points, size_t owner, std::vector<SeatWorth>& out) {
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.cost < b.cost; });
  std::vector<Point> hull{{0, 0}};
  for (const Point& point : points) {
    if (point.cost <= hull.back().cost || point.speedup <= hull.back().speedup) continue;
    while (hull.size() > 1) {
      const Point &a = hull[hull.size() - 2], &b = hull.back();
      if ((b.speedup - a.speedup) * (point.cost - a.cost) > (point.speedup - a.speedup) * (b.cost - a.cost)) break;
      hull.pop_back();
    }
    hull.push_back(point);
  }
  for (size_t i = 1; i < hull.size(); ++i) {
    const double seats = hull[i].cost - hull[i - 1].cost;
    out.push_back({(hull[i].speedup - hull[i - 1].speedup) / seats, seats, owner});
  }
}

// The options of the present nodes, and sizes beyond them on nodes like the largest.
std::vector<Point> points_of(const Allocating& all, const JobWork& work, int64_t replicas_more) {
  std::vector<Point> points;
  int64_t largest = 0;
  int kind = work.options.empty() ? -1 : work.options.front().kind;
  for (const SizeOption& option : work.options) {
    if (option.kind != kind) continue;
    points.push_back({static_cast<double>(option.replicas), option.speedup});
    largest = std::max<int64_t>(largest, option.replicas);
  }
  const int64_t cap = kind < 0 ? 1 : all.shapes.at(work.need)[static_cast<size_t>(kind)].caps.front();
  const std::string name = kind < 0 ? "" : all.kinds[static_cast<size_t>(kind)];
  const auto model = model_on(*work.job, name);
  const int64_t least = std::max<int64_t>(work.job->min_replicas, 1);
  if (!model || (work.options.empty() && work.job->max_replicas >= least && !all.input.nodes.empty())) {
    if (points.empty() && work.job->max_replicas >= least)
      points.push_back({static_cast<double>(least), static_cast<double>(least)});
    return points;
  }
  const double base = work.profiled ? work.base_goodput : model->best_batch(1, 1).goodput;
  double best = points.empty() ? 0 : points.back().speedup;
  const int64_t most = std::min(work.job->max_replicas, largest + replicas_more);
  for (int64_t size = std::max({largest + cap, least, int64_t{1}}); base > 0 && size <= most;
       size = std::max(size + cap, static_cast<int64_t>(static_cast<double>(size) * 1.15) / cap * cap)) {
    const int nodes = static_cast<int>((size + cap - 1) / cap);
    const double speedup = model->best_batch(nodes, static_cast<int>(size)).goodput / base;
    if (speedup <= best) break;
    best = speedup;
    points.push_back({static_cast<double>(size), speedup});
  }
  return points;
}

// Takes seats from the front of the sorted list, one node after the other.
class SeatMarket {
 public:
  explicit SeatMarket(std::vector<SeatWorth> list) : list_(std::move(list)) {
    std::stable_sort(list_.begin(), list_.end(),
                     [](const SeatWorth& a, const SeatWorth& b) { return a.each > b.each; });
  }

  // Whose the first so many seats are.
  void share(double seats, std::vector<JobWork>& jobs) const {
    for (const SeatWorth& one : list_) {
      const double some = std::min(seats, one.seats);
      jobs[one.owner].worth_seats += some;
      seats -= some;
    }
  }

  // What the next seats are worth together; fewer where no more are wanted.
  SeatWorth take(double seats) {
    double worth = 0;
    const double asked = seats;
    while (seats > 1e-9 && at_ < list_.size()) {
      const double some = std::min(seats, list_[at_].seats);
      worth += some * std::min(list_[at_].each, 1e6);
      seats -= some;
      list_[at_].seats -= some;
      if (list_[at_].seats <= 1e-9) ++at_;
    }
    return {.each = worth, .seats = asked - seats};
  }

 private:
  std::vector<SeatWorth> list_;
  size_t at_ = 0;
};

// How many of the nodes that these prices are of.
int64_t nodes_worth(const Allocating& all, const std::vector<double>& prices, double seats, SeatMarket market) {
  const auto present = static_cast<int64_t>(all.input.nodes.size());
  const auto priced = std::find_if(prices.begin(), prices.end(), [](double price) { return price > 0; });
  const double cheapest = priced == prices.end() ? 0 : *priced;
  const auto& band = all.options.utility_band;
  double sum = 0, spent = 0, best_distance = std::numeric_limits<double>::max();
  int64_t chosen = 0;
  for (size_t i = 0; i < prices.size(); ++i) {
    spent += prices[i];
    if (all.options.budget_per_hour && spent > *all.options.budget_per_hour + 1e-9) break;
    const auto count = static_cast<int64_t>(i) + 1;
    const SeatWorth taken = market.take(seats);
    const double worth = taken.each, used = taken.seats;
    sum += std::min(worth, seats);
    if (!band) {
      // What is there is paid for already: only what could be added has to be worth more when it is dearer.
      const bool is_new = static_cast<int64_t>(i) >= present;
      const double dearer = is_new && cheapest > 0 ? std::max(prices[i] / cheapest, 1.0) : 1;
      if (used <= 0 || worth < all.options.least_utility * used * dearer) break;
      chosen = count;
      continue;
    }
    const double utility = sum / (seats * static_cast<double>(count));
    if (count == present && utility >= band->first && utility <= band->second) return present;
    const double distance = std::abs(utility - (band->first + band->second) / 2);
    if (distance < best_distance - 1e-12 && sum > 0) {
      best_distance = distance;
      chosen = count;
    }
  }
  return chosen;
}

}  // namespace

int64_t desired_nodes(Allocating& all) {
  const auto present = static_cast<int64_t>(all.input.nodes.size());
  double pinned = 0, capacity = 0;
  for (const double units : all.capacity) capacity += units;
  std::vector<SeatWorth> list;
  for (size_t i = 0; i < all.jobs.size(); ++i) {
    if (!all.jobs[i].pinned) continue;
    const auto given = static_cast<double>(all.jobs[i].given.size());
    pinned += given;
    list.push_back({std::numeric_limits<double>::max(), given, i});
  }
  const double seats = present == 0 ? 1 : std::max((capacity + pinned) / static_cast<double>(present), 1.0);
  const auto more = std::max(static_cast<int64_t>(static_cast<double>(present) * (kGrowthMost - 1)), kNodesMoreLeast);
  const auto replicas_more = static_cast<int64_t>(static_cast<double>(more) * seats);
  for (size_t i = 0; i < all.jobs.size(); ++i) {
    if (!all.jobs[i].pinned) add_hull(points_of(all, all.jobs[i], replicas_more), i, list);
  }
  std::vector<double> prices;  // of the nodes, cheapest first, then of those that could be added
  for (const AllocateNode& node : all.input.nodes) prices.push_back(node.price_per_hour.value_or(0));
  std::sort(prices.begin(), prices.end());
  const double cheapest = prices.empty() ? 0 : prices.front();
  prices.insert(prices.end(), static_cast<size_t>(more), all.input.new_node_price.value_or(cheapest));

  const SeatMarket market(std::move(list));
  const int64_t chosen = nodes_worth(all, prices, seats, market);
  market.share(seats * static_cast<double>(chosen), all.jobs);
  return chosen;
}

}  // namespace rubato::policy
