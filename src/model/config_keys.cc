#include "model/config_keys.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/text.h"
#include "model/config_keys_tables.h"
#include "model/provider_kind.h"

namespace rubato {
namespace {

std::vector<ConfigKey> provider_keys() {
  std::vector<ConfigKey> out(common_provider_keys().begin(), common_provider_keys().end());
  for (const ProviderKind* kind : provider_kinds()) out.insert(out.end(), kind->keys.begin(), kind->keys.end());
  return out;
}

const std::vector<ConfigKey>& all_keys() {
  static const std::vector<ConfigKey> rows = [] {
    std::vector<ConfigKey> all;
    for (const std::vector<ConfigKey>& part : {our_keys(), provider_keys(), ray_keys()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return rows;
}

}  // namespace

std::string_view to_string(KeyType type) {
  switch (type) {
    case KeyType::kText:
    case KeyType::kShell:
      return "text";
    case KeyType::kCount:
      return "a whole number from 0";
    case KeyType::kNumber:
      return "a number from 0";
    case KeyType::kInteger:
      return "a whole number";
    case KeyType::kBool:
      return "true or false";
    case KeyType::kDuration:
      return "a time: 90s, 5m, 1h";
    case KeyType::kTexts:
      return "a list of texts";
    case KeyType::kCommands:
      return "a list of commands";
    case KeyType::kTextMap:
      return "texts by name";
    case KeyType::kHost:
      return "[user@]host[:port]";
    case KeyType::kHosts:
      return "a list of [user@]host[:port]";
    case KeyType::kResources:
      return "amounts by name";
    case KeyType::kSection:
      return "a section";
    case KeyType::kTypes:
      return "node types by name";
    case KeyType::kOpaque:
      return "a mapping, passed on as it is";
    case KeyType::kAny:
      return "anything, passed on as it is";
  }
  return "unknown";
}

std::string_view to_string(KeyEra era) {
  switch (era) {
    case KeyEra::kShared:
      return "Rubato and Ray";
    case KeyEra::kOurs:
      return "Rubato";
    case KeyEra::kRay:
      return "Ray";
    case KeyEra::kLegacy:
      return "Ray, of old";
    case KeyEra::kWritten:
      return "written by Ray, ignored";
  }
  return "unknown";
}

std::string_view ConfigKey::leaf() const {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string_view ConfigKey::parent() const {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::span<const ConfigKey> config_keys() { return all_keys(); }

const ConfigKey* find_config_key(std::string_view path) {
  static const std::map<std::string_view, const ConfigKey*> by_path = [] {
    std::map<std::string_view, const ConfigKey*> out;
    for (const ConfigKey& key : all_keys()) out.emplace(key.path, &key);
    return out;
  }();
  const auto found = by_path.find(path);
  return found == by_path.end() ? nullptr : found->second;
}

std::vector<const ConfigKey*> config_keys_under(std::string_view parent) {
  std::vector<const ConfigKey*> out;
  for (const ConfigKey& key : all_keys()) {
    if (key.parent() == parent) out.push_back(&key);
  }
  return out;
}

std::vector<const ConfigKey*> config_keys_called(std::string_view word) {
  std::string path(word);
  // People write a Ray path, or leave out the star.
  if (const auto rest = strip_prefix(word, "available_node_types")) path = "node_types" + std::string(*rest);
  if (const auto rest = strip_prefix(path, "node_types."); rest && !rest->starts_with("*")) {
    path = "node_types.*." + std::string(*rest);
  }
  if (word == "available_node_types") path = word;
  if (path.ends_with(".*")) path.resize(path.size() - 2);
  std::vector<const ConfigKey*> out;
  if (const ConfigKey* key = find_config_key(path)) out.push_back(key);
  for (const ConfigKey& key : all_keys()) {
    if (key.leaf() == word && key.path != path) out.push_back(&key);
  }
  return out;
}

std::optional<std::string> nearest_config_key(std::string_view word) {
  std::vector<std::string_view> names;
  for (const ConfigKey& key : all_keys()) names.push_back(key.path);
  if (word.find('.') == std::string_view::npos) {
    for (const ConfigKey& key : all_keys()) names.push_back(key.leaf());
  }
  return nearest(word, names);
}

std::span<const std::string_view> provider_types() {
  static const std::vector<std::string_view> types = [] {
    std::vector<std::string_view> out;
    for (const ProviderKind* kind : provider_kinds()) out.push_back(kind->type);
    return out;
  }();
  return types;
}

}  // namespace rubato
