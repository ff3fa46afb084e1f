#include "model/yaml_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace rubato {
namespace {

using nlohmann::ordered_json;

template <class Read>
std::optional<ordered_json> as(Read&& read) {
  try {
    return ordered_json(read());
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool digits_only(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

ordered_json plain_value(const Yaml& node) {
  const std::string text = node.as_string();
  if (text.empty()) return text;
  if (std::string_view("tTfFyYnNoO").find(text[0]) != std::string_view::npos) {
    if (auto value = as([&] { return node.as_bool(); })) return *value;
    return text;
  }
  if (std::string_view("0123456789+-.").find(text[0]) == std::string_view::npos) return text;
  // An address is no number: asked as one, it would cost an exception.
  if (std::ranges::count(text, '.') > 1) return text;
  if (auto value = as([&] { return node.as_int(); })) return *value;
  // With a point, and nothing but digits before it: 1.5, -0.25, 1.0e+3; not 1e5, not 10.0.0.1.
  const std::string_view body = std::string_view(text).substr(text[0] == '-' || text[0] == '+' ? 1 : 0);
  const size_t point = body.find('.');
  if (point == std::string_view::npos || !digits_only(body.substr(0, point))) return text;
  if (auto value = as([&] { return node.as_double(); })) return *value;
  return text;
}

// ---- out ----

// Other readers see numbers and dates in 1e5, 012, 12:30 and 2026-01-02; not in 5m, and not in 10.0.0.1.
bool looks_numeric(const std::string& text) {
  if (text[0] < '0' || text[0] > '9' || std::count(text.begin(), text.end(), '.') >= 2) return false;
  return text.find_first_of(":-") != std::string::npos ||
         text.find_first_not_of("0123456789.+eExXoO_abcdfABCDF") == std::string::npos;
}

bool reads_as_itself(const std::string& text) {
  try {
    const Yaml read = Yaml::parse(text, "");
    return read.is_scalar() && !read.quoted() && plain_value(read) == ordered_json(text);
  } catch (const Error&) {
    return false;
  }
}

// Text that YAML reads as itself without quotes.
bool plain_is_safe(const std::string& text) {
  if (text.empty() || text.size() > 1000) return false;
  constexpr std::string_view kFirst = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/$.(0123456789";
  constexpr std::string_view kInside =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.$()=+@%*?;|&<>!^~'\"`\\ -:#";
  if (kFirst.find(text[0]) == std::string_view::npos || text.back() == ' ' || text.back() == ':') return false;
  if (text.find_first_not_of(kInside) != std::string::npos) return false;
  if (text.find(": ") != std::string::npos || text.find(" #") != std::string::npos) return false;
  if (text.starts_with("...")) return false;
  return !looks_numeric(text) && reads_as_itself(text);
}

// Double quotes. YAML has no surrogate pairs, so that JSON's own quoting would not do for all text.
std::string double_quoted(const std::string& text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[i];
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // C1 controls are not printable in YAML
      out += fmt::format("\\x{:02x}", next);
      ++i;
    } else if (byte >= 0xe2 && byte <= 0xef && i + 2 < text.size()) {
      const unsigned code =
          (byte & 0xfU) << 12 | (next & 0x3fU) << 6 | (static_cast<unsigned char>(text[i + 2]) & 0x3fU);
      // Line and paragraph separators end a line; the byte order mark and its mirror are not text.
      const bool special = code == 0x2028 || code == 0x2029 || code == 0xfeff || code >= 0xfffe;
      out += special ? fmt::format("\\u{:04x}", code) : text.substr(i, 3);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out + "\"";
}

// A script reads best as it is. nullopt when a literal block would not give the same text back.
std::optional<std::string> block(const std::string& text, size_t indent) {
  const bool ends = text.ends_with('\n');
  const std::string_view body = ends ? std::string_view(text).substr(0, text.size() - 1) : std::string_view(text);
  if (body.find('\n') == std::string_view::npos || body.empty() || body.ends_with('\n') || body.starts_with('\n') ||
      body[0] == ' ') {
    return std::nullopt;
  }
  const auto odd = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || (c & 0x80) || c == 0x7f;
  };
  if (std::any_of(body.begin(), body.end(), odd)) return std::nullopt;
  std::string out = ends ? "|\n" : "|-\n";
  for (const std::string_view line : split(body, '\n')) {
    if (!line.empty()) out += std::string(indent, ' ') + std::string(line);
    out += '\n';
  }
  out.pop_back();
  return out;
}

std::string scalar_text(const ordered_json& value, size_t indent) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (const auto lines = block(text, indent)) return *lines;
    return plain_is_safe(text) ? text : double_quoted(text);
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isfinite(number) && std::floor(number) == number && std::fabs(number) < 1e15) {
      return fmt::format("{:.1f}", number);
    }
    std::string text = fmt::format("{}", number);
    // A point makes it a number for every reader.
    if (const size_t exponent = text.find('e'); exponent != std::string::npos && text.find('.') == std::string::npos) {
      text.insert(exponent, ".0");
    }
    return text;
  }
  if (value.is_object()) return "{}";
  if (value.is_array()) return "[]";
  return value.dump();
}

void emit(const ordered_json& value, size_t indent, std::string& out);

// What stands after "key:" or "-".
void emit_after(const ordered_json& value, size_t indent, bool in_list, std::string& out) {
  if (!value.is_structured() || value.empty()) {
    out += " " + scalar_text(value, indent) + "\n";
    return;
  }
  if (in_list) {
    // The first entry of a mapping or list shares the dash's line.
    std::string body;
    emit(value, indent, body);
    out += " " + body.substr(indent);
    return;
  }
  out += "\n";
  emit(value, indent, out);
}

void emit(const ordered_json& value, size_t indent, std::string& out) {
  const std::string space(indent, ' ');
  if (value.is_array()) {
    for (const ordered_json& item : value) {
      out += space + "-";
      emit_after(item, indent + 2, true, out);
    }
    return;
  }
  for (const auto& [key, item] : value.items()) {
    out += space + (plain_is_safe(key) ? key : double_quoted(key)) + ":";
    emit_after(item, indent + 2, false, out);
  }
}

}  // namespace

ordered_json value_of(const Yaml& node) {
  switch (node.kind()) {
    case YamlKind::kNull:
      return nullptr;
    case YamlKind::kScalar:
      return node.quoted() ? ordered_json(node.as_string()) : plain_value(node);
    case YamlKind::kSequence: {
      ordered_json out = ordered_json::array();
      for (const Yaml& item : node.items()) out.push_back(value_of(item));
      return out;
    }
    case YamlKind::kMapping: {
      ordered_json out = ordered_json::object();
      for (const Yaml::Entry& entry : node.entries()) out[entry.key.as_string()] = value_of(entry.value);
      return out;
    }
  }
  return nullptr;
}

std::string yaml_text(const ordered_json& value) {
  if (!value.is_structured() || value.empty()) return scalar_text(value, 2) + "\n";
  std::string out;
  emit(value, 0, out);
  return out;
}

}  // namespace rubato
