#include "core/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace rubato {

void Counter::add(double amount) {
  CHECK(amount >= 0);
  value_ += amount;
}

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  for (size_t i = 0; i < bounds_.size(); ++i)
    CHECK(std::isfinite(bounds_[i]) && (i == 0 || bounds_[i - 1] < bounds_[i]));
}

void Histogram::observe(double value) {
  // NaN is in no bucket but +Inf, as in Prometheus's own clients.
  const auto bucket = std::isnan(value) ? bounds_.end() : std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bucket - bounds_.begin())];
  ++count_;
  sum_ += value;
}

uint64_t Histogram::count_at_most(size_t bucket) const {
  CHECK(bucket < bounds_.size());
  uint64_t count = 0;
  for (size_t i = 0; i <= bucket; ++i) count += counts_[i];
  return count;
}

namespace {

constexpr std::string_view kKindNames[] = {"counter", "gauge", "histogram"};

bool is_metric_name(std::string_view name, bool colons_allowed) {
  if (name.empty() || ('0' <= name[0] && name[0] <= '9')) return false;
  for (const char c : name) {
    const bool letter = ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_';
    if (!letter && !('0' <= c && c <= '9') && !(colons_allowed && c == ':')) return false;
  }
  return true;
}

std::string exposed_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Help escapes \ and newlines; a label's value escapes quotes too.
std::string escape_exposed(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\' || (quotes && c == '"')) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string label_set(const Metrics::Labels& labels, std::string_view le = {}) {
  std::string out;
  for (const auto& [name, value] : labels) {
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", name, escape_exposed(value, true));
  }
  if (!le.empty()) out += fmt::format("{}le=\"{}\"", out.empty() ? "" : ",", le);
  return out.empty() ? out : "{" + out + "}";
}

struct ExposeSeries {
  std::string& out;
  const std::string& name;
  const Metrics::Labels& labels;

  void line(std::string_view suffix, const std::string& label_text, const std::string& value) const {
    out += fmt::format("{}{}{} {}\n", name, suffix, label_text, value);
  }
  void operator()(const Counter& counter) const { line("", label_set(labels), exposed_number(counter.value())); }
  void operator()(const Gauge& gauge) const { line("", label_set(labels), exposed_number(gauge.value())); }
  void operator()(const Histogram& histogram) const {
    for (size_t i = 0; i < histogram.bounds().size(); ++i) {
      const std::string le = exposed_number(histogram.bounds()[i]);
      line("_bucket", label_set(labels, le), std::to_string(histogram.count_at_most(i)));
    }
    line("_bucket", label_set(labels, "+Inf"), std::to_string(histogram.count()));
    line("_sum", label_set(labels), exposed_number(histogram.sum()));
    line("_count", label_set(labels), std::to_string(histogram.count()));
  }
};

}  // namespace

template <class Kind>
Kind& Metrics::find_or_add(const std::string& name, const std::string& help, const Labels& labels, const Kind& fresh) {
  const Series series = fresh;
  auto family = families_.find(name);
  if (family == families_.end()) {
    CHECK(is_metric_name(name, true));
    family = families_.emplace(name, Family{help, series.index(), {}}).first;
  }
  CHECK(family->second.kind == series.index());
  for (const auto& label : labels) {
    CHECK(is_metric_name(label.first, false) && !label.first.starts_with("__") && label.first != "le");
  }
  return std::get<Kind>(family->second.series.try_emplace(labels, series).first->second);
}

Counter& Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  return find_or_add(name, help, labels, Counter());
}

Gauge& Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return find_or_add(name, help, labels, Gauge());
}

Histogram& Metrics::histogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                              const Labels& labels) {
  return find_or_add(name, help, labels, Histogram(bounds));
}

void Metrics::forget(const std::string& name, const Labels& labels) {
  const auto family = families_.find(name);
  if (family != families_.end()) family->second.series.erase(labels);
}

std::string Metrics::expose() const {
  std::string out;
  for (const auto& [name, family] : families_) {
    if (family.series.empty()) continue;
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escape_exposed(family.help, false), name,
                       kKindNames[family.kind]);
    for (const auto& [labels, series] : family.series) std::visit(ExposeSeries{out, name, labels}, series);
  }
  return out;
}

}  // namespace rubato
