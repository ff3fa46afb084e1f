// `rubato config ...` as it is typed.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/testing.h"
#include "core/source_testing.h"

namespace rubato::cli {
namespace {

const std::string kData = source_path("tests/data/");

Typed type(const std::vector<std::string>& args) {
  CannedHead head;
  return type_at(head, args);
}

// The repository's own path is no part of what a person would see there.
std::string without_root(std::string text) {
  const std::string root = source_path("");
  for (size_t at = text.find(root); at != std::string::npos; at = text.find(root)) text.erase(at, root.size());
  return text;
}

std::string golden(const std::string& name) {
  std::ifstream in(kData + "golden/" + name);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(ConfigCommands, CheckSaysEverythingAtOnce) {
  const Typed broken = type({"config", "check", kData + "cluster-files/broken/many.yaml"});
  EXPECT_EQ(broken.code, 2);
  EXPECT_EQ(without_root(broken.out), golden("many.check.txt"));
  const Typed old = type({"config", "check", kData + "ray-yaml/ray-0.6.6/aws/example-full.yaml"});
  EXPECT_EQ(old.code, 0);
  EXPECT_EQ(without_root(old.out), golden("ray-0.6.6-aws-example-full.check.txt"));
  const Typed unfilled = type({"config", "check", kData + "ray-yaml/head/local/example-full.yaml"});
  EXPECT_EQ(unfilled.code, 0);
  EXPECT_EQ(without_root(unfilled.out), golden("local-example-full.check.txt"));
}

TEST(ConfigCommands, CheckIsJsonForPrograms) {
  const Typed typed = type({"config", "check", "--json", kData + "ray-yaml/head/gcp/example-minimal.yaml"});
  const auto document = nlohmann::json::parse(typed.out);
  EXPECT_EQ(document.at("ok"), true);
  EXPECT_EQ(document.at("ready"), false);
  EXPECT_EQ(document.at("findings")[0].at("severity"), "fill in");
}

TEST(ConfigCommands, ShowHasTheDefaultsWhenAsked) {
  const std::string path = kData + "ray-yaml/ray-0.6.6/aws/example-full.yaml";
  EXPECT_EQ(type({"config", "show", "--resolved", path}).out, golden("ray-0.6.6-aws-example-full.resolved.yaml"));
  const auto document = nlohmann::json::parse(type({"config", "show", path, "--json"}).out);
  EXPECT_FALSE(document.contains("metadata"));
  EXPECT_EQ(document.at("autoscaling").at("idle_timeout"), "5m");
  const Typed broken = type({"config", "show", kData + "cluster-files/broken/many.yaml"});
  EXPECT_EQ(broken.code, 2);
  EXPECT_EQ(broken.out, "");
  EXPECT_NE(broken.err.find("has 8 errors"), std::string::npos);
}

TEST(ConfigCommands, MigrateGivesAFileThatIsFine) {
  const Typed typed = type({"config", "migrate", kData + "ray-yaml/head/aws/example-ml.yaml"});
  EXPECT_EQ(typed.code, 0);
  const std::string path = scratch("rubato_migrated.yaml");
  std::ofstream(path) << typed.out;
  const Typed checked = type({"config", "check", path});
  std::filesystem::remove(path);
  EXPECT_EQ(checked.code, 0);
  EXPECT_NE(checked.out.find(" is fine: the aws cluster 'ml', 2 node types, up to 0 workers"), std::string::npos);
  EXPECT_EQ(std::count(checked.out.begin(), checked.out.end(), '\n'), 1) << checked.out;
}

TEST(ConfigCommands, ExplainTakesEitherSpelling) {
  EXPECT_NE(type({"config", "explain", "file_mounts"}).out.find("in our form: files.mounts"), std::string::npos);
  EXPECT_NE(type({"config", "explain"}).out.find("node_types.*.resources"), std::string::npos);
  const Typed unknown = type({"config", "explain", "file_mount"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("did you mean file_mounts?"), std::string::npos);
  EXPECT_NE(type({"config", "explain", "idle"}).err.find("did you mean one of: autoscaling.idle_timeout"),
            std::string::npos);
}

TEST(ConfigCommands, AMissingFileIsSaid) {
  const Typed typed = type({"config", "check", "/nowhere/c.yaml"});
  EXPECT_EQ(typed.code, 2);
  EXPECT_NE(typed.err.find("the cluster file '/nowhere/c.yaml' cannot be read"), std::string::npos);
  EXPECT_NE(typed.err.find("there is no such file"), std::string::npos) << typed.err;
  EXPECT_NE(type({"config", "check", "/"}).err.find("cannot be read: it is a folder"), std::string::npos);
  EXPECT_EQ(type({"config", "check"}).code, 2);
}

TEST(ConfigCommands, TheSchemaIsJson) {
  EXPECT_EQ(nlohmann::json::parse(type({"config", "schema"}).out).at("title"), "Rubato cluster file");
}

}  // namespace
}  // namespace rubato::cli
