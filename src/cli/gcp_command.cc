#include "cli/gcp_command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command_world.h"
#include "cli/common_flags.h"
#include "client/session.h"
#include "core/text.h"
#include "gcp/identity.h"
#include "gcp/permissions.h"

namespace rubato::cli {
namespace {

struct Identity {
  gcp::AccessToken token;
  rest::Sourced project;
  std::vector<std::string> missing;
};

// --project, then where gcloud looks.
rest::Sourced find_project(const std::string& flag, const rest::Environment& env, Files& files) {
  if (!flag.empty()) return {flag, "--project"};
  for (const char* name : {"CLOUDSDK_CORE_PROJECT", "GOOGLE_CLOUD_PROJECT"}) {
    if (const std::string value = rest::variable(env, name); !value.empty()) return {value, name};
  }
  const rest::IniFile configuration = gcp::read_configuration(files, env);
  if (const auto value = configuration.value("core", "project")) return {*value, configuration.path()};
  return {};
}

Task<int> find_identity(World& world, gcp::Settings settings, Identity& out) {
  const std::unique_ptr<gcp::Client> client = gcp::open_client(world, out.project.text, std::move(settings));
  out.token = co_await client->credentials().get(world.clock.wall());
  if (out.project.text.empty()) co_return 0;
  std::vector<std::string> wanted = gcp::person_permissions(true);
  out.missing = co_await gcp::missing_permissions(*client, std::move(wanted));
  co_return 0;
}

void print(const Identity& identity, const Shell& shell) {
  const std::string account = identity.token.account.empty() ? "a person's" : identity.token.account;
  shell.out(fmt::format("account      {}\ncredentials  from {}\n", account, identity.token.origin));
  if (identity.token.expires) shell.out(fmt::format("expire       {}\n", format_time(*identity.token.expires)));
  if (identity.project.text.empty()) {
    shell.out("project      none: name one with --project to see what you may do in it\n");
    return;
  }
  shell.out(fmt::format("project      {}, from {}\n", identity.project.text, identity.project.origin));
  if (identity.missing.empty()) {
    shell.out("permissions  all that rubato up needs\n");
  } else {
    shell.out(fmt::format("missing      {}\n", join(identity.missing, "\n             ")));
    shell.out("             `rubato gcp policy` prints a role that has them\n");
  }
}

}  // namespace

const Command& gcp_whoami_table() {
  static const Command table{
      .name = "gcp whoami",
      .summary = "show which Google credentials are used, and what is missing for rubato up",
      .usage = "rubato gcp whoami [--project ID] [--json]",
      .about =
          "Looks where Google's own tools look, in their order: GOOGLE_APPLICATION_CREDENTIALS, the file of\n"
          "`gcloud auth application-default login`, the machine's service account. Asks Google once which of\n"
          "the permissions that `rubato up` needs are missing in the project. No secret is printed.",
      .flags = {json_flag(),
                {.name = "project",
                 .kind = FlagKind::kValue,
                 .value = "ID",
                 .help = "instead of CLOUDSDK_CORE_PROJECT, GOOGLE_CLOUD_PROJECT and gcloud's",
                 .group = "Account"}},
      .examples = {{"may I run rubato up?", "rubato gcp whoami --project my-lab-123"}}};
  return table;
}

const Command& gcp_policy_table() {
  static const Command table{
      .name = "gcp policy",
      .summary = "print a role with the permissions that Rubato needs in a project, and no more",
      .usage = "rubato gcp policy [--for user|head]",
      .about =
          "A file for `gcloud iam roles create NAME --project ID --file FILE`. It needs no account and no\n"
          "network. `rubato up` makes the head's role itself where you may do that.",
      .flags = {{.name = "for",
                 .kind = FlagKind::kValue,
                 .value = "WHOM",
                 .help = "user: who types rubato up; head: the account of the head's machine",
                 .default_text = "user",
                 .choices = "user head"}},
      .examples = {{"for yourself", "rubato gcp policy > role.yaml"},
                   {"for the head", "rubato gcp policy --for head > head-role.yaml"}}};
  return table;
}

int gcp_whoami_command(const ParsedCommand& parsed, const Shell& shell) {
  CommandWorld command;
  Identity identity;
  identity.project = find_project(parsed.value("project"), shell.env, command.world.files);
  gcp::Settings settings;
  settings.env = shell.env;
  command.runtime.run(find_identity(command.world, std::move(settings), identity));
  if (!parsed.has("json")) {
    print(identity, shell);
    return 0;
  }
  nlohmann::json document = {{"account", identity.token.account}, {"credentials_from", identity.token.origin}};
  if (identity.token.expires) document["expires"] = format_time(*identity.token.expires);
  if (!identity.project.text.empty()) {
    document["project"] = identity.project.text;
    document["project_from"] = identity.project.origin;
    document["missing_permissions"] = identity.missing;
  }
  shell.out(json_text(document));
  return 0;
}

int gcp_policy_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string whom = parsed.value("for", "user");
  if (whom != "user" && whom != "head")
    throw bad_value(*parsed.find("for"), "there is no role for that", "write user or head");
  const bool of_head = whom == "head";
  shell.out(gcp::role_document(of_head ? "Head of a rubato cluster" : "User of rubato up",
                               of_head ? "What the head of a cluster of Rubato needs"
                                       : "What a person needs who makes clusters with Rubato",
                               of_head ? gcp::head_permissions() : gcp::person_permissions(true)));
  return 0;
}

}  // namespace rubato::cli
