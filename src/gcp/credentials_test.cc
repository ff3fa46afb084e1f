#include "gcp/credentials.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "gcp/fake_gcp_testing.h"
#include "rest/rest_testing.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::http_answer;
using rest::SentRequest;

// A machine without a metadata server, unless a test answers for it.
class GcpCredentialsTest : public ::testing::Test {
 protected:
  GcpCredentialsTest() {
    settings.env = {{"HOME", "/home/ann"}};
    scripted.network.answer = [](const SentRequest& sent) -> HttpResponse {
      throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
    };
  }

  AccessToken find(Duration pause = Duration{}) {
    AccessToken out;
    scripted.run([&](World& world) { return find_in(world, settings, pause, out); });
    return out;
  }
  static Task<void> find_in(World& world, Settings with, Duration pause, AccessToken& out) {
    CredentialChain chain(world, std::move(with));
    out = co_await chain.get(world.clock.wall());
    if (pause == Duration{}) co_return;
    co_await Sleep(world.clock.loop(), world.clock.now() + pause);
    out = co_await chain.get(world.clock.wall());
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

  void default_file(const json& document) {
    scripted.write_file("/home/ann/.config/gcloud/application_default_credentials.json", document.dump());
  }
  void answer_with_tokens() {
    scripted.network.answer = [this](const SentRequest&) {
      return http_answer(200, json{{"access_token", fmt_token(++given)}, {"expires_in", 3600}}.dump());
    };
  }
  static std::string fmt_token(int number) { return "token-" + std::to_string(number); }
  const rest::SentRequest& sent(size_t index) { return scripted.network.sent.at(index); }

  const json person = {{"type", "authorized_user"}, {"client_id", "id"}, {"client_secret", "secret"},
                       {"refresh_token", "refresh+1"}, {"quota_project_id", "billed"}};
  int given = 0;
  rest::ScriptedWorld scripted;
  Settings settings;
};

TEST_F(GcpCredentialsTest, APersonsRefreshTokenBuysAToken) {
  default_file(person);
  answer_with_tokens();
  const AccessToken token = find();
  EXPECT_EQ(token.text, "token-1");
  EXPECT_EQ(token.quota_project, "billed");
  EXPECT_EQ(sent(0).endpoint.host, "oauth2.googleapis.com");
  EXPECT_TRUE(sent(0).tls);
  EXPECT_EQ(sent(0).request.target, "/token");
  EXPECT_EQ(sent(0).request.body,
            "grant_type=refresh_token&client_id=id&client_secret=secret&refresh_token=refresh%2B1");
}

TEST_F(GcpCredentialsTest, ATokenIsKeptUntilShortlyBeforeItEnds) {
  default_file(person);
  answer_with_tokens();
  EXPECT_EQ(find(50min).text, "token-1");
  EXPECT_EQ(find(57min).text, "token-3") << "the second of another chain, renewed";
}

Task<void> renew_in(World& world, Settings with, bool& answers, std::vector<std::string>& got) {
  CredentialChain chain(world, std::move(with));
  for (const Duration wait : {Duration(0s), Duration(7min), Duration(1min)}) {
    co_await Sleep(world.clock.loop(), world.clock.now() + wait);
    answers = wait != 7min;
    const AccessToken token = co_await chain.get(world.clock.wall());
    got.push_back(token.text);
  }
}

TEST_F(GcpCredentialsTest, AnOldTokenServesUntilANewOneCanBeHad) {
  const std::map<std::string, std::string> google{{"metadata-flavor", "Google"}};
  bool answers = true;
  scripted.network.answer = [&](const SentRequest& one) -> HttpResponse {
    if (!answers) throw Error(ErrorCode::kUnavailable, "no answer", one.endpoint.host);
    return http_answer(200, json{{"access_token", fmt_token(++given)}, {"expires_in", 600}}.dump(), google);
  };
  std::vector<std::string> got;
  scripted.run([&](World& world) { return renew_in(world, settings, answers, got); });
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0], got[1]) << "the metadata server does not answer for a while";
  EXPECT_NE(got[1], got[2]);
}

