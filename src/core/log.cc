#include "core/log.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato {

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (text == to_string(level)) return level;
  }
  return std::nullopt;
}

std::string_view to_string(LogFormat format) {
  switch (format) {
    case LogFormat::kHuman:
      return "human";
    case LogFormat::kJson:
      return "json";
  }
  return "unknown";
}

namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Control characters would break the line, or drive the reader's terminal.
void append_escaped(std::string& out, std::string_view text, bool in_quotes) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_control(c)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (in_quotes && (c == '"' || c == '\\')) out += '\\';
      out += c;
    }
  }
}

void append_human_text(std::string& out, std::string_view text) {
  bool bare = !text.empty();
  for (const char c : text) bare = bare && !is_control(c) && c != ' ' && c != '"' && c != '=';
  if (bare) {
    out += text;
    return;
  }
  out += '"';
  append_escaped(out, text, true);
  out += '"';
}

struct AppendHuman {
  std::string& out;
  void operator()(const std::string& text) const { append_human_text(out, text); }
  void operator()(const auto& plain) const { fmt::format_to(std::back_inserter(out), "{}", plain); }
};

}  // namespace

std::string format_human(const LogRecord& record) {
  const auto since_midnight = record.time - std::chrono::floor<std::chrono::days>(record.time);
  const int64_t ms = std::chrono::floor<std::chrono::milliseconds>(since_midnight).count();
  std::string out = fmt::format("{:02}:{:02}:{:02}.{:03} {} ", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60,
                                ms % 1000, to_string(record.level));
  append_escaped(out, record.message, false);
  for (const LogField& field : record.fields) {
    out += ' ';
    append_escaped(out, field.key, false);
    out += '=';
    std::visit(AppendHuman{out}, field.value);
  }
  return out;
}

std::string format_json(const LogRecord& record) {
  nlohmann::ordered_json object;
  object["time"] = format_time(record.time);
  object["level"] = to_string(record.level);
  object["message"] = record.message;
  for (const LogField& field : record.fields) {
    std::string key = field.key;
    while (object.contains(key)) key += '_';
    std::visit([&](const auto& value) { object[key] = value; }, field.value);
  }
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Log::Log(Sink sink, Now now, LogLevel least, LogFormat format)
    : output_(std::make_shared<const Output>(Output{std::move(sink), std::move(now), least, format})) {
  CHECK(output_->sink && output_->now);
}

Log Log::with(std::initializer_list<LogField> fields) const {
  Log copy = *this;
  copy.fields_.insert(copy.fields_.end(), fields);
  return copy;
}

void Log::write(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) const {
  if (!enabled(level)) return;
  LogRecord record{output_->now(), level, message, fields_};
  record.fields.insert(record.fields.end(), fields);
  output_->sink(level, output_->format == LogFormat::kJson ? format_json(record) : format_human(record));
}

void Log::debug(std::string_view message, std::initializer_list<LogField> fields) const {
  write(LogLevel::kDebug, message, fields);
}
void Log::info(std::string_view message, std::initializer_list<LogField> fields) const {
  write(LogLevel::kInfo, message, fields);
}
void Log::warning(std::string_view message, std::initializer_list<LogField> fields) const {
  write(LogLevel::kWarning, message, fields);
}
void Log::error(std::string_view message, std::initializer_list<LogField> fields) const {
  write(LogLevel::kError, message, fields);
}

}  // namespace rubato
