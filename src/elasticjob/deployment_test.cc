#include "elasticjob/deployment.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/source_testing.h"
#include "elasticjob/install.h"

namespace rubato::elasticjob {
namespace {

using nlohmann::ordered_json;

std::string deployed(const std::string& file) {
  std::ifstream in(source_path("deploy/" + file));
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> kinds(const DeploymentSettings& settings) {
  std::vector<std::string> out;
  for (const ordered_json& object : operator_objects(settings)) out.push_back(object["kind"]);
  return out;
}

constexpr const char* kHowToMend = "run: make deploy";

// One source: what install applies is what the files say.
TEST(Deployment, TheFilesInDeployAreWhatInstallApplies) {
  DeploymentSettings settings;
  settings.image = "rubato:0.1.0";
  const std::string crd = manifests_text({elastic_job_crd()});
  EXPECT_EQ(deployed("kubernetes/crd.yaml"), crd) << kHowToMend;
  EXPECT_EQ(deployed("helm/rubato/crds/elasticjobs.yaml"), crd) << kHowToMend;
  EXPECT_EQ(deployed("kubernetes/operator.yaml"), crd + "---\n" + manifests_text(operator_objects(settings)))
      << kHowToMend;
  EXPECT_EQ(deployed("helm/rubato/templates/operator.yaml"), helm_templates()) << kHowToMend;
}

// `rubato cp s3://...` in an init container: the path is one of those that the client reads certificates from.
TEST(Deployment, TheImageHasCertificatesOfTheInternet) {
  EXPECT_NE(deployed("Dockerfile")
                .find("COPY --from=certificates /etc/ssl/certs/ca-certificates.crt "
                      "/etc/ssl/certs/ca-certificates.crt"),
            std::string::npos);
}

TEST(Deployment, TheOperatorRunsUnderTheStrictestPodSecurity) {
  for (const ordered_json& object : operator_objects({})) {
    if (object["kind"] != "Deployment") continue;
    const ordered_json& pod = object["spec"]["template"]["spec"];
    EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true);
    EXPECT_EQ(pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"], false);
  }
}

TEST(Deployment, OneNamespaceNeedsNoClusterRole) {
  DeploymentSettings settings;
  settings.watched_namespace = "training";
  for (const std::string& kind : kinds(settings)) EXPECT_EQ(kind.find("Cluster"), std::string::npos) << kind;
}

TEST(Deployment, HelmsValuesChooseBetweenTheSameRoles) {
  DeploymentSettings here, everywhere;
  here.watched_namespace = "{{ .Values.watch }}";
  here.namespace_name = everywhere.namespace_name = "{{ .Release.Namespace }}";
  const std::string text = helm_templates();
  const size_t branch = text.find("{{- if .Values.watch }}"), other = text.find("{{- else }}"),
               end = text.find("{{- end }}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n");
  ASSERT_TRUE(branch < other && other < end && end != std::string::npos);
  const std::string role = text.substr(branch, other - branch), cluster_role = text.substr(other, end - other);
  for (const bool of_one : {true, false}) {
    for (const ordered_json& object : job_rights(of_one ? here : everywhere)) {
      // Helm's expressions are quoted where YAML asks for it, and adopted kinds follow the rules.
      const std::string kind = "kind: " + object["kind"].get<std::string>() + "\n";
      EXPECT_NE((of_one ? role : cluster_role).find(kind), std::string::npos) << kind;
      EXPECT_EQ((of_one ? cluster_role : role).find("\n" + kind), std::string::npos) << kind;
    }
  }
  EXPECT_NE(text.find("--namespace={{ . }}"), std::string::npos);
}

TEST(Deployment, AsksForNoRightThatItDoesNotUse) {
  DeploymentSettings settings;
  for (const ordered_json& object : operator_objects(settings)) {
    if (!object.contains("rules")) continue;
    const std::string rules = object["rules"].dump();
    EXPECT_EQ(rules.find("\"*\""), std::string::npos);
    // One of its own, by name.
    for (const ordered_json& rule : object["rules"]) {
      if (rule["resources"] != ordered_json{"secrets"}) continue;
      EXPECT_EQ(object["kind"], "Role");
      EXPECT_EQ(object["metadata"]["namespace"], settings.namespace_name);
      const bool creates = rule["verbs"] == ordered_json{"create"};
      EXPECT_TRUE(creates || rule["resourceNames"] == ordered_json{"rubato-supervisor"}) << rule;
    }
    EXPECT_EQ(rules.find("kubeflow.org"), std::string::npos);  // only with --adopt
  }
  settings.adopted = {Kind::kPytorchJob};
  bool adopted = false;
  for (const ordered_json& object : operator_objects(settings)) {
    adopted = adopted || object.dump().find("kubeflow.org") != std::string::npos;
  }
  EXPECT_TRUE(adopted);
}

}  // namespace
}  // namespace rubato::elasticjob
