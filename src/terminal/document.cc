#include "terminal/document.h"

#include "core/text.h"
#include "core/timestamp.h"
#include "terminal/layout.h"

namespace rubato::cli {
namespace {

const nlohmann::json* member(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

std::string one_line(std::string_view text) {
  if (text.find('\n') == std::string_view::npos) return clean(text);
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) {
    if (!trim(line).empty()) lines.push_back(clean(trim(line)));
  }
  return join(lines, " | ");
}

std::string raw_in(const nlohmann::json& object, const char* key) {
  const nlohmann::json* found = member(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

std::string text_in(const nlohmann::json& object, const char* key) { return clean(raw_in(object, key)); }

int64_t int_in(const nlohmann::json& object, const char* key, int64_t absent) {
  const nlohmann::json* found = member(object, key);
  return found != nullptr && found->is_number_integer() ? found->get<int64_t>() : absent;
}

double number_in(const nlohmann::json& object, const char* key, double absent) {
  const nlohmann::json* found = member(object, key);
  return found != nullptr && found->is_number() ? found->get<double>() : absent;
}

std::optional<WallTime> time_in(const nlohmann::json& object, const char* key) {
  return parse_time(raw_in(object, key));
}

const nlohmann::json& list_in(const nlohmann::json& object, const char* key) {
  static const nlohmann::json empty = nlohmann::json::array();
  const nlohmann::json* found = member(object, key);
  return found != nullptr && found->is_array() ? *found : empty;
}

const nlohmann::json& object_in(const nlohmann::json& object, const char* key) {
  static const nlohmann::json empty = nlohmann::json::object();
  const nlohmann::json* found = member(object, key);
  return found != nullptr && found->is_object() ? *found : empty;
}

}  // namespace rubato::cli
