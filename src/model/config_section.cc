#include "model/config_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "model/byte_amounts.h"
#include "model/limits.h"
#include "model/placeholders.h"
#include "model/provider_kind.h"
#include "model/yaml_value.h"

namespace rubato {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Longer times are typing errors; as in parse_duration.
constexpr double kLongestSeconds = 3.2e9;

std::string section_name(std::string_view prefix) {
  return prefix.empty() ? "the cluster file" : prefix == "node_types.*" ? "the node type" : std::string(prefix);
}

bool on_this_machine(const Yaml& document, std::string_view provider_type) {
  const auto provider = document.find("provider");
  return provider_kind(provider_type).names_hosts && provider && !provider->find("head_ip") &&
         !provider->find("worker_ips") && !provider->find("coordinator_address");
}

// A command with ": " in it is a mapping to YAML; people do not see why.
std::string item_text(const Yaml& item, bool commands) {
  if (commands && item.is_mapping() && item.entries().size() == 1) {
    item.fail("this command is read as a mapping, because of the \": \" in it", "put the whole command in quotes");
  }
  return item.as_string();
}

double from_zero(const Yaml& value) {
  const double number = value.as_double();
  if (number < 0) value.fail(fmt::format("{} is less than 0", value.as_string()));
  return number;
}

Duration seconds_of(const Yaml& value, double unit) {
  const double number = from_zero(value) * unit;
  if (number > kLongestSeconds) value.fail("this time is too long");
  return seconds(number);
}

// Through JSON, so that a file and the API take the same words.
int64_t declared_amount(const std::string& name, const Yaml& value) {
  const std::string text = value.as_string();
  const bool sentence = counted_in_bytes(name) && text.find_first_not_of("0123456789.") != std::string::npos;
  const json amount = sentence || (counted_in_bytes(name) && value.quoted()) ? json(text) : json(value.as_double());
  return resources_from_json(json::object({{name, amount}})).of(name);
}

}  // namespace

ConfigSection::ConfigSection(const Yaml& mapping, std::string base, std::string name, ConfigReading& reading)
    : node_(mapping), base_(std::move(base)), name_(std::move(name)), reading_(reading) {
  read(mapping, base_);
}

void ConfigSection::read(const Yaml& mapping, const std::string& prefix) {
  if (mapping.is_null() || reading_.findings.blames(mapping)) return;
  if (!mapping.is_mapping()) {
    reading_.findings.error(
        mapping, fmt::format("{} must be a mapping, not {}", section_name(prefix), to_string(mapping.kind())));
    return;
  }
  for (const Yaml::Entry& entry : mapping.entries()) add(entry, prefix);
}

void ConfigSection::add(const Yaml::Entry& entry, const std::string& prefix) {
  const std::string word = entry.key.as_string();
  const std::string path = prefix.empty() ? word : prefix + "." + word;
  const ConfigKey* row = word.find('.') == std::string::npos ? find_config_key(path) : nullptr;
  if (row == nullptr) return unknown(entry, prefix);
  if (row->era == KeyEra::kLegacy && !entry.value.is_null()) {
    reading_.findings.warning(entry.key, fmt::format("\"{}\" is a key of old Ray", word), std::string(row->advice));
  }
  if (row->type == KeyType::kSection) {
    reading_.places.emplace(full_path(path), entry.key.where());
    return read(entry.value, path);
  }
  if (entry.value.is_null()) return;
  const auto [place, fresh] = keys_.emplace(std::string(row->our_path()), Given{entry.key, entry.value, row});
  if (!fresh) {
    const Given& first = place->second;
    reading_.findings.error(
        entry.key,
        fmt::format("\"{}\" says again what \"{}\" says in line {}", row->path, first.row->path, first.key.line()),
        "keep one of the two");
    return;
  }
  reading_.places.insert_or_assign(full_path(row->our_path()), entry.value.where());
}

void ConfigSection::unknown(const Yaml::Entry& entry, const std::string& prefix) {
  const std::string word = entry.key.as_string();
  if (prefix.empty() && word.starts_with("x-")) return;  // a place for anchors
  const bool provider = prefix == "provider";
  if (provider && provider_kind(reading_.provider_type).has_open_section) return;
  std::vector<std::string_view> known;
  for (const ConfigKey* key : config_keys_under(prefix)) {
    if (key->era != KeyEra::kWritten) known.push_back(key->leaf());
  }
  const std::optional<std::string> near = nearest(word, known);
  const std::string message = fmt::format("{} has the unknown key \"{}\"", section_name(prefix), word);
  // Open, as in Ray: what we do not know may be known to the provider. Nodes of this machine are ours alone.
  if (provider && (!near || !on_this_machine(node_, reading_.provider_type))) {
    const std::string meant = near ? fmt::format("did you mean \"{}\"? If not: ", *near) : "";
    reading_.findings.warning(entry.key, message, meant + "it is passed on as it is");
    return;
  }
  std::string hint = near ? fmt::format("did you mean \"{}\"?", *near) : "";
  // A key at the wrong depth is a common slip.
  if (!near) {
    for (const ConfigKey* key : config_keys_called(word)) {
      hint = fmt::format("it belongs in {}", key->parent().empty() ? "the top level" : key->parent());
    }
  }
  if (hint.empty()) hint = prefix.empty() ? "see 'rubato config explain'" : "known keys: " + join(known, ", ");
  reading_.findings.error(entry.key, message, hint);
}

std::string ConfigSection::full_path(std::string_view path) const {
  return base_.empty() ? std::string(path) : name_ + std::string(path.substr(base_.size()));
}

