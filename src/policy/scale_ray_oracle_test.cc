// Ray's two planners and random states, for the tests beside Ray.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <tuple>

#include "model/byte_amounts.h"
#include "policy/scale_ray_testing.h"
#include "policy/scale_testing.h"

namespace rubato::policy {
namespace {

using RayDict = std::map<std::string, double>;
using RayList = std::vector<RayDict>;

RayDict ray_dict(const Resources& resources) {
  RayDict out;
  for (const auto& [name, amount] : resources.amounts()) {
    out[name] = counted_in_bytes(name) ? static_cast<double>(amount) : static_cast<double>(amount) / 1000;
  }
  return out;
}

RayList ray_list(const std::vector<Bundles>& bundles) {
  RayList out;
  for (const Bundles& one : bundles) {
    for (int64_t at = 0; at < one.count && !one.each.empty(); ++at) out.push_back(ray_dict(one.each));
  }
  return out;
}

// Without a tolerance, as in Ray: sums of tenths drift, and a bundle that should just fit may not.
bool ray_fits(const RayDict& node, const RayDict& need) {
  return std::all_of(need.begin(), need.end(), [&](const auto& one) {
    const auto found = node.find(one.first);
    return one.second <= (found == node.end() ? 0.0 : found->second);
  });
}

void ray_subtract(RayDict& node, const RayDict& need) {
  for (const auto& [name, amount] : need) node[name] -= amount;
}

bool ray_sorts_before(const RayDict& a, const RayDict& b) {
  const auto key = [](const RayDict& one) {
    double sum = 0;
    for (const auto& [name, amount] : one) sum += amount;
    return std::pair(one.size(), sum);
  };
  if (key(a) != key(b)) return key(a) > key(b);
  return a > b;
}

RayDict ray_sum(const RayList& bundles) {
  RayDict out;
  for (const RayDict& one : bundles) {
    for (const auto& [name, amount] : one) out[name] += amount;
  }
  return out;
}

// ---- the first autoscaler ----

struct RayResidual {
  RayList unfulfilled, nodes;
};

RayResidual bin_pack_residual(RayList nodes, RayList demands, bool strict_spread = false) {
  RayResidual out;
  std::stable_sort(demands.begin(), demands.end(), ray_sorts_before);
  std::set<size_t> used;
  for (const RayDict& demand : demands) {
    size_t found = nodes.size();
    for (size_t at = 0; at < nodes.size() && found == nodes.size(); ++at) {
      if (!used.contains(at) && ray_fits(nodes[at], demand)) found = at;
    }
    if (found == nodes.size()) {
      out.unfulfilled.push_back(demand);
      continue;
    }
    if (strict_spread) used.insert(found);
    ray_subtract(nodes[found], demand);
  }
  out.nodes = std::move(nodes);
  return out;
}

using RayScore = std::tuple<bool, int, double, double>;

std::optional<RayScore> v1_score(const RayDict& node, const RayList& resources) {
  RayDict remaining = node;
  std::set<std::string> asked;
  bool some = false, gpu_task = false;
  for (const RayDict& one : resources) {
    for (const auto& [name, amount] : one) asked.insert(name);
    gpu_task |= one.contains("GPU");
    if (!ray_fits(remaining, one)) continue;
    some = true;
    ray_subtract(remaining, one);
  }
  if (!some) return std::nullopt;
  std::vector<double> use;
  int matching = 0;
  for (const auto& [name, total] : node) {
    if (total < 1) continue;
    matching += asked.contains(name) ? 1 : 0;
    const double part = (total - remaining[name]) / total;
    use.push_back(total * part * part * part);
  }
  if (use.empty()) return std::nullopt;
  double sum = 0;
  for (const double one : use) sum += one;
  const bool gpu_node = node.contains("GPU");
  return RayScore{!gpu_node || gpu_task, matching, *std::min_element(use.begin(), use.end()),
                  sum / static_cast<double>(use.size())};
}

class RayV1 {
 public:
  explicit RayV1(const ScaleInput& input) : input_(input) {
    for (const auto& [name, type] : input.types) types_[name] = ray_dict(type.resources);
  }

