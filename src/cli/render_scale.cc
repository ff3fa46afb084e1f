#include "cli/render_scale.h"

#include <fmt/format.h>

#include "cli/document.h"
#include "cli/render_cluster.h"
#include "cli/render_events.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

std::string money(double amount) { return fmt::format("${:.{}f}", amount, amount != 0 && amount < 0.1 ? 4 : 2); }

std::string price_text(double per_hour) { return per_hour > 0 ? money(per_hour) + "/h" : "-"; }

}  // namespace

std::string autoscaler_text(const json& autoscaler, const Look& look) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {}  {}\n", paint(pad(name, 13), Hue::kDim, look.colour), text);
  };
  std::vector<std::string> demand;
  for (const json& one : list_in(autoscaler, "demand")) {
    if (one.is_string() && demand.size() < 5) demand.push_back(clean(one.get<std::string>()));
  }
  line("demand", join(demand, "; "));
  std::vector<std::string> coming;
  for (const auto& [type, count] : object_in(autoscaler, "launching").items())
    coming.push_back(fmt::format("{} {}", count.dump(), clean(type)));
  line("launching", join(coming, ", "));
  const json& held = object_in(autoscaler, "held");
  for (const json& one : list_in(held, "against")) {
    const std::string where = text_in(one, "where");
    line("not launching",
         text_in(one, "text") + (where.empty() ? "" : paint(fmt::format("  ({})", where), Hue::kDim, look.colour)));
  }
  for (const json& one : list_in(autoscaler, "shortages"))
    line("short of",
         fmt::format("{}: {} until {}", text_in(one, "offering"), text_in(one, "why"), text_in(one, "until")));
  const double per_hour = number_in(autoscaler, "cost_per_hour");
  const double so_far = number_in(autoscaler, "cost_so_far");
  if (per_hour > 0 || so_far > 0) line("cost", fmt::format("{}/h, {} so far", money(per_hour), money(so_far)));
  return out.empty() ? "" : paint("Autoscaler", Hue::kBold, look.colour) + "\n" + out;
}

std::string audit_text(const json& audit, const Look& look) {
  std::string out;
  Table owned({"NODE", "TYPE", "PHASE", "MARKET", "ZONE", "AGE", "PRICE", "COST"});
  for (const json& one : list_in(audit, "owned")) {
    const std::string phase = text_in(one, "phase");
    const std::string zone = text_in(one, "zone");
    owned.add({{text_in(one, "node"), Hue::kCyan},
               {text_in(one, "type")},
               {phase, phase_hue(phase)},
               {text_in(one, "market")},
               {zone.empty() ? "-" : zone},
               {age_text(seconds(number_in(one, "age_s")))},
               {price_text(number_in(one, "price_per_hour"))},
               {money(number_in(one, "cost"))}});
  }
  if (!owned.empty()) out += owned.text(look) + "\n";
  Table gone({"GONE", "NODES", "HOURS", "COST"});
  for (const json& one : list_in(audit, "gone")) {
    gone.add({{text_in(one, "type"), Hue::kCyan},
              {fmt::format("{}", int_in(one, "nodes"))},
              {fmt::format("{:.2f}", number_in(one, "hours"))},
              {money(number_in(one, "cost"))}});
  }
  if (!gone.empty()) out += gone.text(look) + "\n";
  const json& leaked = list_in(audit, "leaked");
  for (const json& one : leaked) {
    if (one.is_string())
      out += paint(fmt::format("leaked: {} exists and belongs to nobody; the head removes it",
                               clean(one.get<std::string>())),
                   Hue::kRed, look.colour) +
             "\n";
  }
  const bool complete = audit.value("complete", false);
  if (!complete)
    out += paint("the provider did not answer: what it has is not known", Hue::kYellow, look.colour) + "\n";
  if (const int64_t strays = int_in(audit, "strays_removed"); strays > 0)
    out += fmt::format("{} stray machine{} found and removed so far\n", strays, strays == 1 ? "" : "s");
  return out + fmt::format("{} owned, {} leaked · {}/h now · {} so far\n", list_in(audit, "owned").size(),
                           complete ? fmt::format("{}", leaked.size()) : "?", money(number_in(audit, "cost_per_hour")),
                           money(number_in(audit, "cost_so_far")));
}

std::string file_plan_text(const json& plan, bool open, const Look& look) {
  std::string out =
      fmt::format("Plan for cluster '{}'{}\n", text_in(plan, "cluster"), open ? "" : " (it is not up: without jobs)");
  const std::string changes = plan_text(plan, look);
  if (!changes.empty()) out += "\n" + changes;
  Table launches({"LAUNCH", "TYPE", "MARKET", "ZONE", "$/h EACH", "FOR"});
  for (const json& one : list_in(plan, "launches")) {
    const std::string zone = text_in(one, "zone");
    launches.add({{fmt::format("{}", int_in(one, "count")), Hue::kGreen},
                  {text_in(one, "type"), Hue::kCyan},
                  {text_in(one, "market")},
                  {zone.empty() ? "-" : zone},
                  {(one.value("estimated", false) ? "~" : "") + money(number_in(one, "price_per_hour"))},
                  {text_in(one, "why")}});
  }
  if (!launches.empty()) out += "\n" + launches.text(look);
  Table removed({"REMOVE", "WHY"});
  for (const json& one : list_in(plan, "terminate"))
    removed.add({{text_in(one, "id"), Hue::kRed}, {text_in(one, "reason")}});
  if (!removed.empty()) out += "\n" + removed.text(look);
  std::string why;
  for (const json& one : list_in(plan, "reasons")) {
    const std::string kind = raw_in(one, "kind");
    if (kind == "cost" || kind == "keep") continue;
    why += fmt::format("  {} {}: {}\n", clean(kind), text_in(one, "subject"), text_in(one, "text"));
    for (const json& other : list_in(one, "against")) why += fmt::format("    not {}\n", text_in(other, "text"));
    for (const json& change : list_in(one, "changes")) {
      if (change.is_string()) why += fmt::format("    would change it: {}\n", clean(change.get<std::string>()));
    }
  }
  if (!why.empty()) out += "\n" + paint("Why", Hue::kBold, look.colour) + "\n" + why;
  const double launch_cost = number_in(plan, "cost_per_hour");
  return out + fmt::format("\n{}/h for the launches, {}/h for the cluster then\n", money(launch_cost),
                           money(number_in(plan, "cluster_cost_per_hour")));
}

std::string decision_text(const json& decision, const Look& look) {
  json why = decision;
  why["phase"] = raw_in(decision, "kind") == "hold" ? "not launching" : text_in(decision, "kind");
  why["decision"] = {{"offset", decision.value("offset", json())},
                     {"time", decision.value("time", json())},
                     {"text", decision.value("text", json())}};
  return why_text(why, look);
}

}  // namespace rubato::cli