TEST_F(GcpCredentialsTest, TheNamedFileCountsBeforeTheUsualOne) {
  default_file(person);
  json other = person;
  other["token_uri"] = "http://10.0.0.1:81/buy";
  scripted.write_file("/keys/other.json", other.dump());
  settings.env["GOOGLE_APPLICATION_CREDENTIALS"] = "/keys/other.json";
  answer_with_tokens();
  EXPECT_EQ(find().origin, "GOOGLE_APPLICATION_CREDENTIALS (/keys/other.json)");
  EXPECT_EQ(sent(0).endpoint.host, "10.0.0.1");
  EXPECT_EQ(sent(0).request.target, "/buy");
}

TEST_F(GcpCredentialsTest, AnImpersonatedAccountIsAskedForWithTheSourcesToken) {
  default_file({{"type", "impersonated_service_account"},
                {"service_account_impersonation_url",
                 "http://iam.test/v1/projects/-/serviceAccounts/robot@p.iam.gserviceaccount.com:generateAccessToken"},
                {"source_credentials", person}});
  scripted.network.answer = [](const SentRequest& one) {
    if (one.request.target == "/token") return http_answer(200, R"({"access_token": "mine", "expires_in": 3600})");
    return http_answer(200, R"({"accessToken": "robots", "expireTime": "2100-01-01T00:00:00Z"})");
  };
  const AccessToken token = find();
  EXPECT_EQ(token.text, "robots");
  EXPECT_EQ(token.account, "robot@p.iam.gserviceaccount.com");
  EXPECT_EQ(sent(1).request.headers.at("authorization"), "Bearer mine");
}

TEST_F(GcpCredentialsTest, OnAMachineOfGooglesItsAccountIsUsed) {
  scripted.network.answer = [](const SentRequest& one) {
    const std::map<std::string, std::string> google{{"metadata-flavor", "Google"}};
    EXPECT_EQ(one.request.headers.at("metadata-flavor"), "Google");
    if (one.request.target.ends_with("/email")) return http_answer(200, "head@p.iam.gserviceaccount.com", google);
    return http_answer(200, R"({"access_token": "machines", "expires_in": 1800})", google);
  };
  const AccessToken token = find();
  EXPECT_EQ(token.text, "machines");
  EXPECT_EQ(token.account, "head@p.iam.gserviceaccount.com");
  EXPECT_EQ(sent(0).endpoint.host, "169.254.169.254");
}

TEST_F(GcpCredentialsTest, WithoutAnyThePersonIsToldWhereWasLooked) {
  const Error error = find_error();
  EXPECT_EQ(error.code, ErrorCode::kAuth);
  EXPECT_NE(error.where.find("/home/ann/.config/gcloud/application_default_credentials.json"), std::string::npos);
  EXPECT_NE(error.hint.find("gcloud auth application-default login"), std::string::npos);
}

TEST_F(GcpCredentialsTest, ARefusalNamesItsReasonAndNoSecret) {
  default_file(person);
  scripted.network.answer = [](const SentRequest&) {
    return http_answer(400, R"({"error": "invalid_grant", "error_description": "Token has been expired or revoked."})");
  };
  const Error error = find_error();
  EXPECT_EQ(error.code, ErrorCode::kAuth);
  EXPECT_NE(error.message.find("invalid_grant: Token has been expired or revoked"), std::string::npos);
  EXPECT_EQ(error.message.find("refresh+1"), std::string::npos);
}

// ---- workload identity federation ----

class GcpFederationTest : public GcpCredentialsTest {
 protected:
  // As `gcloud iam workload-identity-pools create-cred-config` writes it.
  static json federated(const json& source) {
    return {{"type", "external_account"},
            {"audience", "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"},
            {"subject_token_type", "urn:ietf:params:oauth:token-type:jwt"},
            {"token_url", "https://sts.googleapis.com/v1/token"},
            {"credential_source", source}};
  }
  static std::map<std::string, std::string> form_of(const std::string& body) {
    std::map<std::string, std::string> out;
    for (const std::string_view part : split(body, '&')) {
      const auto pair = split_once(part, '=');
      if (pair) out[rest::percent_decode(pair->first)] = rest::percent_decode(pair->second);
    }
    return out;
  }
};

