#include "rest/json.h"

#include <fmt/format.h>

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

}  // namespace rubato::rest
