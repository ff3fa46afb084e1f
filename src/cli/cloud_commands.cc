#include "cli/cloud_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/command_world.h"
#include "client/session.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

using nlohmann::json;
using provider::CloudInventory;
using provider::CloudResource;

std::vector<std::string> variables_of(const Shell& shell) {
  std::vector<std::string> out;
  for (const auto& [name, value] : shell.env) out.push_back(name + "=" + value);
  return out;
}

std::string money(double amount) { return fmt::format("${:.{}f}", amount, amount < 0.1 ? 4 : 2); }

std::string price_text(const CloudResource& one) {
  if (!one.price_per_hour) return "?";
  return *one.price_per_hour > 0 ? money(*one.price_per_hour) + "/h" : "-";
}

struct Sum {
  size_t count = 0;
  double price = 0;
  bool is_whole = true;  // of all of them the price is known
  bool goes_with_down = false;

  void add(const CloudResource& one) {
    ++count;
    price += one.price_per_hour.value_or(0);
    is_whole = is_whole && one.price_per_hour.has_value();
    goes_with_down = goes_with_down || one.goes_with_down;
  }
  std::string text() const { return fmt::format("{}{}/h", is_whole ? "about " : "at least ", money(price)); }
};

}  // namespace

bool is_cloud(const ClusterTarget& target) {
  return target.text && provider::cloud_survey(target.text->file.provider.type).list != nullptr;
}

std::string inventory_text(const CloudInventory& inventory, const std::string& word, const Style& look) {
  Table table({"", "KIND", "NAME", "WHERE", "PRICE", "WHAT"});
  Sum used, left;
  for (const CloudResource& one : inventory.found) {
    (one.in_use ? used : left).add(one);
    table.add({one.in_use ? Table::Cell{"in use", Hue::kDim} : Table::Cell{"left", Hue::kRed},
               {one.kind},
               {one.name, Hue::kCyan},
               {one.where.empty() ? "-" : one.where},
               {price_text(one)},
               {one.detail}});
  }
  std::string out = table.empty() ? "" : table.text(look) + "\n";
  for (const std::string& one : inventory.unread) {
    out += paint(fmt::format("not listed: {}", one), Hue::kYellow, look.colour) + "\n";
  }
  if (used.count > 0) out += fmt::format("{} in use by the cluster, {}\n", used.count, used.text());
  const std::string_view of = inventory.unread.empty() ? "" : " of what was listed";
  out += left.count == 0 ? fmt::format("nothing is left over{}\n", of)
                         : fmt::format("{} left over, {}\n", left.count, left.text());
  if (left.goes_with_down) out += fmt::format("  remove  rubato down {}\n", word);
  for (const CloudResource& one : inventory.found) {
    if (!one.in_use && !one.goes_with_down) out += fmt::format("  remove  {}\n", one.remove);
  }
  return out;
}

json inventory_json(const CloudInventory& inventory) {
  json found = json::array();
  Sum left;
  for (const CloudResource& one : inventory.found) {
    if (!one.in_use) left.add(one);
    json row = {{"kind", one.kind},     {"name", one.name},     {"where", one.where},
                {"detail", one.detail}, {"in_use", one.in_use}, {"removed_by_down", one.goes_with_down},
                {"remove", one.remove}};
    row["price_per_hour"] = one.price_per_hour ? json(*one.price_per_hour) : json();
    found.push_back(std::move(row));
  }
  return {{"resources", std::move(found)},
          {"left_over", left.count},
          {"left_over_price_per_hour", left.price},
          {"not_listed", inventory.unread}};
}

int audit_cloud(const ClusterTarget& target, const ParsedCommand& parsed, const Shell& shell) {
  const ClusterFile& file = target.text->file;
  CommandWorld command;
  const CloudInventory inventory =
      command.runtime.run(provider::cloud_survey(file.provider.type).list(command.world, file, variables_of(shell)));
  shell.out(parsed.has("json") ? json_text(inventory_json(inventory))
                               : inventory_text(inventory, target.as_typed(), style_of(shell)));
  const bool clean = std::ranges::all_of(inventory.found, &CloudResource::in_use);
  return clean ? 0 : 1;
}

std::vector<Finding> check_cloud(const ClusterTarget& target, const Shell& shell) {
  const ClusterFile& file = target.text->file;
  CommandWorld command;
  std::vector<provider::CloudCheck> checks =
      command.runtime.run(provider::cloud_survey(file.provider.type).check(command.world, file, variables_of(shell)));
  std::vector<Finding> out;
  for (provider::CloudCheck& one : checks) {
    const Health health = one.result == provider::CheckResult::kOk     ? Health::kOk
                          : one.result == provider::CheckResult::kWarn ? Health::kWarn
                                                                       : Health::kFail;
    out.push_back({std::move(one.check), health, std::move(one.found), std::move(one.fix)});
  }
  return out;
}

}  // namespace rubato::cli
