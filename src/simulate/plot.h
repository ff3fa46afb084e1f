// Plots as SVG: steps or stacked areas over time. Pure text, the same input gives the same bytes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/time.h"

namespace rubato::simulate {

struct Line {
  std::string name;
  std::vector<double> values;  // as many as the plot has times
};

struct Plot {
  std::string title;
  std::string unit;  // of the values, for the axis
  std::vector<Duration> times;
  std::vector<Line> lines;
  bool stacked = false;
  std::vector<std::pair<Duration, std::string>> marks;  // something happened then
};

std::string svg(const Plot& plot);
// For text between tags and in attributes.
std::string escaped(std::string_view text);
std::string_view plot_colour(size_t index);

}  // namespace rubato::simulate
