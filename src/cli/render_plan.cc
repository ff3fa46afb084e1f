#include "cli/render_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace rubato::cli {
namespace {

using policy::ScalePlan;
using policy::ScaleReason;

constexpr size_t kRowsMax = 20;     // of bundles that wait, and of nodes that go
constexpr size_t kReasonsMax = 20;  // the rest is in --json

std::string counted_text(int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string amount_text(double amount) {
  return amount >= 100 ? fmt::format("{:.2f}", amount) : fmt::format("{:.4g}", amount);
}

std::string more(size_t all, size_t shown) {
  return all > shown ? fmt::format("... and {} more; --json has all\n", all - shown) : "";
}

std::string headline(const ScalePlan& plan) {
  int64_t launches = 0, waiting = 0;
  for (const auto& one : plan.launches) launches += one.count;
  for (const auto& one : plan.unfulfilled) waiting += one.count;
  std::vector<std::string> parts;
  if (launches > 0) {
    parts.push_back(
        fmt::format("launch {} for ${}/h", counted_text(launches, "node", "nodes"), amount_text(plan.cost_per_hour)));
  }
  if (!plan.terminations.empty()) {
    parts.push_back("remove " + counted_text(static_cast<int64_t>(plan.terminations.size()), "node", "nodes"));
  }
  if (waiting > 0) parts.push_back(counted_text(waiting, "bundle keeps", "bundles keep") + " waiting");
  return "Plan: " + (parts.empty() ? "nothing to do" : join(parts, ", ")) + "\n";
}

std::string launches_text(const ScalePlan& plan, const Style& look) {
  if (plan.launches.empty()) return "";
  Table table({"LAUNCH", "TYPE", "MARKET", "ZONE", "$/h EACH", "$/h", "FOR"});
  for (const auto& one : plan.launches) {
    table.add({{std::to_string(one.count), Hue::kGreen},
               {clean(one.type), Hue::kBold},
               {one.market == Market::kSpot ? "spot" : "on demand"},
               {one.zone.empty() ? "-" : clean(one.zone)},
               {(one.estimated ? "~" : "") + amount_text(one.price_per_hour)},
               {amount_text(one.count * one.price_per_hour)},
               {clean(one.why)}});
  }
  return "\n" + table.text(look);
}

std::string terminations_text(const ScalePlan& plan, const Style& look) {
  if (plan.terminations.empty()) return "";
  Table table({"REMOVE", "WHY"});
  const size_t shown = std::min(plan.terminations.size(), kRowsMax);
  for (size_t at = 0; at < shown; ++at) {
    table.add({{clean(plan.terminations[at].id.value), Hue::kRed}, {clean(plan.terminations[at].why)}});
  }
  return "\n" + table.text(look) + more(plan.terminations.size(), shown);
}

std::string unfulfilled_text(const ScalePlan& plan, const Style& look) {
  if (plan.unfulfilled.empty()) return "";
  Table table({"WAITS", "BUNDLE", "OF", "WHY"});
  const size_t shown = std::min(plan.unfulfilled.size(), kRowsMax);
  for (size_t at = 0; at < shown; ++at) {
    const auto& one = plan.unfulfilled[at];
    table.add({{std::to_string(one.count), Hue::kYellow},
               {clean(describe(one.each))},
               {one.gang.empty() ? "-" : clean(one.gang)},
               {clean(one.why)}});
  }
  return "\n" + table.text(look) + more(plan.unfulfilled.size(), shown);
}

Hue reason_hue(ScaleReason::Kind kind) {
  switch (kind) {
    case ScaleReason::Kind::kLaunch:
      return Hue::kGreen;
    case ScaleReason::Kind::kTerminate:
      return Hue::kRed;
    case ScaleReason::Kind::kUnfulfilled:
      return Hue::kYellow;
    case ScaleReason::Kind::kKeep:
    case ScaleReason::Kind::kCost:
      return Hue::kPlain;
  }
  return Hue::kPlain;
}

// "m5.large: too small" and "m5.xlarge: too small" share a line.
std::string against_text(const ScaleReason& reason) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // a text, and what it is about
  for (const auto& one : reason.against) {
    auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == one.text; });
    if (same == lines.end()) same = lines.insert(lines.end(), {one.text, {}});
    if (!one.subject.empty()) same->second.push_back(one.subject);
  }
  std::string out;
  for (const auto& [message, who] : lines) {
    out += fmt::format("    not {}{}{}\n", clean(join(who, ", ")), who.empty() ? "" : ": ", clean(message));
  }
  return out;
}

std::string reasons_text(const ScalePlan& plan, const Style& look) {
  std::string out = "\nWhy\n";
  const size_t shown = std::min(plan.reasons.size(), kReasonsMax);
  for (size_t at = 0; at < shown; ++at) {
    const ScaleReason& reason = plan.reasons[at];
    out += fmt::format("  {} {}: {}\n", paint(to_string(reason.kind), reason_hue(reason.kind), look.colour),
                       clean(reason.subject), clean(reason.text));
    out += against_text(reason);
    for (const auto& one : reason.changes) out += fmt::format("    would change it: {}\n", clean(one));
  }
  return out + more(plan.reasons.size(), shown);
}

}  // namespace

std::string plan_text(const ScalePlan& plan, const Style& look) {
  return headline(plan) + launches_text(plan, look) + terminations_text(plan, look) + unfulfilled_text(plan, look) +
         reasons_text(plan, look);
}

}  // namespace rubato::cli
