#include "cli/lines.h"

#include "core/text.h"

namespace rubato::cli {

void LineSplitter::feed(std::string_view piece) {
  while (!piece.empty()) {
    const size_t end = piece.find('\n');
    if (end == std::string_view::npos) {
      rest_ += piece;
      return;
    }
    std::string whole = std::exchange(rest_, {});
    whole += piece.substr(0, end);
    if (whole.ends_with('\r')) whole.pop_back();
    take_(whole);
    piece.remove_prefix(end + 1);
  }
}

SseReader::SseReader(std::function<void(std::string_view)> take)
    : take_(std::move(take)), lines_([this](std::string_view text) { line(text); }) {}

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
