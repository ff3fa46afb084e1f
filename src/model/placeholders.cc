#include "model/placeholders.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/text.h"
#include "model/config_keys.h"

namespace rubato {
namespace {

bool letter(char c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_'; }
bool digit(char c) { return '0' <= c && c <= '9'; }

// Of a text: a value, a command, or a part of the file that is the provider's own.
enum class Voice { kValue, kShell, kOpen, kOwn };

// The words between `open` at `at` and `close`, when they are letters, digits, spaces, '_' and '-' and begin with a
// letter: "{AMI ID}" gives "AMI ID".
std::optional<std::string_view> words_in(std::string_view text, size_t at, char close) {
  const size_t end = text.find(close, at + 1);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view inside = text.substr(at + 1, end - at - 1);
  if (inside.empty() || inside.size() > 60 || !letter(inside.front()) || inside.back() == ' ') return std::nullopt;
  const auto fine = [](char c) { return letter(c) || digit(c) || c == ' ' || c == '-'; };
  return std::all_of(inside.begin(), inside.end(), fine) ? std::optional(inside) : std::nullopt;
}

std::optional<std::string> brace_word(std::string_view text, size_t at) {
  // %{http_code}, @{upstream}, {{.Names}} and \{ belong to other programs.
  if (at > 0 && std::string_view("$%@#\\{").find(text[at - 1]) != std::string_view::npos) return std::nullopt;
  const auto inside = words_in(text, at, '}');
  if (!inside) return std::nullopt;
  return fmt::format("{{{}}}", *inside);
}

// {{ region }} and {% if x %}: what Jinja would have filled in.
std::optional<std::string> jinja_word(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  const std::string_view close = rest.starts_with("{{") ? "}}" : rest.starts_with("{%") ? "%}" : "";
  if (close.empty()) return std::nullopt;
  if (trim(rest.substr(2)).starts_with('.')) return std::nullopt;  // {{.Names}} is Go's
  const size_t end = rest.find(close);
  return end == std::string_view::npos || end > 200 ? std::nullopt
                                                    : std::optional(std::string(rest.substr(0, end + close.size())));
}

std::optional<std::string> variable_word(std::string_view text, size_t at) {
  if (at + 2 >= text.size() || text[at] != '$' || text[at + 1] != '{' || !letter(text[at + 2])) return std::nullopt;
  const size_t end = text.find('}', at);
  if (end == std::string_view::npos || end - at > 200) return std::nullopt;
  return std::string(text.substr(at, end - at + 1));
}

bool capitals(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) { return ('A' <= c && c <= 'Z') || c == '_' || digit(c); });
}

// <project_id>, <your instance type>; in a command only <REPO_NAME> and <your-...>, because a shell redirects with <
// and >.
std::optional<std::string> angle_word(std::string_view text, size_t at, Voice voice) {
  const auto inside = words_in(text, at, '>');
  if (!inside) return std::nullopt;
  const bool template_like = (capitals(*inside) && inside->size() > 2) || to_lower(*inside).starts_with("your");
  if (voice == Voice::kShell && !template_like) return std::nullopt;
  return fmt::format("<{}>", *inside);
}

// The words of Ray's templates.
std::optional<std::string> template_word(std::string_view text) {
  if (text == "...") return std::string(text);
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && (letter(text[end]) || digit(text[end]))) ++end;
    const std::string_view word = text.substr(at, end - at);
    const bool known = word.starts_with("YOUR_") || word.starts_with("TYPICALLY_") || word.ends_with("_HOSTNAME") ||
                       word.starts_with("COORDINATOR_");
    if (known && capitals(word)) return std::string(word);
    at = std::max(end, at + 1);
  }
  return std::nullopt;
}

class Walker {
 public:
  Walker(std::string_view text, Findings& findings) : lines_(split(text, '\n')), findings_(findings) {}

  void walk(const Yaml& node, const std::string& path, Voice voice) {
    switch (node.kind()) {
      case YamlKind::kNull:
        return;
      case YamlKind::kScalar:
        return scalar(node, voice);
      case YamlKind::kSequence:
        for (const Yaml& item : node.items()) walk(item, path + ".-", voice);
        return;
      case YamlKind::kMapping:
        if (const auto word = flow_word(node)) return unfilled_error(node, *word, Voice::kValue);
        for (const Yaml::Entry& entry : node.entries()) {
          scalar(entry.key, voice);
          entry_value(entry, path, voice);
        }
    }
  }