  RayAnswer answer() {
    for (const ScaleNode& node : input_.nodes) {
      nodes_.push_back(node.available ? ray_dict(*node.available) : types_[node.type]);
      ++counts_[node.type];
    }
    for (const ScaleLaunching& one : input_.launching) {
      for (int at = 0; at < one.count; ++at) nodes_.push_back(types_[one.type]);
      counts_[one.type] += one.count;
    }
    add_min_workers();
    add_requests();
    RayList rest;
    for (const Gang& gang : input_.gangs) {
      const RayList bundles = ray_list(gang.bundles);
      if (gang.strategy == GangStrategy::kStrictSpread) {
        spread(bundles);
      } else if (gang.strategy == GangStrategy::kStrictPack) {
        rest.push_back(ray_sum(bundles));
      } else {
        rest.insert(rest.end(), bundles.begin(), bundles.end());
      }
    }
    for (const RayDict& one : ray_list(input_.demands)) rest.push_back(one);
    RayList left = bin_pack_residual(nodes_, rest).unfulfilled;
    add(nodes_for(left, false));
    // Which gang a bundle is of is not known to Ray here: with several, what is left may be a part of one.
    answer_.partial_gang = !left.empty() && !input_.gangs.empty();
    answer_.unfulfilled += static_cast<int64_t>(left.size());
    return answer_;
  }

 private:
  int room_for_more() const {
    int all = 0;
    for (const auto& [name, count] : counts_) all += count;
    return input_.max_workers + 1 - all;
  }

  int limit(const std::string& type) const {
    return input_.types.at(type).max_workers + (type == input_.head_type ? 1 : 0);
  }

  std::map<std::string, int> nodes_for(RayList& resources, bool strict_spread) {
    std::map<std::string, int> out;
    int added = 0;
    while (!resources.empty() && added < room_for_more()) {
      std::optional<std::pair<RayScore, std::string>> best;
      for (const auto& [name, total] : types_) {
        if (counts_[name] + out[name] >= limit(name)) continue;
        const auto score = v1_score(total, strict_spread ? RayList{resources.front()} : resources);
        if (score && (!best || std::pair(*score, name) > *best)) best = {*score, name};
      }
      if (!best) break;
      ++out[best->second];
      ++added;
      if (strict_spread) {
        resources.erase(resources.begin());
      } else {
        resources = bin_pack_residual({types_[best->second]}, resources).unfulfilled;
      }
    }
    return out;
  }

  void add(const std::map<std::string, int>& launch) {
    for (const auto& [name, count] : launch) {
      if (count == 0) continue;
      answer_.launch[name] += count;
      counts_[name] += count;
      for (int at = 0; at < count; ++at) nodes_.push_back(types_[name]);
    }
  }

  void add_min_workers() {
    for (const auto& [name, type] : input_.types) {
      const int target = std::min(type.min_workers, type.max_workers) + (name == input_.head_type ? 1 : 0);
      if (counts_[name] < target && name != input_.head_type) add({{name, target - counts_[name]}});
    }
  }

  void add_requests() {
    if (input_.requests.empty()) return;
    RayList whole;
    for (const auto& [name, count] : counts_) {
      for (int at = 0; at < count; ++at) whole.push_back(types_[name]);
    }
    RayList left = bin_pack_residual(whole, ray_list(input_.requests)).unfulfilled;
    add(nodes_for(left, false));
    answer_.unfulfilled += static_cast<int64_t>(left.size());
  }

  void spread(const RayList& bundles) {
    const RayResidual there = bin_pack_residual(nodes_, bundles, true);
    RayList left = there.unfulfilled;
    const auto launch = nodes_for(left, true);
    RayList fresh;
    for (const auto& [name, count] : launch) fresh.insert(fresh.end(), static_cast<size_t>(count), types_[name]);
    const RayResidual after = bin_pack_residual(fresh, there.unfulfilled, true);
    if (!after.unfulfilled.empty()) {
      answer_.unfulfilled += static_cast<int64_t>(bundles.size());
      return;
    }
    nodes_ = there.nodes;
    const size_t before = nodes_.size();
    add(launch);
    nodes_.resize(before);
    nodes_.insert(nodes_.end(), after.nodes.begin(), after.nodes.end());
  }

