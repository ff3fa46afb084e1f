#include "kubernetes/list_document.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "kubernetes/client.h"

namespace rubato::kubernetes {
namespace {

using nlohmann::json;

std::vector<std::string> names_in(const std::string& page) {
  std::vector<std::string> out;
  for (const std::string_view item : cut_list(page, "list pods").items) {
    const json object = read_item(item, "list pods");
    out.push_back(text_in(object_in(object, "metadata"), "name"));
  }
  return out;
}

// Lists of custom resources come with their keys in the order of the alphabet: the metadata last.
TEST(ListDocument, IsCutWhateverTheOrderOfItsKeys) {
  const json item = {{"metadata", {{"name", "a"}}}, {"spec", {{"items", {{{"metadata", {{"name", "inner"}}}}}}}}};
  const std::string items = json::array({item, {{"metadata", {{"name", "b}]\""}}}}}).dump(1);
  const std::string metadata = R"({"resourceVersion":"7","continue":"more"})";
  for (const std::string& page :
       {R"({"items":)" + items + R"(,"kind":"PodList","metadata":)" + metadata + "}",
        R"({"kind":"items","metadata":)" + metadata + R"(,"items":)" + items + "}"}) {
    const ListDocument list = cut_list(page, "list pods");
    EXPECT_EQ(list.resource_version, "7");
    EXPECT_EQ(list.next, "more");
    EXPECT_EQ(names_in(page), (std::vector<std::string>{"a", "b}]\""})) << page;
  }
}

TEST(ListDocument, MayBeEmpty) {
  for (const char* items : {"[]", "null", "[ ]"}) {
    const std::string page = std::string(R"({"metadata":{"resourceVersion":"3"},"items":)") + items + "}";
    EXPECT_EQ(cut_list(page, "list").resource_version, "3");
    EXPECT_TRUE(cut_list(page, "list").items.empty()) << items;
  }
}

TEST(ListDocument, RefusesWhatIsNone) {
  for (const std::string page : {"", "[]", "<html>", R"({"items":[{"a":1})", R"({"items":[{}]}])", R"({"items":[{}]]})",
                                 R"({"metadata":{"resourceVersion":"3"},"items":[)"}) {
    EXPECT_THROW(cut_list(page, "list"), Error) << page;
  }
  EXPECT_THROW(names_in(R"({"items":[{"metadata":}]})"), Error);
  EXPECT_THROW(read_item("[1]", "list"), Error);
}

}  // namespace
}  // namespace rubato::kubernetes