TEST_F(GcpFederationTest, AFilesTokenIsGivenForOneOfGoogles) {
  default_file(federated({{"file", "/var/run/token"}}));
  scripted.write_file("/var/run/token", "subject.one\n");
  scripted.network.answer = [](const SentRequest&) {
    return http_answer(200, R"({"access_token": "federated", "issued_token_type": "x", "expires_in": "3600"})");
  };
  const AccessToken token = find();
  EXPECT_EQ(token.text, "federated");
  EXPECT_TRUE(token.expires.has_value()) << "a number as a text counts";
  EXPECT_EQ(sent(0).endpoint.host, "sts.googleapis.com");
  EXPECT_EQ(sent(0).request.target, "/v1/token");
  const auto form = form_of(sent(0).request.body);
  EXPECT_EQ(form.at("grant_type"), "urn:ietf:params:oauth:grant-type:token-exchange");
  EXPECT_EQ(form.at("subject_token"), "subject.one");
  EXPECT_EQ(form.at("subject_token_type"), "urn:ietf:params:oauth:token-type:jwt");
  EXPECT_EQ(form.at("requested_token_type"), "urn:ietf:params:oauth:token-type:access_token");
  EXPECT_TRUE(form.at("audience").starts_with("//iam.googleapis.com/projects/1/"));
  EXPECT_EQ(form.at("scope"), "https://www.googleapis.com/auth/cloud-platform");
}

TEST_F(GcpFederationTest, AUrlsTokenBuysThatOfAServiceAccount) {
  json document = federated({{"url", "http://actions.test/token?audience=x"},
                             {"headers", {{"Authorization", "bearer of-the-runner"}}},
                             {"format", {{"type", "json"}, {"subject_token_field_name", "value"}}}});
  document["service_account_impersonation_url"] =
      "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/robot@p.iam.gserviceaccount.com"
      ":generateAccessToken";
  document["service_account_impersonation"] = {{"token_lifetime_seconds", 1800}};
  default_file(document);
  scripted.network.answer = [](const SentRequest& one) {
    if (one.endpoint.host == "actions.test") return http_answer(200, R"({"value": "of-github"})");
    if (one.endpoint.host == "sts.googleapis.com") return http_answer(200, R"({"access_token": "federated"})");
    return http_answer(200, R"({"accessToken": "robots", "expireTime": "2100-01-01T00:00:00Z"})");
  };
  const AccessToken token = find();
  EXPECT_EQ(token.text, "robots");
  EXPECT_EQ(token.account, "robot@p.iam.gserviceaccount.com");
  EXPECT_EQ(sent(0).request.method, "GET");
  EXPECT_EQ(sent(0).request.target, "/token?audience=x");
  EXPECT_EQ(sent(0).request.headers.at("authorization"), "bearer of-the-runner");
  EXPECT_EQ(form_of(sent(1).request.body).at("subject_token"), "of-github");
  EXPECT_EQ(sent(2).request.headers.at("authorization"), "Bearer federated");
  EXPECT_EQ(json::parse(sent(2).request.body).at("lifetime"), "1800s");
}

TEST_F(GcpFederationTest, AWorkforcesProjectIsNamedWhereNoClientIs) {
  json document = federated({{"file", "/var/run/token"}});
  document["workforce_pool_user_project"] = "42";
  default_file(document);
  scripted.write_file("/var/run/token", "subject");
  answer_with_tokens();
  find();
  EXPECT_EQ(form_of(sent(0).request.body).at("options"), R"({"userProject":"42"})");
  document["client_id"] = "id";
  document["client_secret"] = "secret";
  default_file(document);
  find();
  EXPECT_EQ(form_of(sent(1).request.body).count("options"), 0u);
  EXPECT_EQ(sent(1).request.headers.at("authorization"), "Basic aWQ6c2VjcmV0");
}

