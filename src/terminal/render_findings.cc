#include "terminal/render_findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "terminal/layout.h"

namespace rubato::cli {
namespace {

constexpr size_t kWarningsShown = 10;

Hue severity_hue(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return Hue::kRed;
    case Severity::kUnfilled:
      return Hue::kMagenta;
    case Severity::kWarning:
      return Hue::kYellow;
    case Severity::kNote:
      return Hue::kDim;
  }
  return Hue::kPlain;
}

std::string finding_text(const Finding& one, bool colour) {
  std::string out = fmt::format("{}: {}: {}", one.where,
                                paint(to_string(one.severity), severity_hue(one.severity), colour), clean(one.message));
  if (!one.hint.empty()) out += (one.severity == Severity::kError ? "\n    fix: " : "; ") + clean(one.hint);
  return out + "\n";
}

}  // namespace

std::string counted(size_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

size_t count_of(const ClusterFile& file, Severity severity) {
  return static_cast<size_t>(std::count_if(file.findings.begin(), file.findings.end(),
                                           [&](const Finding& one) { return one.severity == severity; }));
}

std::string findings_text(const ClusterFile& file, bool all, bool colour) {
  std::string out;
  for (const Finding& one : file.findings) {
    if (all || one.severity == Severity::kError) out += finding_text(one, colour);
  }
  return out;
}

std::string warnings_text(const ClusterFile& file, const std::string& path, bool colour) {
  const size_t count = count_of(file, Severity::kWarning);
  std::string out;
  size_t shown = 0;
  for (const Finding& one : file.findings) {
    if (one.severity == Severity::kWarning && shown++ < kWarningsShown) out += finding_text(one, colour);
  }
  if (count > kWarningsShown) {
    out +=
        fmt::format("and {}: rubato config check {}\n", counted(count - kWarningsShown, "warning", "warnings"), path);
  }
  return out;
}

}  // namespace rubato::cli
