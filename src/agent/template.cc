#include "agent/template.h"

namespace rubato::agent {

namespace {

bool starts_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool continues_name(char c) { return starts_name(c) || (c >= '0' && c <= '9'); }

// The name that `text` begins with, or empty.
std::string_view leading_name(std::string_view text) {
  if (text.empty() || !starts_name(text.front())) return {};
  size_t end = 1;
  while (end < text.size() && continues_name(text[end])) ++end;
  return text.substr(0, end);
}

}  // namespace

std::string safe_substitute(std::string_view text, const std::map<std::string, std::string, std::less<>>& values) {
  std::string out;
  while (!text.empty()) {
    const size_t dollar = text.find('$');
    out += text.substr(0, dollar);
    if (dollar == std::string_view::npos) return out;
    text.remove_prefix(dollar + 1);
    if (text.starts_with('$')) {
      out += '$';
      text.remove_prefix(1);
      continue;
    }
    const bool braced = text.starts_with('{');
    const std::string_view name = leading_name(text.substr(braced ? 1 : 0));
    const bool closed = !braced || (!name.empty() && text.substr(1 + name.size()).starts_with('}'));
    const auto value = name.empty() || !closed ? values.end() : values.find(name);
    if (value == values.end()) {
      out += '$';
      continue;
    }
    out += value->second;
    text.remove_prefix(name.size() + (braced ? 2 : 0));
  }
  return out;
}

}  // namespace rubato::agent
