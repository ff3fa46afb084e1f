// The knapsack: which size each job gets, so that the sum of values is largest.
#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "policy/allocate_work.h"

namespace rubato::policy {
namespace {

constexpr double kExactOperationsMax = 6e7;  // about 60 ms
constexpr double kExactCapacityMax = 8192;
constexpr double kTolerance = 1e-9;
constexpr int kPriceRounds = 6, kPriceSteps = 40;

bool is_whole(double number) { return std::abs(number - std::round(number)) < kTolerance; }

bool can_be_exact(const Allocating& all) {
  if (all.kinds.size() != 1 || all.capacity[0] > kExactCapacityMax || !is_whole(all.capacity[0])) return false;
  double options = 0;
  for (const JobWork& work : all.jobs) {
    options += static_cast<double>(work.options.size());
    for (const SizeOption& option : work.options) {
      if (!is_whole(option.cost)) return false;
    }
  }
  return options * (all.capacity[0] + 1) <= kExactOperationsMax;
}

// Multiple-choice knapsack by dynamic programming over jobs and capacity. Of equal sums the one found first stays:
// older jobs, then smaller sizes.
void share_exactly(Allocating& all) {
  const auto capacity = static_cast<size_t>(std::llround(all.capacity[0]));
  std::vector<double> best(capacity + 1, 0), next(capacity + 1);
  std::vector<std::vector<int16_t>> taken(all.jobs.size());
  for (size_t at = 0; at < all.jobs.size(); ++at) {
    const JobWork& work = all.jobs[at];
    taken[at].assign(capacity + 1, -1);
    next = best;
    for (size_t which = 0; which < work.options.size(); ++which) {
      const SizeOption& option = work.options[which];
      const auto cost = static_cast<size_t>(std::llround(option.cost));
      for (size_t used = cost; used <= capacity; ++used) {
        const double value = best[used - cost] + option.value;
        if (value <= next[used] + kTolerance * std::abs(next[used])) continue;
        next[used] = value;
        taken[at][used] = static_cast<int16_t>(which);
      }
    }
    best.swap(next);
  }
  size_t left = capacity;
  for (size_t at = all.jobs.size(); at-- > 0;) {
    JobWork& work = all.jobs[at];
    work.chosen = taken[at][left];
    if (work.chosen >= 0)
      left -= static_cast<size_t>(std::llround(work.options[static_cast<size_t>(work.chosen)].cost));
  }
}

// The best size when a unit of each kind has a price.
int best_at(const JobWork& work, const std::vector<double>& prices) {
  int best = -1;
  double most = 0;
  for (size_t which = 0; which < work.options.size(); ++which) {
    const SizeOption& option = work.options[which];
    const double surplus = option.value - prices[static_cast<size_t>(option.kind)] * option.cost;
    if (surplus > most + kTolerance * std::abs(most)) {
      most = surplus;
      best = static_cast<int>(which);
    }
  }
  return best;
}

double demand_at(const Allocating& all, const std::vector<double>& prices, size_t kind) {
  double demand = 0;
  for (const JobWork& work : all.jobs) {
    const int which = best_at(work, prices);
    if (which < 0) continue;
    const SizeOption& option = work.options[static_cast<size_t>(which)];
    if (static_cast<size_t>(option.kind) == kind) demand += option.cost;
  }
  return demand;
}

// Prices at which the jobs want no more of any kind than there is: each kind's in turn, by bisection.
std::vector<double> find_prices(const Allocating& all) {
  std::vector<double> prices(all.kinds.size(), 0);
  double dearest = 0;
  for (const JobWork& work : all.jobs) {
    for (const SizeOption& option : work.options) {
      if (option.cost > 0) dearest = std::max(dearest, option.value / option.cost);
    }
  }
  const int rounds = all.kinds.size() == 1 ? 1 : kPriceRounds;
  for (int round = 0; round < rounds; ++round) {
    for (size_t kind = 0; kind < prices.size(); ++kind) {
      double low = 0, high = dearest * 1.01 + kTolerance;
      prices[kind] = low;
      if (demand_at(all, prices, kind) <= all.capacity[kind] + kTolerance) continue;
      for (int step = 0; step < kPriceSteps; ++step) {
        prices[kind] = (low + high) / 2;
        (demand_at(all, prices, kind) > all.capacity[kind] + kTolerance ? low : high) = prices[kind];
      }
      prices[kind] = high;
    }
  }
  return prices;
}

// One step up for a job, by value per unit.
struct Upgrade {
  double density = 0;
  size_t job = 0;
  int to = -1;
  int from = -1;

