#include "world/key_table.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace rubato {
namespace {

TEST(KeyTable, KeepsTheLastValue) {
  KeyTable table;
  table.set("a", "1");
  table.set("a", "22");
  EXPECT_EQ(*table.find("a"), "22");
  EXPECT_EQ(table.find("b"), nullptr);
  EXPECT_EQ(table.missing({"a", "b", "c"}), "b");
  EXPECT_EQ(table.missing({"a"}), std::nullopt);
}

TEST(KeyTable, CountsInDecimalText) {
  KeyTable table;
  EXPECT_EQ(table.add("n", 2), 2);
  EXPECT_EQ(table.add("n", -5), -3);
  EXPECT_EQ(*table.find("n"), "-3");
  table.set("n", "x");
  EXPECT_THROW(table.add("n", 1), Error);
  table.set("n", std::to_string(INT64_MAX));
  EXPECT_THROW(table.add("n", 1), Error);
}

TEST(KeyTable, ForgetsAGenerationByItsPrefix) {
  KeyTable table;
  for (const char* key : {"1/a", "1/b", "10/a", "2/a"}) table.set(key, "v");
  EXPECT_EQ(table.remove_prefix("1/"), 2u);
  EXPECT_EQ(table.find("1/a"), nullptr);
  EXPECT_NE(table.find("10/a"), nullptr);
  table.remove_prefix("");
  EXPECT_EQ(table.bytes(), 0u);
}

TEST(KeyTable, RefusesWhatDoesNotFitAndStaysAsItWas) {
  KeyTable table(10);
  table.set("key", "1234");
  EXPECT_THROW(table.set("other", "123"), Error);
  EXPECT_THROW(table.set("key", "12345678"), Error);
  EXPECT_EQ(*table.find("key"), "1234");
  table.set("key", "1234567");
  EXPECT_EQ(table.bytes(), 10u);
}

// A key costs more than its bytes: many empty ones would take all of the memory, and long to forget.
TEST(KeyTable, HoldsSoManyKeys) {
  KeyTable table;
  for (size_t i = 0; i < KeyTable::kKeysMax; ++i) table.set(std::to_string(i), "");
  EXPECT_THROW(table.set("one more", ""), Error);
  EXPECT_THROW(table.add("another", 1), Error);
  table.set("0", "again");
  EXPECT_EQ(table.remove_prefix(""), KeyTable::kKeysMax);
  table.set("one more", "");
}

}  // namespace
}  // namespace rubato
