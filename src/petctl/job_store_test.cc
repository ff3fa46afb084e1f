// A job's objects against tests/aws/fake_aws.py.
#include "petctl/job_store.h"

#include <gtest/gtest.h>

#include "aws/fake_aws_testing.h"

namespace rubato::petctl {
namespace {

class JobStoreTest : public aws::FakeAwsFixture {
 protected:
  void write(const std::string& instance, HostReport::State state) {
    act([instance, state](aws::Client& client) { return write_in(client, instance, state); });
  }
  static Task<void> write_in(aws::Client& client, std::string instance, HostReport::State state) {
    HostReport report;
    report.instance = std::move(instance);
    report.state = state;
    JobStore store(client, "s3://bucket/ann/job");
    co_await store.write_report(std::move(report));
  }
  std::vector<HostReport> read() {
    return run<std::vector<HostReport>>([this](aws::Client& client) { return read_in(client, known); });
  }
  static Task<std::vector<HostReport>> read_in(aws::Client& client, KnownReports& known) {
    JobStore store(client, "s3://bucket/ann/job");
    co_return co_await store.reports(known);
  }
  int reads() {
    int count = 0;
    for (const auto& one : control("GET", "/_fake/requests")) count += one["operation"] == "GetObject" ? 1 : 0;
    control("POST", "/_fake/forget", nlohmann::json::object());
    return count;
  }

  KnownReports known;
};

TEST_F(JobStoreTest, OnlyReportsThatHaveChangedAreReadAgain) {
  for (const char* one : {"i-1", "i-2", "i-3"}) write(one, HostReport::State::kRunning);
  EXPECT_EQ(read().size(), 3u);
  EXPECT_EQ(reads(), 3);
  EXPECT_EQ(read().size(), 3u);
  EXPECT_EQ(reads(), 0);
  write("i-2", HostReport::State::kSucceeded);
  const std::vector<HostReport> now = read();
  EXPECT_EQ(reads(), 1);
  ASSERT_EQ(now.size(), 3u);
  EXPECT_EQ(now[1].instance, "i-2");
  EXPECT_EQ(now[1].state, HostReport::State::kSucceeded);
}

}  // namespace
}  // namespace rubato::petctl
