// Reading the API's documents (src/api) without trust: what is absent or of another kind is empty, never a crash.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/fields.h"
#include "core/time.h"

namespace rubato::cli {

// A text of the head's for one line of a terminal: without controls, its lines joined.
std::string one_line(std::string_view text);

template <class Document>
Document read_document(const nlohmann::json& json) {
  return api::from_json<Document>(json, one_line);
}

// For what is no document of the API: files of ours, data of events.

std::string text_in(const nlohmann::json& object, const char* key);  // for people: cleaned
std::string raw_in(const nlohmann::json& object, const char* key);   // as it is: ids for requests
int64_t int_in(const nlohmann::json& object, const char* key, int64_t absent = 0);
double number_in(const nlohmann::json& object, const char* key, double absent = 0);
std::optional<WallTime> time_in(const nlohmann::json& object, const char* key);
const nlohmann::json& list_in(const nlohmann::json& object, const char* key);    // an empty list when absent
const nlohmann::json& object_in(const nlohmann::json& object, const char* key);  // an empty object when absent

}  // namespace rubato::cli
