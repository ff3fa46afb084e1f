#include "archive/glob.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

namespace rubato::archive {

namespace {

using Set = std::bitset<256>;

bool is_between(unsigned char c, char low, char high) {
  return c >= static_cast<unsigned char>(low) && c <= static_cast<unsigned char>(high);
}
bool is_digit(unsigned char c) { return is_between(c, '0', '9'); }
bool is_lower(unsigned char c) { return is_between(c, 'a', 'z'); }
bool is_upper(unsigned char c) { return is_between(c, 'A', 'Z'); }
bool is_alpha(unsigned char c) { return is_lower(c) || is_upper(c); }
bool is_alnum(unsigned char c) { return is_alpha(c) || is_digit(c); }
bool is_blank(unsigned char c) { return c == ' ' || c == '\t'; }
bool is_space(unsigned char c) { return c == ' ' || is_between(c, '\t', '\r'); }
bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }
bool is_graph(unsigned char c) { return c > 0x20 && c < 0x7f; }
bool is_print(unsigned char c) { return c >= 0x20 && c < 0x7f; }
bool is_punct(unsigned char c) { return is_graph(c) && !is_alnum(c); }
bool is_xdigit(unsigned char c) { return is_digit(c) || is_between(c, 'a', 'f') || is_between(c, 'A', 'F'); }

constexpr std::array<std::pair<std::string_view, bool (*)(unsigned char)>, 12> kClasses = {{
    {"alnum", is_alnum},
    {"alpha", is_alpha},
    {"blank", is_blank},
    {"cntrl", is_control},
    {"digit", is_digit},
    {"graph", is_graph},
    {"lower", is_lower},
    {"print", is_print},
    {"punct", is_punct},
    {"space", is_space},
    {"upper", is_upper},
    {"xdigit", is_xdigit},
}};

}  // namespace

// Follows git's wildmatch.c step by step where the two could differ (odd classes, stray backslashes).
class Glob::Compiler {
 public:
  Compiler(Glob& glob, std::string_view pattern) : glob_(glob), pattern_(pattern) {}

  bool compile() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '*') {
        star();
      } else if (c == '?') {
        Set set;
        set.set().reset('/');
        byte(set);
        ++at_;
      } else if (c == '[') {
        if (!bracket()) return false;
      } else {
        if (c == '\\' && ++at_ == pattern_.size()) return false;
        literal(pattern_[at_++]);
      }
    }
    return true;
  }

 private:
  void byte(const Set& set) { glob_.tokens_.push_back({Step::kByte, set}); }
  void plain(Step step) { glob_.tokens_.push_back({step, {}}); }
  void literal(char c) {
    if (glob_.tokens_.empty()) {
      glob_.literal_ += c;
      return;
    }
    Set set;
    set.set(static_cast<unsigned char>(c));
    byte(set);
  }

  void star() {
    const size_t begin = at_;
    while (at_ < pattern_.size() && pattern_[at_] == '*') ++at_;
    const std::string_view rest = pattern_.substr(at_);
    const bool whole_part = (begin == 0 || pattern_[begin - 1] == '/') &&
                            (rest.empty() || rest.starts_with('/') || rest.starts_with("\\/"));
    if (at_ - begin < 2 || !whole_part) return plain(Step::kStar);
    if (!rest.starts_with('/')) return plain(Step::kAnything);
    plain(Step::kMaybe);
    plain(Step::kAnything);
    literal('/');
    ++at_;
  }

  // The byte at `at_ + ahead`; NUL, which no pattern holds, past the end.
  unsigned char peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? static_cast<unsigned char>(pattern_[at_ + ahead]) : '\0';
  }

  bool bracket() {
    ++at_;
    const bool negated = peek() == '!' || peek() == '^';
    if (negated) ++at_;
    Set set;
    unsigned char previous = 0;  // where a range may begin; 0 after a range or a class
    do {
      if (!peek()) return false;
      if (peek() == '\\') {
        ++at_;
        if (!peek()) return false;
        set.set(previous = peek());
      } else if (peek() == '-' && previous && peek(1) && peek(1) != ']') {
        ++at_;
        if (peek() == '\\') ++at_;
        if (!peek()) return false;
        for (unsigned c = previous; c <= peek(); ++c) set.set(c);
        previous = 0;
      } else if (peek() == '[' && peek(1) == ':') {
        const std::optional<unsigned char> after = named_class(set);
        if (!after) return false;
        previous = *after;
      } else {
        set.set(previous = peek());
      }
      ++at_;
    } while (peek() != ']');
    ++at_;
    if (negated) set.flip();
    byte(set.reset('/'));
    return true;
  }

  // At "[:". What may begin a range after it; nullopt when the class is unknown or does not end.
  std::optional<unsigned char> named_class(Set& set) {
    const size_t name_begin = at_ + 2;
    const size_t close = pattern_.find(']', name_begin);
    if (close == std::string_view::npos) return std::nullopt;
    if (close == name_begin || pattern_[close - 1] != ':') {  // no ":]": an ordinary set with a '['
      set.set('[');
      return '[';
    }
    const std::string_view name = pattern_.substr(name_begin, close - 1 - name_begin);
    const auto found = std::ranges::find(kClasses, name, [](const auto& one) { return one.first; });
    if (found == kClasses.end()) return std::nullopt;
    for (unsigned c = 0; c < 256; ++c) {
      if (found->second(static_cast<unsigned char>(c))) set.set(c);
    }
    at_ = close;
    return '\0';
  }

  Glob& glob_;
  const std::string_view pattern_;
  size_t at_ = 0;
};

Glob::Glob(std::string_view pattern) { never_ = !Compiler(*this, pattern).compile(); }

void Glob::enter(States& states, size_t at) const {
  if (states[at]) return;
  states[at] = 1;
  if (at == tokens_.size() || tokens_[at].step == Step::kByte) return;
  enter(states, at + 1);
  if (tokens_[at].step == Step::kMaybe) enter(states, at + 3);
}

bool Glob::matches(std::string_view text) const {
  if (never_ || !text.starts_with(literal_)) return false;
  text.remove_prefix(literal_.size());
  if (tokens_.empty()) return text.empty();
  States now(tokens_.size() + 1), next(tokens_.size() + 1);
  enter(now, 0);
  for (const char c : text) {
    std::ranges::fill(next, 0);
    bool alive = false;
    for (size_t at = 0; at < tokens_.size(); ++at) {
      if (!now[at]) continue;
      const Token& token = tokens_[at];
      const bool stays = token.step == Step::kAnything || (token.step == Step::kStar && c != '/');
      const bool goes = token.step == Step::kByte && token.set.test(static_cast<unsigned char>(c));
      if (stays) enter(next, at);
      if (goes) enter(next, at + 1);
      alive = alive || stays || goes;
    }
    if (!alive) return false;
    std::swap(now, next);
  }
  return now.back();
}

}  // namespace rubato::archive
