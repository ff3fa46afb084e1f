#include "cli/aws_command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "aws/credentials.h"
#include "aws/identity.h"
#include "aws/policy.h"
#include "aws/s3.h"
#include "cli/command_world.h"
#include "client/session.h"
#include "model/cluster_name.h"
#include "petctl/user_policy.h"

namespace rubato::cli {
namespace {

struct Identity {
  aws::FoundCredentials found;
  aws::CallerIdentity caller;
  aws::Sourced region;
  std::string endpoint;  // empty: AWS itself
};

Task<int> find_identity(World& world, aws::Settings settings, Identity& out) {
  const std::unique_ptr<aws::Client> client = co_await aws::open_client(world, std::move(settings));
  out.region = client->config().region;
  const auto& endpoints = client->config().endpoints;
  if (const auto own = endpoints.find("sts"); own != endpoints.end()) {
    out.endpoint = fmt::format("{} ({})", own->second.text, own->second.origin);
  }
  out.found = co_await client->credentials().get(world.clock.wall());
  out.caller = co_await aws::get_caller_identity(*client);
  co_return 0;
}

}  // namespace

aws::Settings aws_settings(const ParsedCommand& parsed, const Shell& shell) {
  aws::Settings settings;
  settings.env = shell.env;
  settings.profile = parsed.value("profile");
  settings.region = parsed.value("region");
  return settings;
}

int aws_whoami_command(const ParsedCommand& parsed, const Shell& shell) {
  CommandWorld command;
  Identity identity;
  command.runtime.run(find_identity(command.world, aws_settings(parsed, shell), identity));
  const auto& credentials = identity.found.credentials;
  const std::string expires = credentials.expires ? format_time(*credentials.expires) : "";
  if (parsed.has("json")) {
    nlohmann::json document = {{"account", identity.caller.account},
                               {"arn", identity.caller.arn},
                               {"access_key", credentials.access_key},
                               {"credentials_from", identity.found.origin},
                               {"region", identity.region.text},
                               {"region_from", identity.region.origin}};
    if (!expires.empty()) document["expires"] = expires;
    if (!identity.endpoint.empty()) document["endpoint"] = identity.endpoint;
    shell.out(json_text(document));
    return 0;
  }
  shell.out(fmt::format("account      {}\nidentity     {}\ncredentials  {}, from {}\n", identity.caller.account,
                        identity.caller.arn, credentials.access_key, identity.found.origin));
  if (!expires.empty()) shell.out(fmt::format("expire       {}\n", expires));
  shell.out(fmt::format("region       {}, from {}\n", identity.region.text, identity.region.origin));
  if (!identity.endpoint.empty()) shell.out(fmt::format("endpoint     {}\n", identity.endpoint));
  return 0;
}

int aws_policy_command(const ParsedCommand& parsed, const Shell& shell) {
  aws::PolicyRequest request;
  const std::string whom = parsed.value("for", "user");
  if (whom == "head") {
    request.whom = aws::PolicyFor::kHead;
  } else if (whom == "workers") {
    request.whom = aws::PolicyFor::kWorkers;
  } else if (whom != "user" && whom != "jobs") {
    throw bad_value(*parsed.find("for"), "there is no policy for that", "write user, head, workers or jobs");
  }
  request.cluster = parsed.value("cluster", "*");
  if (const Given* given = parsed.find("cluster"); given != nullptr && !is_cluster_name(request.cluster))
    throw bad_value(*given, "this cannot be the name of a cluster", std::string(kClusterNameRule));
  request.partition = aws::partition_of(parsed.value("region"));
  if (const Given* given = parsed.find("bucket")) request.buckets = given->values;
  for (const std::string& bucket : request.buckets) {
    if (!aws::is_bucket_name(bucket))
      throw bad_value(*parsed.find("bucket"), "this cannot be the name of a bucket", aws::kBucketRule);
  }
  if (request.whom == aws::PolicyFor::kWorkers && request.buckets.empty()) {
    throw Error(ErrorCode::kUsage, "workers need permissions for buckets only, and none is named", "",
                "add --bucket NAME; without buckets workers need no role at all");
  }
  shell.out(whom == "jobs" ? petctl::make_user_policy(request.buckets, request.partition)
                           : aws::make_policy(request));
  return 0;
}

}  // namespace rubato::cli