 private:
  void entry_value(const Yaml::Entry& entry, const std::string& path, Voice voice) {
    const std::string key = entry.key.as_string();
    const bool types = path == "node_types" || path == "available_node_types";
    const std::string below = types ? "node_types.*" : path.empty() ? key : path + "." + key;
    const ConfigKey* row = find_config_key(below);
    const bool shell = row != nullptr && (row->type == KeyType::kCommands || row->type == KeyType::kShell);
    const bool open = row != nullptr && (row->type == KeyType::kOpaque || row->type == KeyType::kAny);
    Voice of_value = Voice::kValue;
    if (voice == Voice::kOwn || below == "jobs.env") of_value = Voice::kOwn;
    if (voice == Voice::kOpen || open) of_value = Voice::kOpen;
    if (shell) of_value = Voice::kShell;
    walk(entry.value, below, of_value);
  }

  void scalar(const Yaml& node, Voice voice) {
    const std::string text = node.as_string();
    if (text.find('\n') != std::string::npos || text.starts_with("#!")) voice = Voice::kShell;
    char quote = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      const char c = text[at];
      if (voice == Voice::kShell && (c == '\'' || c == '"')) quote = quote == 0 ? c : quote == c ? 0 : quote;
      if (c == '$' && voice != Voice::kShell) {
        if (const auto word = variable_word(text, at)) return variable(node, *word, voice);
      }
      if (c == '{' && voice == Voice::kValue) {
        if (const auto word = jinja_word(text, at)) return unfilled_error(node, *word, voice);
      }
      if (c == '{' && quote == 0) {
        if (const auto word = brace_word(text, at)) return unfilled_error(node, *word, voice);
      }
      if (c == '<' && quote == 0) {
        if (const auto word = angle_word(text, at, voice)) return left(node, *word);
      }
    }
    if (const auto word = template_word(text)) left(node, *word);
  }

  // Ray's providers fill in some themselves (${RAY_POD_NAME}), and nobody checks the rest of their own part.
  void variable(const Yaml& node, const std::string& word, Voice voice) {
    if (voice != Voice::kOpen) return unfilled_error(node, word, voice);
    if (word.starts_with("${RAY_")) return;
    findings_.warning(node, fmt::format("{} is passed on as it is", word),
                      "variables are filled in only by the shells that run commands");
  }

  void unfilled_error(const Yaml& node, const std::string& word, Voice voice) {
    std::string hint = "write the value in its place";
    if (word.starts_with('$')) hint += "; variables are filled in only by the shells that run commands";
    if (voice == Voice::kShell) hint += ", or quote it if the shell should see it";
    findings_.error(node, fmt::format("{} was never filled in", word), std::move(hint));
  }

  void left(const Yaml& node, const std::string& word) {
    findings_.unfilled(node, fmt::format("{} is left from a template", word), "write your own value in its place");
  }

  // {AMI ID} where YAML sees a mapping with one key and no value, and the source has no colon.
  std::optional<std::string> flow_word(const Yaml& node) const {
    if (node.entries().size() != 1 || !node.entries()[0].value.is_null() || node.line() > lines_.size()) {
      return std::nullopt;
    }
    const std::string_view line = lines_[node.line() - 1];
    size_t at = 0;
    for (size_t column = 1; column < node.column() && at < line.size(); ++column) {
      ++at;
      while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xc0U) == 0x80) ++at;
    }
    if (at >= line.size() || line[at] != '{') return std::nullopt;
    const size_t end = line.find('}', at);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view inside = line.substr(at, end - at + 1);
    if (inside.find(':') != std::string_view::npos) return std::nullopt;
    return std::string(inside);
  }

  std::vector<std::string_view> lines_;
  Findings& findings_;
};

}  // namespace

void find_placeholders(const Yaml& document, std::string_view text, Findings& findings) {
  Walker(text, findings).walk(document, "", Voice::kValue);
}

bool find_broken_placeholders(std::string_view text, const std::string& file, size_t line, Findings& findings) {
  bool explained = false;
  size_t number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const size_t begin = raw.find_first_not_of(" \t-");
    if (begin == std::string_view::npos || raw[begin] == '#') continue;
    const size_t colon = raw.find(": ");
    for (const size_t start :
         {begin, colon == std::string_view::npos ? begin : raw.find_first_not_of(' ', colon + 1)}) {
      if (start == std::string_view::npos || raw[start] != '{') continue;
      auto word = jinja_word(raw, start);
      if (!word) word = brace_word(raw, start);
      if (!word) continue;
      findings.add({Severity::kError, fmt::format("{} was never filled in", *word),
                    fmt::format("{}:{}:{}", file, number, start + 1), "write the value in its place", number,
                    start + 1});
      explained = explained || number == line || number + 1 == line;
      break;
    }
  }
  return explained;
}

}  // namespace rubato
