// Yaml: a read-only tree of a YAML document that knows where each node stands, for errors that point at the line.
//
// Stricter than most: duplicate keys, several documents, unknown tags and keys that are not text are errors. Anchors,
// aliases and merge keys (<<) work; an alias stands for the node it names, position included. Limits hold for the
// expanded tree, so that nobody who walks it can be made to run out of stack, memory or patience.
//
// Each error is Error{kUsage, what is wrong, "file:line:column", fix}.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/time.h"

namespace rubato {

enum class YamlKind { kNull, kScalar, kSequence, kMapping };
std::string_view to_string(YamlKind kind);  // in words for people: "nothing", "a scalar", "a list", "a mapping"

struct YamlLimits {
  size_t bytes_max = size_t{4} << 20;
  size_t depth_max = 64;
  size_t nodes_max = 200'000;  // with every alias and merge key expanded
};

// A cheap handle on an immutable node; copies share it.
class Yaml {
 public:
  struct Entry;

  // `file` is the name for errors. An empty text is a null node.
  static Yaml parse(std::string_view text, std::string file, const YamlLimits& limits = {});

  // As other programs read it: of a key that appears twice the last value counts. Each such key is an Error in
  // `duplicates`, which the caller may show.
  static Yaml parse_last_wins(std::string_view text, std::string file, std::vector<Error>& duplicates,
                              const YamlLimits& limits = {});

  YamlKind kind() const;
  bool is_null() const { return kind() == YamlKind::kNull; }
  bool is_scalar() const { return kind() == YamlKind::kScalar; }
  bool is_sequence() const { return kind() == YamlKind::kSequence; }
  bool is_mapping() const { return kind() == YamlKind::kMapping; }

  size_t line() const;    // 1-based
  size_t column() const;  // 1-based, in characters
  const std::string& file() const;
  std::string where() const;  // file:line:column

  // True for a scalar that is text whatever it looks like: quoted, block (| or >) or tagged !!str.
  bool quoted() const;

  // Scalars. Null, and a node of another kind, is an error in each.
  std::string as_string() const;  // the text as written: 1.10 is "1.10", no is "no"
  int64_t as_int(int64_t least = std::numeric_limits<int64_t>::min(),
                 int64_t most = std::numeric_limits<int64_t>::max()) const;  // 12, -3, 0x1f, 0o644; never quoted
  double as_double() const;                                                  // finite; never quoted
  bool as_bool() const;          // true/false and, as in YAML 1.1, yes/no and on/off; never quoted
  Duration as_duration() const;  // what parse_duration takes

  // A list. Null is an empty one.
  const std::vector<Yaml>& items() const;
  std::vector<std::string> as_strings() const;

  // A mapping in the order of the file, merged keys last. Null is an empty one.
  const std::vector<Entry>& entries() const;
  std::optional<Yaml> find(std::string_view key) const;

  // For a caller's own rules: throws the Error that points at this node.
  [[noreturn]] void fail(std::string message, std::string hint = {}) const;

 private:
  friend class YamlBuilder;
  struct Node;
  explicit Yaml(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  [[noreturn]] void fail_kind(std::string_view expected) const;
  const std::string& plain_text(std::string_view expected) const;

  std::shared_ptr<const Node> node_;
};

struct Yaml::Entry {
  Yaml key;  // a scalar
  Yaml value;
};

// Reads a mapping whose keys are all known. Ask for each key, then call finish(), which refuses the keys that nobody
// asked for and names the nearest one that somebody did:
//
//   StrictMapping fields(node, "the job");
//   job.name = fields.require("name").as_string();
//   if (const auto nodes = fields.find("nodes")) job.nodes = nodes->as_int(1, 1000);
//   fields.finish();
class StrictMapping {
 public:
  // `what` names the thing in errors: "the job", "provider". A null node is an empty mapping.
  StrictMapping(Yaml node, std::string what);

  // nullopt when the key is absent or has no value.
  std::optional<Yaml> find(std::string_view key);

  // An error when the key is absent or has no value.
  Yaml require(std::string_view key);

  // Known, but not read by us.
  void allow(std::string_view key);

  // Throws at the first unknown key, in the order of the file.
  void finish() const;

  const Yaml& node() const { return node_; }

 private:
  Yaml node_;
  std::string what_;
  std::vector<std::string> known_;
};

}  // namespace rubato
