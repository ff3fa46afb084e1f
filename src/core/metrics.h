// Metrics: counters, gauges and histograms with labels, shown as Prometheus text (format 0.0.4).
//
//   Counter& restarts = metrics.counter("rubato_restarts_total", "Worker restarts.", {{"job", "bert"}});
//   restarts.add();
//
// Asking again for the same name and labels gives the same object. The references live as long as the Metrics, or
// until forget(). Names, label names and buckets are written in our code, so that a wrong one, or one name used for
// two kinds, is a CHECK. Label values may be any UTF-8 text. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rubato {

class Counter {
 public:
  void add(double amount = 1);  // never negative
  double value() const { return value_; }

 private:
  double value_ = 0;
};

class Gauge {
 public:
  void set(double value) { value_ = value; }
  void add(double amount) { value_ += amount; }
  double value() const { return value_; }

 private:
  double value_ = 0;
};

class Histogram {
 public:
  // The upper bounds of the buckets, finite and rising; the bucket +Inf comes by itself.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value);
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  const std::vector<double>& bounds() const { return bounds_; }
  uint64_t count_at_most(size_t bucket) const;  // the observations <= bounds()[bucket]

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;  // per bucket, not cumulative; the last one is +Inf
  uint64_t count_ = 0;
  double sum_ = 0;
};

class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                       const Labels& labels = {});

  // Drops one series: the node or the job it told of is gone. Nothing happens when there is none.
  void forget(const std::string& name, const Labels& labels);

  // Everything, ordered by name and then by labels: the same values give the same text.
  std::string expose() const;

 private:
  using Series = std::variant<Counter, Gauge, Histogram>;
  struct Family {
    std::string help;
    size_t kind = 0;  // the index in Series
    std::map<Labels, Series> series;
  };
  template <class Kind>
  Kind& find_or_add(const std::string& name, const std::string& help, const Labels& labels, const Kind& fresh);

  std::map<std::string, Family> families_;
};

}  // namespace rubato
