// Every typed call against tests/aws/fake_aws.py, which checks signatures and the requests by AWS's own models.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "aws/auto_scaling.h"
#include "aws/ec2_network.h"
#include "aws/fake_aws_testing.h"
#include "aws/identity.h"
#include "aws/s3_transfer.h"
#include "aws/storage.h"

namespace rubato::aws {
namespace {

using nlohmann::json;

class FakeAwsTest : public FakeAwsFixture {
 protected:
  std::vector<Instance> launch(const std::string& token, int count = 1, const std::string& type = "t3.micro") {
    json config = {{"ImageId", "ami-0000000000000001"}, {"InstanceType", type}, {"SubnetId", "subnet-aaaaaaaa"}};
    return run<std::vector<Instance>>([&](Client& client) {
      Launch launch;
      launch.config = &config;
      launch.count = count;
      launch.client_token = token;
      launch.tags = {{"rubato-cluster", "c"}};
      return run_instances(client, launch);
    });
  }
  std::vector<Instance> list(std::vector<std::string> ids = {}) {
    return run<std::vector<Instance>>([&](Client& client) {
      std::vector<Filter> filters;
      if (ids.empty()) filters = {{"tag:rubato-cluster", {"c"}}};
      return describe_instances(client, ids, filters);
    });
  }
  std::string wait_for_state(const std::string& id, const std::string& state) {
    std::string now;
    for (int tries = 0; tries < 3000 && now != state; ++tries) {
      const auto found = list({id});
      now = found.empty() ? "gone" : found[0].state;
    }
    return now;
  }

  std::string make_file(const std::string& name, size_t size) {
    std::string bytes(size, '\0');
    Random noise(size);
    for (char& c : bytes) c = static_cast<char>(noise.next());
    const std::string path = folder + "/" + name;
    files.write_atomically(path, bytes);
    return path;
  }
};

TEST_F(FakeAwsTest, AnInstanceLivesFromPendingToTerminated) {
  const auto made = launch("token-1");
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].state, "pending");
  EXPECT_EQ(made[0].zone, "eu-west-1a");
  EXPECT_EQ(launch("token-1")[0].id, made[0].id) << "the same token gives the same machine";
  EXPECT_EQ(code_of([&] { launch("token-1", 2); }), ErrorCode::kFailed) << "with other parameters it is refused";
  EXPECT_EQ(wait_for_state(made[0].id, "running"), "running");
  EXPECT_EQ(list().size(), 1u);
  const auto ended = run<std::vector<StateChange>>(
      [&](Client& client) { return terminate_instances(client, std::vector<std::string>{made[0].id}); });
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].now, "shutting-down");
  EXPECT_EQ(wait_for_state(made[0].id, "terminated"), "terminated");
  EXPECT_EQ(code_of([&] { list({"i-0123"}); }), ErrorCode::kNotFound);
}

TEST_F(FakeAwsTest, StockAndQuotaAreToldApart) {
  set({{"stock", {{"p3.2xlarge/eu-west-1a", 1}}}, {"vcpus_max", 20}});
  launch("a", 1, "p3.2xlarge");
  EXPECT_EQ(code_of([&] { launch("b", 1, "p3.2xlarge"); }), ErrorCode::kNoCapacity);
  EXPECT_EQ(code_of([&] { launch("c", 1, "c5.4xlarge"); }), ErrorCode::kQuota);
  EXPECT_EQ(list().size(), 1u);
}

TEST_F(FakeAwsTest, ListsGoOverManyPages) {
  set({{"page_max", 2}});
  launch("many", 5);
  EXPECT_EQ(list().size(), 5u);
  const auto prices = run<std::vector<SpotPrice>>([](Client& client) {
    return describe_spot_prices(client, std::vector<std::string>{"p3.2xlarge"}, "2020-01-01T00:00:00Z");
  });
  ASSERT_EQ(prices.size(), 3u);
  EXPECT_NEAR(prices[0].price, 0.918, 1e-6);
  const auto types = run<std::vector<InstanceType>>(
      [](Client& client) { return describe_instance_types(client, std::vector<std::string>()); });
  EXPECT_EQ(types.size(), 6u);
  EXPECT_EQ(types.back().gpus, 8);
  EXPECT_EQ(types.back().gpu_name, "V100");
}

