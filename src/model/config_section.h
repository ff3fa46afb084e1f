// ConfigSection: a mapping of a cluster file, its keys looked up in the table of config_keys.h.
//
// Whatever spelling the file uses, a reader asks by our path: find("files.mounts") finds file_mounts too. Nothing here
// throws: what is wrong goes to the findings, and the reader goes on with the next key.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "core/yaml.h"
#include "model/config_keys.h"
#include "model/finding.h"
#include "model/resources.h"

namespace rubato {

// What one reading of a file collects.
struct ConfigReading {
  Findings findings;
  std::map<std::string, std::string> places;  // our path, with the names of node types, to file:line:column
  std::string provider_type;                  // decides which keys of provider are known
};

struct DeclaredResources {
  Resources amounts;
  std::vector<std::string> zeros;  // said to be 0: nobody may fill them in
  bool operator==(const DeclaredResources&) const = default;
};

class ConfigSection {
 public:
  struct Given {
    Yaml key, value;
    const ConfigKey* row;
  };

  // `base` is the path of the mapping in the table: "" or "node_types.*"; `name` the same with the type's name.
  ConfigSection(const Yaml& mapping, std::string base, std::string name, ConfigReading& reading);

  // nullptr when the key is absent, has no value, or is not of the right kind.
  const Given* find(std::string_view our_path) const;
  std::vector<std::string> paths() const;  // of all that was given

  // By our path below the base. nullopt when absent or wrong.
  std::optional<std::string> text(std::string_view path) const;
  std::optional<int> count(std::string_view path) const;
  std::optional<int> limit(std::string_view path) const;  // a count; a larger one than can be, 999999, is no limit
  std::optional<int64_t> integer(std::string_view path, int64_t least, int64_t most) const;
  std::optional<double> number(std::string_view path) const;
  std::optional<bool> flag(std::string_view path) const;
  std::optional<Duration> duration(std::string_view path) const;
  std::optional<std::vector<std::string>> texts(std::string_view path) const;  // commands too
  std::optional<std::map<std::string, std::string>> text_map(std::string_view path) const;
  std::optional<DeclaredResources> resources(std::string_view path) const;
  std::optional<nlohmann::ordered_json> opaque(std::string_view path) const;

  // file:line:column of a key's value; of the mapping itself when it was not given.
  std::string where(std::string_view path) const;
  const Yaml& node() const { return node_; }
  Findings& findings() const { return reading_.findings; }

  // For what a reader derives from another key: it stands where that one stands.
  void derive(std::string_view our_path, const Given& from) const;

 private:
  void read(const Yaml& mapping, const std::string& prefix);
  void add(const Yaml::Entry& entry, const std::string& prefix);
  void unknown(const Yaml::Entry& entry, const std::string& prefix);
  std::string full_path(std::string_view path) const;
  template <class Read>
  auto get(std::string_view path, Read&& read) const -> std::optional<decltype(read(std::declval<const Given&>()))>;

  Yaml node_;
  std::string base_, name_;
  ConfigReading& reading_;
  std::map<std::string, Given, std::less<>> keys_;  // by our path
};

// The most nodes of one cluster.
inline constexpr int64_t kClusterNodesMax = 10'000;

}  // namespace rubato
