// The end of a job against tests/aws/fake_aws.py.
#include "petctl/job_end.h"

#include <gtest/gtest.h>

#include "aws/ec2_network.h"
#include "aws/fake_aws_testing.h"
#include "petctl/job_plan.h"

namespace rubato::petctl {
namespace {

using nlohmann::json;

class JobEndTest : public aws::FakeAwsFixture {
 protected:
  static Task<void> make_another(aws::Client& client) {
    const aws::Tags tags{{std::string(kJobTag), "other"}};
    json config = {{"ImageId", "ami-0000000000000001"}, {"InstanceType", "t3.micro"}};
    aws::Launch launch;
    launch.config = &config;
    launch.tags = tags;
    (void)co_await aws::run_instances(client, std::move(launch));
    (void)co_await aws::create_launch_template(client, "other", config, "", tags);
    (void)co_await aws::create_security_group(client, "rubato-job-other", "hosts", "vpc-0fake0000000001", tags);
  }
};

TEST_F(JobEndTest, ThingsOfOthersStayWhateverTheFiltersLetThrough) {
  act(make_another);
  set({{"habits", {"no filters"}}});
  EndOrder order;
  order.name = "ann-job";
  order.on_progress = [](std::string) {};
  const auto removed = run<std::vector<std::string>>([&](aws::Client& client) { return end_job(client, order); });
  EXPECT_TRUE(removed.empty()) << removed.front();
  for (const json& one : control("GET", "/_fake/requests")) {
    for (const char* what : {"TerminateInstances", "DeleteLaunchTemplate", "DeleteSecurityGroup"}) {
      EXPECT_NE(one["operation"], what);
    }
  }
}

}  // namespace
}  // namespace rubato::petctl
