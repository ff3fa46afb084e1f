#include "agent/error_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace rubato::agent {

namespace {
// A traceback is for people; what is longer is cut in the middle, where it repeats itself.
constexpr size_t kTextMax = 32 * 1024;

std::string bounded(std::string text) {
  if (text.size() <= kTextMax) return text;
  const std::string cut = fmt::format("\n... {} characters left out ...\n", text.size() - kTextMax);
  return text.substr(0, kTextMax / 2) + cut + text.substr(text.size() - kTextMax / 2);
}
}  // namespace

ErrorReport read_error_report(std::string_view bytes) {
  using nlohmann::json;
  const json document = json::parse(bytes, nullptr, false);
  if (document.is_discarded()) {
    return {fmt::format("(its error file is torn: {} bytes that are not JSON; the worker died while writing it)",
                        bytes.size()),
            bounded(std::string(bytes.substr(0, kTextMax)))};
  }
  const json* message = &document;
  if (document.is_object() && document.contains("message")) message = &document.at("message");
  ErrorReport report;
  if (message->is_string()) {
    report.message = message->get<std::string>();
  } else if (message->is_object()) {
    if (message->contains("message") && (*message)["message"].is_string()) {
      report.message = (*message)["message"].get<std::string>();
    }
    // By pointer: copying a deeply nested document would need as deep a stack.
    const auto extra = message->find("extraInfo");
    if (extra != message->end() && extra->is_object() && extra->contains("py_callstack") &&
        (*extra)["py_callstack"].is_string()) {
      report.traceback = (*extra)["py_callstack"].get<std::string>();
    }
  }
  if (report.message.empty()) report.message = "(its error file has no message)";
  report.message = bounded(std::move(report.message));
  report.traceback = bounded(std::move(report.traceback));
  return report;
}

}  // namespace rubato::agent
