// JsonText: a read-only JSON document that knows where each value stands, for errors that point at the line.
//
// Strict: RFC 8259, no field twice. One thing more is read, because Python's json module writes it: NaN, Infinity and
// -Infinity are numbers that are not finite; whoever reads a field decides what they mean there.
//
// Each error is Error{kUsage, what is wrong, "file:line:column", fix}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace rubato {

enum class JsonKind { kNull, kBoolean, kNumber, kString, kArray, kObject };
std::string_view to_string(JsonKind kind);  // in words for people: "null", "a number", "a list"

struct JsonTextLimits {
  size_t bytes_max = size_t{256} << 20;
  size_t depth_max = 32;
  size_t values_max = 8'000'000;
};

struct JsonNode {
  JsonKind kind = JsonKind::kNull;
  bool boolean = false;
  size_t offset = 0;  // of its first byte in the text
  double number = 0;
  std::string text;             // of a string
  std::vector<JsonNode> items;  // of a list; of an object, its values
  std::vector<std::string> keys;

  const JsonNode* find(std::string_view key) const;  // nullptr: absent
  bool is_null() const { return kind == JsonKind::kNull; }
};

class JsonText {
 public:
  // `text` must outlive this object; `file` is the name for errors.
  JsonText(std::string_view text, std::string file, const JsonTextLimits& limits = {});

  const JsonNode& root() const { return root_; }
  std::string where(size_t offset) const;  // file:line:column, both 1-based, the column in characters

 private:
  std::string_view text_;
  std::string file_;
  JsonNode root_;
};

}  // namespace rubato
