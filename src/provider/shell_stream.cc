#include "provider/shell_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace rubato::provider {

namespace {

constexpr size_t kSummaryMax = 100;

// `read` takes single bytes from a pipe, so what follows the line stays there for the script. printf undoes escape().
// The subshell keeps the script's `exit` and `exec` to itself.
std::string loader() {
  return fmt::format(
      R"sh(IFS= read -r s && s=$(printf %b "$s") && (eval "$s"); c=$?; [ $c = 255 ] && echo "{}" >&2; (exit $c))sh",
      kOwn255);
}

// A profile may read its standard input, so it gets none: the script's comes back from descriptor 3.
// Interactive, because the usual .bashrc ends at once in a shell that is not.
constexpr std::string_view kLoginOuter =
    "exec 3<&0 </dev/null; command -v bash >/dev/null 2>&1 && exec bash --login -i -c \"$0\"; exec sh -l -c \"$0\"";

// For one line of printf's %b.
std::string escape(std::string_view text) {
  std::string line;
  line.reserve(text.size() + text.size() / 16);
  for (const char c : text) {
    if (c == '\\') {
      line += "\\\\";
    } else if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line;
}

bool is_variable(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto fine = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name.front()) && std::ranges::all_of(name, fine);
}

}  // namespace

std::vector<std::string> shell_argv(bool login) {
  if (!login) return {"sh", "-c", loader()};
  return {"sh", "-c", std::string(kLoginOuter), "exec <&3 3<&-; " + loader()};
}

std::string shell_command(bool login) { return "exec " + shell_join(shell_argv(login)); }

std::string script_line(const Command& command) {
  std::string script;
  for (const auto& [name, value] : command.env) {
    if (!is_variable(name)) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' cannot be the name of an environment variable", name));
    }
    script += fmt::format("export {}={}\n", name, shell_quote(value));
  }
  script += command.argv.empty() ? command.script : shell_join(command.argv);
  if (script.find('\0') != std::string::npos) {
    throw Error(ErrorCode::kUsage, "a command holds a NUL byte, which no shell can carry");
  }
  return escape(script) + "\n";
}

bool is_shell_noise(std::string_view line) {
  return line == kOwn255 || line == "bash: no job control in this shell" ||
         (line.starts_with("bash: cannot set terminal process group") && line.ends_with("for device"));
}

std::string quote_path(std::string_view path) {
  if (path == "~") return "\"$HOME\"";
  if (const auto rest = strip_prefix(path, "~/"))
    return rest->empty() ? "\"$HOME\"/" : "\"$HOME\"/" + shell_quote(*rest);
  return shell_quote(path);
}

std::string last_output(const CommandResult& result) {
  std::string message;
  for (const std::string& line : result.last_lines) message += "\n    " + line;
  return message;
}

std::string summary(const Command& command) {
  if (!command.what.empty()) return command.what;
  const std::string text = command.argv.empty() ? command.script : shell_join(command.argv);
  const std::string_view trimmed = trim(text);
  const std::string_view line = trim(trimmed.substr(0, trimmed.find('\n')));
  if (line.size() == trimmed.size() && line.size() <= kSummaryMax) return fmt::format("`{}`", line);
  return fmt::format("`{} ...`", line.substr(0, kSummaryMax));
}

Error too_late(const std::string& machine, const Command& command) {
  return Error(
      ErrorCode::kUnavailable,
      fmt::format("{} on {} did not end within {}", summary(command), machine, format_duration(command.timeout)),
      machine, "look whether it waits for an answer: it has no terminal");
}

}  // namespace rubato::provider
