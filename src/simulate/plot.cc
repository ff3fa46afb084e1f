#include "simulate/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace rubato::simulate {
namespace {

// Sizes in the drawing's own units: about pixels at a desk, and on a phone.
struct Frame {
  double width, plot_height, font;
  int time_ticks, buckets;
};
constexpr Frame kWideFrame{960, 190, 12, 12, 460};
constexpr Frame kNarrowFrame{400, 190, 13, 5, 180};
constexpr double kLeft = 52, kRight = 14, kPad = 14, kBottom = 48, kRowHeight = 20;
constexpr size_t kLinesAcross = 40;  // more marks would hide what they are about: then only their heads are drawn
constexpr double kNameEms = 22;      // in a legend

// Okabe and Ito, "Color Universal Design"; on dark ground lighter where theirs are too dark. The last one is grey.
constexpr std::array<std::string_view, kPlotColours> kLight{"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                            "#56b4e9", "#d55e00", "#5b4b9a", "#9aa1ab"};
constexpr std::array<std::string_view, kPlotColours> kDark{"#4a9fdb", "#e69f00", "#1fb78b", "#d78fb6",
                                                           "#8fd0f5", "#e8742a", "#9c8be0", "#747c89"};

double nice_step(double most, int steps) {
  const double rough = std::max(most / steps, 1e-9);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

Duration time_step(Duration span, int ticks) {
  static constexpr std::array<Duration, 19> kSteps{1s,    2s,    5s, 10s, 15s, 30s, 1min, 2min, 5min, 10min,
                                                   15min, 30min, 1h, 2h,  3h,  4h,  6h,   12h,  24h};
  for (const Duration step : kSteps) {
    if (span / step <= ticks) return step;
  }
  return 24h * std::max<int64_t>(2, std::llround(nice_step(to_seconds(span) / 86400, ticks)));
}

std::string time_text(Duration at, Duration step) {
  if (at == 0s) return "0";
  if (step >= 24h) return fmt::format("{} d", at / 24h);
  if (step >= 1h) return fmt::format("{} h", at / 1h);
  if (step >= 1min)
    return at >= 1h ? fmt::format("{}:{:02} h", at / 1h, at % 1h / 1min) : fmt::format("{} min", at / 1min);
  return at >= 1min ? fmt::format("{}:{:02} min", at / 1min, at % 1min / 1s) : fmt::format("{} s", at / 1s);
}

std::string number_text(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

// About how wide a text is, in sizes of its letters; rather too much than too little.
double ems(std::string_view text) {
  constexpr std::string_view kThin = "fijlrtI.,:;'|!()[]-/ ", kWide = "mwMW@%";
  double sum = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) == 0x80) continue;  // the rest of a sign
    if (byte >= 0xe3) {
      sum += 1.1;  // CJK and beyond
    } else if (byte >= 0x80 || ('A' <= c && c <= 'Z')) {
      sum += 0.75;
    } else {
      sum += kThin.find(c) != std::string_view::npos ? 0.42 : kWide.find(c) != std::string_view::npos ? 1.02 : 0.65;
    }
  }
  return sum;
}

// Without its middle: names differ at their beginnings and at their ends.
std::string shortened(std::string_view text, double ems_max) {
  if (ems(text) <= ems_max) return std::string(text);
  std::vector<std::string_view> signs;
  for (size_t i = 0; i < text.size();) {
    size_t next = i + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xc0) == 0x80) ++next;
    signs.push_back(text.substr(i, next - i));
    i = next;
  }
  std::string begin, end;
  size_t first = 0, last = signs.size();
  while (first < last && ems(begin) + ems(end) + ems(signs[first]) + 1 <= ems_max) {
    begin += signs[first++];
    if (last <= first || ems(begin) + ems(end) + ems(signs[last - 1]) + 1 > ems_max) break;
    end.insert(0, signs[--last]);
  }
  return begin + "…" + end;
}

class Canvas {
 public:
  Canvas(const Plot& plot, const Frame& frame, bool in_page, std::string_view suffix)
      : plot_(plot), frame_(frame), in_page_(in_page), hatch_(fmt::format("hatch-{}{}", plot.name, suffix)) {
    pick_points();
    end_ = plot.times.empty() ? Duration(1h) : std::max<Duration>(plot.times.back(), 1s);
    double most = 0;
    for (const size_t i : points_) most = std::max(most, height_at(i));
    step_ = nice_step(std::max(most, 1e-3), 4);
    if (plot.whole) step_ = std::max(1.0, std::ceil(step_));
    top_ = step_ * std::max(1.0, std::ceil(most / step_ - 1e-9));
    legend_ = legend();
  }

