#include "client/head_end.h"

#include <nlohmann/json.hpp>

namespace rubato::cli {

std::string head_end_file(const std::string& dir) { return dir + "/head/ended.json"; }

std::optional<HeadEnd> read_head_end(Files& files, const std::string& dir) {
  const nlohmann::json document = nlohmann::json::parse(files.read(head_end_file(dir)).value_or(""), nullptr, false);
  if (!document.is_object()) return std::nullopt;
  HeadEnd end;
  end.message = document.value("message", std::string());
  end.hint = document.value("hint", std::string());
  end.is_permanent = document.value("permanent", false);
  if (end.message.empty()) return std::nullopt;
  return end;
}

bool has_ended_for_good(Files& files, const std::string& dir) {
  const nlohmann::json document = nlohmann::json::parse(files.read(head_end_file(dir)).value_or(""), nullptr, false);
  return document.is_object() && document.value("permanent", false);
}

}  // namespace rubato::cli
