// Reading the API's documents without trust: what is absent or of another kind is empty, never a crash.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/time.h"

namespace rubato::cli {

std::string text_in(const nlohmann::json& object, const char* key);  // for people: cleaned
std::string raw_in(const nlohmann::json& object, const char* key);   // as it is: ids for requests
int64_t int_in(const nlohmann::json& object, const char* key, int64_t absent = 0);
double number_in(const nlohmann::json& object, const char* key, double absent = 0);
std::optional<WallTime> time_in(const nlohmann::json& object, const char* key);
const nlohmann::json& list_in(const nlohmann::json& object, const char* key);    // an empty list when absent
const nlohmann::json& object_in(const nlohmann::json& object, const char* key);  // an empty object when absent

}  // namespace rubato::cli
