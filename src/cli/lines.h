// Lines and server-sent events out of a stream that comes in pieces.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace rubato::cli {

// Calls `take` for each whole line, without its end. What has no end yet waits for the next piece.
class LineSplitter {
 public:
  explicit LineSplitter(std::function<void(std::string_view)> take) : take_(std::move(take)) {}
  void feed(std::string_view piece);

 private:
  std::function<void(std::string_view)> take_;
  std::string rest_;
};

// Calls `take` with the data of each event; comments and ids are left out.
class SseReader {
 public:
  explicit SseReader(std::function<void(std::string_view)> take);
  void feed(std::string_view piece) { lines_.feed(piece); }

 private:
  void line(std::string_view text);

  std::function<void(std::string_view)> take_;
  std::string data_;
  LineSplitter lines_;
};

}  // namespace rubato::cli
