// JSON documents of other people's services: bounded, and read without surprises.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rubato::rest {

// A service's answer, bounded; an empty body is an empty object. Throws kUnavailable, naming `what` was called, for
// what is no JSON.
nlohmann::json read_json(const std::string& body, std::string_view what);

// The same, where what is no JSON is foreseen: then the document is_discarded().
nlohmann::json parse_bounded(const std::string& text);

// The text under a key, or the digits of a whole number, which clouds write as text and others as what it is; empty
// when there is none, or it is something else.
std::string text_at(const nlohmann::json& document, const char* key);

}  // namespace rubato::rest
