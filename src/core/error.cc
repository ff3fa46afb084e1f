#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace rubato {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFailed:
      return "failed";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kNotFound:
      return "not-found";
    case ErrorCode::kNoCapacity:
      return "no-capacity";
    case ErrorCode::kQuota:
      return "quota";
    case ErrorCode::kAuth:
      return "auth";
  }
  return "unknown";
}

std::string render(const Error& error) {
  std::string out = "error: " + error.message + "\n";
  if (!error.where.empty()) out += "  at  " + error.where + "\n";
  if (!error.hint.empty()) out += "  fix " + error.hint + "\n";
  return out;
}

int exit_code(const Error& error) { return error.code == ErrorCode::kUsage ? 2 : 1; }

void check_failed(std::string_view expression, std::source_location where) {
  std::fprintf(stderr, "rubato: a bug: CHECK(%.*s) failed at %s:%u in %s\n", static_cast<int>(expression.size()),
               expression.data(), where.file_name(), where.line(), where.function_name());
  std::abort();
}

}  // namespace rubato
