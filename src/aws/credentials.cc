#include "aws/credentials.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "aws/credential_process.h"
#include "core/text.h"
#include "core/timestamp.h"

namespace rubato::aws {
namespace {

// botocore renews this long before the end, so that a request that is under way still counts.
constexpr auto kRenewBefore = 5min;
constexpr auto kRenewPause = 30s;  // after one that has failed
constexpr Duration kContainerTimeout = 2s;
constexpr int kContainerTries = 3;  // botocore's
constexpr int kFine = 200;

using rest::parse_bounded;

std::string text_in(const nlohmann::json& document, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (!document.is_object()) break;
    const auto found = document.find(key);
    if (found != document.end() && found->is_string()) return found->get<std::string>();
  }
  return {};
}

// {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"} of containers and instances.
std::optional<Credentials> temporary_from(const nlohmann::json& document) {
  Credentials out;
  out.access_key = text_in(document, {"AccessKeyId", "accessKeyId"});
  out.secret_key = text_in(document, {"SecretAccessKey", "secretAccessKey"});
  out.session_token = text_in(document, {"Token", "SessionToken", "sessionToken"});
  out.expires = parse_time(text_in(document, {"Expiration", "expiration"}));
  if (document.is_object() && document.contains("expiration") && document["expiration"].is_number()) {
    out.expires = WallTime(std::chrono::milliseconds(document["expiration"].get<int64_t>()));  // SSO's form
  }
  if (out.access_key.empty() || out.secret_key.empty()) return std::nullopt;
  return out;
}

Credentials from_sts(const rest::XmlNode& root, std::string_view action) {
  const rest::XmlNode* const given = root.at(fmt::format("{}Result/Credentials", action));
  if (given == nullptr) throw Error(ErrorCode::kUnavailable, fmt::format("sts {}: no credentials came", action));
  Credentials out;
  out.access_key = given->text_at("AccessKeyId");
  out.secret_key = given->text_at("SecretAccessKey");
  out.session_token = given->text_at("SessionToken");
  out.expires = parse_time(given->text_at("Expiration"));
  return out;
}

ClientConfig with_region(ClientConfig config, const std::string& fallback) {
  if (config.region.text.empty()) config.region = {fallback, "the default of STS"};
  return config;
}

std::string session_name_of(const World& world) { return fmt::format("rubato-{}", world.machine.pid); }

Error profile_error(const std::string& profile, const std::string& why, std::string hint) {
  return Error(ErrorCode::kAuth, fmt::format("profile '{}': {}", profile, why), "", std::move(hint));
}

// Where a full URI may lead: the request carries a secret.
bool is_allowed_container_host(const rest::Url& url) {
  const std::string& host = url.endpoint.host;
  return url.https || host == "localhost" || host.starts_with("127.") || host == "::1" || host == "169.254.170.2" ||
         host == "169.254.170.23" || host == "fd00:ec2::23";
}

}  // namespace

CredentialChain::CredentialChain(World& world, Settings settings, std::shared_ptr<const Profiles> profiles,
                                 ClientConfig config)
    : world_(world),
      settings_(std::move(settings)),
      profiles_(std::move(profiles)),
      config_(std::move(config)),
      metadata_(world, settings_.env) {}

Task<FoundCredentials> CredentialChain::get(WallTime now) {
  const auto valid_for = [&](WallTime until) {
    return found_ && (!found_->credentials.expires || *found_->credentials.expires > until);
  };
  if (valid_for(now + kRenewBefore) || (valid_for(now) && now < renew_after_)) co_return *found_;
  try {
    FoundCredentials fresh = co_await find();
    found_ = std::move(fresh);
  } catch (const Error&) {
    if (!valid_for(now)) throw;
    renew_after_ = now + kRenewPause;
  }
  co_return *found_;
}

