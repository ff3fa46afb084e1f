#include "model/placeholders.h"

#include "model/cluster_file_testing.h"

namespace rubato {
namespace {

using Words = std::vector<std::string>;

Words found(const std::string& text, Severity severity = Severity::kError) {
  Findings findings;
  find_placeholders(Yaml::parse(text, "c.yaml"), text, findings);
  Words out;
  for (const Finding& one : findings.sorted()) {
    if (one.severity == severity)
      out.push_back(std::to_string(one.line) + ":" + std::to_string(one.column) + " " + one.message);
  }
  return out;
}

TEST(Placeholders, VariablesAndCurlyWordsInValues) {
  EXPECT_EQ(found("cluster_name: ${NAME}\n"), Words{"1:15 ${NAME} was never filled in"});
  EXPECT_EQ(found("cluster_name: dev-{NAME}\n"), Words{"1:15 {NAME} was never filled in"});
  EXPECT_EQ(found("worker_nodes:\n  ImageId: {AMI ID}\n"), Words{"2:12 {AMI ID} was never filled in"});
  EXPECT_EQ(found("provider: {worker_ips: [{IP-1}, {IP-2}]}\n"),
            (Words{"1:25 {IP-1} was never filled in", "1:33 {IP-2} was never filled in"}));
  EXPECT_EQ(found("ü: {AMI ID}\n"), Words{"1:4 {AMI ID} was never filled in"});
}

// Files for Jinja, given to us as they are.
TEST(Placeholders, JinjaWasNeverRun) {
  EXPECT_EQ(found("provider: {region: \"{{ region }}\"}\n"), Words{"1:20 {{ region }} was never filled in"});
  EXPECT_EQ(found("jobs: {env: {CHAT: \"{% for m in all %}{{ m }}{% endfor %}\", F: \"{{.Names}}\"}}\n"), Words());
  EXPECT_EQ(found("auth: {ssh_user: \"{{.Names}}\"}\n"), Words()) << "Go's";
  const auto broken = [](const std::string& text, size_t line) {
    Findings findings;
    EXPECT_TRUE(find_broken_placeholders(text, "c.yaml", line, findings)) << text;
    return findings.sorted().empty() ? "" : findings.sorted().front().message;
  };
  EXPECT_EQ(broken("provider:\n  region: {{ region }}\n", 2), "{{ region }} was never filled in");
  EXPECT_EQ(broken("cluster_name: {{env[\"NAME\"]}}\n", 1), "{{env[\"NAME\"]}} was never filled in");
  EXPECT_EQ(broken("{% set x = 1 %}\ncluster_name: a\n", 1), "{% set x = 1 %} was never filled in");
}

TEST(Placeholders, RealFlowMappingsAreNone) {
  EXPECT_EQ(found("a: {b: }\nc: {d: 1, e: 2}\nf: {}\ng: {h, i}\nfile_mounts: {\n}\n"), Words());
}

TEST(Placeholders, CommandsMeanWhatTheShellMeans) {
  EXPECT_EQ(found("setup_commands:\n  - sudo mount -t efs {Your EFS file system ID}:/ ~/efs\n"),
            Words{"2:5 {Your EFS file system ID} was never filled in"});
  EXPECT_EQ(found("setup_commands:\n"
                  "  - echo ${HOME} ${X:-y} $(cat {}) {a,b} {1..3} \"{x}\" | awk '{print}'\n"
                  "  - find . -exec rm {} \\;\n"
                  "  - git rev-parse @{upstream}; curl -w %{http_code}; docker ps --format {{json}}\n"
                  "docker: {run_options: ['-v ${HOME}:/x']}\n"
                  "node_types: {a: {worker_setup_commands: ['echo ${X}']}}\n"
                  "auth: {ssh_proxy_command: 'nc ${PROXY} %h %p'}\n"),
            Words());
}

TEST(Placeholders, ScriptsInNodeConfigAreCommands) {
  EXPECT_EQ(found("worker_nodes:\n  UserData: |\n    #!/bin/bash\n    echo ${HOME}\n"), Words());
}

TEST(Placeholders, VariablesInTheProvidersOwnPartsArePassedOn) {
  const std::string own = "worker_nodes:\n  KeyName: ${KEY}\n  ingress: {serviceName: '${RAY_POD_NAME}'}\n";
  EXPECT_EQ(found(own), Words());
  EXPECT_EQ(found(own, Severity::kWarning), Words{"2:12 ${KEY} is passed on as it is"});
}

TEST(Placeholders, WordsOfRaysTemplatesAreUnfilled) {
  EXPECT_EQ(found("auth: {ssh_user: YOUR_USERNAME}\n", Severity::kUnfilled),
            Words{"1:18 YOUR_USERNAME is left from a template"});
  EXPECT_EQ(found("a: <project_id>\nsetup_commands: ['cd <REPO_NAME>', 'a <b >c', 'cat <in>out']\nb: [x, ...]\n",
                  Severity::kUnfilled),
            (Words{"1:4 <project_id> is left from a template", "2:18 <REPO_NAME> is left from a template",
                   "3:8 ... is left from a template"}));
  EXPECT_EQ(found("a: <your instance type>\ndocker: {run_options: [-v /<your-volume>:/data]}\n", Severity::kUnfilled),
            (Words{"1:4 <your instance type> is left from a template", "2:24 <your-volume> is left from a template"}));
  EXPECT_EQ(found("a: SOME_CONSTANT\n", Severity::kUnfilled), Words());
}

TEST(Placeholders, TheyExplainWhyAFileIsNoYaml) {
  const ClusterFile file = read_text("cluster_name: {NAME}-dev\nmax_workers: {N}\nsetup_commands:\n  - {CMD} --now\n");
  EXPECT_EQ(errors(file), (Words{"1:15 {NAME} was never filled in", "2:14 {N} was never filled in",
                                 "4:5 {CMD} was never filled in"}));
  const ClusterFile other = read_text("a: [\nb: {x}\n");
  EXPECT_FALSE(errors(other).empty());
}

}  // namespace
}  // namespace rubato
