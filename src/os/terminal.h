// Terminal: a whole screen of text with raw keys. However the process ends, the terminal is as it was before.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "core/time.h"

namespace rubato::os {

// Columns of the terminal at this descriptor; 0 when it is none.
size_t terminal_width(int fd);

// One line from standard input with its end; empty at the end of the input.
std::string read_line();

// Standard input up to its end.
std::string read_input();

// Takes the keys that are whole out of `bytes`: "a", "ü", "enter", "esc", "up", "page-down", "ctrl-d", "backspace".
// With `all`, no more bytes will come soon: a lone escape is then the key of that name.
std::deque<std::string> take_keys(std::string& bytes, bool all);

// Blocking, for a program that does nothing else. One at a time.
class Terminal {
 public:
  // Takes over the screen. Throws a usage Error when standard input or output is not a terminal.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    size_t columns = 80, rows = 24;
  };
  Size size() const;

  // Shows these lines (with '\n' between, no line wider than the screen) instead of what was shown.
  void draw(std::string_view frame);

  // The next key; nullopt after `wait`, or when the size has changed. "eof" when the terminal is gone.
  std::optional<std::string> key(Duration wait);

 private:
  std::deque<std::string> keys_;
  std::string bytes_;
};

}  // namespace rubato::os
