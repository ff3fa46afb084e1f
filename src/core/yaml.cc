#include "core/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "core/yaml_node.h"

namespace rubato {

std::string_view to_string(YamlKind kind) {
  switch (kind) {
    case YamlKind::kNull:
      return "nothing";
    case YamlKind::kScalar:
      return "a scalar";
    case YamlKind::kSequence:
      return "a list";
    case YamlKind::kMapping:
      return "a mapping";
  }
  return "unknown";
}

std::string shown_in_error(std::string_view text) {
  constexpr size_t kShownMax = 60;
  std::string out;
  for (const char c : text.substr(0, kShownMax)) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return text.size() > kShownMax ? "\"" + out + "...\"" : "\"" + out + "\"";
}

namespace {

struct Digits {
  std::string_view text;
  int base;
};

// Sign apart: 0x1f, 0o17, 31. A leading zero is not accepted, see as_int.
std::optional<Digits> digits_of(std::string_view text) {
  Digits digits{text, 10};
  if (const auto hex = strip_prefix(text, "0x")) digits = {*hex, 16};
  if (const auto octal = strip_prefix(text, "0o")) digits = {*octal, 8};
  if (digits.text.empty() || digits.text[0] == '-' || digits.text[0] == '+') return std::nullopt;
  return digits;
}

enum class IntRead { kOk, kNotANumber, kTooLarge };

IntRead read_int(std::string_view text, int64_t& value) {
  const bool negative = text.starts_with('-');
  const std::optional<Digits> digits = digits_of(negative || text.starts_with('+') ? text.substr(1) : text);
  if (!digits) return IntRead::kNotANumber;
  uint64_t magnitude = 0;
  const char* const last = digits->text.data() + digits->text.size();
  const auto [end, error] = std::from_chars(digits->text.data(), last, magnitude, digits->base);
  if (error == std::errc::invalid_argument || end != last) return IntRead::kNotANumber;
  const uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (negative ? 1 : 0);
  if (error != std::errc{} || magnitude > limit) return IntRead::kTooLarge;
  value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return IntRead::kOk;
}

bool is_zero_padded(std::string_view text) {
  return text.size() > 1 && text[0] == '0' &&
         std::all_of(text.begin(), text.end(), [](char c) { return '0' <= c && c <= '9'; });
}

// "1_000" and "3.0" are whole numbers to PyYAML and to JSON schemas, and so to those whose files we read.
std::string without_spelling(const std::string& text) {
  const size_t sign = text.find_first_of("+-") == 0 ? 1 : 0;
  const size_t end = std::min(text.find_first_not_of("0123456789_", sign), text.size());
  const bool no_fraction = text.substr(end, 2) == ".0" && text.find_first_not_of('0', end + 1) == std::string::npos;
  const bool whole = end == text.size() || no_fraction;
  if (!whole || end == sign || text[sign] == '_') return text;
  std::string out = text.substr(0, end);
  std::erase(out, '_');
  return out;
}

// The spellings of YAML 1.1 that PyYAML reads.
std::optional<bool> read_bool(std::string_view text) {
  for (const std::string_view word : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) {
    if (text == word) return true;
  }
  for (const std::string_view word : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

}  // namespace

YamlKind Yaml::kind() const { return node_->kind; }
size_t Yaml::line() const { return node_->line; }
size_t Yaml::column() const { return node_->column; }
const std::string& Yaml::file() const { return *node_->file; }
bool Yaml::quoted() const { return node_->quoted; }
std::string Yaml::where() const { return fmt::format("{}:{}:{}", file(), line(), column()); }

void Yaml::fail(std::string message, std::string hint) const {
  throw Error(ErrorCode::kUsage, std::move(message), where(), std::move(hint));
}

void Yaml::fail_kind(std::string_view expected) const {
  const std::string found = is_scalar() ? shown_in_error(node_->text) : std::string(to_string(kind()));
  fail(fmt::format("expected {}, found {}", expected, found));
}

const std::string& Yaml::plain_text(std::string_view expected) const {
  if (!is_scalar()) fail_kind(expected);
  if (quoted())
    fail(fmt::format("expected {}, found the text {}", expected, shown_in_error(node_->text)), "remove the quotes");
  return node_->text;
}

std::string Yaml::as_string() const {
  if (!is_scalar()) fail_kind("text");
  return node_->text;
}

int64_t Yaml::as_int(int64_t least, int64_t most) const {
  const std::string text = without_spelling(plain_text("a whole number"));
  if (is_zero_padded(text)) {
    // YAML 1.1 reads it as octal, YAML 1.2 as decimal.
    fail(fmt::format("the number {} is ambiguous", shown_in_error(text)),
         "write 0o644 for octal, or leave out the leading zero");
  }
  int64_t value = 0;
  switch (read_int(text, value)) {
    case IntRead::kNotANumber:
      fail_kind("a whole number");
    case IntRead::kTooLarge:
      fail(fmt::format("the number {} is out of range", shown_in_error(text)));
    case IntRead::kOk:
      break;
  }
  if (value < least && most == std::numeric_limits<int64_t>::max())
    fail(fmt::format("{} is less than {}", value, least));
  if (value > most && least == std::numeric_limits<int64_t>::min())
    fail(fmt::format("{} is more than {}", value, most));
  if (value < least || value > most) fail(fmt::format("{} is not between {} and {}", value, least, most));
  return value;
}

double Yaml::as_double() const {
  std::string_view text = plain_text("a number");
  if (text.starts_with('+')) text.remove_prefix(1);
  // from_chars would take "inf" and "nan".
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) fail_kind("a number");
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error == std::errc::result_out_of_range) fail(fmt::format("the number {} is out of range", shown_in_error(text)));
  if (error != std::errc{} || end != last) fail_kind("a number");
  return value;
}

bool Yaml::as_bool() const {
  const std::optional<bool> value = read_bool(plain_text("true or false"));
  if (!value) fail_kind("true or false");
  return *value;
}

Duration Yaml::as_duration() const {
  const std::optional<Duration> value = parse_duration(as_string());
  if (!value)
    fail(fmt::format("expected a duration, found {}", shown_in_error(node_->text)),
         "write it as 90, 1.5s, 250ms, 2m or 1h");
  return *value;
}

const std::vector<Yaml>& Yaml::items() const {
  if (!is_sequence() && !is_null()) fail_kind("a list");
  return node_->items;
}

std::vector<std::string> Yaml::as_strings() const {
  std::vector<std::string> out;
  for (const Yaml& item : items()) out.push_back(item.as_string());
  return out;
}

const std::vector<Yaml::Entry>& Yaml::entries() const {
  if (!is_mapping() && !is_null()) fail_kind("a mapping");
  return node_->entries;
}

std::optional<Yaml> Yaml::find(std::string_view key) const {
  const std::vector<Entry>& all = entries();
  const auto found = node_->index.find(key);
  if (found == node_->index.end()) return std::nullopt;
  return all[found->second].value;
}

StrictMapping::StrictMapping(Yaml node, std::string what) : node_(std::move(node)), what_(std::move(what)) {
  if (!node_.is_mapping() && !node_.is_null()) {
    node_.fail(fmt::format("{} must be a mapping, not {}", what_, to_string(node_.kind())));
  }
}

std::optional<Yaml> StrictMapping::find(std::string_view key) {
  allow(key);
  std::optional<Yaml> value = node_.find(key);
  return value && !value->is_null() ? value : std::nullopt;
}

Yaml StrictMapping::require(std::string_view key) {
  if (std::optional<Yaml> value = find(key)) return *value;
  if (const std::optional<Yaml> empty = node_.find(key))
    empty->fail(fmt::format("{}: \"{}\" has no value", what_, key));
  // The key may be there, but mistyped.
  std::vector<std::string> present;
  for (const Yaml::Entry& entry : node_.entries()) present.push_back(entry.key.as_string());
  const std::optional<std::string> near = nearest(key, present);
  node_.fail(fmt::format("{} lacks the key \"{}\"", what_, key),
             near ? fmt::format("did you mean it by \"{}\"?", *near) : fmt::format("add \"{}: ...\"", key));
}

void StrictMapping::allow(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
}

void StrictMapping::finish() const {
  const std::set<std::string_view> known(known_.begin(), known_.end());
  std::vector<Yaml> unknown;
  for (const Yaml::Entry& entry : node_.entries()) {
    if (!known.contains(entry.key.as_string())) unknown.push_back(entry.key);
  }
  if (unknown.empty()) return;
  const std::string first = unknown[0].as_string();
  const std::string others = unknown.size() > 1 ? fmt::format(" (and {} more)", unknown.size() - 1) : "";
  const std::optional<std::string> near = nearest(first, known_);
  unknown[0].fail(fmt::format("{} has the unknown key {}{}", what_, shown_in_error(first), others),
                  near ? fmt::format("did you mean \"{}\"?", *near) : "known keys: " + join(known, ", "));
}

}  // namespace rubato
