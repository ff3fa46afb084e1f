// Glob: one shell pattern as git reads it, matched against bytes in time proportional to pattern times text.
//
//   ?  *      one byte, any bytes, but no slash
//   [a-z]     a class; [!a] and [^a] negate it; [[:alpha:]] works; a slash is in none
//   **/  /**  as a whole part of the path: any number of folders, everything below; elsewhere ** is *
//   \x        x itself
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::archive {

class Glob {
 public:
  explicit Glob(std::string_view pattern);

  bool matches(std::string_view text) const;

 private:
  enum class Step : uint8_t {
    kByte,      // one byte of a set
    kStar,      // any bytes but slashes
    kAnything,  // any bytes
    kMaybe,     // the next two steps, or none of them
  };
  struct Token {
    Step step;
    std::bitset<256> set;
  };
  class Compiler;
  using States = std::vector<char>;
  void enter(States& states, size_t at) const;

  std::vector<Token> tokens_;
  std::string literal_;  // what the text begins with; with no tokens_ after it, the whole text
  bool never_ = false;   // malformed: matches nothing, as in git
};

}  // namespace rubato::archive