  std::string draw(std::string_view attributes, std::string_view style) const {
    std::string out = fmt::format(
        "<svg {} viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\" data-left=\"{:g}\" data-right=\"{:g}\" "
        "font-size=\"{:g}\">\n{}",
        attributes, frame_.width, bottom() + kBottom, escaped(message()), kLeft, frame_.width - kRight, frame_.font,
        style);
    if (!in_page_)
      out += fmt::format("<rect class=\"p-back\" width=\"{:g}\" height=\"{:g}\" rx=\"8\"/>\n", frame_.width,
                         bottom() + kBottom);
    if (std::ranges::any_of(plot_.lines, &Line::hatched)) {
      out += fmt::format(
          "<defs><pattern id=\"{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><rect class=\"p-hatch\" width=\"2.4\" height=\"6\"/></pattern></defs>\n",
          hatch_);
    }
    out += heading() + legend_ + grid();
    if (plot_.stacked) {
      out += stack();
    } else {
      for (const Line& line : plot_.lines) out += stroke(line);
    }
    out += settling() + marks();
    if (in_page_)
      out += fmt::format("<path class=\"p-cross\" d=\"M0 {:g}V{:g}\" visibility=\"hidden\"/>\n", top(), bottom());
    return out + "</svg>\n";
  }

 private:
  double top() const { return top_at_; }
  double bottom() const { return top_at_ + frame_.plot_height; }
  double x(Duration at) const { return kLeft + (frame_.width - kLeft - kRight) * to_seconds(at) / to_seconds(end_); }
  double y(double value) const { return bottom() - frame_.plot_height * value / top_; }
  double width_of(std::string_view text) const { return frame_.font * ems(text); }

  double height_at(size_t i) const {
    double height = 0;
    for (const Line& line : plot_.lines)
      height = plot_.stacked ? height + line.values[i] : std::max(height, line.values[i]);
    return height;
  }

  // Of many samples the lowest and the highest in each stretch of time: a peak is never lost.
  void pick_points() {
    const size_t count = plot_.times.size();
    const size_t each =
        std::max<size_t>(1, (count + static_cast<size_t>(frame_.buckets) - 1) / static_cast<size_t>(frame_.buckets));
    for (size_t from = 0; from < count; from += each) {
      size_t low = from, high = from;
      for (size_t i = from; i < std::min(count, from + each); ++i) {
        if (height_at(i) < height_at(low)) low = i;
        if (height_at(i) > height_at(high)) high = i;
      }
      for (const size_t i : {std::min(low, high), std::max(low, high)}) {
        if (points_.empty() || points_.back() < i) points_.push_back(i);
      }
    }
    if (count > 0 && points_.back() + 1 != count) points_.push_back(count - 1);
  }

  // For those who cannot see it.
  std::string message() const {
    std::string out = plot_.title;
    for (const Line& line : plot_.lines) {
      if (line.values.empty()) continue;
      out += fmt::format("; {}: at most {:.6g}, at the end {:.6g}", line.name, std::ranges::max(line.values),
                         line.values.back());
    }
    return out;
  }

  std::string heading() const {
    return fmt::format("<text x=\"{:g}\" y=\"26\" class=\"p-ink p-title\">{}</text>\n", kPad, escaped(plot_.title));
  }

  // What the colours mean, in as many rows as it takes; where the plot begins follows from that.
  std::string legend() {
    const bool one = plot_.lines.size() <= 1 && plot_.marks.empty();
    double at = kPad, row = 0;
    std::string out;
    const auto item = [&](const std::string& name, const std::string& swatch_at) {
      const std::string shown = shortened(name, kNameEms);
      const double wide = 18 + width_of(shown) + 16;
      if (at > kPad && at + wide > frame_.width - kRight) {
        at = kPad;
        ++row;
      }
      out += fmt::format("<g transform=\"translate({:.1f} {:.1f})\">{}<text class=\"p-ink\" x=\"18\" y=\"9.5\">{}", at,
                         40 + row * kRowHeight, swatch_at, escaped(shown));
      out += shown == name ? "</text></g>\n" : fmt::format("<title>{}</title></text></g>\n", escaped(name));
      at += wide;
    };
    if (!one) {
      for (const Line& line : plot_.lines) item(line.name, swatch(line));
      if (!plot_.marks.empty()) item("fault", "<path class=\"p-fault\" d=\"M1 1H11L6 10Z\"/>");
      if (settles()) item("no new jobs from here", "<path class=\"p-settle\" d=\"M6 -1V14\"/>");
    }
    top_at_ = one ? 58 : 40 + (row + 1) * kRowHeight + 24;
    return out;
  }

