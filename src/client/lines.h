// Server-sent events out of a stream that comes in pieces.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/line_buffer.h"

namespace rubato::cli {

// Calls `take` with the data of each event; comments and ids are left out.
class SseReader {
 public:
  explicit SseReader(std::function<void(std::string_view)> take) : take_(std::move(take)) {}
  void feed(std::string_view piece);

 private:
  void line(std::string_view text);

  std::function<void(std::string_view)> take_;
  std::string data_;
  LineBuffer lines_;
};

}  // namespace rubato::cli
