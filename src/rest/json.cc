#include "rest/json.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_bounds.h"

namespace rubato::rest {

using nlohmann::json;

json parse_bounded(const std::string& text) {
  if (beyond_bounds(text, JsonBounds())) return json(json::value_t::discarded);
  return json::parse(text, nullptr, false);
}

json read_json(const std::string& body, std::string_view what) {
  if (body.empty()) return json::object();
  json document = parse_bounded(body);
  if (document.is_discarded()) {
    throw Error(ErrorCode::kUnavailable, fmt::format("{}: the answer is not JSON, or too large", what), "",
                "is a proxy or another server in between?");
  }
  return document;
}

std::string text_at(const json& document, const char* key) {
  if (!document.is_object()) return {};
  const auto found = document.find(key);
  if (found == document.end()) return {};
  if (found->is_number_integer()) return found->dump();
  return found->is_string() ? found->get<std::string>() : "";
}

json object_at(const json& document, const char* key) {
  const auto found = document.is_object() ? document.find(key) : document.end();
  return found != document.end() && found->is_object() ? *found : json::object();
}

json list_at(const json& document, const char* key) {
  const auto found = document.is_object() ? document.find(key) : document.end();
  return found != document.end() && found->is_array() ? *found : json::array();
}

std::vector<std::string> texts_at(const json& document, const char* key) {
  std::vector<std::string> out;
  const std::string alone = text_at(document, key);
  if (!alone.empty()) out.push_back(alone);
  for (const json& one : list_at(document, key)) {
    if (one.is_string()) out.push_back(one.get<std::string>());
  }
  return out;
}

bool flag_at(const json& document, const char* key) {
  const auto found = document.is_object() ? document.find(key) : document.end();
  if (found == document.end()) return false;
  return found->is_boolean() ? found->get<bool>() : found->is_string() && found->get<std::string>() == "true";
}

double number_at(const json& document, const char* key) {
  const auto found = document.is_object() ? document.find(key) : document.end();
  if (found == document.end()) return 0;
  if (found->is_number()) return found->get<double>();
  return found->is_string() ? std::strtod(found->get<std::string>().c_str(), nullptr) : 0;
}

}  // namespace rubato::rest
