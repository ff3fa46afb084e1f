#include "api/openapi.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "api/cluster_documents.h"
#include "api/endpoints.h"
#include "core/source_testing.h"
#include "core/yaml.h"

namespace rubato::api {
namespace {

std::string docs_text() {
  std::ifstream file(source_path("docs/openapi.yaml"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(OpenApi, TheDocumentationIsWhatTheCodeSays) { EXPECT_EQ(docs_text(), openapi_yaml()) << "renew it: make docs"; }

TEST(OpenApi, IsYamlWithEveryEndpoint) {
  const Yaml document = Yaml::parse(openapi_yaml(), "openapi.yaml");
  std::set<std::string> documented, there;
  for (const Yaml::Entry& path : document.find("paths")->entries()) {
    for (const Yaml::Entry& method : path.value.entries())
      documented.insert(method.key.as_string() + " " + path.key.as_string());
  }
  for (const Endpoint& endpoint : endpoints()) {
    std::string method = endpoint.method;
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    EXPECT_TRUE(there.insert(method + " " + endpoint.path).second) << endpoint.path << " is there twice";
    EXPECT_GT(endpoint.body_bytes_max, 0u) << endpoint.path;
    EXPECT_FALSE(endpoint.answers.empty()) << endpoint.path;
  }
  EXPECT_EQ(documented, there);
}

TEST(OpenApi, EachReferenceLeadsSomewhere) {
  const OrderedJson document = openapi();
  const std::function<void(const OrderedJson&)> follow = [&](const OrderedJson& value) {
    if (value.is_object() && value.contains("$ref")) {
      const std::string path = value["$ref"].get<std::string>().substr(1);
      EXPECT_TRUE(document.contains(OrderedJson::json_pointer(path))) << path;
    }
    for (const OrderedJson& item : value) {
      if (item.is_structured()) follow(item);
    }
  };
  follow(document);
}

TEST(Documents, AbsentAndNullAreNotTheSame) {
  Member leaving;
  leaving.node = "n-1";
  const Json document = to_json(leaving);
  EXPECT_TRUE(document.at("rank_first").is_null());
  Job job;
  EXPECT_FALSE(to_json(job).contains("master"));
  job.master = "h:1";
  EXPECT_EQ(to_json(job)["master"], "h:1");
  EXPECT_EQ(to_json(job)["phase"], "") << "what it has of a summary is there too";
}

TEST(Documents, AFieldThatMayBeAbsentIsNotRequired) {
  Components components;
  (void)components.schema<Job>();
  const OrderedJson& schema = components.all().at("Job");
  const auto required = schema["required"].get<std::set<std::string>>();
  EXPECT_TRUE(required.contains("id"));
  EXPECT_TRUE(required.contains("spec"));
  EXPECT_FALSE(required.contains("master"));
  EXPECT_TRUE(schema["properties"].contains("master"));
}

}  // namespace
}  // namespace rubato::api
