// Log: structured lines. A line is a level, a message that does not vary, and fields that do:
//
//   log.warning("worker died", {{"rank", 3}, {"signal", "SIGKILL"}});
//   12:30:01.250 warning worker died rank=3 signal=SIGKILL
//   {"time":"2026-11-15T12:30:01.250Z","level":"warning","message":"worker died","rank":3,"signal":"SIGKILL"}
//
// Where lines go and what time it is are given by whoever makes the Log: it reads no clock and no environment, so
// that it works in virtual time. One line is one call of the sink, without a newline in it or after it.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/time.h"

namespace rubato {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
std::string_view to_string(LogLevel level);
std::optional<LogLevel> parse_log_level(std::string_view text);  // the words of to_string

enum class LogFormat { kHuman, kJson };
std::string_view to_string(LogFormat format);

struct LogField {
  std::string key;
  std::variant<bool, int64_t, uint64_t, double, std::string> value;

  LogField(std::string_view k, bool v) : key(k), value(v) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  LogField(std::string_view k, std::string_view v) : key(k), value(std::string(v)) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string(v)) {}
  LogField(std::string_view k, Duration v) : key(k), value(format_duration(v)) {}
  template <std::integral I>
  requires(!std::same_as<I, bool>) LogField(std::string_view k, I v) : key(k) {
    if constexpr (std::is_signed_v<I>) {
      value = static_cast<int64_t>(v);
    } else {
      value = static_cast<uint64_t>(v);
    }
  }
};

struct LogRecord {
  WallTime time;
  LogLevel level = LogLevel::kInfo;
  std::string_view message;
  std::vector<LogField> fields;
};

// HH:MM:SS.mmm level message key=value. The hour is that of `time` as given (UTC unless the caller shifted it).
// Values with spaces or quotes are quoted; control characters are escaped, so that a line stays a line.
std::string format_human(const LogRecord& record);

// One JSON object: time, level, message, then the fields in their order. A field whose key is taken gets a trailing
// "_". Bytes that are not UTF-8 become U+FFFD.
std::string format_json(const LogRecord& record);

// A handle: copies write to the same sink. A Log made without one is silent.
class Log {
 public:
  using Sink = std::function<void(LogLevel level, std::string_view line)>;
  using Now = std::function<WallTime()>;

  Log() = default;
  Log(Sink sink, Now now, LogLevel least = LogLevel::kInfo, LogFormat format = LogFormat::kHuman);

  // A Log that adds these fields to each line, before the line's own.
  Log with(std::initializer_list<LogField> fields) const;

  bool enabled(LogLevel level) const { return output_ && level >= output_->least; }

  void write(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {}) const;
  void debug(std::string_view message, std::initializer_list<LogField> fields = {}) const;
  void info(std::string_view message, std::initializer_list<LogField> fields = {}) const;
  void warning(std::string_view message, std::initializer_list<LogField> fields = {}) const;
  void error(std::string_view message, std::initializer_list<LogField> fields = {}) const;

 private:
  struct Output {
    Sink sink;
    Now now;
    LogLevel least;
    LogFormat format;
  };
  std::shared_ptr<const Output> output_;
  std::vector<LogField> fields_;
};

}  // namespace rubato
