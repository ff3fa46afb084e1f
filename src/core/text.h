// Text: the few string operations the standard library lacks.
#pragma once

#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rubato {

// The parts between separators, empty ones too: split("a,,b", ',') is {"a", "", "b"}, split("", ',') is {""}.
// The views point into `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

// The parts before and after the first separator; nullopt when there is none.
std::optional<std::pair<std::string_view, std::string_view>> split_once(std::string_view text, char separator);

// Any range of things that a string_view can be made of.
template <class Range>
std::string join(const Range& parts, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& part : parts) {
    if (!std::exchange(first, false)) out += separator;
    out += std::string_view(part);
  }
  return out;
}

// Without the ASCII white space at both ends.
std::string_view trim(std::string_view text);

// The rest after a prefix (before a suffix); nullopt when `text` does not begin (end) with it.
std::optional<std::string_view> strip_prefix(std::string_view text, std::string_view prefix);
std::optional<std::string_view> strip_suffix(std::string_view text, std::string_view suffix);

// ASCII only, whatever the locale.
std::string to_lower(std::string_view text);

// One word for a POSIX shell: as it is when harmless, else in single quotes. Throws Error when the text holds a
// NUL byte, which no shell can carry.
std::string shell_quote(std::string_view text);

// The words quoted and joined with spaces.
std::string shell_join(const std::vector<std::string>& arguments);

// The fewest insertions, deletions, changes and swaps of neighbours that make one of the other (bytes).
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that `word` was probably meant to be: at most a third of it mistyped, letter case ignored. The
// earliest of equally near ones. For "did you mean".
std::optional<std::string> nearest_of(std::string_view word, const std::vector<std::string_view>& candidates);

template <class Range>
std::optional<std::string> nearest(std::string_view word, const Range& candidates) {
  return nearest_of(word, std::vector<std::string_view>(std::begin(candidates), std::end(candidates)));
}

// For secrets: the time taken tells the lengths at most, never where the two differ.
bool constant_time_equal(std::string_view a, std::string_view b);

}  // namespace rubato
