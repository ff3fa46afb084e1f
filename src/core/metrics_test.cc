#include "core/metrics.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace rubato {
namespace {

TEST(Metrics, ExposesInTheOrderOfNamesAndLabels) {
  Metrics metrics;
  metrics.gauge("z_nodes", "Nodes.").set(2);
  metrics.counter("a_total", "All.", {{"job", "b"}}).add(3);
  metrics.counter("a_total", "All.", {{"zone", "x"}, {"job", "a"}}).add();
  EXPECT_EQ(metrics.expose(),
            "# HELP a_total All.\n"
            "# TYPE a_total counter\n"
            "a_total{job=\"a\",zone=\"x\"} 1\n"
            "a_total{job=\"b\"} 3\n"
            "# HELP z_nodes Nodes.\n"
            "# TYPE z_nodes gauge\n"
            "z_nodes 2\n");
}

TEST(Metrics, GivesTheSameObjectForTheSameLabels) {
  Metrics metrics;
  Counter& first = metrics.counter("c_total", "C.", {{"a", "1"}});
  metrics.counter("c_total", "C.", {{"a", "2"}}).add();
  metrics.counter("c_total", "C.", {{"a", "1"}}).add(2);
  EXPECT_EQ(first.value(), 2);
}

TEST(Metrics, EscapesLabelValuesAndHelp) {
  Metrics metrics;
  metrics.gauge("g", "back\\slash, \"quote\"\nline", {{"path", "C:\\a\n\"b\""}}).set(1);
  EXPECT_EQ(metrics.expose(),
            "# HELP g back\\\\slash, \"quote\"\\nline\n"
            "# TYPE g gauge\n"
            "g{path=\"C:\\\\a\\n\\\"b\\\"\"} 1\n");
}

TEST(Metrics, WritesNumbersAsPrometheusReadsThem) {
  Metrics metrics;
  Gauge& gauge = metrics.gauge("g", "G.");
  const auto shown = [&](double value) {
    gauge.set(value);
    const std::string text = metrics.expose();
    return text.substr(text.rfind("g ") + 2);
  };
  EXPECT_EQ(shown(0.1), "0.1\n");
  EXPECT_EQ(shown(-3), "-3\n");
  EXPECT_EQ(shown(1e100), "1e+100\n");
  EXPECT_EQ(shown(std::numeric_limits<double>::infinity()), "+Inf\n");
  EXPECT_EQ(shown(-std::numeric_limits<double>::infinity()), "-Inf\n");
  EXPECT_EQ(shown(std::nan("")), "NaN\n");
}

TEST(Metrics, HistogramBucketsAreCumulativeAndEndInInfinity) {
  Metrics metrics;
  Histogram& histogram = metrics.histogram("h_seconds", "H.", {0.5, 1}, {{"op", "x"}});
  for (const double value : {0.25, 0.5, 0.75, 7.0}) histogram.observe(value);
  EXPECT_EQ(metrics.expose(),
            "# HELP h_seconds H.\n"
            "# TYPE h_seconds histogram\n"
            "h_seconds_bucket{op=\"x\",le=\"0.5\"} 2\n"
            "h_seconds_bucket{op=\"x\",le=\"1\"} 3\n"
            "h_seconds_bucket{op=\"x\",le=\"+Inf\"} 4\n"
            "h_seconds_sum{op=\"x\"} 8.5\n"
            "h_seconds_count{op=\"x\"} 4\n");
}

TEST(Metrics, ForgetsTheSeriesOfWhatIsGone) {
  Metrics metrics;
  metrics.gauge("g", "G.", {{"node", "a"}}).set(1);
  metrics.gauge("g", "G.", {{"node", "b"}}).set(1);
  metrics.forget("g", {{"node", "a"}});
  metrics.forget("g", {{"node", "never"}});
  metrics.forget("none", {});
  EXPECT_EQ(metrics.expose(), "# HELP g G.\n# TYPE g gauge\ng{node=\"b\"} 1\n");
  metrics.forget("g", {{"node", "b"}});
  EXPECT_EQ(metrics.expose(), "");
}

TEST(MetricsDeathTest, WrongUseIsABug) {
  Metrics metrics;
  metrics.counter("c_total", "C.");
  EXPECT_DEATH(metrics.gauge("c_total", "C."), "CHECK");
  EXPECT_DEATH(metrics.counter("1c", "C."), "CHECK");
  EXPECT_DEATH(metrics.counter("c_total", "C.", {{"le", "1"}}), "CHECK");
  EXPECT_DEATH(metrics.counter("c_total", "C.").add(-1), "CHECK");
  EXPECT_DEATH(metrics.histogram("h", "H.", {2, 1}), "CHECK");
}

RC_GTEST_PROP(Histogram, EveryObservationIsInOneBucket, (std::vector<double> values)) {
  Histogram histogram({-1, 0, 1, 100});
  for (const double value : values) histogram.observe(value);
  RC_ASSERT(histogram.count() == values.size());
  for (size_t i = 0; i < histogram.bounds().size(); ++i) {
    uint64_t below = 0;
    for (const double value : values) below += value <= histogram.bounds()[i] ? 1 : 0;
    RC_ASSERT(histogram.count_at_most(i) == below);
  }
}

}  // namespace
}  // namespace rubato
