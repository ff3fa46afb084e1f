// Layout: text for terminals. Columns that line up whatever the script, ages, colours. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"

namespace rubato::cli {

// How text is to look: what the terminal can do and how wide it is.
struct Style {
  bool colour = false;
  size_t width = 0;  // 0: not a terminal; nothing is cut
  WallTime now{};    // for ages
};

// Columns that a terminal needs for it (UTF-8; wide characters take two, combining marks none).
size_t display_width(std::string_view text);

// At most `width` columns; "…" stands for what was cut.
std::string fit(std::string_view text, size_t width);

// Spaces after the text up to `width` columns.
std::string pad(std::string_view text, size_t width);

// One line that cannot move the cursor: control characters and broken UTF-8 become '?'.
std::string clean(std::string_view text);

enum class Hue { kPlain, kBold, kDim, kRed, kGreen, kYellow, kBlue, kMagenta, kCyan };
std::string paint(std::string_view text, Hue hue, bool colour);

// The colour of a phase of a job or a node.
Hue phase_hue(std::string_view phase);

// "0s", "59s", "3m10s", "2h05m", "3d04h": whole seconds, two units.
std::string age_text(Duration age);

// Rows under headings. The last column is cut to the look's width; the others are as wide as they must be.
class Table {
 public:
  struct Cell {
    std::string text;
    Hue hue = Hue::kPlain;
  };
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  std::string text(const Style& look) const;
  std::vector<std::string> lines(const Style& look) const;  // the heading first

 private:
  std::vector<std::string> headings_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace rubato::cli
