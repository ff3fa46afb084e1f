#include "core/text.h"

#include <algorithm>

#include "core/error.h"

namespace rubato {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (const auto pair = split_once(text, separator)) {
    parts.push_back(pair->first);
    text = pair->second;
  }
  parts.push_back(text);
  return parts;
}

std::optional<std::pair<std::string_view, std::string_view>> split_once(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<std::string_view> strip_prefix(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

std::optional<std::string_view> strip_suffix(std::string_view text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return std::nullopt;
  return text.substr(0, text.size() - suffix.size());
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string shell_quote(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    throw Error(ErrorCode::kUsage, "a word of a command line holds a NUL byte");
  }
  constexpr std::string_view kHarmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+=";
  const bool harmless = !text.empty() && text.find_first_not_of(kHarmless) == std::string_view::npos;
  // NAME=value in front of a command would be an assignment, =name is an expansion in zsh; --flag=value is neither.
  if (harmless && (text[0] == '-' || text.find('=') == std::string_view::npos)) return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string shell_join(const std::vector<std::string>& arguments) {
  std::vector<std::string> quoted;
  for (const std::string& word : arguments) quoted.push_back(shell_quote(word));
  return join(quoted, " ");
}

size_t edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment: three rows of the table, indexed by the length of b's prefix.
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest_of(std::string_view word, const std::vector<std::string_view>& candidates) {
  // Nobody mistypes a longer name, and the distance costs the product of the lengths.
  constexpr size_t kLengthMax = 100;
  if (word.size() > kLengthMax) return std::nullopt;
  const std::string lower_word = to_lower(word);
  size_t allowed = std::max<size_t>(1, word.size() / 3);
  std::optional<std::string> best;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kLengthMax) continue;
    const size_t distance = edit_distance(lower_word, to_lower(candidate));
    // Replacing all of a short word is not a typing error.
    if (distance >= std::max(word.size(), candidate.size())) continue;
    if (best ? distance >= allowed : distance > allowed) continue;
    best = std::string(candidate);
    allowed = distance;
  }
  return best;
}

bool constant_time_equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  // volatile: the compiler must not leave the loop early.
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace rubato
