// The keys of a cluster file, in one table. From it come reading (which keys there are, what a Ray key means in our
// words), "did you mean", `rubato config explain`, the JSON Schema for editors and docs/config-keys.md.
//
// A path names a key: "files.mounts"; "node_types.*.resources" is a key of every node type. Ray's spelling of a key is
// a row of its own that points at ours: {"file_mounts", .native = "files.mounts"}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rubato {

enum class KeyType {
  kText,
  kCount,    // a whole number from 0
  kNumber,   // from 0
  kInteger,  // any whole number
  kBool,
  kDuration,  // 90s, 5m
  kTexts,     // a list of texts
  kCommands,  // a list of shell commands, run as they are
  kShell,     // one text that a shell reads
  kTextMap,   // texts by name
  kHost,      // [user@]host[:port]
  kHosts,
  kResources,  // amounts by name
  kSection,    // a mapping whose keys are in this table
  kTypes,      // node types by name
  kOpaque,     // a mapping that is passed on as it is
  kAny,
};
std::string_view to_string(KeyType type);  // in words for people

enum class KeyEra {
  kShared,   // one word in Ray's files and in ours
  kOurs,     // Ray has no such key, or writes it in another way
  kRay,      // Ray's word, for which we have another
  kLegacy,   // Ray does not take it any more; we do, and say the modern form
  kWritten,  // Ray writes it into its own copies; it means nothing to us
};
std::string_view to_string(KeyEra era);

struct ConfigKey {
  std::string_view path;
  KeyType type = KeyType::kText;
  std::string_view fallback;  // the default, in words
  std::string_view meaning;
  KeyEra era = KeyEra::kShared;
  std::string_view native = {};  // our path, where it is another
  std::string_view advice = {};  // of a legacy key: the modern form
  std::string_view only = {};    // of a provider's key: the types that have it, with spaces between; empty: all

  std::string_view our_path() const { return native.empty() ? path : native; }
  std::string_view leaf() const;    // "mounts" of "files.mounts"
  std::string_view parent() const;  // "files"; empty at the top
};

// All rows, in the order of the documents.
std::span<const ConfigKey> config_keys();
const ConfigKey* find_config_key(std::string_view path);

// The rows directly under a path ("" is the top).
std::vector<const ConfigKey*> config_keys_under(std::string_view parent);

// What a person may mean by a word: the path, the leaf of any path, in either spelling.
std::vector<const ConfigKey*> config_keys_called(std::string_view word);
std::optional<std::string> nearest_config_key(std::string_view word);

// Types of providers; unknown ones are errors.
std::span<const std::string_view> provider_types();

}  // namespace rubato
