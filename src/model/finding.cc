#include "model/finding.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "core/text.h"
#include "model/limits.h"

namespace rubato {
namespace {

Finding finding_at(Severity severity, const Yaml& at, std::string message, std::string hint) {
  return Finding{severity, std::move(message), at.where(), std::move(hint), at.line(), at.column()};
}

// The two numbers at the end of file:line:column; zeros when there are none.
std::pair<size_t, size_t> position_in(const std::string& where) {
  const auto parts = split(where, ':');
  if (parts.size() < 3) return {0, 0};
  size_t line = 0, column = 0;
  const std::string_view a = parts[parts.size() - 2], b = parts.back();
  std::from_chars(a.data(), a.data() + a.size(), line);
  std::from_chars(b.data(), b.data() + b.size(), column);
  return {line, column};
}

bool complains(const Finding& finding) {
  return finding.severity == Severity::kError || finding.severity == Severity::kUnfilled;
}

}  // namespace

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kUnfilled:
      return "fill in";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "unknown";
}

void Findings::error(const Yaml& at, std::string message, std::string hint) {
  add(finding_at(Severity::kError, at, std::move(message), std::move(hint)));
}
void Findings::unfilled(const Yaml& at, std::string message, std::string hint) {
  add(finding_at(Severity::kUnfilled, at, std::move(message), std::move(hint)));
}
void Findings::warning(const Yaml& at, std::string message, std::string hint) {
  add(finding_at(Severity::kWarning, at, std::move(message), std::move(hint)));
}

void Findings::note(const Yaml& at, std::string message, std::string hint) {
  add(finding_at(Severity::kNote, at, std::move(message), std::move(hint)));
}

void Findings::error(const Error& error) {
  const auto [line, column] = position_in(error.where);
  add(Finding{Severity::kError, error.message, error.where, error.hint, line, column});
}

// One complaint for each place: the first knows best, the later ones follow from it.
void Findings::add(Finding finding) {
  // Nobody reads so many, and each is compared with all others. An error is dropped only where there are many already.
  if (all_.size() >= (finding.severity == Severity::kError ? 2 * kFindingsMax : kFindingsMax)) return;
  const bool known = std::any_of(all_.begin(), all_.end(), [&](const Finding& one) {
    return one == finding || (complains(one) && complains(finding) && one.where == finding.where);
  });
  if (!known) all_.push_back(std::move(finding));
}

bool Findings::has_errors() const {
  return std::any_of(all_.begin(), all_.end(), [](const Finding& one) { return one.severity == Severity::kError; });
}

bool Findings::has_unfilled() const {
  return std::any_of(all_.begin(), all_.end(), [](const Finding& one) { return one.severity == Severity::kUnfilled; });
}

bool Findings::blames(const Yaml& at) const {
  const std::string where = at.where();
  return std::any_of(all_.begin(), all_.end(),
                     [&](const Finding& one) { return complains(one) && one.where == where; });
}

std::vector<Finding> Findings::sorted() const {
  std::vector<Finding> out = all_;
  std::stable_sort(out.begin(), out.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
  return out;
}

}  // namespace rubato