  std::string swatch(const Line& line) const {
    if (plot_.stacked || line.style == LineStyle::kFilled) {
      const std::string box = "width=\"12\" height=\"12\" rx=\"2\"";
      return fmt::format("<rect class=\"f{}\" {}/>", line.colour, box) +
             (line.hatched ? fmt::format("<rect {} fill=\"url(#{})\"/>", box, hatch_) : "");
    }
    return fmt::format("<path class=\"p-line s{}\" d=\"M0 6H13\"{}/>", line.colour, dashes(line));
  }

  static std::string_view dashes(const Line& line) {
    return line.style == LineStyle::kDashed ? " stroke-dasharray=\"4 2.5\"" : "";
  }

  std::string grid() const {
    std::string out;
    for (double value = 0; value <= top_ + step_ / 2; value += step_) {
      out += fmt::format(
          "<path class=\"{}\" d=\"M{:g} {:.1f}H{:g}\"/><text class=\"p-dim\" x=\"{:g}\" y=\"{:.1f}\" "
          "text-anchor=\"end\">{}</text>\n",
          value == 0 ? "p-axis" : "p-grid", kLeft, y(value), frame_.width - kRight, kLeft - 7, y(value) + 4,
          number_text(value));
    }
    const Duration step = time_step(end_, frame_.time_ticks);
    for (Duration at{}; at <= end_; at += step) {
      const std::string text = time_text(at, step);
      const bool last = x(at) + width_of(text) / 2 > frame_.width - kRight / 2;
      out += fmt::format(
          "<path class=\"p-axis\" d=\"M{0:.1f} {1:g}v4\"/><text class=\"p-dim\" x=\"{0:.1f}\" y=\"{2:g}\" "
          "text-anchor=\"{3}\">{4}</text>\n",
          x(at), bottom(), bottom() + 18, last ? "end" : "middle", text);
    }
    out += fmt::format("<text class=\"p-dim\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">simulated time</text>\n",
                       frame_.width - kRight, bottom() + 36);
    return out + fmt::format("<text class=\"p-dim\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", kPad, top() - 10,
                             escaped(plot_.unit));
  }

  // Steps: a value holds until the next. Only changes are written.
  std::string edge(const std::vector<double>& values) const {
    std::string path;
    for (size_t k = 0; k < points_.size(); ++k) {
      const double px = x(plot_.times[points_[k]]), py = y(values[k]);
      if (k == 0) {
        path = fmt::format("M{:.1f} {:.1f}", px, py);
      } else if (values[k] != values[k - 1]) {
        path += fmt::format("H{:.1f}V{:.1f}", px, py);
      } else if (k + 1 == points_.size()) {
        path += fmt::format("H{:.1f}", px);
      }
    }
    return path;
  }

  std::string stroke(const Line& line) const {
    std::vector<double> values;
    for (const size_t i : points_) values.push_back(line.values[i]);
    const std::string path = edge(values);
    if (path.empty()) return "";
    std::string out;
    if (line.style == LineStyle::kFilled)
      out = fmt::format("<path class=\"f{} p-area\" d=\"{}V{:.1f}H{:.1f}Z\"/>\n", line.colour, path, y(0), x(0s));
    return out + fmt::format("<path class=\"p-line s{}\" d=\"{}\"{}/>\n", line.colour, path, dashes(line));
  }

