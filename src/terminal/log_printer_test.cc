#include "terminal/log_printer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rubato::cli {
namespace {

using nlohmann::json;

json entry(int rank, const std::string& text, bool continues = false) {
  json out = {{"generation", 1}, {"node", "n"}, {"rank", rank}, {"stream", "out"}, {"text", text}};
  if (continues) out["continues"] = true;
  return out;
}

TEST(LogPrinter, PrintsALongLineAsItWasWritten) {
  LogPrinter printer(LogStyle{.prefix = false});
  EXPECT_EQ(printer.take(entry(0, "short")), "short\n");
  std::string shown = printer.take(entry(0, "be", true));
  shown += printer.take(entry(0, "gi", true));
  shown += printer.take(entry(0, "n"));
  EXPECT_EQ(shown, "begin\n");
  EXPECT_EQ(printer.take(entry(0, "next")), "next\n");
  EXPECT_EQ(printer.flush(), "");
}

TEST(LogPrinter, OthersPrintBetweenThePieces) {
  LogPrinter printer(LogStyle{});
  EXPECT_EQ(printer.take(entry(0, "aa", true)), "");
  EXPECT_EQ(printer.take(entry(1, "bb", true)), "");
  EXPECT_EQ(printer.take(entry(2, "cc")), "[2@n] cc\n");
  EXPECT_EQ(printer.take(entry(1, "bb")), "[1@n] bbbb\n");
  EXPECT_EQ(printer.take(entry(0, "aa")), "[0@n] aaaa\n");
}

TEST(LogPrinter, HoldsNoMoreThanItsBound) {
  LogPrinter printer(LogStyle{.prefix = false});
  const std::string piece(64 << 10, 'x');
  std::string shown;
  for (int i = 0; i < 200; ++i) {
    shown += printer.take(entry(0, piece, true));
    EXPECT_LE((i + 1) * piece.size() - shown.size(), LogPrinter::kHeldMax);
  }
  shown += printer.take(entry(0, "end"));
  std::string whole;
  for (int i = 0; i < 200; ++i) whole += piece;
  EXPECT_EQ(shown, whole + "end\n");
  for (int i = 0; i < 100; ++i) printer.take(entry(0, piece, true));
  EXPECT_EQ(printer.take(entry(1, "b")), "\nb\n") << "a line that is on the screen is ended for it";
}

TEST(LogPrinter, EndsALineWhoseRestIsMissing) {
  LogPrinter printer(LogStyle{.prefix = false});
  printer.take(entry(0, "begun", true));
  json gap = entry(0, "3 lines are missing");
  gap["missing"] = {{"lines", 3}, {"bytes", 3000}};
  EXPECT_EQ(printer.take(gap), "begun\n3 lines are missing\n");
  EXPECT_EQ(printer.take(entry(0, "next")), "next\n");
  EXPECT_EQ(printer.take(entry(0, "last", true)), "");
  EXPECT_EQ(printer.flush(), "last\n");
}

}  // namespace
}  // namespace rubato::cli