const ConfigSection::Given* ConfigSection::find(std::string_view path) const {
  const auto found = keys_.find(base_.empty() ? std::string(path) : base_ + "." + std::string(path));
  return found == keys_.end() ? nullptr : &found->second;
}

std::vector<std::string> ConfigSection::paths() const {
  std::vector<std::string> out;
  for (const auto& [path, given] : keys_) out.push_back(path);
  return out;
}

std::string ConfigSection::where(std::string_view path) const {
  const Given* given = find(path);
  return given != nullptr ? given->value.where() : node_.where();
}

void ConfigSection::derive(std::string_view path, const Given& from) const {
  reading_.places.emplace(path, from.value.where());
}

// A word left from a template is no number; that it is left is one finding, not two.
template <class Read>
auto ConfigSection::get(std::string_view path, Read&& read) const
    -> std::optional<decltype(read(std::declval<const Given&>()))> {
  const Given* given = find(path);
  if (given == nullptr || reading_.findings.blames(given->value)) return std::nullopt;
  std::optional<decltype(read(*given))> out;
  attempt(reading_.findings, [&] { out = read(*given); });
  return out;
}

std::optional<std::string> ConfigSection::text(std::string_view path) const {
  // An unfilled word is still text.
  const Given* given = find(path);
  if (given != nullptr && given->value.is_scalar()) return given->value.as_string();
  // Ray's templates write `head_node_type: {}` for nothing.
  if (given != nullptr && given->value.is_mapping() && given->value.entries().empty()) return std::nullopt;
  return get(path, [](const Given& one) { return one.value.as_string(); });
}

std::optional<int> ConfigSection::count(std::string_view path) const {
  const auto value = integer(path, 0, kClusterNodesMax);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

std::optional<int> ConfigSection::limit(std::string_view path) const {
  constexpr int64_t kAnyNumber = 1'000'000'000'000;
  const auto value = integer(path, 0, kAnyNumber);
  if (!value || *value <= kClusterNodesMax) return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  reading_.findings.note(find(path)->value, fmt::format("{} is as good as no limit; a cluster has at most {} nodes",
                                                        *value, kClusterNodesMax));
  return static_cast<int>(kClusterNodesMax);
}

std::optional<int64_t> ConfigSection::integer(std::string_view path, int64_t least, int64_t most) const {
  return get(path, [&](const Given& one) { return one.value.as_int(least, most); });
}

std::optional<double> ConfigSection::number(std::string_view path) const {
  return get(path, [](const Given& one) { return from_zero(one.value); });
}

std::optional<bool> ConfigSection::flag(std::string_view path) const {
  return get(path, [](const Given& one) { return one.value.as_bool(); });
}

std::optional<Duration> ConfigSection::duration(std::string_view path) const {
  return get(path, [](const Given& one) {
    const std::string_view word = one.row->leaf();
    if (word == "idle_timeout_minutes") return seconds_of(one.value, 60);
    if (word == "idle_timeout_s") return seconds_of(one.value, 1);
    const Duration out = one.value.as_duration();
    if (out < 0s) one.value.fail(fmt::format("{} is less than 0", one.value.as_string()));
    return out;
  });
}

std::optional<std::vector<std::string>> ConfigSection::texts(std::string_view path) const {
  return get(path, [&](const Given& one) {
    const bool commands = one.row->type == KeyType::kCommands;
    if (one.value.is_scalar()) {
      one.value.fail(fmt::format("\"{}\" must be a list", one.row->leaf()),
                     fmt::format("write - {}", one.value.as_string()));
    }
    std::vector<std::string> out;
    for (const Yaml& item : one.value.items()) {
      if (item.is_null()) continue;
      if (reading_.findings.blames(item) && !item.is_scalar()) continue;
      attempt(reading_.findings, [&] { out.push_back(item_text(item, commands)); });
    }
    return out;
  });
}

std::optional<std::map<std::string, std::string>> ConfigSection::text_map(std::string_view path) const {
  return get(path, [&](const Given& one) {
    std::map<std::string, std::string> out;
    for (const Yaml::Entry& entry : one.value.entries()) {
      if (reading_.findings.blames(entry.value) && !entry.value.is_scalar()) continue;
      attempt(reading_.findings, [&] { out[entry.key.as_string()] = entry.value.as_string(); });
    }
    return out;
  });
}

std::optional<DeclaredResources> ConfigSection::resources(std::string_view path) const {
  return get(path, [&](const Given& one) {
    DeclaredResources out;
    if (one.value.entries().size() > kResourceNamesMax) {
      findings().error(one.value, fmt::format("more than {} kinds of resources", kResourceNamesMax));
      return out;
    }
    for (const Yaml::Entry& entry : one.value.entries()) {
      const std::string name = entry.key.as_string();
      if (reading_.findings.blames(entry.value)) continue;
      try {
        const int64_t amount = declared_amount(name, entry.value);
        out.amounts.set(name, amount);
        if (amount == 0) out.zeros.push_back(name);
      } catch (const Error& error) {
        if (error.where.empty()) {
          findings().error(entry.value, error.message, error.hint);
        } else {
          findings().error(error);
        }
      }
    }
    std::sort(out.zeros.begin(), out.zeros.end());
    return out;
  });
}

std::optional<ordered_json> ConfigSection::opaque(std::string_view path) const {
  return get(path, [](const Given& one) {
    if (one.row->type == KeyType::kOpaque) one.value.entries();  // throws unless it is a mapping
    return value_of(one.value);
  });
}

}  // namespace rubato