  std::string stack() const {
    std::string out;
    std::vector<double> below(points_.size(), 0);
    for (const Line& line : plot_.lines) {
      std::vector<double> above = below;
      for (size_t k = 0; k < points_.size(); ++k) above[k] += line.values[points_[k]];
      std::string path = edge(above);
      if (path.empty()) return out;
      // Back along the lower edge, which is the upper one of the area before.
      path += fmt::format("V{:.1f}", y(below.back()));
      for (size_t k = points_.size() - 1; k > 0; --k) {
        if (below[k] != below[k - 1])
          path += fmt::format("H{:.1f}V{:.1f}", x(plot_.times[points_[k]]), y(below[k - 1]));
      }
      path += fmt::format("H{:.1f}Z", x(plot_.times[points_.front()]));
      out += fmt::format("<path class=\"f{}\" d=\"{}\"/>\n", line.colour, path);
      if (line.hatched) out += fmt::format("<path fill=\"url(#{})\" d=\"{}\"/>\n", hatch_, path);
      below = std::move(above);
    }
    return out;
  }

  bool settles() const { return plot_.settles && *plot_.settles < end_; }

  std::string settling() const {
    if (!settles()) return "";
    return fmt::format("<path class=\"p-settle\" d=\"M{:.1f} {:g}V{:g}\"/>\n", x(*plot_.settles), top(), bottom());
  }

  // Those at one place become one, which names them all.
  std::string marks() const {
    std::string out;
    for (size_t i = 0; i < plot_.marks.size();) {
      const double at = x(plot_.marks[i].first);
      std::string title;
      size_t next = i;
      for (; next < plot_.marks.size() && x(plot_.marks[next].first) < at + 2; ++next) {
        if (next < i + 5) title += (next == i ? "" : "\n") + escaped(plot_.marks[next].second);
      }
      if (next > i + 5) title += fmt::format("\nand {} more", next - i - 5);
      if (plot_.marks[i].first <= end_) {
        if (plot_.marks.size() <= kLinesAcross)
          out += fmt::format("<path class=\"p-across\" d=\"M{:.1f} {:g}V{:g}\"/>", at, top(), bottom());
        out += fmt::format("<path class=\"p-fault\" d=\"M{:.1f} {:g}l-4 -8h8z\"><title>{}</title></path>\n", at, top(),
                           title);
      }
      i = next;
    }
    return out;
  }

  const Plot& plot_;
  const Frame& frame_;
  const bool in_page_;
  const std::string hatch_;
  std::vector<size_t> points_;
  Duration end_{};
  double step_ = 1, top_ = 1, top_at_ = 0;
  std::string legend_;
};

std::string theme_style(const std::array<std::string_view, kPlotColours>& colours, std::string_view ink,
                        std::string_view dim, std::string_view grid, std::string_view back, std::string_view fault) {
  std::string out = fmt::format(
      ".p-back,.p-hatch{{fill:{3}}}.p-ink{{fill:{0}}}.p-dim{{fill:{1}}}.p-grid{{stroke:{2}}}"
      ".p-axis,.p-settle,.p-cross{{stroke:{1}}}.p-fault{{fill:{4}}}.p-across{{stroke:{4}}}\n",
      ink, dim, grid, back, fault);
  for (size_t i = 0; i < colours.size(); ++i) out += fmt::format(".f{0}{{fill:{1}}}.s{0}{{stroke:{1}}}", i, colours[i]);
  return out + "\n";
}

}  // namespace

std::string plot_style() {
  return std::string(
             ".p-title{font-size:15px;font-weight:600}.p-line{fill:none;stroke-width:2;stroke-linejoin:round}"
             ".p-area{fill-opacity:.3}.p-hatch{fill-opacity:.6}.p-across{stroke-opacity:.35}"
             ".p-settle{stroke-dasharray:3 3}\n") +
         theme_style(kLight, "#1f2937", "#566072", "#e8ebef", "#ffffff", "#b91c1c") +
         "@media (prefers-color-scheme:dark){" +
         theme_style(kDark, "#e6e9ef", "#a3adbd", "#2c3442", "#171c26", "#ff8577") + "}\n";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string svg(const Plot& plot) {
  return Canvas(plot, kWideFrame, false, "")
      .draw(
          "xmlns=\"http://www.w3.org/2000/svg\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu "
          "Sans', sans-serif\"",
          "<style>" + plot_style() + "</style>\n");
}

std::string svg_in_page(const Plot& plot, PlotWidth width) {
  return width == PlotWidth::kWide ? Canvas(plot, kWideFrame, true, "-w").draw("class=\"wide\"", "")
                                   : Canvas(plot, kNarrowFrame, true, "-n").draw("class=\"narrow\"", "");
}

}  // namespace rubato::simulate
