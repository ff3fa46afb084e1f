#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "core/yaml.h"
#include "head/api.h"

namespace rubato::head {
namespace {

// The documentation has every route, and no other.
TEST(OpenApi, NamesExactlyTheRoutesThatThereAre) {
  std::ifstream file(RUBATO_SOURCE "/docs/openapi.yaml");
  ASSERT_TRUE(file);
  std::stringstream text;
  text << file.rdbuf();
  const Yaml document = Yaml::parse(text.str(), "docs/openapi.yaml");
  std::set<std::string> documented;
  for (const Yaml::Entry& path : document.find("paths")->entries()) {
    for (const Yaml::Entry& method : path.value.entries()) {
      std::string name = method.key.as_string();
      for (char& c : name) c = static_cast<char>(std::toupper(c));
      documented.insert(name + " " + path.key.as_string());
    }
  }
  const std::vector<std::string> names = Api::route_names();
  EXPECT_EQ(documented, std::set<std::string>(names.begin(), names.end()));
}

}  // namespace
}  // namespace rubato::head