Task<FoundCredentials> CredentialChain::find() {
  const Sourced profile = profile_of(settings_);
  if (settings_.profile.empty()) {
    if (Maybe found = from_environment()) co_return std::move(*found);
  }
  std::set<std::string> seen;
  const bool with_variables = settings_.profile.empty();
  Maybe found = co_await from_profile(profile.text, std::move(seen), with_variables);
  if (!found) found = co_await from_container();
  if (!found) found = co_await from_instance();
  if (found) co_return std::move(*found);
  throw Error(ErrorCode::kAuth, "no AWS credentials were found",
              fmt::format("variables, profile '{}' in {} and {}, container, instance role", profile.text,
                          profiles_->credentials_path(), profiles_->config_path()),
              "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run: aws configure");
}

CredentialChain::Maybe CredentialChain::from_environment() const {
  FoundCredentials out;
  out.credentials.access_key = variable(settings_.env, "AWS_ACCESS_KEY_ID");
  out.credentials.secret_key = variable(settings_.env, "AWS_SECRET_ACCESS_KEY");
  out.credentials.session_token = variable(settings_.env, "AWS_SESSION_TOKEN");
  out.origin = "AWS_ACCESS_KEY_ID";
  if (out.credentials.access_key.empty()) return std::nullopt;
  if (out.credentials.secret_key.empty()) {
    throw Error(ErrorCode::kAuth, "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not", "", "set both, or neither");
  }
  return out;
}

Task<CredentialChain::Maybe> CredentialChain::from_profile(std::string profile, std::set<std::string> seen,
                                                           bool with_variables) {
  const std::string role = profiles_->value(profile, "role_arn");
  const Environment none;
  const Environment& env = with_variables ? settings_.env : none;
  Sourced token{variable(env, "AWS_WEB_IDENTITY_TOKEN_FILE"), "AWS_WEB_IDENTITY_TOKEN_FILE"};
  std::string web_role = variable(env, "AWS_ROLE_ARN");
  std::string session = variable(env, "AWS_ROLE_SESSION_NAME");
  if (const auto in_file = profiles_->find(profile, "web_identity_token_file")) {
    token = *in_file;
    web_role = role;
    session = profiles_->value(profile, "role_session_name");
  } else if (!role.empty()) {
    Task<Maybe> assumed = from_role(profile, role, std::move(seen));
    co_return co_await std::move(assumed);
  }
  if (!token.text.empty()) {
    Task<Maybe> given = from_web_identity(std::move(token), std::move(web_role), std::move(session));
    co_return co_await std::move(given);
  }
  Maybe signed_on = co_await from_sso(profile);
  if (signed_on) co_return signed_on;
  if (Maybe keys = from_keys(profile)) co_return keys;
  Maybe printed = co_await from_process(profile);
  co_return printed;
}

Task<CredentialChain::Maybe> CredentialChain::from_process(std::string profile) {
  const auto program = profiles_->find(profile, "credential_process");
  if (!program) co_return std::nullopt;
  Task<std::string> running = run_credential_process(world_, settings_.env, *program);
  const std::string printed = co_await std::move(running);
  const auto document = parse_bounded(printed);
  const auto given = temporary_from(document);
  const auto version = document.is_object() ? document.find("Version") : document.end();
  if (!given || version == document.end() || *version != 1) {
    throw profile_error(profile, "its credential_process does not print credentials",
                        R"(it must print {"Version": 1, "AccessKeyId": ..., "SecretAccessKey": ...})");
  }
  FoundCredentials out;
  out.credentials = *given;
  out.origin = fmt::format("credential_process of profile '{}'", profile);
  co_return out;
}

CredentialChain::Maybe CredentialChain::from_keys(const std::string& profile) const {
  for (const bool in_config : {false, true}) {
    const auto find = [&](std::string_view key) {
      return in_config ? profiles_->find_in_config(profile, key) : profiles_->find_in_credentials(profile, key);
    };
    const auto access = find("aws_access_key_id"), secret = find("aws_secret_access_key");
    if (!access) continue;
    if (!secret) throw profile_error(profile, "aws_secret_access_key is missing", "add it below aws_access_key_id");
    FoundCredentials out;
    out.credentials.access_key = access->text;
    out.credentials.secret_key = secret->text;
    if (const auto token = find("aws_session_token")) out.credentials.session_token = token->text;
    out.origin = access->origin;
    return out;
  }
  return std::nullopt;
}

