#include "core/line_buffer.h"

#include <utility>

namespace rubato {

void LineBuffer::add(std::string_view bytes) {
  // Lines that were given are dropped here, once for many of them: erasing each would be quadratic.
  if (begin_ > 0) {
    bytes_.erase(0, begin_);
    scanned_ -= begin_;
    begin_ = 0;
  }
  bytes_ += bytes;
}

std::optional<std::string> LineBuffer::next() {
  const size_t end = bytes_.find('\n', scanned_);
  if (end == std::string::npos) {
    scanned_ = bytes_.size();
    return std::nullopt;
  }
  std::string line = bytes_.substr(begin_, end - begin_);
  begin_ = scanned_ = end + 1;
  return line;
}

std::optional<std::string> LineBuffer::next_text() {
  std::optional<std::string> line = next();
  if (line && line->ends_with('\r')) line->pop_back();
  return line;
}

std::string LineBuffer::take_rest() {
  std::string rest = bytes_.substr(begin_);
  *this = {};
  return rest;
}

}  // namespace rubato
