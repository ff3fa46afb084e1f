#include "terminal/render_scale.h"

#include <fmt/format.h>

#include "core/text.h"
#include "terminal/document.h"
#include "terminal/render_cluster.h"
#include "terminal/render_events.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr size_t kDemandShown = 5;

std::string money(double amount) { return fmt::format("${:.{}f}", amount, amount != 0 && amount < 0.1 ? 4 : 2); }

std::string price_text(double per_hour) { return per_hour > 0 ? money(per_hour) + "/h" : "-"; }

}  // namespace

std::string autoscaler_text(const api::Autoscaler& autoscaler, const Style& look) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {}  {}\n", paint(pad(name, 13), Hue::kDim, look.colour), text);
  };
  const size_t shown = std::min(kDemandShown, autoscaler.demand.size());
  const auto end = autoscaler.demand.begin() + static_cast<std::ptrdiff_t>(shown);
  line("demand", join(std::vector<std::string>(autoscaler.demand.begin(), end), "; "));
  std::vector<std::string> coming;
  for (const auto& [type, count] : autoscaler.launching) coming.push_back(fmt::format("{} {}", count, type));
  line("launching", join(coming, ", "));
  for (const api::Obstacle& one : autoscaler.held.against.value_or(std::vector<api::Obstacle>{})) {
    line("not launching",
         one.text + (one.where ? paint(fmt::format("  ({})", *one.where), Hue::kDim, look.colour) : ""));
  }
  for (const api::Shortage& one : autoscaler.shortages)
    line("short of", fmt::format("{}: {} until {}", one.offering, one.why, format_time(one.until)));
  if (autoscaler.cost_per_hour > 0 || autoscaler.cost_so_far > 0)
    line("cost", fmt::format("{}/h, {} so far", money(autoscaler.cost_per_hour), money(autoscaler.cost_so_far)));
  return out.empty() ? "" : paint("Autoscaler", Hue::kBold, look.colour) + "\n" + out;
}

std::string audit_text(const api::Audit& audit, const Style& look) {
  std::string out;
  Table owned({"NODE", "TYPE", "PHASE", "MARKET", "ZONE", "AGE", "PRICE", "COST"});
  for (const api::Machine& one : audit.owned) {
    owned.add({{one.node, Hue::kCyan},
               {one.type},
               {one.phase, phase_hue(one.phase)},
               {one.market},
               {one.zone.empty() ? "-" : one.zone},
               {age_text(seconds(one.age_s))},
               {price_text(one.price_per_hour)},
               {money(one.cost)}});
  }
  if (!owned.empty()) out += owned.text(look) + "\n";
  Table gone({"GONE", "NODES", "HOURS", "COST"});
  for (const api::GoneMachines& one : audit.gone) {
    gone.add({{one.type, Hue::kCyan},
              {fmt::format("{}", one.nodes)},
              {fmt::format("{:.2f}", one.hours)},
              {money(one.cost)}});
  }
  if (!gone.empty()) out += gone.text(look) + "\n";
  for (const std::string& one : audit.leaked) {
    const std::string text = fmt::format("leaked: {} exists and belongs to nobody; the head removes it", one);
    out += paint(text, Hue::kRed, look.colour) + "\n";
  }
  if (!audit.complete)
    out += paint("the provider did not answer: what it has is not known", Hue::kYellow, look.colour) + "\n";
  if (const int64_t strays = audit.strays_removed; strays > 0)
    out += fmt::format("{} stray machine{} found and removed so far\n", strays, strays == 1 ? "" : "s");
  return out + fmt::format("{} owned, {} leaked · {}/h now · {} so far\n", audit.owned.size(),
                           audit.complete ? fmt::format("{}", audit.leaked.size()) : "?", money(audit.cost_per_hour),
                           money(audit.cost_so_far));
}

std::string file_plan_text(const api::Plan& plan, bool open, const Style& look) {
  std::string out = fmt::format("Plan for cluster '{}'{}\n", plan.cluster, open ? "" : " (it is not up: without jobs)");
  const std::string changes = plan_text(plan.changes, look);
  if (!changes.empty()) out += "\n" + changes;
  Table launches({"LAUNCH", "TYPE", "MARKET", "ZONE", "$/h EACH", "FOR"});
  for (const api::Launch& one : plan.launches) {
    launches.add({{fmt::format("{}", one.count), Hue::kGreen},
                  {one.type, Hue::kCyan},
                  {one.market},
                  {one.zone.empty() ? "-" : one.zone},
                  {(one.estimated ? "~" : "") + money(one.price_per_hour)},
                  {one.why}});
  }
  if (!launches.empty()) out += "\n" + launches.text(look);
  Table removed({"REMOVE", "WHY"});
  for (const api::Termination& one : plan.terminate) removed.add({{one.id, Hue::kRed}, {one.reason}});
  if (!removed.empty()) out += "\n" + removed.text(look);
  std::string why;
  for (const json& one : plan.reasons) {
    const std::string kind = raw_in(one, "kind");
    if (kind == "cost" || kind == "keep") continue;
    why += fmt::format("  {} {}: {}\n", clean(kind), text_in(one, "subject"), text_in(one, "text"));
    for (const json& other : list_in(one, "against")) why += fmt::format("    not {}\n", text_in(other, "text"));
    for (const json& change : list_in(one, "changes")) {
      if (change.is_string()) why += fmt::format("    would change it: {}\n", clean(change.get<std::string>()));
    }
  }
  if (!why.empty()) out += "\n" + paint("Why", Hue::kBold, look.colour) + "\n" + why;
  return out + fmt::format("\n{}/h for the launches, {}/h for the cluster then\n", money(plan.cost_per_hour),
                           money(plan.cluster_cost_per_hour));
}

std::string decision_text(const api::ScaleDecision& decision, const Style& look) {
  api::Why why;
  why.subject = decision.subject;
  why.phase = decision.kind == "hold" ? "not launching" : decision.kind;
  why.wanted = decision.wanted.value_or("");
  why.against = decision.against;
  why.others = decision.others;
  why.changes = decision.changes;
  why.decision = {decision.offset, decision.time, decision.text};
  return why_text(why, look);
}

}  // namespace rubato::cli
