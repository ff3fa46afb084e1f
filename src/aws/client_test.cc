#include "aws/client.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "aws/ec2.h"
#include "aws/s3_transfer.h"
#include "aws/s3_verify.h"
#include "rest/base64.h"
#include "rest/rest_testing.h"
#include "rest/hmac.h"
#include "core/text.h"

namespace rubato::aws {
namespace {

using rest::http_answer;
using rest::SentRequest;

// A client with fixed keys in front of a network that the test answers.
class ClientTest : public ::testing::Test {
 protected:
  template <class Result>
  Result run(std::function<Task<Result>(Client&)> body) {
    std::optional<Result> out;
    scripted.run([&](World& world) { return run_in<Result>(world, body, out); });
    return std::move(*out);
  }

  template <class Result>
  static Task<void> run_in(World& world, std::function<Task<Result>(Client&)> body, std::optional<Result>& out) {
    FoundCredentials found;
    found.credentials.access_key = "AKID";
    found.credentials.secret_key = "secret";
    ClientConfig config;
    config.region = {"eu-west-1", "test"};
    Client client(world, std::move(config), std::make_shared<FixedCredentials>(std::move(found)));
    Task<Result> task = body(client);
    out.emplace(co_await std::move(task));
  }

  std::vector<Instance> describe() {
    return run<std::vector<Instance>>(
        [](Client& client) { return describe_instances(client, std::vector<std::string>(), std::vector<Filter>()); });
  }

  rest::ScriptedWorld scripted;
};

std::string ec2_fault(const std::string& code) {
  return "<Response><Errors><Error><Code>" + code +
         "</Code><Message>no.</Message></Error></Errors><RequestID>req-1</RequestID></Response>";
}

TEST_F(ClientTest, ReadsAllPages) {
  scripted.network.answer = [](const SentRequest& sent) {
    EXPECT_EQ(sent.endpoint.host, "ec2.eu-west-1.amazonaws.com");
    EXPECT_EQ(sent.endpoint.port, 443);
    const bool second = sent.request.body.find("NextToken=more") != std::string::npos;
    const std::string id = second ? "i-2" : "i-1";
    return http_answer(200, "<R><reservationSet><item><instancesSet><item><instanceId>" + id +
                                "</instanceId><instanceState><name>running</name></instanceState><tagSet><item>"
                                "<key>k</key><value>v</value></item></tagSet></item></instancesSet></item>"
                                "</reservationSet>" +
                                (second ? "" : "<nextToken>more</nextToken>") + "</R>");
  };
  const std::vector<Instance> found = describe();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].id, "i-2");
  EXPECT_EQ(found[1].state, "running");
  EXPECT_EQ(found[1].tag("k"), "v");
}

TEST_F(ClientTest, RefusalsAreTypedWithRequestIdAndFix) {
  const std::vector<std::tuple<std::string, int, ErrorCode, std::string>> refusals{
      {"InsufficientInstanceCapacity", 500, ErrorCode::kNoCapacity, "another zone"},
      {"VcpuLimitExceeded", 400, ErrorCode::kQuota, "Running On-Demand"},
      {"UnauthorizedOperation", 403, ErrorCode::kAuth, R"("Action": "ec2:DescribeInstances")"},
      {"InvalidInstanceID.NotFound", 400, ErrorCode::kNotFound, ""},
      {"InvalidGroup.Duplicate", 400, ErrorCode::kConflict, ""},
      {"InvalidParameterValue", 400, ErrorCode::kFailed, ""}};
  for (const auto& [code, status, kind, hint] : refusals) {
    const size_t before = scripted.network.sent.size();
    scripted.network.answer = [&](const SentRequest&) { return http_answer(status, ec2_fault(code)); };
    try {
      describe();
      ADD_FAILURE() << code;
    } catch (const rest::CloudError& error) {
      EXPECT_EQ(error.code, kind) << code;
      EXPECT_EQ(error.reason, code);
      EXPECT_EQ(error.request_id, "req-1");
      EXPECT_EQ(error.message, "ec2 DescribeInstances: " + code + ": no");
      EXPECT_NE(error.hint.find(hint), std::string::npos) << error.hint;
    }
    EXPECT_EQ(scripted.network.sent.size(), before + 1) << code << ": asked again for nothing";
  }
}

TEST_F(ClientTest, ThrottlingIsWaitedOut) {
  int left = 3;
  scripted.network.answer = [&](const SentRequest&) {
    return left-- > 0 ? http_answer(503, ec2_fault("RequestLimitExceeded")) : http_answer(200, "<R/>");
  };
  EXPECT_TRUE(describe().empty());
  EXPECT_EQ(scripted.network.sent.size(), 4u);
}

TEST_F(ClientTest, AWrongClockIsCorrectedByTheAnswer) {
  int asked = 0;
  scripted.network.answer = [&](const SentRequest& sent) {
    const std::string date = "Sun, 06 Nov 2095 08:49:37 GMT";
    if (++asked == 1) return http_answer(400, ec2_fault("RequestExpired"), {{"date", date}});
    EXPECT_TRUE(sent.request.headers.at("x-amz-date").starts_with("20951106T08"));
    return http_answer(200, "<R/>", {{"date", date}});
  };
  describe();
  EXPECT_EQ(asked, 2);
}

