// What Google Cloud tells of a cluster without anything being changed, against tests/gcp/fake_gcp.py.
#include "clouds/gcp/gcp_survey.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "clouds/gcp/gcp_head.h"
#include "gcp/fake_gcp_testing.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using provider::CheckResult;
using provider::CloudCheck;
using provider::CloudInventory;
using provider::CloudResource;
using Words = std::vector<std::string>;

class GcpSurveyTest : public gcp::FakeGcpFixture {
 protected:
  void SetUp() override {
    gcp::FakeGcpFixture::SetUp();
    write("machineType: n1-standard-2");
  }

  void write(const std::string& config) {
    file = read_cluster_file("cluster_name: lab\nprovider: {type: gcp, project_id: " + project +
                                 ", region: us-west1, ssh_from: 203.0.113.7}\navailable_node_types:\n"
                                 "  head: {node_config: {" + config + "}, max_workers: 0}\n"
                                 "head_node_type: head\nmax_workers: 2\n",
                             "c.yaml");
    for (const Finding& one : file.findings) EXPECT_NE(one.severity, Severity::kError) << one.message;
  }

  Words variables() const {
    Words out;
    for (const auto& [name, value] : settings.env) out.push_back(name + "=" + value);
    return out;
  }
  template <class Result>
  static Task<int> run_into(Task<Result> task, Result& out) {
    out = co_await std::move(task);
    co_return 0;
  }
  void head(bool up) {
    provider::HeadMachineSettings of;
    of.cluster_folder = folder + "/cluster";
    of.authorized_keys = {"ssh-ed25519 AAAA person"};
    of.env = variables();
    provider::HeadMachine out;
    runtime.run(run_into(up ? make_gcp_head(world, file, of) : end_gcp_head(world, file, of), out));
  }
  CloudInventory list() {
    CloudInventory out;
    runtime.run(run_into(list_gcp(world, file, variables()), out));
    return out;
  }
  std::vector<CloudCheck> check() {
    std::vector<CloudCheck> out;
    runtime.run(run_into(check_gcp(world, file, variables()), out));
    return out;
  }
  static CloudCheck of(const std::vector<CloudCheck>& checks, const std::string& name) {
    const auto found = std::ranges::find(checks, name, &CloudCheck::check);
    return found == checks.end() ? CloudCheck{"", CheckResult::kFail, "no such check: " + name, ""} : *found;
  }
  static Words kinds(const CloudInventory& inventory, bool in_use) {
    Words out;
    for (const CloudResource& one : inventory.found) {
      if (one.in_use == in_use) out.push_back(one.kind);
    }
    return out;
  }

  ClusterFile file;
};

TEST_F(GcpSurveyTest, EverythingOfARunningClusterIsInUseAndNothingIsLeftAfterDown) {
  EXPECT_TRUE(list().found.empty());
  head(true);
  const CloudInventory all = list();
  EXPECT_EQ(kinds(all, true), (Words{"instance", "disk", "firewall rule", "firewall rule", "service account"}));
  EXPECT_TRUE(kinds(all, false).empty());
  EXPECT_EQ(all.found[0].detail, "head, running, n1-standard-2");
  EXPECT_GT(all.found[0].price_per_hour.value_or(0), 0.05);
  EXPECT_GT(all.found[1].price_per_hour.value_or(0), 0);
  head(false);
  EXPECT_TRUE(list().found.empty());
}

TEST_F(GcpSurveyTest, ADiskThatIsKeptIsNamedWithTheWayToRemoveIt) {
  write("machineType: n1-standard-2, disks: [{boot: true, autoDelete: false, initializeParams: {diskSizeGb: 100, "
        "sourceImage: projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts}}]");
  head(true);
  head(false);
  const CloudInventory left = list();
  ASSERT_EQ(kinds(left, false), Words{"disk"});
  EXPECT_FALSE(left.found[0].goes_with_down);
  EXPECT_TRUE(left.found[0].remove.starts_with("gcloud compute disks delete ")) << left.found[0].remove;
  EXPECT_NE(left.found[0].remove.find(" --zone us-west1-"), std::string::npos);
}

TEST_F(GcpSurveyTest, ADoctorChangesNothing) {
  const std::vector<CloudCheck> checks = check();
  for (const CloudCheck& one : checks) EXPECT_EQ(one.result, CheckResult::kOk) << one.check << ": " << one.found;
  EXPECT_NE(of(checks, "credentials").found.find("GOOGLE_APPLICATION_CREDENTIALS"), std::string::npos);
  EXPECT_EQ(of(checks, "project").found, project + ", where you may do all that up needs");
  EXPECT_EQ(of(checks, "types").found, "n1-standard-2");
  for (const json& one : control("GET", "/_fake/requests")) {
    const std::string operation = one["operation"];
    EXPECT_TRUE(operation.ends_with("get") || operation.ends_with("ist") || operation.ends_with("getFromFamily") ||
                operation == "get_project" || operation == "test_permissions" || operation == "token")
        << operation;
  }
}

TEST_F(GcpSurveyTest, WhatIsMissingIsTold) {
  set({{"deny", {{"*", {"compute.firewalls.create"}}}}});
  const CloudCheck denied = of(check(), "project");
  EXPECT_EQ(denied.result, CheckResult::kFail);
  EXPECT_NE(denied.found.find("compute.firewalls.create"), std::string::npos) << denied.found;
  set({{"deny", json::object()}});
  write("machineType: n9-none-1");
  EXPECT_EQ(of(check(), "types").result, CheckResult::kFail);
}

}  // namespace
}  // namespace rubato::clouds