TEST_F(GcpFederationTest, APersonOfAWorkforcePoolHasARefreshToken) {
  default_file({{"type", "external_account_authorized_user"},
                {"client_id", "id"},
                {"client_secret", "secret"},
                {"refresh_token", "refresh+1"},
                {"token_url", "https://sts.googleapis.com/v1/oauthtoken"}});
  answer_with_tokens();
  EXPECT_EQ(find().text, "token-1");
  EXPECT_EQ(sent(0).request.target, "/v1/oauthtoken");
  EXPECT_EQ(sent(0).request.body, "grant_type=refresh_token&refresh_token=refresh%2B1");
  EXPECT_EQ(sent(0).request.headers.at("authorization"), "Basic aWQ6c2VjcmV0");
}

TEST_F(GcpFederationTest, WhatIsNotSupportedSaysSo) {
  default_file(federated({{"executable", {{"command", "/bin/token"}}}}));
  EXPECT_NE(find_error().message.find("runs no program"), std::string::npos);
  default_file(federated({{"environment_id", "aws1"}}));
  EXPECT_NE(find_error().message.find("AWS's signatures"), std::string::npos);
  default_file(federated({{"file", "/no/token"}}));
  EXPECT_NE(find_error().message.find("/no/token"), std::string::npos);
  const json format = {{"type", "json"}, {"subject_token_field_name", "t"}};
  default_file(federated({{"file", "/var/run/token"}, {"format", format}}));
  scripted.write_file("/var/run/token", R"({"other": "x"})");
  EXPECT_NE(find_error().message.find("no token under \"t\""), std::string::npos);
  EXPECT_TRUE(scripted.network.sent.empty());
}

TEST_F(GcpFederationTest, ARefusalOfTheExchangeIsToldWithoutTheToken) {
  default_file(federated({{"file", "/var/run/token"}}));
  scripted.write_file("/var/run/token", "subject.secret");
  scripted.network.answer = [](const SentRequest&) {
    return http_answer(400, R"({"error": "invalid_grant", "error_description": "The audience does not match."})");
  };
  const Error error = find_error();
  EXPECT_EQ(error.code, ErrorCode::kAuth);
  EXPECT_NE(error.message.find("The audience does not match"), std::string::npos);
  EXPECT_EQ(error.message.find("subject.secret"), std::string::npos);
}

TEST_F(GcpCredentialsTest, WhatCannotBeUsedIsNamed) {
  default_file({{"type", "gdch_service_account"}});
  EXPECT_NE(find_error().message.find("gdch_service_account"), std::string::npos);
  default_file({{"type", "service_account"}, {"client_email", "a@b"}});
  EXPECT_NE(find_error().message.find("private_key"), std::string::npos);
  default_file({{"type", "service_account"}, {"client_email", "a@b"}, {"private_key", "no key"}});
  EXPECT_NE(find_error().message.find("no RSA key"), std::string::npos);
}

TEST_F(GcpCredentialsTest, TheClusterFilesOwnCountFirst) {
  default_file(person);
  settings.given = GivenCredentials{"credentials_token", R"({"token": "of-the-file"})", "c.yaml:3:5"};
  EXPECT_EQ(find().text, "of-the-file");
  EXPECT_TRUE(scripted.network.sent.empty());
}

// The stand-in checks the signature with arithmetic of its own.
class GcpTokensTest : public FakeGcpFixture {
 protected:
  AccessToken get() {
    return run<AccessToken>([this](Client& client) { return client.credentials().get(world.clock.wall()); });
  }
};

TEST_F(GcpTokensTest, AServiceAccountsSignatureBuysAToken) {
  const AccessToken token = get();
  EXPECT_FALSE(token.text.empty());
  EXPECT_TRUE(token.account.starts_with("tester@"));
  EXPECT_EQ(calls("token"), 1);
}

TEST_F(GcpTokensTest, ATokenThatIsRefusedIsReplacedOnce) {
  set({{"expire", {{"compute", 1}}}});
  const auto list = [](Client& client) {
    Call call;
    call.operation = "zones.list";
    call.path = client.compute_path() + "/zones";
    return client.call(std::move(call));
  };
  EXPECT_TRUE(run<json>(list).contains("items"));
  EXPECT_EQ(calls("token"), 2);
  set({{"expire", {{"compute", 9}}}});
  EXPECT_EQ(code_of([&] { run<json>(list); }), ErrorCode::kAuth);
}

}  // namespace
}  // namespace rubato::gcp
