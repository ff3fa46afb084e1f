// Plots as SVG: steps, filled or stacked areas over time. Pure text, the same input gives the same bytes.
//
// Colours are told apart by people who see them differently (Okabe and Ito's), and never alone: lines are also dashed,
// areas hatched, faults have a shape of their own. Each drawing has a light and a dark look, and follows the reader's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/time.h"

namespace rubato::simulate {

enum class LineStyle { kSolid, kDashed, kFilled };

struct Line {
  std::string name;
  std::vector<double> values;  // as many as the plot has times; each holds until the next time
  size_t colour = 0;           // below kPlotColours
  LineStyle style = LineStyle::kSolid;
  bool hatched = false;  // of an area
};

struct Plot {
  std::string name;   // of its file, and of its parts in a page
  std::string title;  // what is shown
  std::string unit;   // of the values, for the axis
  std::vector<Duration> times;
  std::vector<Line> lines;
  bool stacked = false;
  bool whole = false;                                   // values are counts: no fractions on the axis
  std::vector<std::pair<Duration, std::string>> marks;  // faults that struck then
  std::optional<Duration> settles;                      // from here on nothing new comes
};

inline constexpr size_t kPlotColours = 8;
inline constexpr size_t kGrey = 7;  // for what is not there yet

enum class PlotWidth { kWide, kNarrow };  // of a desk, of a phone

// A file of its own.
std::string svg(const Plot& plot);
// A part of a page that has plot_style(): the page's script moves its cross-hair.
std::string svg_in_page(const Plot& plot, PlotWidth width);
// CSS of the classes that plots use, light and dark.
std::string plot_style();

// For text between tags and in attributes, of HTML and of SVG.
std::string escaped(std::string_view text);

}  // namespace rubato::simulate
