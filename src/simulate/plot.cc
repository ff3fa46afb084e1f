#include "simulate/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace rubato::simulate {
namespace {

constexpr double kWidth = 960, kHeight = 250, kLeft = 56, kRight = 16, kTop = 44, kBottom = 30;
constexpr size_t kPointsMax = 480;  // about one for two pixels

// Told apart by people who see colours differently, too; after Observable's palette.
constexpr std::array<std::string_view, 8> kColours{"#4269d0", "#efb118", "#ff725c", "#3ca951",
                                                   "#a463f2", "#6cc5b0", "#9c6b4e", "#9498a0"};

double nice_step(double most, int steps) {
  const double rough = std::max(most / steps, 1e-9);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

Duration time_step(Duration span) {
  static constexpr std::array<Duration, 16> kSteps{1s, 5s, 10s, 30s, 1min, 5min, 10min, 30min,
                                                   1h, 2h, 3h,  6h,  12h,  24h,  48h,   168h};
  for (const Duration step : kSteps) {
    if (span / step <= 12) return step;
  }
  return 168h * 4;
}

std::string time_text(Duration at, Duration step) {
  if (step >= 24h) return fmt::format("{} d", at / 24h);
  if (step >= 1h) return fmt::format("{} h", at / 1h);
  if (step >= 1min)
    return at >= 1h ? fmt::format("{}:{:02} h", at / 1h, at % 1h / 1min) : fmt::format("{} min", at / 1min);
  return fmt::format("{} s", at / 1s);
}

std::string number_text(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

class Canvas {
 public:
  explicit Canvas(const Plot& plot) : plot_(plot) {
    const size_t every = std::max<size_t>(1, (plot.times.size() + kPointsMax - 1) / kPointsMax);
    for (size_t i = 0; i < plot.times.size(); i += every) points_.push_back(i);
    if (!plot.times.empty() && points_.back() + 1 != plot.times.size()) points_.push_back(plot.times.size() - 1);
    end_ = plot.times.empty() ? Duration(1h) : std::max<Duration>(plot.times.back(), 1s);
    double most = 0;
    for (const size_t i : points_) {
      double sum = 0;
      for (const Line& line : plot.lines) {
        sum = plot.stacked ? sum + line.values[i] : line.values[i];
        most = std::max(most, sum);
      }
    }
    step_ = nice_step(std::max(most, 1e-3), 4);
    top_ = step_ * std::max(1.0, std::ceil(most / step_ - 1e-9));
  }

  std::string draw() const {
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" role=\"img\" aria-label=\"{2}\" "
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" font-size=\"11\">\n"
        "<rect width=\"{0:g}\" height=\"{1:g}\" rx=\"8\" fill=\"#ffffff\"/>\n",
        kWidth, kHeight, escaped(plot_.title));
    out += heading() + grid();
    if (plot_.stacked) {
      out += areas();
    } else {
      for (size_t i = 0; i < plot_.lines.size(); ++i) out += stroke(i);
    }
    return out + marks() + "</svg>\n";
  }

 private:
  double x(Duration at) const { return kLeft + (kWidth - kLeft - kRight) * to_seconds(at) / to_seconds(end_); }
  double y(double value) const { return kHeight - kBottom - (kHeight - kTop - kBottom) * value / top_; }

  std::string heading() const {
    std::string out =
        fmt::format("<text x=\"{:g}\" y=\"24\" font-size=\"14\" font-weight=\"600\" fill=\"#1f2937\">{}</text>\n",
                    kLeft - 40.0, escaped(plot_.title));
    double at = kWidth - kRight;
    for (size_t i = plot_.lines.size(); i-- > 0;) {
      const std::string& name = plot_.lines[i].name;
      at -= 6.6 * static_cast<double>(name.size()) + 8;
      out += fmt::format("<text x=\"{:.1f}\" y=\"24\" fill=\"#4b5563\">{}</text>\n", at, escaped(name));
      at -= 14;
      out += fmt::format("<rect x=\"{:.1f}\" y=\"15\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{}\"/>\n", at,
                         plot_colour(i));
      at -= 8;
    }
    return out;
  }

  std::string grid() const {
    std::string out;
    for (double value = 0; value <= top_ + step_ / 2; value += step_) {
      out += fmt::format(
          "<path d=\"M{:g} {:.1f}H{:g}\" stroke=\"{}\"/><text x=\"{:g}\" y=\"{:.1f}\" text-anchor=\"end\" "
          "fill=\"#6b7280\">{}</text>\n",
          kLeft, y(value), kWidth - kRight, value == 0 ? "#9ca3af" : "#eef0f3", kLeft - 6, y(value) + 4,
          number_text(value));
    }
    const Duration step = time_step(end_);
    for (Duration at{}; at <= end_; at += step) {
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:g}\" text-anchor=\"{}\" fill=\"#6b7280\">{}</text>\n", x(at),
                         kHeight - 12, at == 0s ? "start" : "middle", time_text(at, step));
    }
    if (!plot_.unit.empty())
      out += fmt::format("<text x=\"{:g}\" y=\"38\" fill=\"#6b7280\">{}</text>\n", kLeft - 40.0, escaped(plot_.unit));
    return out;
  }

  std::string stroke(size_t index) const {
    std::string path;
    for (const size_t i : points_) {
      const double px = x(plot_.times[i]), py = y(plot_.lines[index].values[i]);
      path += path.empty() ? fmt::format("M{:.1f} {:.1f}", px, py) : fmt::format("H{:.1f}V{:.1f}", px, py);
    }
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n",
                       path, plot_colour(index));
  }

  std::string areas() const {
    std::string out;
    std::vector<double> below(points_.size(), 0);
    for (size_t index = 0; index < plot_.lines.size(); ++index) {
      std::vector<double> above = below;
      for (size_t k = 0; k < points_.size(); ++k) above[k] += plot_.lines[index].values[points_[k]];
      std::string path;
      for (size_t k = 0; k < points_.size(); ++k) {
        const double px = x(plot_.times[points_[k]]);
        path +=
            k == 0 ? fmt::format("M{:.1f} {:.1f}", px, y(above[k])) : fmt::format("H{:.1f}V{:.1f}", px, y(above[k]));
      }
      // Back along the lower edge, which is the upper one of the area before.
      for (size_t k = points_.size(); k-- > 0;) {
        path += fmt::format("V{:.1f}", y(below[k]));
        if (k > 0) path += fmt::format("V{:.1f}H{:.1f}", y(below[k - 1]), x(plot_.times[points_[k - 1]]));
      }
      out += fmt::format("<path d=\"{}Z\" fill=\"{}\" fill-opacity=\"0.85\"/>\n", path, plot_colour(index));
      below = std::move(above);
    }
    return out;
  }

  std::string marks() const {
    std::string out;
    for (const auto& [at, words] : plot_.marks) {
      if (at > end_) continue;
      out += fmt::format(
          "<path d=\"M{0:.1f} {1:g}V{2:g}\" stroke=\"#dc2626\" stroke-opacity=\"0.35\"/><circle cx=\"{0:.1f}\" "
          "cy=\"{1:g}\" r=\"2.5\" fill=\"#dc2626\"><title>{3}</title></circle>\n",
          x(at), kTop, kHeight - kBottom, escaped(words));
    }
    return out;
  }

  const Plot& plot_;
  std::vector<size_t> points_;
  Duration end_{};
  double step_ = 1, top_ = 1;
};

}  // namespace

std::string_view plot_colour(size_t index) { return kColours[index % kColours.size()]; }

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
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string svg(const Plot& plot) { return Canvas(plot).draw(); }

}  // namespace rubato::simulate
