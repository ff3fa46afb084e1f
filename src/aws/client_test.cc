#include "aws/client.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "aws/ec2.h"
#include "aws/ec2_network.h"
#include "aws/s3_transfer.h"
#include "aws/s3_verify.h"
#include "core/text.h"
#include "rest/base64.h"
#include "rest/hmac.h"
#include "rest/rest_testing.h"

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

  static Task<void> query_in(World& world, Environment env, std::string region, Service service) {
    ClientConfig config;
    config.env = std::move(env);
    config.region = {region, "test"};
    Client client(world, std::move(config), std::make_shared<FixedCredentials>(FoundCredentials()));
    Params none;
    co_await client.query(service, "Any", std::move(none));
  }

  static Task<void> copy_in(World& world, std::string endpoint) {
    ClientConfig config;
    config.region = {"eu-west-1", "test"};
    if (!endpoint.empty()) config.endpoints["s3"] = {endpoint, "test"};
    Client client(world, std::move(config), std::make_shared<FixedCredentials>(FoundCredentials()));
    const S3Address from{"bucket", "a"}, to{"bucket", "b"};
    Progress none;
    const CopyRules rules;
    co_await copy(client, from, to, none, rules);
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

Task<std::vector<S3Object>> list_twice(Client& client) {
  const S3Address prefix{"far", ""};
  (void)co_await list_objects(client, prefix, 10);
  co_return co_await list_objects(client, prefix, 10);
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
      {"InsufficientFreeAddressesInSubnet", 400, ErrorCode::kNoCapacity, "another zone"},
      {"InsufficientAddressCapacity", 500, ErrorCode::kNoCapacity, "another zone"},
      {"InsufficientVolumeCapacity", 500, ErrorCode::kNoCapacity, "another zone"},
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

// The action that is missing is often not the one that was asked for.
TEST_F(ClientTest, TheStatementThatIsMissingIsTheOneThatAwsNames) {
  const auto hint_of = [&](const std::string& code, const std::string& message) {
    scripted.network.answer = [&](const SentRequest&) {
      return http_answer(403, "<Response><Errors><Error><Code>" + code + "</Code><Message>" + message +
                                  "</Message></Error></Errors><RequestID>req-1</RequestID></Response>");
    };
    try {
      describe();
    } catch (const rest::CloudError& error) {
      EXPECT_EQ(error.code, ErrorCode::kAuth) << code;
      return error.hint;
    }
    return std::string();
  };
  const auto expect = [&](const std::string& code, const std::string& message, const std::string& wanted) {
    const std::string hint = hint_of(code, message);
    EXPECT_NE(hint.find(wanted), std::string::npos) << code << ": " << message << "\n" << hint;
  };
  const std::string user = "User: arn:aws:iam::1:user/ann is not authorized to perform: ";
  expect("UnauthorizedOperation",
         user + "iam:PassRole on resource: arn:aws:iam::1:role/rubato because no identity-based policy allows it",
         R"({"Effect": "Allow", "Action": "iam:PassRole", "Resource": "arn:aws:iam::1:role/rubato"})");
  expect("AccessDenied", user + "s3:ListBucket on resource: &quot;arn:aws:s3:::data&quot; because",
         R"("Action": "s3:ListBucket", "Resource": "arn:aws:s3:::data"})");
  expect("AccessDenied", user + "evil:x&quot;}, on resource: x",
         R"("Action": "ec2:DescribeInstances", "Resource": "*"})");
  expect("UnauthorizedOperation", user + "ec2:RunInstances with an explicit deny in a service control policy",
         "by an explicit deny");
  expect("AuthFailure", "AWS was not able to validate the provided access credentials", "whoami");
  expect("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "no", "--aws-service-name spot.amazonaws.com");
}

TEST_F(ClientTest, ABucketOfAnotherRegionIsAskedThere) {
  const auto size_of = [&](const std::string& key) {
    const auto found = run<std::optional<S3Object>>([&](Client& client) {
      S3Address address{"far", key};
      return head_object(client, std::move(address));
    });
    return found ? found->size : 0;
  };
  for (const int status : {301, 307, 400}) {
    scripted.network.sent.clear();
    scripted.network.answer = [&](const SentRequest& sent) {
      const bool there = sent.endpoint.host == "far.s3.us-east-2.amazonaws.com" &&
                         sent.request.headers.at("authorization").find("/us-east-2/s3/") != std::string::npos;
      if (!there) return http_answer(status, "", {{"x-amz-bucket-region", "us-east-2"}});
      return http_answer(200, "", {{"content-length", "7"}});
    };
    EXPECT_EQ(size_of("key"), 7u) << status;
    EXPECT_EQ(scripted.network.sent.size(), 2u) << status;
  }
}

TEST_F(ClientTest, ARegionInTheRefusalIsEnough) {
  scripted.network.answer = [&](const SentRequest& sent) {
    if (sent.endpoint.host == "far.s3.us-east-2.amazonaws.com") return http_answer(200, "<R/>");
    return http_answer(400,
                       "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong</Message>"
                       "<Region>us-east-2</Region></Error>");
  };
  const auto listed = run<std::vector<S3Object>>([&](Client& client) { return list_twice(client); });
  EXPECT_TRUE(listed.empty());
  EXPECT_EQ(scripted.network.sent.size(), 3u) << "the region is known the second time";
}

TEST_F(ClientTest, ARedirectThatLeadsNowhereIsRefused) {
  scripted.network.answer = [&](const SentRequest&) { return http_answer(301, "", {{"location", "/elsewhere"}}); };
  EXPECT_THROW(run<std::vector<S3Object>>([&](Client& client) { return list_twice(client); }), rest::CloudError);
  EXPECT_THROW(describe(), rest::CloudError);
  EXPECT_EQ(scripted.network.sent.size(), 2u);
}

TEST_F(ClientTest, ThrottlingThatDoesNotEndIsNoQuota) {
  for (const char* code : {"RequestLimitExceeded", "BandwidthLimitExceeded"}) {
    scripted.network.answer = [&](const SentRequest&) { return http_answer(503, ec2_fault(code)); };
    try {
      describe();
      ADD_FAILURE() << code;
    } catch (const rest::CloudError& error) {
      EXPECT_EQ(error.code, ErrorCode::kUnavailable) << code;
    }
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
    for (const char* part :
         {"ClientToken=t1", "MinCount=2", "MaxCount=2", "InstanceType=p3.2xlarge",
          "BlockDeviceMapping.1.Ebs.VolumeSize=100", "SecurityGroupId.1=sg-1", "TagSpecification.1.Tag.1.Key=Name",
          "TagSpecification.2.ResourceType=instance", "TagSpecification.3.ResourceType=volume"}) {
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

// ---- servers that are not AWS's ----

TEST_F(ClientTest, AddressesMayBeThoseOfTheFirstNetworkInterface) {
  scripted.network.answer = [](const SentRequest&) {
    return http_answer(200,
                       "  \n<?xml version='1.0'?><R><reservationSet><item><instancesSet><item>"
                       "<instanceId>i-1</instanceId>"
                       "<networkInterfaceSet><item><privateIpAddress>10.0.0.7</privateIpAddress><association>"
                       "<publicIp>203.0.113.4</publicIp></association></item></networkInterfaceSet></item>"
                       "</instancesSet></item></reservationSet></R>");
  };
  const std::vector<Instance> found = describe();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].private_address, "10.0.0.7");
  EXPECT_EQ(found[0].public_address, "203.0.113.4");
}

TEST_F(ClientTest, APageThatPointsAtItselfIsTheLast) {
  scripted.network.answer = [](const SentRequest&) {
    return http_answer(200, "<R><reservationSet/><nextToken>same</nextToken></R>");
  };
  EXPECT_TRUE(describe().empty());
  EXPECT_EQ(scripted.network.sent.size(), 2u);
}

TEST_F(ClientTest, NothingFoundByFiltersIsNoError) {
  const std::vector<Filter> filters{{"key-name", {"lab"}}};
  for (const char* code : {"InvalidKeyPair.NotFound", "InvalidPlacementGroup.Unknown", "InvalidGroup.NotFound"}) {
    scripted.network.answer = [&](const SentRequest&) { return http_answer(400, ec2_fault(code)); };
    EXPECT_TRUE(run<std::vector<KeyPair>>([&](Client& client) { return describe_key_pairs(client, filters); }).empty());
    EXPECT_TRUE(run<std::vector<PlacementGroup>>([&](Client& client) {
                  return describe_placement_groups(client, filters);
                }).empty());
    EXPECT_TRUE(run<std::vector<SecurityGroup>>([&](Client& client) {
                  return describe_security_groups(client, std::vector<std::string>(), filters);
                }).empty());
  }
  scripted.network.answer = [&](const SentRequest&) { return http_answer(400, ec2_fault("InvalidGroup.NotFound")); };
  EXPECT_THROW(run<std::vector<SecurityGroup>>([&](Client& client) {
                 return describe_security_groups(client, std::vector<std::string>{"sg-1"}, std::vector<Filter>());
               }),
               rest::CloudError);
}

TEST_F(ClientTest, AServerWithoutRangesOrLengthsIsReadAllTheSame) {
  scripted.network.answer = [](const SentRequest& sent) {
    if (sent.request.method == "HEAD") return http_answer(200, "");
    if (sent.request.target.find("list-type") == std::string::npos) return http_answer(200, "hello world");
    return http_answer(200, "<R><Contents><Key>key</Key><Size>11</Size></Contents></R>");
  };
  const S3Address address{"data", "key"};
  const auto found = run<std::optional<S3Object>>([&](Client& client) { return head_object(client, address); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->size, 11u);
  EXPECT_EQ(run<std::string>([&](Client& client) { return get_range(client, address, 6, 5, ""); }), "world");
  EXPECT_THROW(run<std::string>([&](Client& client) { return get_range(client, address, 6, 6, ""); }), Error);
}

TEST_F(ClientTest, ListsOfTheFirstVersionAreReadToTheirEnd) {
  scripted.network.answer = [](const SentRequest& sent) {
    const bool second = sent.request.target.find("marker=a") != std::string::npos;
    return http_answer(200, second ? "<R><IsTruncated>false</IsTruncated><Contents><Key>b</Key></Contents></R>"
                                   : "<R><IsTruncated>true</IsTruncated><Contents><Key>a</Key></Contents></R>");
  };
  const S3Address all{"data", ""};
  EXPECT_EQ(run<std::vector<S3Object>>([&](Client& client) { return list_objects(client, all, 10); }).size(), 2u);
  scripted.network.answer = [](const SentRequest&) {
    return http_answer(200, "<R><IsTruncated>true</IsTruncated><Contents><Key>a</Key></Contents></R>");
  };
  EXPECT_THROW(run<std::vector<S3Object>>([&](Client& client) { return list_objects(client, all, 10); }), Error)
      << "a list that is cut off is not taken for the whole";
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
  EXPECT_EQ(default_host(kIam, "cn-northwest-1"), "iam.cn-north-1.amazonaws.com.cn");
  EXPECT_EQ(default_host(kIam, "us-gov-east-1"), "iam.us-gov.amazonaws.com");
  EXPECT_EQ(default_host(kEc2, "us-iso-west-1"), "ec2.us-iso-west-1.c2s.ic.gov");
  EXPECT_EQ(partition_of("us-isob-east-1"), "aws-iso-b");
  EXPECT_EQ(partition_of("us-gov-west-1"), "aws-us-gov");
}

// Those of botocore's data/endpoints.json.
TEST_F(ClientTest, AsksHostsOfFipsAndIpv6WhereTheyAreWanted) {
  const auto asked = [&](std::map<std::string, std::string> env, const std::string& region, Service service) {
    scripted.network.sent.clear();
    scripted.network.answer = [](const SentRequest&) { return http_answer(200, "<R/>"); };
    scripted.run([&](World& world) -> Task<void> { return query_in(world, env, region, service); });
    return scripted.network.sent.at(0).endpoint.host;
  };
  const std::map<std::string, std::string> fips{{"AWS_USE_FIPS_ENDPOINT", "true"}},
      dual{{"AWS_USE_DUALSTACK_ENDPOINT", "True"}},
      both{{"AWS_USE_FIPS_ENDPOINT", "true"}, {"AWS_USE_DUALSTACK_ENDPOINT", "true"}},
      neither{{"AWS_USE_FIPS_ENDPOINT", "false"}};
  EXPECT_EQ(asked(neither, "us-east-1", kEc2), "ec2.us-east-1.amazonaws.com");
  EXPECT_EQ(asked(fips, "us-east-1", kEc2), "ec2-fips.us-east-1.amazonaws.com");
  EXPECT_EQ(asked(fips, "us-east-1", kIam), "iam-fips.amazonaws.com");
  EXPECT_EQ(asked(fips, "us-gov-west-1", kSts), "sts.us-gov-west-1.amazonaws.com");
  EXPECT_EQ(asked(fips, "us-gov-west-1", kS3), "s3-fips.us-gov-west-1.amazonaws.com");
  EXPECT_EQ(asked(dual, "us-east-1", kEc2), "ec2.us-east-1.api.aws");
  EXPECT_EQ(asked(dual, "cn-north-1", kEc2), "ec2.cn-north-1.api.amazonwebservices.com.cn");
  EXPECT_EQ(asked(dual, "eu-west-1", kS3), "s3.dualstack.eu-west-1.amazonaws.com");
  EXPECT_EQ(asked(both, "us-east-1", kS3), "s3-fips.dualstack.us-east-1.amazonaws.com");
  EXPECT_EQ(asked(both, "us-east-1", kEc2), "ec2-fips.us-east-1.api.aws");
  EXPECT_EQ(asked(both, "us-gov-east-1", kEc2), "ec2-fips.us-gov-east-1.api.aws");
  EXPECT_THROW(asked(dual, "us-iso-east-1", kEc2), Error);
  ClientConfig config;
  config.env = both;
  EXPECT_EQ(endpoint_variables(config).size(), 2u) << "the head asks the same ones";
}

// OpenStack Swift compares another ETag of uploads in parts than it tells.
TEST_F(ClientTest, ACopyOnAnotherServerNeedsNoCondition) {
  std::string etag_later = "\"e-2\"";
  scripted.network.answer = [&](const SentRequest& sent) {
    if (sent.request.method == "HEAD") {
      const bool first = scripted.network.sent.size() == 1;
      return http_answer(200, "", {{"content-length", "7"}, {"etag", first ? "\"e-2\"" : etag_later}});
    }
    if (sent.request.headers.contains("x-amz-copy-source-if-match")) {
      return http_answer(412, "<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>");
    }
    return http_answer(200, "<CopyObjectResult><ETag>x</ETag></CopyObjectResult>");
  };
  const auto copy_at = [&](const std::string& endpoint) {
    scripted.network.sent.clear();
    scripted.run([&](World& world) { return copy_in(world, endpoint); });
  };
  copy_at("http://swift.lab:8080");
  EXPECT_EQ(scripted.network.sent.size(), 6u);
  etag_later = "\"e-3\"";
  EXPECT_THROW(copy_at("http://swift.lab:8080"), Error) << "replaced meanwhile";
  EXPECT_EQ(scripted.network.sent.size(), 3u) << "the target stays as it was";
  EXPECT_THROW(copy_at(""), rest::CloudError) << "AWS means what it says";
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
  const auto check = [](S3Object object, uint64_t part_size, std::string_view bytes, bool is_aws = true) {
    object.size = bytes.size();
    S3Verifier verifier(object, part_size, is_aws);
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
  // moto leaves out the "-2"; others might keep the hash of the whole.
  S3Object unsaid;
  unsaid.etag = "00000000000000000000000000000000-2";
  for (const std::string& kept :
       {parts.checksum_sha256.substr(0, parts.checksum_sha256.size() - 2), sha_base64("hello")}) {
    unsaid.checksum_sha256 = kept;
    EXPECT_EQ(check(unsaid, 3, "hello"), "SHA-256 right");
    EXPECT_EQ(check(unsaid, 3, "hallo"), "SHA-256 wrong");
  }
  md5.etag = "5d41402abc4b2a76b9719d911017c592";
  EXPECT_EQ(check(md5, 0, "hello"), "MD5 right");
  EXPECT_EQ(check(md5, 0, "jello"), "MD5 wrong");
  S3Object copied = md5;
  copied.checksum_sha256 = sha_base64("of something else");
  EXPECT_EQ(check(copied, 0, "hello"), "SHA-256 wrong");
  EXPECT_EQ(check(copied, 0, "hello", false), "SHA-256 right");
  EXPECT_EQ(check(copied, 0, "hallo", false), "SHA-256 wrong");
  encrypted = md5;
  encrypted.etag_is_md5 = false;
  EXPECT_EQ(check(encrypted, 0, "jello"), "length right");
}

}  // namespace
}  // namespace rubato::aws