Task<FoundCredentials> CredentialChain::source_of(std::string profile, std::set<std::string> seen) {
  const std::string source = profiles_->value(profile, "source_profile");
  const std::string kind = profiles_->value(profile, "credential_source");
  Maybe found;
  if (!source.empty()) {
    if (!profiles_->has(source)) {
      throw profile_error(profile, fmt::format("its source_profile '{}' is not there", source),
                          "name a profile of " + profiles_->config_path());
    }
    // A profile may take its own keys to assume its role; any other way round ends nowhere.
    if (source == profile) {
      found = from_keys(profile);
    } else if (!seen.insert(source).second) {
      throw profile_error(profile, "source_profile leads in a circle", "let one of them have keys of its own");
    } else {
      Task<Maybe> from = from_profile(source, std::move(seen), false);
      found = co_await std::move(from);
    }
  } else if (kind == "Environment") {
    found = from_environment();
  } else if (kind == "Ec2InstanceMetadata") {
    found = co_await from_instance();
  } else if (kind == "EcsContainer") {
    found = co_await from_container();
  } else {
    throw profile_error(profile, "it has role_arn, but neither source_profile nor a known credential_source",
                        "add source_profile = NAME, or credential_source = Environment, Ec2InstanceMetadata or "
                        "EcsContainer");
  }
  if (!found) {
    throw profile_error(profile, fmt::format("no credentials in '{}' to assume its role with", source + kind),
                        "rubato aws whoami --profile " + (source.empty() ? profile : source));
  }
  co_return std::move(*found);
}

Task<CredentialChain::Maybe> CredentialChain::from_role(std::string profile, std::string role,
                                                        std::set<std::string> seen) {
  if (!profiles_->value(profile, "mfa_serial").empty()) {
    throw profile_error(profile, "its role asks for a code (mfa_serial), and nobody can be asked here",
                        "get a session first: aws sts get-session-token, then export its three variables");
  }
  seen.insert(profile);
  Task<FoundCredentials> source = source_of(profile, std::move(seen));
  FoundCredentials with = co_await std::move(source);
  const std::string origin = fmt::format("role {} of profile '{}', with {}", role, profile, with.origin);
  Client sts(world_, with_region(config_, "us-east-1"), std::make_shared<FixedCredentials>(std::move(with)));
  std::string session = profiles_->value(profile, "role_session_name");
  Params params;
  params.emplace_back("RoleArn", role);
  params.emplace_back("RoleSessionName", session.empty() ? session_name_of(world_) : session);
  const std::string external = profiles_->value(profile, "external_id");
  if (!external.empty()) params.emplace_back("ExternalId", external);
  const std::string duration = profiles_->value(profile, "duration_seconds");
  if (!duration.empty()) params.emplace_back("DurationSeconds", duration);
  const rest::XmlNode root = co_await sts.query(kSts, "AssumeRole", std::move(params));
  FoundCredentials out;
  out.credentials = from_sts(root, "AssumeRole");
  out.origin = origin;
  co_return out;
}

Task<CredentialChain::Maybe> CredentialChain::from_web_identity(Sourced token_file, std::string role,
                                                                std::string session) {
  if (role.empty()) {
    throw Error(ErrorCode::kAuth, "a web identity needs a role", token_file.origin,
                "set AWS_ROLE_ARN (or role_arn of the profile) to the role to assume");
  }
  const auto token = world_.files.read(token_file.text);
  if (!token) {
    throw Error(ErrorCode::kAuth, fmt::format("the web identity token '{}' cannot be read", token_file.text),
                token_file.origin, "check the path and its mode");
  }
  Client sts(world_, with_region(config_, "us-east-1"), std::make_shared<FixedCredentials>(FoundCredentials()));
  Params params;
  params.emplace_back("RoleArn", role);
  params.emplace_back("RoleSessionName", session.empty() ? session_name_of(world_) : session);
  params.emplace_back("WebIdentityToken", std::string(trim(*token)));
  const rest::XmlNode root = co_await sts.query(kSts, "AssumeRoleWithWebIdentity", std::move(params));
  FoundCredentials out;
  out.credentials = from_sts(root, "AssumeRoleWithWebIdentity");
  out.origin = fmt::format("role {} by web identity ({})", role, token_file.origin);
  co_return out;
}

