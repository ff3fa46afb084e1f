#include "client/lines.h"

#include <utility>

#include "core/text.h"

namespace rubato::cli {

void SseReader::feed(std::string_view piece) {
  lines_.add(piece);
  while (const auto text = lines_.next_text()) line(*text);
}

void SseReader::line(std::string_view text) {
  if (text.empty()) {
    const std::string data = std::exchange(data_, {});
    if (!data.empty()) take_(data);
    return;
  }
  if (const auto value = strip_prefix(text, "data:")) {
    if (!data_.empty()) data_ += '\n';
    data_ += value->starts_with(' ') ? value->substr(1) : *value;
  }
}

}  // namespace rubato::cli
