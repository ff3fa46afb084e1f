#include "archive/ignore.h"

#include <ranges>

#include "core/error.h"
#include "core/text.h"

namespace rubato::archive {

namespace {

// Without blanks at the end, unless a backslash stands before them.
std::string_view without_blanks(std::string_view line) {
  size_t end = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\\') {
      if (++at == line.size()) return line;
      end = at + 1;
    } else if (line[at] != ' ') {
      end = at + 1;
    }
  }
  return line.substr(0, end);
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

IgnoreFile::IgnoreFile(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (std::string_view line : split(text, '\n')) {
    if (line.starts_with('#')) continue;
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = without_blanks(line.substr(0, line.find('\0')));
    const bool keeps = line.starts_with('!');
    if (keeps) line.remove_prefix(1);
    const bool folders_only = line.ends_with('/');
    if (folders_only) line.remove_suffix(1);
    const bool anywhere = line.find('/') == std::string_view::npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    if (!line.empty()) rules_.push_back({keeps, folders_only, anywhere, Glob(line)});
  }
}

std::optional<bool> IgnoreFile::ignores(std::string_view path, bool is_folder) const {
  const std::string_view name = last_part(path);
  for (const Rule& rule : std::views::reverse(rules_)) {
    if (rule.folders_only && !is_folder) continue;
    if (rule.glob.matches(rule.anywhere ? name : path)) return !rule.keeps;
  }
  return std::nullopt;
}

void IgnoreStack::add_above(const std::string& below, std::string_view gitignore) {
  levels_.push_back({below.empty() ? "" : below + "/", 0, IgnoreFile(gitignore), IgnoreFile()});
}

void IgnoreStack::enter(const std::string& folder, std::string_view gitignore, std::string_view rubatoignore) {
  levels_.push_back({"", folder.empty() ? 0 : folder.size() + 1, IgnoreFile(gitignore), IgnoreFile(rubatoignore)});
}

void IgnoreStack::leave() {
  CHECK(!levels_.empty());
  levels_.pop_back();
}

bool IgnoreStack::ignores(const std::string& path, bool is_folder) const {
  const std::string_view name = last_part(path);
  if (name == ".git" || (is_folder ? name == "__pycache__" : name.ends_with(".pyc"))) return true;
  for (const bool rubato : {true, false}) {
    for (const Level& level : std::views::reverse(levels_)) {
      const IgnoreFile& file = rubato ? level.rubato : level.git;
      const std::string below = level.above + path.substr(level.folder_size);
      if (const std::optional<bool> verdict = file.ignores(below, is_folder)) return *verdict;
    }
  }
  return false;
}

}  // namespace rubato::archive
