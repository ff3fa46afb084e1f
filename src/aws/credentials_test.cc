#include "aws/credentials.h"

#include <gtest/gtest.h>

#include "aws/identity.h"
#include "rest/rest_testing.h"
#include "core/text.h"

namespace rubato::aws {
namespace {

using rest::http_answer;
using rest::SentRequest;

constexpr std::string_view kAssumed =
    "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>s"
    "</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>"
    "</AssumeRoleResult></AssumeRoleResponse>";

// A machine without instance metadata, unless a test answers for it.
class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    settings.env = {{"HOME", "/home/ann"}, {"AWS_REGION", "eu-west-1"}};
    scripted.network.answer = [](const SentRequest& sent) -> HttpResponse {
      throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
    };
  }

  FoundCredentials find() {
    FoundCredentials out;
    scripted.run([&](World& world) { return find_in(world, settings, out); });
    return out;
  }

  Error find_error() {
    try {
      find();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "credentials were found";
    return Error(ErrorCode::kFailed, "");
  }

  static Task<void> find_in(World& world, Settings with, FoundCredentials& out) {
    const std::unique_ptr<Client> client = co_await open_client(world, std::move(with));
    out = co_await client->credentials().get(world.clock.wall());
  }

  void config(std::string_view text) { scripted.write_file("/home/ann/.aws/config", text); }
  void credentials(std::string_view text) { scripted.write_file("/home/ann/.aws/credentials", text); }

  rest::ScriptedWorld scripted;
  Settings settings;
};

TEST_F(CredentialsTest, VariablesComeFirst) {
  credentials("[default]\naws_access_key_id = FILE\naws_secret_access_key = s\n");
  settings.env["AWS_ACCESS_KEY_ID"] = "ENV";
  settings.env["AWS_SECRET_ACCESS_KEY"] = "s";
  settings.env["AWS_SESSION_TOKEN"] = "t";
  EXPECT_EQ(find().credentials.access_key, "ENV");
  EXPECT_EQ(find().credentials.session_token, "t");
  settings.profile = "default";
  EXPECT_EQ(find().credentials.access_key, "FILE") << "a profile that is named counts more than variables";
}

TEST_F(CredentialsTest, AProfilesKeysComeFromCredentialsThenConfig) {
  config("[profile dev]\naws_access_key_id = CONFIG\naws_secret_access_key = c\n");
  settings.env["AWS_PROFILE"] = "dev";
  EXPECT_EQ(find().credentials.access_key, "CONFIG");
  EXPECT_EQ(find().origin, "profile 'dev' (/home/ann/.aws/config:2)");
  credentials("[dev]\naws_access_key_id = CREDENTIALS\naws_secret_access_key = c\n");
  EXPECT_EQ(find().credentials.access_key, "CREDENTIALS");
}

TEST_F(CredentialsTest, AHalfGivenPairIsAnError) {
  settings.env["AWS_ACCESS_KEY_ID"] = "ENV";
  EXPECT_EQ(find_error().code, ErrorCode::kAuth);
  settings.env.erase("AWS_ACCESS_KEY_ID");
  credentials("[default]\naws_access_key_id = FILE\n");
  EXPECT_NE(find_error().message.find("aws_secret_access_key is missing"), std::string::npos);
}

TEST_F(CredentialsTest, NothingAnywhereSaysWhereItLooked) {
  const Error error = find_error();
  EXPECT_EQ(error.code, ErrorCode::kAuth);
  EXPECT_NE(error.where.find("/home/ann/.aws/credentials"), std::string::npos);
  EXPECT_NE(error.hint.find("aws configure"), std::string::npos);
}

TEST_F(CredentialsTest, AProfileThatIsNotThereIsAUsageError) {
  settings.profile = "nope";
  EXPECT_EQ(find_error().code, ErrorCode::kUsage);
}

TEST_F(CredentialsTest, ARoleIsAssumedWithItsSourcesKeys) {
  config(
      "[profile base]\naws_access_key_id = BASE\naws_secret_access_key = b\n"
      "[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\nexternal_id = x1\n");
  settings.profile = "role";
  scripted.network.answer = [](const SentRequest& sent) {
    EXPECT_EQ(sent.endpoint.host, "sts.eu-west-1.amazonaws.com");
    EXPECT_TRUE(sent.tls);
    EXPECT_NE(sent.request.headers.at("authorization").find("Credential=BASE/"), std::string::npos);
    EXPECT_NE(sent.request.body.find("Action=AssumeRole&"), std::string::npos);
    EXPECT_NE(sent.request.body.find("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr"), std::string::npos);
    EXPECT_NE(sent.request.body.find("ExternalId=x1"), std::string::npos);
    return http_answer(200, std::string(kAssumed));
  };
  const FoundCredentials found = find();
  EXPECT_EQ(found.credentials.access_key, "ASIAROLE");
  EXPECT_EQ(found.credentials.session_token, "t");
  EXPECT_TRUE(found.credentials.expires.has_value());
}

TEST_F(CredentialsTest, RolesInACircleAndCodesAreRefused) {
  config(
      "[profile a]\nrole_arn = r\nsource_profile = b\n[profile b]\nrole_arn = r\nsource_profile = a\n"
      "[profile m]\nrole_arn = r\nsource_profile = a\nmfa_serial = x\n[profile n]\nrole_arn = r\n");
  for (const auto& [profile, sentence] : {std::pair<std::string, std::string>{"a", "circle"}, {"m", "mfa_serial"},
                                       {"n", "source_profile"}}) {
    settings.profile = profile;
    const Error error = find_error();
    EXPECT_EQ(error.code, ErrorCode::kAuth);
    EXPECT_NE(error.message.find(sentence), std::string::npos) << error.message;
  }
}

TEST_F(CredentialsTest, AWebIdentityNeedsNoSignature) {
  settings.env["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  settings.env["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/web";
  EXPECT_NE(find_error().message.find("cannot be read"), std::string::npos);
  scripted.write_file("/token", "jwt\n");
  scripted.network.answer = [](const SentRequest& sent) {
    EXPECT_FALSE(sent.request.headers.contains("authorization"));
    EXPECT_NE(sent.request.body.find("WebIdentityToken=jwt"), std::string::npos) << sent.request.body;
    std::string body(kAssumed);
    for (size_t at = 0; (at = body.find("AssumeRoleRe", at)) != std::string::npos; at += 20) {
      body.replace(at, 10, "AssumeRoleWithWebIdentity");
    }
    return http_answer(200, body);
  };
  EXPECT_EQ(find().credentials.access_key, "ASIAROLE");
}

// As in a pod of EKS, whose variables name its own role: whoever names a profile means that one, and its source.
TEST_F(CredentialsTest, AProfileThatIsNamedIsNotThePodsRole) {
  config("[profile own]\naws_access_key_id = OWN\naws_secret_access_key = s\n"
         "[profile other]\nrole_arn = arn:aws:iam::1:role/other\nsource_profile = own\n");
  settings.env["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  settings.env["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/web";
  scripted.write_file("/token", "jwt\n");
  scripted.network.answer = [](const SentRequest& sent) {
    EXPECT_EQ(sent.request.body.find("WebIdentity"), std::string::npos) << sent.request.body;
    EXPECT_NE(sent.request.headers.at("authorization").find("Credential=OWN/"), std::string::npos);
    return http_answer(200, std::string(kAssumed));
  };
  settings.profile = "own";
  EXPECT_EQ(find().credentials.access_key, "OWN");
  settings.profile = "other";
  EXPECT_EQ(find().credentials.access_key, "ASIAROLE");
  settings.profile.clear();
  settings.env["AWS_PROFILE"] = "other";
  EXPECT_EQ(find().credentials.access_key, "ASIAROLE") << "the source of a role is a profile too";
}

TEST_F(CredentialsTest, SsoUsesTheTokenThatALoginLeft) {
  config(
      "[profile s]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = dev\n[sso-session corp]\n"
      "sso_start_url = https://corp/start\nsso_region = us-east-1\n");
  settings.profile = "s";
  const Error unsigned_on = find_error();
  EXPECT_EQ(unsigned_on.hint, "aws sso login --sso-session corp");
  scripted.write_file("/home/ann/.aws/sso/cache/abc.json",
                      R"({"startUrl":"https://corp/start","accessToken":"tok","expiresAt":"2100-01-01T00:00:00Z"})");
  scripted.network.answer = [](const SentRequest& sent) {
    EXPECT_EQ(sent.endpoint.host, "portal.sso.us-east-1.amazonaws.com");
    EXPECT_EQ(sent.request.headers.at("x-amz-sso_bearer_token"), "tok");
    EXPECT_EQ(sent.request.target, "/federation/credentials?role_name=dev&account_id=1");
    return http_answer(
        200, R"({"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"s","sessionToken":"t",)"
             R"("expiration":4102444800000}})");
  };
  EXPECT_EQ(find().credentials.access_key, "SSO");
}

TEST_F(CredentialsTest, ContainersCredentialsAreNotAskedForAnywhere) {
  settings.env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://example.com/c";
  EXPECT_NE(find_error().message.find("without TLS"), std::string::npos);
  settings.env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://127.0.0.1:9/c?x=1";
  settings.env["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "secret";
  scripted.network.answer = [](const SentRequest& sent) {
    EXPECT_EQ(sent.request.target, "/c?x=1");
    EXPECT_EQ(sent.request.headers.at("authorization"), "secret");
    return http_answer(200, R"({"AccessKeyId":"CONTAINER","SecretAccessKey":"s","Token":"t"})");
  };
  EXPECT_EQ(find().credentials.access_key, "CONTAINER");
  int asked = 0;
  scripted.network.answer = [&](const SentRequest&) {
    return ++asked < 3 ? http_answer(503, "") : http_answer(200, R"({"AccessKeyId":"LATE","SecretAccessKey":"s"})");
  };
  EXPECT_EQ(find().credentials.access_key, "LATE");
}

// IMDSv2: a token first; a token that is refused is replaced.
TEST_F(CredentialsTest, TheInstancesRoleAndRegionComeLast) {
  settings.env.erase("AWS_REGION");
  int tokens = 0;
  scripted.network.answer = [&](const SentRequest& sent) {
    EXPECT_EQ(sent.endpoint.host, "169.254.169.254");
    if (sent.request.method == "PUT") return http_answer(200, "token" + std::to_string(++tokens));
    if (sent.request.headers.at("x-aws-ec2-metadata-token") == "token1") return http_answer(401, "");
    if (sent.request.target.ends_with("/region")) return http_answer(200, "ap-south-1");
    if (sent.request.target.ends_with("/security-credentials/")) return http_answer(200, "trainer\n");
    EXPECT_TRUE(sent.request.target.ends_with("/security-credentials/trainer"));
    return http_answer(200, R"({"AccessKeyId":"ROLE","SecretAccessKey":"s","Token":"t",)"
                            R"("Expiration":"2100-01-01T00:00:00Z"})");
  };
  const FoundCredentials found = find();
  EXPECT_EQ(found.credentials.access_key, "ROLE");
  EXPECT_EQ(found.origin, "instance role trainer");
  EXPECT_EQ(tokens, 3) << "one was refused; the region's reader has its own";
  settings.env["AWS_EC2_METADATA_DISABLED"] = "true";
  EXPECT_NE(find_error().message.find("no AWS region"), std::string::npos);
}

// The metadata service of a machine, as a test wants it to be.
struct MachineService {
  bool answers = true;
  std::string key = "FIRST", ends;

  HttpResponse operator()(const SentRequest& sent) const {
    if (!answers) throw Error(ErrorCode::kUnavailable, "no answer", sent.endpoint.host);
    if (sent.request.method == "PUT") return http_answer(200, "token");
    if (sent.request.target.ends_with("/security-credentials/")) return http_answer(200, "trainer\n");
    return http_answer(200, R"({"AccessKeyId":")" + key + R"(","SecretAccessKey":"s","Token":"t","Expiration":")" +
                                ends + R"("})");
  }
};

// The key, or why there is none.
Task<void> note_key(World& world, Client& client, std::vector<std::string>& got) {
  try {
    const FoundCredentials found = co_await client.credentials().get(world.clock.wall());
    got.push_back(found.credentials.access_key);
  } catch (const Error& error) {
    got.emplace_back(to_string(error.code));
  }
}

Task<void> renew_in(World& world, Settings with, MachineService& service, std::vector<std::string>& got) {
  service.ends = format_time(world.clock.wall() + 10min);
  const std::unique_ptr<Client> client = co_await open_client(world, std::move(with));
  co_await note_key(world, *client, got);
  service.answers = false;
  for (const Duration wait : {Duration(6min), Duration(10s)}) {
    co_await Sleep(world.clock.loop(), world.clock.now() + wait);
    co_await note_key(world, *client, got);
  }
  co_await Sleep(world.clock.loop(), world.clock.now() + 50s);
  service = {true, "SECOND", format_time(world.clock.wall() + 10min)};
  co_await note_key(world, *client, got);
  service.answers = false;
  co_await Sleep(world.clock.loop(), world.clock.now() + 11min);
  co_await note_key(world, *client, got);
}

TEST_F(CredentialsTest, OldCredentialsServeUntilNewOnesCanBeHad) {
  MachineService service;
  scripted.network.answer = [&service](const SentRequest& sent) { return service(sent); };
  std::vector<std::string> got;
  scripted.run([&](World& world) { return renew_in(world, settings, service, got); });
  const std::string none(to_string(ErrorCode::kAuth));
  EXPECT_EQ(got, (std::vector<std::string>{"FIRST", "FIRST", "FIRST", "SECOND", none}));
}

Task<void> note_text(Metadata& metadata, std::vector<bool>& got) {
  const auto text = co_await metadata.get("/latest/meta-data/x");
  got.push_back(text.has_value());
}

Task<void> ask_in(World& world, Environment env, MachineService& service, std::vector<bool>& got) {
  Metadata metadata(world, env);
  service.answers = false;
  co_await note_text(metadata, got);
  service.answers = true;
  co_await note_text(metadata, got);
  co_await Sleep(world.clock.loop(), world.clock.now() + 1min);
  co_await note_text(metadata, got);
  service.answers = false;
  co_await note_text(metadata, got);
  service.answers = true;
  co_await note_text(metadata, got);
}

TEST_F(CredentialsTest, AMetadataServiceThatComesLateIsFound) {
  MachineService service;
  scripted.network.answer = [&service](const SentRequest& sent) { return service(sent); };
  std::vector<bool> got;
  scripted.run([&](World& world) { return ask_in(world, settings.env, service, got); });
  EXPECT_EQ(got, (std::vector<bool>{false, false, true, false, true}));
}

TEST_F(CredentialsTest, EndpointsComeFromVariablesServicesAndProfile) {
  config(
      "[default]\nendpoint_url = http://all:1\nservices = local\n[services local]\n"
      "ec2 =\n  endpoint_url = http://ec2:2\n");
  auto& program = scripted.simulation.machine(1).start("p", [](sim::SimProgram&) -> Task<int> { co_return 0; });
  const Profiles profiles(program.world().files, settings.env);
  const auto text = [&](std::string_view service) {
    const auto found = endpoint_of(settings, profiles, "default", service);
    return found ? found->text : "";
  };
  EXPECT_EQ(text("ec2"), "http://ec2:2");
  EXPECT_EQ(text("s3"), "http://all:1");
  settings.env["AWS_ENDPOINT_URL"] = "http://env:3";
  settings.env["AWS_ENDPOINT_URL_AUTO_SCALING"] = "http://asg:4";
  EXPECT_EQ(text("ec2"), "http://env:3");
  EXPECT_EQ(text("auto_scaling"), "http://asg:4");
  settings.env["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true";
  EXPECT_EQ(text("ec2"), "");
}

}  // namespace
}  // namespace rubato::aws