TEST_F(FakeAwsTest, MisfortunesAreOutlived) {
  set({{"throttle", {{"ec2", 2}}}, {"fail", {{"sts", 1}}}, {"drop", {{"iam", 1}}}, {"clock_offset_s", 3000}});
  EXPECT_EQ(launch("t").size(), 1u) << "throttled, and our clock is 50 minutes behind";
  const auto who = run<CallerIdentity>([](Client& client) { return get_caller_identity(client); });
  EXPECT_EQ(who.arn, "arn:aws:iam::123456789012:user/tester");
  InstanceRole role;
  role.name = "rubato-head";
  EXPECT_NE(run<std::string>([&](Client& client) { return ensure_instance_role(client, role); }), "");
}

TEST_F(FakeAwsTest, AWrongSecretIsToldFromAMissingPermission) {
  settings.env["AWS_SECRET_ACCESS_KEY"] = "wrong";
  EXPECT_EQ(code_of([&] { list(); }), ErrorCode::kAuth);
  EXPECT_NE(last_error.find("AuthFailure"), std::string::npos) << last_error;
}

TEST_F(FakeAwsTest, AProfilesProgramPrintsCredentials) {
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) settings.env.erase(name);
  const auto caller = [&](const std::string& program) {
    files.make_folders(folder + "/.aws");
    files.write_atomically(folder + "/.aws/config", "[default]\ncredential_process = " + program + "\n");
    return run<CallerIdentity>([](Client& client) { return get_caller_identity(client); }).arn;
  };
  const std::string prints = R"(echo '{"Version": 1, "AccessKeyId": "AKIAFAKE", "SecretAccessKey": "fake-secret"}')";
  EXPECT_EQ(caller(prints), "arn:aws:iam::123456789012:user/tester");
  EXPECT_EQ(code_of([&] { caller("echo no key >&2; exit 3"); }), ErrorCode::kAuth);
  EXPECT_NE(last_error.find("exit code 3: no key"), std::string::npos) << last_error;
  EXPECT_EQ(code_of([&] { caller(R"(echo '{"AccessKeyId": "A", "SecretAccessKey": "s"}')"); }), ErrorCode::kAuth);
}

TEST_F(FakeAwsTest, TheInstancesRoleIsUsedWhereThereIsNothingElse) {
  set({{"instance_role", "trainer"}});
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"}) settings.env.erase(name);
  const auto who = run<CallerIdentity>([](Client& client) { return get_caller_identity(client); });
  EXPECT_EQ(who.arn, "arn:aws:sts::123456789012:assumed-role/instance/i-0fake");
}

std::vector<std::string> only(std::string one) { return std::vector<std::string>(1, std::move(one)); }

Task<void> make_surroundings(Client& client) {
  const Tags tags{{"rubato-cluster", "c"}};
  const auto vpcs = co_await describe_vpcs(client, std::vector<std::string>(), std::vector<Filter>());
  const std::string vpc = vpcs.at(0).id;
  std::vector<Filter> in_vpc;
  in_vpc.push_back(Filter());
  in_vpc[0].name = "vpc-id";
  in_vpc[0].values.push_back(vpc);
  const auto subnets = co_await describe_subnets(client, std::vector<std::string>(), in_vpc);
  EXPECT_EQ(subnets.size(), 3u);
  const auto zones = co_await describe_zones(client);
  EXPECT_EQ(zones.size(), 3u);
  const std::string group = co_await create_security_group(client, "rubato-c", "cluster c", vpc, tags);
  std::vector<Rule> rules(2);
  rules[0].from_port = rules[0].to_port = 22;
  rules[0].cidrs = {"203.0.113.7/32", "2001:db8::/64"};
  rules[0].note = "ssh";
  rules[1].protocol = "-1";
  rules[1].groups = {group};
  co_await authorize_ingress(client, group, rules);
  co_await authorize_ingress(client, group, rules);  // again is no error
  const auto groups = co_await describe_security_groups(client, only(group), std::vector<Filter>());
  EXPECT_EQ(groups.at(0).ingress.size(), 2u);
  EXPECT_EQ(groups.at(0).ingress.at(0).cidrs, rules[0].cidrs);
  EXPECT_EQ(groups.at(0).ingress.at(1).groups, rules[1].groups);
  const KeyPair key = co_await import_key_pair(client, "rubato-c", "ssh-ed25519 AAAA", tags);
  const auto keys = co_await describe_key_pairs(client, std::vector<Filter>());
  EXPECT_EQ(keys.at(0).id, key.id);
  co_await create_placement_group(client, "near", "cluster", tags);
  const auto placements = co_await describe_placement_groups(client, std::vector<Filter>());
  EXPECT_EQ(placements.at(0).strategy, "cluster");
  co_await delete_placement_group(client, "near");
  co_await delete_key_pair(client, "rubato-c");
  co_await delete_key_pair(client, "rubato-c");
  co_await delete_security_group(client, group);
}