  bool operator<(const Upgrade& other) const {
    return density != other.density ? density < other.density : job > other.job;
  }
};

class GreedyFill {
 public:
  GreedyFill(Allocating& all, std::vector<double> left) : all_(all), left_(std::move(left)) {}

  void run() {
    for (size_t at = 0; at < all_.jobs.size(); ++at) offer(at);
    while (!queue_.empty()) {
      const Upgrade top = queue_.top();
      queue_.pop();
      JobWork& work = all_.jobs[top.job];
      if (work.chosen != top.from) continue;
      if (fits(work, top.to)) {
        release(work);
        work.chosen = top.to;
        take(work);
      }
      offer(top.job);
    }
  }

  void take(const JobWork& work) { change(work, -1); }
  void release(const JobWork& work) { change(work, 1); }

  bool fits(const JobWork& work, int to) const {
    const SizeOption& option = work.options[static_cast<size_t>(to)];
    double room = left_[static_cast<size_t>(option.kind)];
    if (work.chosen >= 0 && chosen(work).kind == option.kind) room += chosen(work).cost;
    return option.cost <= room + kTolerance;
  }

 private:
  static const SizeOption& chosen(const JobWork& work) { return work.options[static_cast<size_t>(work.chosen)]; }

  void change(const JobWork& work, double sign) {
    if (work.chosen >= 0) left_[static_cast<size_t>(chosen(work).kind)] += sign * chosen(work).cost;
  }

  // The best change for more value that fits now.
  void offer(size_t at) {
    const JobWork& work = all_.jobs[at];
    const double value = work.chosen < 0 ? 0 : chosen(work).value;
    const double cost = work.chosen < 0 ? 0 : chosen(work).cost;
    Upgrade best{.job = at, .from = work.chosen};
    for (size_t which = 0; which < work.options.size(); ++which) {
      const SizeOption& option = work.options[which];
      const double gain = option.value - value;
      if (gain <= kTolerance * std::abs(value) || !fits(work, static_cast<int>(which))) continue;
      const double density = gain / std::max(option.cost - cost, kTolerance);
      if (density > best.density * (1 + kTolerance)) {
        best.density = density;
        best.to = static_cast<int>(which);
      }
    }
    if (best.to >= 0) queue_.push(best);
  }

  Allocating& all_;
  std::vector<double> left_;
  std::priority_queue<Upgrade> queue_;
};

void share_by_prices(Allocating& all) {
  const std::vector<double> prices = find_prices(all);
  GreedyFill fill(all, all.capacity);
  // Prices of several kinds may not meet all limits at once: those with most surplus for their size come first.
  std::vector<std::pair<double, size_t>> order;
  std::vector<int> wanted(all.jobs.size(), -1);
  for (size_t at = 0; at < all.jobs.size(); ++at) {
    wanted[at] = best_at(all.jobs[at], prices);
    if (wanted[at] < 0) continue;
    const SizeOption& option = all.jobs[at].options[static_cast<size_t>(wanted[at])];
    order.emplace_back(-option.value / std::max(option.cost, kTolerance), at);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [density, at] : order) {
    JobWork& work = all.jobs[at];
    if (!fill.fits(work, wanted[at])) continue;
    work.chosen = wanted[at];
    fill.take(work);
  }
  fill.run();
}

}  // namespace

void share_capacity(Allocating& all) {
  if (all.kinds.empty()) return;
  if (can_be_exact(all)) {
    share_exactly(all);
  } else {
    share_by_prices(all);
  }
}

}  // namespace rubato::policy
