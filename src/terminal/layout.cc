#include "terminal/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/text.h"

namespace rubato::cli {
namespace {

struct CodePoint {
  char32_t value = 0;
  size_t bytes = 1;
  bool valid = false;
};

// The code point at the start of a text that is not empty; one byte when it is broken.
CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t size = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (size == 0 || lead >= 0xf5 || text.size() < size) return {};
  char32_t value = lead & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  return {value, size, true};
}

struct CodeRange {
  char32_t first, last;
};
// East Asian wide and emoji blocks, and the common combining ones (Unicode 15); the rest is taken for narrow.
constexpr std::array<CodeRange, 12> kWide{{{0x1100, 0x115f},
                                           {0x2e80, 0x303e},
                                           {0x3041, 0x33ff},
                                           {0x3400, 0x4dbf},
                                           {0x4e00, 0x9fff},
                                           {0xa000, 0xa4cf},
                                           {0xac00, 0xd7a3},
                                           {0xf900, 0xfaff},
                                           {0xfe30, 0xfe6f},
                                           {0xff00, 0xff60},
                                           {0x1f300, 0x1faff},
                                           {0x20000, 0x3fffd}}};
constexpr std::array<CodeRange, 6> kCombining{
    {{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};

size_t columns_of(const CodePoint& point) {
  const auto inside = [&](const CodeRange& range) { return range.first <= point.value && point.value <= range.last; };
  if (!point.valid) return 1;
  if (std::any_of(kCombining.begin(), kCombining.end(), inside)) return 0;
  return std::any_of(kWide.begin(), kWide.end(), inside) ? 2 : 1;
}

std::string_view hue_code(Hue hue) {
  switch (hue) {
    case Hue::kPlain:
      return "";
    case Hue::kBold:
      return "1";
    case Hue::kDim:
      return "2";
    case Hue::kRed:
      return "31";
    case Hue::kGreen:
      return "32";
    case Hue::kYellow:
      return "33";
    case Hue::kBlue:
      return "34";
    case Hue::kMagenta:
      return "35";
    case Hue::kCyan:
      return "36";
  }
  return "";
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    width += columns_of(point);
    text.remove_prefix(point.bytes);
  }
  return width;
}

std::string fit(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return "";
  std::string out;
  size_t used = 0;
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    if (used + columns_of(point) > width - 1) break;
    used += columns_of(point);
    out += text.substr(0, point.bytes);
    text.remove_prefix(point.bytes);
  }
  return out + "…";
}

std::string pad(std::string_view text, size_t width) {
  const size_t used = display_width(text);
  return std::string(text) + std::string(width > used ? width - used : 0, ' ');
}

std::string clean(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    // C0, DEL and C1 controls; and the marks that turn the direction of what follows.
    const bool control = point.value < 0x20 || (point.value >= 0x7f && point.value < 0xa0) ||
                         (point.value >= 0x202a && point.value <= 0x202e) ||
                         (point.value >= 0x2066 && point.value <= 0x2069);
    if (!point.valid || (control && point.value != '\n' && point.value != '\t')) {
      out += '?';
    } else if (control) {
      out += ' ';
    } else {
      out += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string paint(std::string_view text, Hue hue, bool colour) {
  if (!colour || hue == Hue::kPlain || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", hue_code(hue), text);
}

Hue phase_hue(std::string_view phase) {
  if (phase == "running" || phase == "up" || phase == "succeeded") return Hue::kGreen;
  if (phase == "failed" || phase == "lost") return Hue::kRed;
  if (phase == "stopped" || phase == "gone") return Hue::kDim;
  return Hue::kYellow;  // it is on its way somewhere
}

std::string age_text(Duration age) {
  const int64_t s = std::max<int64_t>(0, age / 1s);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::vector<std::string> Table::lines(const Style& look) const {
  std::vector<size_t> widths;
  for (const std::string& heading : headings_) widths.push_back(display_width(heading));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i].text));
  }
  const auto line = [&](auto&& cell_at) {
    std::string out;
    size_t at = 0;
    for (size_t i = 0; i < widths.size(); ++i) {
      const Cell cell = cell_at(i);
      const bool last = i + 1 == widths.size();
      const size_t room = look.width == 0 ? SIZE_MAX : look.width > at ? look.width - at : 0;
      const std::string text = fit(cell.text, room);
      out += paint(text, cell.hue, look.colour);
      const size_t used = display_width(text);
      if (!last && room > widths[i]) out += std::string(widths[i] - used + 2, ' ');
      at += widths[i] + 2;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::vector<std::string> out;
  out.push_back(line([&](size_t i) { return Cell{headings_[i], Hue::kBold}; }));
  for (const auto& row : rows_) {
    out.push_back(line([&](size_t i) { return i < row.size() ? row[i] : Cell{}; }));
  }
  return out;
}

std::string Table::text(const Style& look) const {
  std::string out;
  for (const std::string& line : lines(look)) out += line + "\n";
  return out;
}

}  // namespace rubato::cli