  const ScaleInput& input_;
  std::map<std::string, RayDict> types_;
  RayList nodes_;
  std::map<std::string, int> counts_;
  RayAnswer answer_;
};

// ---- the second autoscaler ----

struct V2Node {
  std::string type;
  bool launch = false;
  RayDict total;
  RayDict free[2];  // for what waits; for requests
  RayList placed[2];
  std::set<int> apart;
};

struct V2Request {
  RayDict need;
  int apart = -1;
};

class RayV2 {
 public:
  explicit RayV2(const ScaleInput& input) : input_(input) {
    for (const ScaleNode& node : input.nodes) {
      V2Node one = fresh(node.type, false);
      if (node.available) {
        for (auto& [name, amount] : one.free[0]) amount = 0;
        for (const auto& [name, amount] : ray_dict(*node.available)) one.free[0][name] = amount;
      }
      nodes_.push_back(std::move(one));
    }
    for (const ScaleLaunching& one : input.launching) {
      for (int at = 0; at < one.count; ++at) nodes_.push_back(fresh(one.type, false));
    }
  }

  RayAnswer answer() {
    std::vector<V2Node> first;
    for (const auto& [name, type] : input_.types) {
      for (int have = count_of(nodes_, name); have < type.min_workers; ++have) first.push_back(fresh(name, true));
    }
    nodes_.insert(nodes_.begin(), first.begin(), first.end());
    if (const RayList requests = ray_list(input_.requests); !requests.empty()) {
      serve(wrap(requests, -1), 1, static_cast<int64_t>(requests.size()), true);
    }
    serve_gangs();
    const RayList demands = ray_list(input_.demands);
    serve(wrap(demands, -1), 0, static_cast<int64_t>(demands.size()), false);
    for (const V2Node& node : nodes_) {
      if (node.launch) ++answer_.launch[node.type];
    }
    return answer_;
  }

 private:
  V2Node fresh(const std::string& type, bool launch) const {
    V2Node out{.type = type, .launch = launch, .total = ray_dict(input_.types.at(type).resources)};
    out.free[0] = out.free[1] = out.total;
    return out;
  }

  static int count_of(const std::vector<V2Node>& nodes, const std::string& type) {
    return static_cast<int>(
        std::count_if(nodes.begin(), nodes.end(), [&](const V2Node& node) { return node.type == type; }));
  }

  static std::vector<V2Request> wrap(const RayList& list, int apart) {
    std::vector<V2Request> out;
    for (const RayDict& one : list) out.push_back({one, apart});
    return out;
  }

  void serve_gangs() {
    std::vector<size_t> order;
    for (size_t at = 0; at < input_.gangs.size(); ++at) order.push_back(at);
    const auto key = [&](size_t at) {
      const Gang& gang = input_.gangs[at];
      const size_t size = ray_list(gang.bundles).size();
      const bool strict = gang.strategy == GangStrategy::kStrictPack || gang.strategy == GangStrategy::kStrictSpread;
      return std::pair(strict ? size : 0, size);
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) > key(b); });
    for (const size_t at : order) {
      const Gang& gang = input_.gangs[at];
      const RayList bundles = ray_list(gang.bundles);
      if (bundles.empty()) continue;
      const bool pack = gang.strategy == GangStrategy::kStrictPack;
      const int apart = gang.strategy == GangStrategy::kStrictSpread ? static_cast<int>(at) : -1;
      serve(wrap(pack ? RayList{ray_sum(bundles)} : bundles, apart), 0, static_cast<int64_t>(bundles.size()), true);
    }
  }

  void serve(std::vector<V2Request> requests, size_t view, int64_t bundles, bool whole) {
    std::stable_sort(requests.begin(), requests.end(),
                     [](const V2Request& a, const V2Request& b) { return ray_sorts_before(a.need, b.need); });
    std::vector<V2Node> nodes = try_schedule(requests, view);
    if (!requests.empty()) answer_.unfulfilled += whole ? bundles : static_cast<int64_t>(requests.size());
    if (requests.empty() || !whole) nodes_ = std::move(nodes);
  }

