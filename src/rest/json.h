// JSON documents of other people's services: bounded, and read without surprises.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::rest {

// A service's answer, bounded; an empty body is an empty object. Throws kUnavailable, naming `what` was called, for
// what is no JSON.
nlohmann::json read_json(const std::string& body, std::string_view what);

// The same, where what is no JSON is foreseen: then the document is_discarded().
nlohmann::json parse_bounded(const std::string& text);

// The text under a key, or the digits of a whole number, which clouds write as text and others as what it is; empty
// when there is none, or it is something else.
std::string text_at(const nlohmann::json& document, const char* key);

// The object or the list under a key; an empty one when there is none, or null, or something else.
nlohmann::json object_at(const nlohmann::json& document, const char* key);
nlohmann::json list_at(const nlohmann::json& document, const char* key);
// The texts of a list, or the one that stands in its place.
std::vector<std::string> texts_at(const nlohmann::json& document, const char* key);
// true, or the text "true".
bool flag_at(const nlohmann::json& document, const char* key);
// A number, or the text of one; 0 when there is none.
double number_at(const nlohmann::json& document, const char* key);

}  // namespace rubato::rest