Task<CredentialChain::Maybe> CredentialChain::from_container() {
  const std::string relative = variable(settings_.env, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string full = variable(settings_.env, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative.empty() && full.empty()) co_return std::nullopt;
  const std::string name =
      relative.empty() ? "AWS_CONTAINER_CREDENTIALS_FULL_URI" : "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
  const rest::Url url = rest::parse_url(relative.empty() ? full : "http://169.254.170.2" + relative, name);
  if (!is_allowed_container_host(url)) {
    throw Error(ErrorCode::kAuth, fmt::format("credentials are not asked for at {} without TLS", url.endpoint.host),
                name, "use https, or an address of this machine");
  }
  HttpRequest request;
  request.target = (url.path.empty() ? "/" : url.path) + (url.query.empty() ? "" : "?" + url.query);
  request.headers["host"] = url.host();
  std::string token = variable(settings_.env, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string token_file = variable(settings_.env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!token_file.empty()) token = std::string(trim(world_.files.read(token_file).value_or("")));
  if (!token.empty()) request.headers["authorization"] = token;
  TlsFiles tls;
  tls.use_tls = url.https;
  HttpResponse response;
  for (int tries = 1; response.status != kFine; ++tries) {
    try {
      const Instant deadline = world_.clock.now() + kContainerTimeout;
      response = co_await world_.network.call(url.endpoint, tls, request, deadline);
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable || tries >= kContainerTries) throw;
    }
    if (tries >= kContainerTries || (response.status >= 400 && response.status < 500)) break;
  }
  const auto given = temporary_from(parse_bounded(response.body));
  if (response.status != kFine || !given) {
    throw Error(ErrorCode::kAuth, fmt::format("the container's credentials cannot be had: status {}", response.status),
                url.host() + url.path, "check " + name);
  }
  FoundCredentials out;
  out.credentials = *given;
  out.origin = fmt::format("container ({})", name);
  co_return out;
}

Task<CredentialChain::Maybe> CredentialChain::from_instance() {
  constexpr std::string_view kFolder = "/latest/meta-data/iam/security-credentials/";
  const auto roles = co_await metadata_.get(std::string(kFolder));
  if (!roles) co_return std::nullopt;
  const std::string role(trim(split(*roles, '\n').front()));
  if (role.empty()) co_return std::nullopt;
  const auto document = co_await metadata_.get(std::string(kFolder) + role);
  const auto given = document ? temporary_from(parse_bounded(*document)) : std::nullopt;
  if (!given) co_return std::nullopt;
  FoundCredentials out;
  out.credentials = *given;
  out.origin = fmt::format("instance role {}", role);
  co_return out;
}

Task<CredentialChain::Maybe> CredentialChain::from_sso(std::string profile) {
  const std::string session = profiles_->value(profile, "sso_session");
  std::string start = profiles_->value(profile, "sso_start_url"), region = profiles_->value(profile, "sso_region");
  if (!session.empty()) {
    const auto in_session = [&](std::string_view key) {
      const auto found = profiles_->find_in_section("sso-session " + session, key);
      return found ? found->text : "";
    };
    start = in_session("sso_start_url");
    region = in_session("sso_region");
  }
  const std::string account = profiles_->value(profile, "sso_account_id");
  const std::string role = profiles_->value(profile, "sso_role_name");
  if (start.empty() || account.empty() || role.empty()) co_return std::nullopt;
  const std::string again = "aws sso login " + (session.empty() ? "--profile " + profile : "--sso-session " + session);

  // The cache's files are named by SHA-1; what they are for also stands in them.
  const std::string folder = home_of(settings_.env) + "/.aws/sso/cache";
  std::string token;
  std::vector<Files::Entry> entries;
  if (world_.files.exists(folder)) entries = world_.files.list(folder);
  for (const Files::Entry& entry : entries) {
    if (!entry.name.ends_with(".json")) continue;
    const auto cached = parse_bounded(world_.files.read(folder + "/" + entry.name).value_or(""));
    const auto ends = parse_time(text_in(cached, {"expiresAt"}));
    if (text_in(cached, {"startUrl"}) == start && ends && *ends > world_.clock.wall()) {
      token = text_in(cached, {"accessToken"});
    }
  }
  if (token.empty()) throw profile_error(profile, "nobody is signed on to " + start, again);

  RestCall call;
  call.operation = "GetRoleCredentials";
  call.path = "/federation/credentials";
  call.query = {{"role_name", role}, {"account_id", account}};
  call.headers["x-amz-sso_bearer_token"] = token;
  ClientConfig config = config_;
  config.region = {region, "sso_region"};
  Client sso(world_, std::move(config), std::make_shared<FixedCredentials>(FoundCredentials()));
  const HttpResponse response = co_await sso.rest(kSso, std::move(call));
  const auto document = parse_bounded(response.body);
  const auto given = document.is_object() && document.contains("roleCredentials")
                         ? temporary_from(document["roleCredentials"])
                         : std::nullopt;
  if (!given) throw profile_error(profile, "SSO gave no credentials", again);
  FoundCredentials out;
  out.credentials = *given;
  out.origin = fmt::format("SSO role {} of profile '{}'", role, profile);
  co_return out;
}

Task<std::unique_ptr<Client>> open_client(World& world, Settings settings) {
  const auto profiles = std::make_shared<const Profiles>(world.files, settings.env);
  const Sourced profile = profile_of(settings);
  if (profile.origin != "the default" && !profiles->has(profile.text)) {
    throw Error(ErrorCode::kUsage, fmt::format("there is no AWS profile '{}'", profile.text), profile.origin,
                fmt::format("profiles are in {} and {}", profiles->credentials_path(), profiles->config_path()));
  }
  ClientConfig config;
  config.env = settings.env;
  config.ca_bundle = ca_bundle_of(settings, *profiles, profile.text);
  config.rules = call_rules_of(settings, *profiles, profile.text);
  for (const auto& [name, key] : {std::pair("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint"),
                                  std::pair("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint")}) {
    const std::string wanted = profiles->value(profile.text, key);
    if (!wanted.empty()) config.env.emplace(name, wanted);
  }
  for (const Service& service : {kEc2, kIam, kSts, kAutoScaling, kSsm, kServiceQuotas, kEfs, kS3, kSso}) {
    if (auto found = endpoint_of(settings, *profiles, profile.text, service.name)) {
      rest::parse_url(found->text, found->origin);  // a bad one is an error now, not at the first call
      config.endpoints[std::string(service.name)] = *found;
    }
  }
  if (auto region = region_of(settings, *profiles, profile.text)) {
    config.region = *region;
  } else {
    Metadata metadata(world, settings.env);
    const auto told = co_await metadata.get("/latest/meta-data/placement/region");
    // A server of S3 alone, where regions mean nothing.
    const auto has_own = [&](const Service& service) { return config.endpoints.contains(std::string(service.name)); };
    if (!told && (!has_own(kS3) || has_own(kEc2))) {
      throw Error(ErrorCode::kUsage, "no AWS region is set", "", "set AWS_REGION=eu-west-1, or run: aws configure");
    }
    config.region = told ? Sourced{std::string(trim(*told)), "the instance's metadata"}
                         : Sourced{"us-east-1", "the default of other servers"};
  }
  auto chain = std::make_shared<CredentialChain>(world, std::move(settings), profiles, config);
  co_return std::make_unique<Client>(world, std::move(config), std::move(chain));
}

}  // namespace rubato::aws