TEST_F(FakeAwsTest, SurroundingsAreMadeAndRemoved) {
  act(make_surroundings);
  compare_with_golden("surroundings");
}

Task<void> use_machines(Client& client) {
  const auto images = co_await describe_images(client, std::vector<std::string>(), only("self"),
                                               std::vector<Filter>());
  EXPECT_EQ(images.at(0).id, "ami-0000000000000002") << "the newest first";
  json config = {{"ImageId", images.at(0).id},
                 {"InstanceType", "t3.micro"},
                 {"UserData", "IyEvYmluL3NoCg=="},
                 {"IamInstanceProfile", {{"Name", "rubato-head"}}},
                 {"InstanceMarketOptions", {{"MarketType", "spot"}, {"SpotOptions", {{"MaxPrice", "0.02"}}}}},
                 {"NetworkInterfaces",
                  {{{"DeviceIndex", 0}, {"SubnetId", "subnet-bbbbbbbb"}, {"Groups", {"sg-1"}}}}},
                 {"MetadataOptions", {{"HttpTokens", "required"}}}};
  Launch launch;
  launch.config = &config;
  launch.client_token = "use";
  launch.tags = {{"rubato-cluster", "c"}};
  const auto made = co_await run_instances(client, launch);
  EXPECT_TRUE(made.at(0).spot);
  EXPECT_EQ(made.at(0).zone, "eu-west-1b");
  const std::vector<std::string> ids{made.at(0).id};
  Tags more;
  more.emplace_back("ray-node-status", "up-to-date");
  co_await create_tags(client, ids, more);
  co_await delete_tags(client, ids, only("ray-node-status"));
  const std::string text = co_await console_output(client, made.at(0).id);
  EXPECT_EQ(text, "fake console of " + made.at(0).id + "\n");
  const std::string image = co_await create_image(client, made.at(0).id, "baked", more);
  EXPECT_TRUE(image.starts_with("ami-"));
  const std::string id = co_await create_launch_template(client, "rubato-c", config, "template", more);
  const auto templates = co_await describe_launch_templates(client, only("rubato-c"));
  EXPECT_EQ(templates.at(0).id, id);
  ScalingGroupSpec spec;
  spec.name = "job";
  spec.launch_template = id;
  spec.min = 0;
  spec.max = 4;
  spec.desired = 2;
  spec.subnets = {"subnet-aaaaaaaa", "subnet-bbbbbbbb"};
  spec.tags = {{"rubato-cluster", "c"}};
  co_await create_scaling_group(client, spec);
  co_await set_desired_capacity(client, "job", 3);
  const auto groups = co_await describe_scaling_groups(client, only("job"));
  EXPECT_EQ(groups.at(0).members.size(), 3u);
  co_await delete_scaling_group(client, "job");
  co_await delete_scaling_group(client, "job");
  co_await delete_launch_template(client, id);
  co_await terminate_instances(client, ids);
}

TEST_F(FakeAwsTest, MachinesTemplatesAndGroups) {
  act(use_machines);
  compare_with_golden("machines");
}