TEST_F(ClientTest, LaunchCarriesTokenTagsAndTheUsersConfig) {
  scripted.network.answer = [](const SentRequest& sent) {
    for (const char* part : {"ClientToken=t1", "MinCount=2", "MaxCount=2", "InstanceType=p3.2xlarge",
                             "BlockDeviceMapping.1.Ebs.VolumeSize=100", "SecurityGroupId.1=sg-1",
                             "TagSpecification.1.Tag.1.Key=Name", "TagSpecification.2.ResourceType=instance",
                             "TagSpecification.3.ResourceType=volume"}) {
      EXPECT_NE(sent.request.body.find(part), std::string::npos) << part << " in " << sent.request.body;
    }
    return http_answer(200, "<R><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet></R>");
  };
  nlohmann::json config = {
      {"InstanceType", "p3.2xlarge"},
      {"SecurityGroupIds", {"sg-1"}},
      {"BlockDeviceMappings", {{{"DeviceName", "/dev/sda1"}, {"Ebs", {{"VolumeSize", 100}}}}}},
      {"TagSpecifications", {{{"ResourceType", "instance"}, {"Tags", {{{"Key", "Name"}, {"Value", "x"}}}}}}}};
  const auto made = run<std::vector<Instance>>([&](Client& client) {
    Launch launch;
    launch.config = &config;
    launch.count = 2;
    launch.client_token = "t1";
    launch.tags = {{"rubato-cluster", "c"}};
    return run_instances(client, launch);
  });
  ASSERT_EQ(made.size(), 1u);
}

TEST(NodeConfig, UnknownKeysAndWrongTypesAreNamed) {
  const auto message = [](const nlohmann::json& config) {
    try {
      run_instances_params(config);
    } catch (const Error& error) {
      return error.message + " | " + error.hint;
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({{"InstanceTyp", "x"}}),
            "node_config.InstanceTyp: EC2 does not know it | did you mean InstanceType?");
  EXPECT_EQ(message({{"BlockDeviceMappings", {{{"Ebs", {{"VolumeSize", "big"}}}}}}}),
            "node_config.BlockDeviceMappings[0].Ebs.VolumeSize: must be a whole number | ");
  EXPECT_EQ(message({{"SecurityGroupIds", "sg-1"}}), "node_config.SecurityGroupIds: must be a list | ");
  EXPECT_EQ(message({{"Placement", "here"}}), "node_config.Placement: must be a mapping | ");
  EXPECT_EQ(message({{"EbsOptimized", true}, {"KeyName", nullptr}}), "accepted");
}

TEST(Hosts, FollowRegionAndPartition) {
  EXPECT_EQ(default_host(kEc2, "eu-west-1"), "ec2.eu-west-1.amazonaws.com");
  EXPECT_EQ(default_host(kEc2, "cn-north-1"), "ec2.cn-north-1.amazonaws.com.cn");
  EXPECT_EQ(default_host(kIam, "eu-west-1"), "iam.amazonaws.com");
  EXPECT_EQ(partition_of("us-gov-west-1"), "aws-us-gov");
}

TEST(S3Address, IsABucketAndAKey) {
  EXPECT_EQ(parse_s3_address("s3://b-1/a/b c").key, "a/b c");
  EXPECT_EQ(parse_s3_address("s3://bucket").key, "");
  for (const char* bad : {"s3://", "s3:///k", "bucket/key", "s3://a b/c", "s3://../k"}) {
    EXPECT_THROW(parse_s3_address(bad), Error) << bad;
  }
}

TEST(PartPlan, KeepsWithinS3sPartsAndOurMemory) {
  const TransferRules rules;
  EXPECT_EQ(plan_parts(0, rules).count, 0);
  EXPECT_EQ(plan_parts(rules.part_size, rules).count, 1);
  EXPECT_EQ(plan_parts(rules.part_size + 1, rules).count, 2);
  for (const uint64_t gib : {1, 100, 300}) {
    const PartPlan plan = plan_parts(gib << 30, rules);
    EXPECT_LE(plan.count, kPartsMax);
    EXPECT_LE(plan.size * 2 * static_cast<uint64_t>(plan.parallel), uint64_t{64} << 20) << gib;
  }
  EXPECT_THROW(plan_parts(uint64_t{400} << 30, rules), Error);
}

std::string sha_base64(std::string_view text) { return rest::base64(rest::digest_bytes(sha256_hex(text))); }

TEST(S3Verifier, ChecksWholesAndPartsByWhatS3Keeps) {
  const auto check = [](S3Object object, uint64_t part_size, std::string_view bytes) {
    object.size = bytes.size();
    S3Verifier verifier(object, part_size);
    for (const char c : bytes) verifier.update({&c, 1});
    return std::string(to_string(verifier.method())) + (verifier.mismatch() ? " wrong" : " right");
  };
  S3Object whole, parts, md5, encrypted;
  whole.checksum_sha256 = sha_base64("hello");
  EXPECT_EQ(check(whole, 0, "hello"), "SHA-256 right");
  EXPECT_EQ(check(whole, 0, "hellO"), "SHA-256 wrong");
  parts.checksum_sha256 =
      sha_base64(rest::digest_bytes(sha256_hex("hel")) + rest::digest_bytes(sha256_hex("lo"))) + "-2";
  EXPECT_EQ(check(parts, 3, "hello"), "SHA-256 right");
  EXPECT_EQ(check(parts, 3, "hallo"), "SHA-256 wrong");
  EXPECT_EQ(check(parts, 0, "hello"), "length right") << "the size of the parts is not known";
  md5.etag = "5d41402abc4b2a76b9719d911017c592";
  EXPECT_EQ(check(md5, 0, "hello"), "MD5 right");
  EXPECT_EQ(check(md5, 0, "jello"), "MD5 wrong");
  encrypted = md5;
  encrypted.etag_is_md5 = false;
  EXPECT_EQ(check(encrypted, 0, "jello"), "length right");
}

}  // namespace
}  // namespace rubato::aws
