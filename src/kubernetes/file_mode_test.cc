#include "kubernetes/file_mode.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rubato::kubernetes {
namespace {

using nlohmann::json;

TEST(FileMode, OfVolumesIsOctal) {
  json document = json::parse(R"({"spec": {"template": {"spec": {"volumes": [
      {"name": "key", "secret": {"secretName": "ssh", "defaultMode": "0400",
                                 "items": [{"key": "id", "path": "id", "mode": "0600"}]}},
      {"name": "all", "projected": {"defaultMode": 420, "sources": [{"configMap": {"items": [{"mode": "0777"}]}}]}},
      {"name": "odd", "configMap": {"defaultMode": "u+x"}}]}}}})");
  read_file_modes(document);
  const json& volumes = document["spec"]["template"]["spec"]["volumes"];
  EXPECT_EQ(volumes[0]["secret"]["defaultMode"], 0400);
  EXPECT_EQ(volumes[0]["secret"]["items"][0]["mode"], 0600);
  EXPECT_EQ(volumes[1]["projected"]["defaultMode"], 420);
  EXPECT_EQ(volumes[1]["projected"]["sources"][0]["configMap"]["items"][0]["mode"], 0777);
  EXPECT_EQ(volumes[2]["configMap"]["defaultMode"], "u+x");  // the server says what is wrong with it
}

TEST(FileMode, ElsewhereTextStaysText) {
  for (const char* text :
       {R"({"data": {"mode": "0755", "volumes": "none"}, "metadata": {"annotations": {"mode": "0400"}}})",
        R"({"volumes": [{"csi": {"volumeAttributes": {"mode": "0755"}}}, {"flexVolume": {"options": {"mode": "0755"}}},
            {"ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": {"mode": "0755"}}}}}]})"}) {
    json document = json::parse(text);
    read_file_modes(document);
    EXPECT_EQ(document, json::parse(text));
  }
}

}  // namespace
}  // namespace rubato::kubernetes