Task<void> use_storage(Client& client) {
  const auto absent = co_await get_parameter(client, "/none");
  EXPECT_EQ(absent, std::nullopt);
  const auto image = co_await get_parameter(client, "/aws/service/ami");
  EXPECT_EQ(image, "ami-0000000000000001");
  Tags tags;
  tags.emplace_back("Name", "efs1");
  const FileSystem made = co_await create_file_system(client, "token", tags);
  const FileSystem again = co_await create_file_system(client, "token", tags);
  EXPECT_EQ(again.id, made.id);
  const auto systems = co_await describe_file_systems(client);
  EXPECT_EQ(systems.at(0).name, "efs1");
  const MountTarget target =
      co_await create_mount_target(client, made.id, "subnet-aaaaaaaa", only("sg-00000000000000001"));
  const auto targets = co_await describe_mount_targets(client, made.id);
  EXPECT_EQ(targets.at(0).id, target.id);
  co_await delete_mount_target(client, target.id);
  co_await delete_file_system(client, made.id);
  InstanceRole role;
  role.name = "rubato-workers";
  role.policy = "{}";
  const std::string profile = co_await ensure_instance_role(client, role);
  EXPECT_EQ(profile, "arn:aws:iam::123456789012:instance-profile/rubato-workers");
  co_await ensure_instance_role(client, role);
  const bool removed = co_await remove_instance_role(client, role.name);
  EXPECT_TRUE(removed);
  const bool removed_again = co_await remove_instance_role(client, role.name);
  EXPECT_FALSE(removed_again);
}

TEST_F(FakeAwsTest, FileSystemsParametersAndRoles) {
  set({{"parameters", {{"/aws/service/ami", "ami-0000000000000001"}}}});
  act(use_storage);
}

TEST_F(FakeAwsTest, FilesGoToS3AndBack) {
  TransferRules rules;
  rules.part_size = 5 << 20;
  rules.state = folder + "/state";
  for (const size_t size : {size_t{0}, size_t{1000}, size_t{12} << 20}) {
    const std::string path = make_file("source", size), back = folder + "/back";
    S3Address where;
    where.bucket = "bucket";
    where.key = "a b/é" + std::to_string(size);
    uint64_t shown = 0;
    Progress progress = [&](uint64_t done, uint64_t) { shown = done; };
    run<TransferReport>([&](Client& client) { return upload(client, path, where, rules, progress); });
    EXPECT_EQ(shown, size);
    const auto report =
        run<TransferReport>([&](Client& client) { return download(client, where, back, rules, progress); });
    EXPECT_EQ(report.verified, "SHA-256");
    EXPECT_EQ(files.read(back), files.read(path)) << size;
  }
  const auto listed = run<std::vector<S3Object>>([](Client& client) {
    S3Address prefix;
    prefix.bucket = "bucket";
    prefix.key = "a b/";
    return list_objects(client, prefix, 10);
  });
  ASSERT_EQ(listed.size(), 3u);
  EXPECT_EQ(listed[0].key, "a b/é0");
}

TEST_F(FakeAwsTest, ABrokenUploadGoesOnWhereItEnded) {
  TransferRules rules;
  rules.part_size = 5 << 20;
  rules.parallel = 1;
  rules.state = folder + "/state";
  settings.env["AWS_MAX_ATTEMPTS"] = "1";
  const std::string path = make_file("source", size_t{17} << 20);
  S3Address where;
  where.bucket = "bucket";
  where.key = "k";
  // Two parts go through, then the connection ends.
  int parts = 0;
  Progress breaks = [&](uint64_t, uint64_t) {
    if (++parts == 2) throw Error(ErrorCode::kUnavailable, "the cable was cut");
  };
  EXPECT_EQ(code_of([&] {
              run<TransferReport>([&](Client& client) { return upload(client, path, where, rules, breaks); });
            }),
            ErrorCode::kUnavailable);
  const auto report =
      run<TransferReport>([&](Client& client) { return upload(client, path, where, rules, Progress()); });
  EXPECT_EQ(report.resumed, uint64_t{10} << 20);
  const std::string back = folder + "/back";
  run<TransferReport>([&](Client& client) { return download(client, where, back, rules, Progress()); });
  EXPECT_EQ(files.read(back), files.read(path));
  EXPECT_TRUE(files.list(rules.state).empty()) << "nothing is left to go on with";
}

// S3 forgets an upload when it is complete: who asks again, because the answer was lost, is told that there is none.
TEST_F(FakeAwsTest, AnUploadWhoseEndWasNotHeardIsWhole) {
  TransferRules rules;
  rules.part_size = 5 << 20;
  const std::string path = make_file("source", size_t{11} << 20);
  const S3Address where{"bucket", "k"};
  set({{"lose", {{"CompleteMultipartUpload", 1}}}});
  run<TransferReport>([&](Client& client) { return upload(client, path, where, rules, Progress()); });
  const std::string back = folder + "/back";
  run<TransferReport>([&](Client& client) { return download(client, where, back, rules, Progress()); });
  EXPECT_EQ(files.read(back), files.read(path));
  // One that is really gone is told, though another object has its name.
  const auto end_again = [&] {
    act([where](Client& client) {
      std::vector<S3Part> parts(3);
      for (int i = 0; i < 3; ++i) parts[static_cast<size_t>(i)] = {i + 1, 5, std::string(32, 'a'), ""};
      return complete_upload(client, where, "gone", std::move(parts));
    });
  };
  EXPECT_EQ(code_of(end_again), ErrorCode::kNotFound);
}

