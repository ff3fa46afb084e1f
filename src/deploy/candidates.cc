#include "deploy/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/text.h"
#include "model/provider_kind.h"

namespace rubato::cli {
namespace {

constexpr std::string_view kAcceleratorPrefix = "accelerator_type:";

std::string instance_of(const ClusterFile& file, const std::string& type) {
  const std::string key(provider_kind(file.provider.type).instance_type_key);
  const auto config = file.types.find(type);
  if (key.empty() || config == file.types.end()) return {};
  const auto found = config->second.node_config.find(key);
  if (found == config->second.node_config.end() || !found->is_string()) return {};
  const std::string text = found->get<std::string>();
  return text.substr(text.rfind('/') + 1);  // Google's may be an address
}

std::string gpu_of(const Resources& resources) {
  for (const auto& [name, amount] : resources.amounts()) {
    if (const auto gpu = strip_prefix(name, kAcceleratorPrefix)) return std::string(*gpu);
  }
  return {};
}

bool is_allowed(Market market, SpotPolicy policy, bool both) {
  if (!both) return true;
  if (policy == SpotPolicy::kOnly) return market == Market::kSpot;
  return policy != SpotPolicy::kNever || market == Market::kOnDemand;
}

// The cheapest of what may be taken; of the same price the first.
void choose(std::vector<Candidate>& rows, size_t from, SpotPolicy policy) {
  const auto of = [&](Market market) {
    return std::any_of(rows.begin() + static_cast<std::ptrdiff_t>(from), rows.end(),
                       [&](const Candidate& one) { return one.market == market; });
  };
  const bool both = of(Market::kSpot) && of(Market::kOnDemand);
  Candidate* best = nullptr;
  for (size_t i = from; i < rows.size(); ++i) {
    if (!is_allowed(rows[i].market, policy, both)) continue;
    if (best == nullptr || rows[i].price_per_hour < best->price_per_hour) best = &rows[i];
  }
  if (best != nullptr) best->is_chosen = true;
}

// In a region whose zones the file leaves open, the cheapest zone counts.
void set_live_price(const std::string& type, const LivePrices& live, Offering& offering) {
  if (offering.market != Market::kSpot) return;
  std::optional<double> least;
  for (const provider::LivePrice& one : live) {
    const bool here = offering.zone.empty() || one.zone == offering.zone;
    if (one.node_type == type && here && (!least || one.price_per_hour < *least)) least = one.price_per_hour;
  }
  if (least) offering.price_per_hour = *least;
}

void add_type(const ClusterFile& file, const NodeType& type, int count, bool of_head, SpotPolicy policy,
              const LivePrices& live, std::vector<Candidate>& out) {
  const size_t from = out.size();
  std::vector<Offering> offerings = type.offerings;
  if (offerings.empty()) offerings.emplace_back();
  for (Offering& one : offerings) set_live_price(type.name, live, one);
  for (const Offering& one : offerings) {
    Candidate row;
    row.node_type = of_head ? "head" : type.name;
    row.count = count;
    row.where = fmt::format("{}/{}", file.provider.type, one.zone.empty() ? file.provider.region : one.zone);
    row.instance = instance_of(file, type.name);
    row.gpu = gpu_of(type.resources);
    row.market = one.market;
    row.price_per_hour = one.price_per_hour;
    out.push_back(std::move(row));
  }
  choose(out, from, policy);
}

std::string price_text(double price) { return price > 0 ? fmt::format("{:.3f}", price) : "?"; }

using Row = std::array<std::string, 7>;

std::string table_of(const std::vector<Row>& rows) {
  std::array<size_t, 7> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += " " + row[i] + std::string(widths[i] + 1 - row[i].size(), ' ');
    out += std::string(line.substr(0, line.find_last_not_of(' ') + 1)) + "\n";
  }
  return out;
}

}  // namespace

std::vector<Candidate> candidates_of(const ClusterFile& file, const LivePrices& live) {
  const ClusterSpec spec = cluster_spec_of(file);
  std::vector<Candidate> out;
  if (const auto head = spec.types.find(file.head_type); head != spec.types.end()) {
    NodeType type = head->second;  // whatever the file says of workers, the head's machine is nobody's to take away
    std::erase_if(type.offerings, [](const Offering& one) { return one.market == Market::kSpot; });
    add_type(file, type, 1, true, SpotPolicy::kNever, live, out);
  }
  for (const auto& [name, type] : spec.types) {
    if (type.min_workers > 0) add_type(file, type, type.min_workers, false, spec.scaling.spot, live, out);
  }
  return out;
}

std::string candidates_text(const ClusterFile& file, const LivePrices& live) {
  std::vector<Row> rows = {{"NODES", "WHERE", "INSTANCE", "GPU", "SPOT", "$/H", "CHOSEN"}};
  int nodes = 0;
  double price = 0;
  bool unknown = false;
  for (const Candidate& one : candidates_of(file, live)) {
    const std::string count = one.count == 1 ? one.node_type : fmt::format("{} x{}", one.node_type, one.count);
    rows.push_back({count, one.where, one.instance.empty() ? "-" : one.instance, one.gpu.empty() ? "-" : one.gpu,
                    one.market == Market::kSpot ? "yes" : "no", price_text(one.price_per_hour * one.count),
                    one.is_chosen ? "yes" : ""});
    if (!one.is_chosen) continue;
    nodes += one.count;
    price += one.price_per_hour * one.count;
    unknown = unknown || one.price_per_hour <= 0;
  }
  std::string out = fmt::format("Plan for cluster '{}' ({} node{})\n", file.name, nodes, nodes == 1 ? "" : "s");
  out += table_of(rows);
  out += fmt::format("about ${:.2f} an hour{}; spot prices change, disks and traffic cost more\n", price,
                     unknown ? ", and what is not known" : "");
  return out;
}

}  // namespace rubato::cli
