#include "rest/ini.h"

#include "core/error.h"
#include "core/text.h"

namespace rubato::rest {
namespace {

constexpr size_t kIniBytesMax = size_t{4} << 20;

std::string_view without_mark(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;  // Windows' editors begin a file with it
}

}  // namespace

IniFile::IniFile(std::string_view text, std::string path) : path_(std::move(path)) {
  if (text.size() > kIniBytesMax) throw Error(ErrorCode::kUsage, "the file is larger than 4 MiB", path_);
  Section* section = nullptr;
  std::string parent;  // the key whose indented keys follow
  int number = 0;
  for (std::string_view line : split(without_mark(text), '\n')) {
    ++number;
    const auto bad = [&](const std::string& why, const std::string& fix) {
      return Error(ErrorCode::kUsage, why, path_ + ":" + std::to_string(number), fix);
    };
    const std::string_view content = trim(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    const bool indented = line.front() == ' ' || line.front() == '\t';
    if (content.front() == '[' && !indented) {
      const size_t close = content.find(']');
      if (close == std::string_view::npos) throw bad("a section's name has no ]", "write [NAME]");
      section = &sections_[std::string(trim(content.substr(1, close - 1)))];
      parent.clear();
      continue;
    }
    if (section == nullptr) throw bad("a line stands before the first [section]", "write [default] above it");
    const auto parts = split_once(content, '=');
    if (!parts) throw bad("neither a [section] nor 'key = value'", "write key = value");
    const std::string key = to_lower(trim(parts->first));
    if (key.empty()) throw bad("a value without a key", "write key = value");
    const std::string value(trim(parts->second));
    if (indented && !parent.empty()) {
      (*section)[parent + "." + key] = IniValue{value, number};
      continue;
    }
    (*section)[key] = IniValue{value, number};
    parent = value.empty() ? key : "";
  }
}

const IniFile::Section* IniFile::find(std::string_view section) const {
  const auto found = sections_.find(section);
  return found == sections_.end() ? nullptr : &found->second;
}

std::optional<std::string> IniFile::value(std::string_view section, std::string_view key) const {
  const Section* const in = find(section);
  if (in == nullptr) return std::nullopt;
  const auto found = in->find(key);
  if (found == in->end()) return std::nullopt;
  return found->second.text;
}

}  // namespace rubato::rest