TEST_F(FakeAwsTest, ABrokenDownloadGoesOnAndADamagedOneIsRefused) {
  TransferRules rules;
  rules.part_size = 5 << 20;
  rules.parallel = 1;
  const std::string path = make_file("source", size_t{17} << 20), back = folder + "/back";
  S3Address where;
  where.bucket = "bucket";
  where.key = "k";
  run<TransferReport>([&](Client& client) { return upload(client, path, where, rules, Progress()); });
  Progress breaks = [&](uint64_t done, uint64_t) {
    if (done == uint64_t{10} << 20) throw Error(ErrorCode::kUnavailable, "the cable was cut");
  };
  EXPECT_EQ(code_of([&] {
              run<TransferReport>([&](Client& client) { return download(client, where, back, rules, breaks); });
            }),
            ErrorCode::kUnavailable);
  EXPECT_FALSE(files.exists(back)) << "it has its name only when it is whole";
  const auto report =
      run<TransferReport>([&](Client& client) { return download(client, where, back, rules, Progress()); });
  EXPECT_EQ(report.resumed, uint64_t{10} << 20);
  EXPECT_EQ(files.read(back), files.read(path));

  set({{"corrupt", 1}});
  EXPECT_EQ(code_of([&] {
              run<TransferReport>([&](Client& client) { return download(client, where, back, rules, Progress()); });
            }),
            ErrorCode::kFailed);
  EXPECT_NE(last_error.find("damaged: SHA-256"), std::string::npos) << last_error;
  EXPECT_EQ(files.read(back), files.read(path)) << "what was there before stays";
}

TEST_F(FakeAwsTest, S3CopiesWhatIsLargeInParts) {
  set({{"copy_max", 6 << 20}});
  const std::string path = make_file("source", (size_t{16} << 20) + 1), back = folder + "/back";
  const S3Address from{"bucket", "a b/é+%20"}, to{"bucket", "//copy"};
  run<TransferReport>([&](Client& client) { return upload(client, path, from, TransferRules(), Progress()); });
  CopyRules rules;
  rules.whole_max = rules.part_size = uint64_t{5} << 20;
  uint64_t shown = 0;
  Progress progress = [&](uint64_t done, uint64_t) { shown = done; };
  const auto report = run<TransferReport>([&](Client& client) { return copy(client, from, to, progress, rules); });
  EXPECT_EQ(report.bytes, (uint64_t{16} << 20) + 1);
  EXPECT_EQ(shown, report.bytes);
  run<TransferReport>([&](Client& client) { return download(client, to, back, TransferRules(), Progress()); });
  EXPECT_EQ(files.read(back), files.read(path));

  rules.part_size = uint64_t{20} << 20;
  set({{"fail", {{"s3", 100}}}});
  settings.env["AWS_MAX_ATTEMPTS"] = "1";
  const auto again = [&] {
    run<TransferReport>([&](Client& client) { return copy(client, from, to, progress, rules); });
  };
  EXPECT_EQ(code_of(again), ErrorCode::kUnavailable);
}

TEST_F(FakeAwsTest, APresignedUrlNeedsNoCredentials) {
  const std::string path = make_file("source", 100);
  S3Address where;
  where.bucket = "bucket";
  where.key = "a b";
  TransferRules rules;
  run<TransferReport>([&](Client& client) { return upload(client, path, where, rules, Progress()); });
  const std::string link =
      run<std::string>([&](Client& client) { return presign_object(client, where, "GET", 60s); });
  const rest::Url parsed = rest::parse_url(link, "link");
  EXPECT_EQ(parsed.path, "/bucket/a%20b");
  std::string text;
  runtime.run(control_in("GET", parsed.path + "?" + parsed.query, "", text));
  EXPECT_EQ(text, files.read(path));
}

}  // namespace
}  // namespace rubato::aws
