// LineBuffer: whole lines out of bytes that come in pieces. Pure. How long a line without an end may grow is up to the
// caller, who knows what has to happen then: he asks for size() after add().
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rubato {

class LineBuffer {
 public:
  void add(std::string_view bytes);

  // The next whole line, without its "\n"; nullopt when there is none yet.
  std::optional<std::string> next();
  // The same without a "\r" at its end.
  std::optional<std::string> next_text();

  // What has no end yet, once next() has given all lines.
  size_t size() const { return bytes_.size() - begin_; }
  std::string take_rest();

 private:
  std::string bytes_;
  size_t begin_ = 0;    // what is before was given
  size_t scanned_ = 0;  // up to here there is no further end of a line
};

}  // namespace rubato