  std::vector<V2Node> try_schedule(std::vector<V2Request>& requests, size_t view) const {
    std::vector<V2Node> existing = nodes_, target;
    while (!requests.empty() && !existing.empty()) {
      auto best = best_node(requests, existing, view);
      if (!best) break;
      target.push_back(std::move(*best));
    }
    target.insert(target.end(), existing.begin(), existing.end());
    std::vector<V2Node> pools;
    std::map<std::string, int> available;
    for (const auto& [name, type] : input_.types) {
      available[name] = type.max_workers + (name == input_.head_type ? 1 : 0) - count_of(nodes_, name);
      if (available[name] > 0) pools.push_back(fresh(name, true));
    }
    while (!requests.empty() && !pools.empty() && static_cast<int>(target.size()) < input_.max_workers + 1) {
      auto best = best_node(requests, pools, view);
      if (!best) break;
      if (--available[best->type] > 0) pools.push_back(fresh(best->type, true));
      target.push_back(std::move(*best));
    }
    return target;
  }

  static std::optional<V2Node> best_node(std::vector<V2Request>& requests, std::vector<V2Node>& nodes, size_t view) {
    std::optional<RayScore> best;
    V2Node best_node;
    std::vector<V2Request> best_left;
    size_t best_at = 0;
    for (size_t at = 0; at < nodes.size(); ++at) {
      V2Node node = nodes[at];
      std::vector<V2Request> left;
      for (const V2Request& one : requests) {
        if ((one.apart >= 0 && node.apart.contains(one.apart)) || !ray_fits(node.free[view], one.need)) {
          left.push_back(one);
          continue;
        }
        ray_subtract(node.free[view], one.need);
        node.placed[view].push_back(one.need);
        if (one.apart >= 0) node.apart.insert(one.apart);
      }
      if (left.size() == requests.size()) continue;
      const RayScore one = score(node, view);
      if (best && one <= *best) continue;
      best = one;
      best_node = std::move(node);
      best_left = std::move(left);
      best_at = at;
    }
    if (!best) return std::nullopt;
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(best_at));
    requests = std::move(best_left);
    return best_node;
  }

  static RayScore score(const V2Node& node, size_t view) {
    std::set<std::string> asked;
    bool gpu = false;
    for (const RayDict& one : node.placed[view]) {
      for (const auto& [name, amount] : one) asked.insert(name);
      gpu |= one.contains("GPU");
    }
    int matching = 0;
    for (const std::string& name : asked) matching += node.total.contains(name) ? 1 : 0;
    double least = 0, sum = 0;
    size_t many = 0;
    for (const auto& [name, total] : node.total) {
      const double part = (total - node.free[view].at(name)) / total;
      const double use = total * part * part * part;
      least = many == 0 ? use : std::min(least, use);
      sum += use;
      ++many;
    }
    return {!node.total.contains("GPU") || gpu, matching, least, many == 0 ? 0 : sum / static_cast<double>(many)};
  }

  const ScaleInput& input_;
  std::vector<V2Node> nodes_;
  RayAnswer answer_;
};

// ---- random states ----

struct PricedType {
  const char* name;
  double cpu, gib, gpu, custom, price;
};
constexpr PricedType kAws[] = {
    {"m5.large", 2, 8, 0, 0, 0.096},       {"m5.xlarge", 4, 16, 0, 0, 0.192},     {"m5.4xlarge", 16, 64, 0, 0, 0.768},
    {"m5.16xlarge", 64, 256, 0, 0, 3.072}, {"r5.8xlarge", 32, 256, 0, 0, 2.016},  {"p3.2xlarge", 8, 61, 1, 0, 3.06},
    {"p3.8xlarge", 32, 244, 4, 0, 12.24},  {"p3.16xlarge", 64, 488, 8, 0, 24.48}, {"cust.4xlarge", 16, 64, 0, 4, 1.0},
};

