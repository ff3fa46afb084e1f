// Whole files: Ray's own, of today and of 0.6.6, and variants of ours.
#include "model/cluster_file_testing.h"
#include "model/cluster_name.h"
#include "model/config_keys.h"
#include "model/yaml_value.h"

namespace rubato {
namespace {

using nlohmann::ordered_json;

TEST(ClusterFileSamples, AllLoad) {
  const auto samples = sample_files();
  EXPECT_GE(samples.size(), 45u);
  for (const std::string& path : samples) {
    const ClusterFile file = read_cluster_file(source_file(path), path);
    EXPECT_EQ(errors(file), std::vector<std::string>()) << path;
  }
}

TEST(ClusterFileSamples, OurFormMeansTheSame) {
  for (const std::string& path : sample_files()) {
    const ClusterFile file = read_cluster_file(source_file(path), path);
    const ClusterFile again = read_cluster_file(yaml_text(given_values(file)), "migrated.yaml");
    EXPECT_EQ(errors(again), std::vector<std::string>()) << path;
    const auto tpus = std::ranges::count_if(said(again, Severity::kWarning),
                                            [](const std::string& text) { return text.find("TPU") != text.npos; });
    size_t kept = static_cast<size_t>(tpus);  // notes of what the file asks for and no form of it can give
    if (path.ends_with("azure-example-full.yaml") || path.ends_with("example-cloudwatch.yaml")) kept += 1;
    if (path.ends_with("kubernetes-1.0.yaml")) kept += 2;  // its manifests of accounts, and of services
    EXPECT_EQ(said(again, Severity::kWarning).size() + said(again, Severity::kNote).size(), kept)
        << path << ::testing::PrintToString(said(again, Severity::kWarning));
    EXPECT_EQ(resolved_values(again), resolved_values(file)) << path;
    EXPECT_EQ(given_values(again), given_values(file)) << path;
    // The form with all defaults spelled out means the same as well.
    if (file.has(Severity::kUnfilled)) continue;
    const ClusterFile full = read_cluster_file(yaml_text(resolved_values(file)), "full.yaml");
    EXPECT_EQ(resolved_values(full), resolved_values(file)) << path;
  }
}

TEST(ClusterFileSamples, ResolvedFormsAreTheRecordedOnes) {
  const std::pair<const char*, const char*> cases[] = {
      {"tests/data/ray-yaml/ray-0.6.6/aws/example-full.yaml", "ray-0.6.6-aws-example-full"},
      {"tests/data/ray-yaml/head/local/example-full.yaml", "local-example-full"},
      {"tests/data/cluster-files/native.yaml", "native"},
  };
  for (const auto& [path, golden] : cases) {
    const ClusterFile file = read_cluster_file(source_file(path), path);
    EXPECT_EQ(yaml_text(resolved_values(file)),
              source_file(std::string("tests/data/golden/") + golden + ".resolved.yaml"))
        << path;
  }
}

// Every key that a sample uses has a row, in the spelling of the sample: nothing is taken by accident.
TEST(ClusterFileSamples, UseOnlyKeysOfTheTable) {
  for (const std::string& path : sample_files()) {
    std::vector<Error> duplicates;
    const Yaml document = Yaml::parse_last_wins(source_file(path), path, duplicates);
    for (const Yaml::Entry& entry : document.entries()) {
      const std::string key = entry.key.as_string();
      EXPECT_TRUE(key.starts_with("x-") || find_config_key(key) != nullptr) << path << " " << key;
    }
  }
}

}  // namespace
}  // namespace rubato
