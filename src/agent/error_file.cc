#include "agent/error_file.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato::agent {

namespace {
// A traceback is for people; what is longer is cut in the middle, where it repeats itself.
constexpr size_t kTextMax = 32 * 1024;

std::string bounded(std::string text) {
  if (text.size() <= kTextMax) return text;
  const std::string cut = fmt::format("\n... {} characters left out ...\n", text.size() - kTextMax);
  return text.substr(0, kTextMax / 2) + cut + text.substr(text.size() - kTextMax / 2);
}

// The number in "\uXXXX" at `at`; nullopt: there is no such escape.
std::optional<unsigned> escaped_unit(std::string_view json, size_t at) {
  constexpr size_t kLength = 6;
  if (at + kLength > json.size() || json.substr(at, 2) != "\\u") return std::nullopt;
  unsigned unit = 0;
  const char* const end = json.data() + at + kLength;
  const auto [stop, error] = std::from_chars(json.data() + at + 2, end, unit, 16);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return unit;
}

// Python writes a byte of a file name that is not UTF-8 as half of a surrogate pair ("\udcff"), which no other reader
// of JSON takes. Such an escape becomes the text that Python shows a person for it.
std::string without_half_pairs(std::string_view json) {
  constexpr unsigned kHigh = 0xD800, kLow = 0xDC00, kEnd = 0xE000;
  std::string out;
  out.reserve(json.size());
  for (size_t i = 0; i < json.size();) {
    if (json[i] != '\\') {
      out += json[i++];
      continue;
    }
    const unsigned unit = escaped_unit(json, i).value_or(0);
    const unsigned next = escaped_unit(json, i + 6).value_or(0);
    const bool is_pair = unit >= kHigh && unit < kLow && next >= kLow && next < kEnd;
    if (unit >= kHigh && unit < kEnd && !is_pair) out += '\\';
    const size_t length = is_pair ? 12 : 2;  // of another escape, the rest is plain text
    out += json.substr(i, length);
    i += length;
  }
  return out;
}
}  // namespace

std::optional<std::string> read_error_file(Files& files, const std::string& path) {
  try {
    return files.read_range(path, 0, kErrorFileMax + 1);
  } catch (const Error&) {
    return std::nullopt;
  }
}

ErrorReport read_error_report(std::string_view bytes) {
  using nlohmann::json;
  if (bytes.size() > kErrorFileMax) {
    return {fmt::format("(its error file is larger than {} MiB; this is how it begins)", kErrorFileMax >> 20),
            std::string(bytes.substr(0, kTextMax))};
  }
  const json document = json::parse(without_half_pairs(bytes), nullptr, false);
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

std::string launcher_document(const std::string& message, const std::string& details, WallTime now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  const nlohmann::ordered_json document = {
      {"message",
       {{"message", message}, {"extraInfo", {{"py_callstack", details}, {"timestamp", std::to_string(seconds)}}}}}};
  return document.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string failure_document(const elastic::Failure& failure, const std::optional<std::string>& worker_bytes,
                             WallTime now) {
  using Json = nlohmann::ordered_json;
  // What is nested deeper is no error file, and would need as deep a stack to be written.
  const Json::parser_callback_t flat = [](int depth, Json::parse_event_t, Json&) { return depth <= 32; };
  const bool readable = worker_bytes && worker_bytes->size() <= kErrorFileMax;
  Json document =
      readable ? Json::parse(without_half_pairs(*worker_bytes), flat, false) : Json(Json::value_t::discarded);
  if (!document.is_object() || !document.contains("message")) {
    const std::string message = failure.message.empty() ? describe(failure) : failure.message;
    document = Json::parse(launcher_document(message, failure.traceback, now));
  }
  const int code = failure.signal != 0 ? -failure.signal : failure.exit_code;
  // A signal's number is known to nobody but the one who waited for the worker.
  if (code != 0 && document["message"].is_object()) document["message"]["errorCode"] = code;
  return document.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace rubato::agent