Resources ray_type_resources(const PricedType& type) {
  Resources out = bundle({{kCpu, type.cpu}, {kMemory, type.gib}});
  if (type.gpu > 0) out.set(kGpu, static_cast<int64_t>(type.gpu * 1000));
  if (type.custom > 0) out.set("Custom", static_cast<int64_t>(type.custom * 1000));
  return out;
}

Resources random_ray_bundle(Random& random) {
  const double cpus[] = {0.5, 1, 1, 2, 3.5, 4, 7, 8, 14, 16};
  Resources out = cpu(cpus[random.below(std::size(cpus))]);
  if (random.chance(0.3)) out.set(kCpu, static_cast<int64_t>(100 * (1 + random.below(160))));  // tenths
  const uint64_t gib = random.chance(0.2) ? 200 : 30;
  if (random.chance(0.35)) out.set(kMemory, static_cast<int64_t>((1 + random.below(gib)) << 30));
  if (random.chance(0.2)) out.set(kGpu, static_cast<int64_t>(1000 * (random.chance(0.2) ? 4 : 1 + random.below(2))));
  if (random.chance(0.07)) out.set("Custom", static_cast<int64_t>(1000 * (1 + random.below(4))));
  return out;
}

void add_random_ray_nodes(ScaleInput& input, const std::vector<std::string>& names, Random& random) {
  input.nodes.push_back({.id = {"head"}, .type = "head", .head = true, .available = cpu(random.chance(0.5) ? 0 : 2)});
  for (uint64_t at = random.below(6); at > 0; --at) {
    ScaleNode node = worker("n" + std::to_string(at), names[random.below(names.size())]);
    const Resources total = input.types.at(node.type).resources;
    Resources free = total;
    if (random.chance(0.7)) {
      for (const auto& [name, amount] : total.amounts()) {
        free.set(name, amount / 1000 * static_cast<int64_t>(random.below(5)) / 4 * 1000);
      }
    }
    node.available = free;
    if (input.types.at(node.type).max_workers > 0) input.nodes.push_back(std::move(node));
  }
  if (random.chance(0.2)) {
    const std::string& type = names[random.below(names.size())];
    input.launching.push_back({.type = type, .count = 1 + static_cast<int>(random.below(2))});
  }
}

// So that no limit is exceeded before the plan: Ray would end nodes then.
void lift_limits(ScaleInput& input) {
  std::map<std::string, int> have;
  int all = 0, least = 0;
  for (const ScaleNode& node : input.nodes) have[node.type] += node.head ? 0 : 1;
  for (const ScaleLaunching& one : input.launching) have[one.type] += one.count;
  for (auto& [name, type] : input.types) {
    type.max_workers = std::max({type.max_workers, have[name], type.min_workers});
    if (name == input.head_type) type.max_workers = 0;
    all += std::max(have[name], type.min_workers);
    least += type.min_workers;
  }
  input.max_workers = std::max({input.max_workers, all, least});
}

}  // namespace

double RayAnswer::cost(const ScaleInput& input) const {
  double sum = 0;
  for (const auto& [name, count] : launch) sum += count * *input.types.at(name).price_per_hour;
  return sum;
}

RayAnswer ray_v1(const ScaleInput& input) { return RayV1(input).answer(); }
RayAnswer ray_v2(const ScaleInput& input) { return RayV2(input).answer(); }

ScaleInput aws_types(std::initializer_list<std::string_view> names) {
  ScaleInput input = three_types();
  input.types = {{"head", input.types.at("head")}};
  for (const PricedType& one : kAws) {
    if (std::find(names.begin(), names.end(), one.name) == names.end()) continue;
    input.types[one.name] = scale_type(ray_type_resources(one), one.price);
  }
  return input;
}

ScaleInput random_ray_state(Random& random) {
  ScaleInput input;
  input.head_type = "head";
  input.types["head"] = scale_type(bundle({{kCpu, 4}, {kMemory, 16}}), 0.2, 0);
  input.max_workers = random.chance(0.75) ? 1000 : 1 + static_cast<int>(random.below(8));
  input.upscaling_speed = 1e9;
  std::vector<std::string> names;
  for (const PricedType& one : kAws) {
    if (!random.chance(0.6)) continue;
    names.emplace_back(one.name);
    const double price = random.chance(0.2) ? one.price * (0.3 + random.unit()) : one.price;
    ScaleType& type = input.types[one.name] = scale_type(ray_type_resources(one), price, 1000);
    if (random.chance(0.15)) type.max_workers = static_cast<int>(random.below(5));
    if (random.chance(0.1)) type.min_workers = static_cast<int>(random.below(3));
  }
  if (names.empty()) {
    names.emplace_back("m5.large");
    input.types["m5.large"] = scale_type(ray_type_resources(kAws[0]), kAws[0].price, 1000);
  }
  add_random_ray_nodes(input, names, random);
  for (uint64_t at = 1 + random.below(5); at > 0; --at) {
    const uint64_t most = random.chance(0.2) ? 20 : 5;
    input.demands.push_back({random_ray_bundle(random), 1 + static_cast<int64_t>(random.below(most))});
  }
  for (uint64_t at = random.chance(0.3) ? 1 + random.below(3) : 0; at > 0; --at) {
    Gang gang{.name = "g" + std::to_string(at), .strategy = static_cast<GangStrategy>(random.below(4))};
    for (uint64_t many = 1 + random.below(2); many > 0; --many) {
      gang.bundles.push_back({random_ray_bundle(random), 1 + static_cast<int64_t>(random.below(4))});
    }
    input.gangs.push_back(std::move(gang));
  }
  for (uint64_t at = random.chance(0.2) ? 1 + random.below(3) : 0; at > 0; --at) {
    input.requests.push_back({random_ray_bundle(random), 1 + static_cast<int64_t>(random.below(4))});
  }
  lift_limits(input);
  return input;
}

// Multisets of nodes from the cheapest on; each is tried with all arrangements of the bundles.
std::optional<double> least_cost(const ScaleInput& input) {
  // Unlike Ray, it must not take 2 x 10.1 + 3 x 14.6 for more than 64.
  const auto fits = [](RayDict room, const RayDict& bundle) {
    for (auto& [name, amount] : room) amount += 1e-6;
    return ray_fits(room, bundle);
  };
  RayList nodes, bundles = ray_list(input.demands);
  std::map<std::string, int64_t> opened;  // by type, with those that are there: max_workers counts all
  for (const ScaleNode& node : input.nodes) {
    ++opened[node.type];
    nodes.push_back(node.available ? ray_dict(*node.available) : ray_dict(input.types.at(node.type).resources));
  }
  for (const ScaleLaunching& one : input.launching) {
    opened[one.type] += one.count;
    nodes.insert(nodes.end(), static_cast<size_t>(one.count), ray_dict(input.types.at(one.type).resources));
  }
  std::stable_sort(bundles.begin(), bundles.end(), ray_sorts_before);
  int64_t steps = 300'000;
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(size_t, double)> place = [&](size_t at, double cost) {
    if (--steps < 0 || cost >= best - 1e-9) return;
    if (at == bundles.size()) {
      best = cost;
      return;
    }
    std::set<RayDict> seen;
    for (size_t node = 0; node < nodes.size(); ++node) {
      if (!fits(nodes[node], bundles[at]) || !seen.insert(nodes[node]).second) continue;
      const RayDict before = nodes[node];
      ray_subtract(nodes[node], bundles[at]);
      place(at + 1, cost);
      nodes[node] = before;
    }
    for (const auto& [name, type] : input.types) {
      if (opened[name] >= type.max_workers || !fits(ray_dict(type.resources), bundles[at])) continue;
      ++opened[name];
      nodes.push_back(ray_dict(type.resources));
      ray_subtract(nodes.back(), bundles[at]);
      place(at + 1, cost + *type.price_per_hour);
      nodes.pop_back();
      --opened[name];
    }
  };
  place(0, 0);
  if (steps < 0 || std::isinf(best)) return std::nullopt;
  return best;
}

}  // namespace rubato::policy
