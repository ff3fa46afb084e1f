#include "elasticjob/deployment.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "elasticjob/supervisor.h"

namespace rubato::elasticjob {

using nlohmann::ordered_json;

namespace {

constexpr const char* kName = kOperatorName;

ordered_json integer(int64_t least, const char* description) {
  return {{"type", "integer"}, {"format", "int32"}, {"minimum", least}, {"description", description}};
}

ordered_json text(const char* description) { return {{"type", "string"}, {"description", description}}; }

ordered_json with_default(ordered_json schema, ordered_json value) {
  schema["default"] = std::move(value);
  return schema;
}

ordered_json spec_schema() {
  ordered_json properties = {
      {"replicas", integer(1,
                           "Workers wanted now, between minReplicas and maxReplicas; kubectl scale sets it. Absent: "
                           "maxReplicas, else minReplicas, else 1.")},
      {"minReplicas", integer(1, "Training goes on with this many workers. Absent: replicas.")},
      {"maxReplicas", integer(1, "Never more workers than this. Absent: replicas.")},
      {"nprocPerNode",
       {{"x-kubernetes-int-or-string", true},
        {"default", 1},
        {"description", "Processes in each pod: a number, auto, gpu or cpu."}}},
      {"maxRestarts", with_default(integer(0, "Restarts of the workers inside the group, without a new pod."), 3)},
      {"backoffLimit", with_default(integer(0,
                                            "Failures of pods that are forgiven. Evictions, lost nodes and exit code "
                                            "143 are none."),
                                    3)},
      {"adaptive",
       {{"type", "object"},
        {"description",
         "The size follows what workers report (AdaptDL's hints), between minReplicas and maxReplicas; replicas is "
         "where it begins."},
        {"properties",
         {{"leastUtility",
           {{"type", "number"},
            {"minimum", 0},
            {"maximum", 1},
            {"default", 0.5},
            {"description", "Workers are added while each gives so much of a first one's speed."}}}}}}},
      {"suspend", {{"type", "boolean"}, {"default", false}, {"description", "No pods while it is true (Kueue)."}}},
      {"cleanPodPolicy",
       {{"type", "string"},
        {"enum", {"None", "Running", "All"}},
        {"default", "Running"},
        {"description", "Which pods go when the job has ended."}}},
      {"ttlSecondsAfterFinished", integer(0, "The job is deleted so long after its end. Absent: never.")},
      {"activeDeadlineSeconds", integer(1, "The job fails when it takes longer. Absent: no limit.")},
      {"container", text("Name of the container that trains. Absent: the first.")},
      {"rendezvous",
       {{"type", "object"},
        {"description", "Where workers meet. Absent: in the group itself; any pod of it may be lost."},
        {"properties", {{"etcd", text("An external etcd, HOST:2379; several with commas.")}}}}},
      {"priorityClassName", text("PriorityClass of the pods: which of them get room first. Absent: the template's.")},
      {"checkpoint",
       {{"type", "object"},
        {"description", "A volume for checkpoints, the same for all workers; they find it by RUBATO_CHECKPOINT."},
        {"required", {"claim"}},
        {"properties",
         {{"claim", text("Name of a PersistentVolumeClaim, ReadWriteMany where there are several nodes.")},
          {"mountPath", with_default(text("Where the container that trains has it."), "/checkpoint")},
          {"subPath", text("A folder of the volume, for jobs that share it.")}}}}},
      {"template",
       {{"type", "object"},
        {"description", "The pod of a worker, as in a Deployment. Its command is the training program."},
        {"x-kubernetes-preserve-unknown-fields", true}}}};
  return {{"type", "object"}, {"required", {"template"}}, {"properties", std::move(properties)}};
}

ordered_json status_schema() {
  ordered_json condition = {{"type", "object"},
                            {"required", {"type", "status"}},
                            {"properties",
                             {{"type", {{"type", "string"}}},
                              {"status", {{"type", "string"}}},
                              {"reason", {{"type", "string"}}},
                              {"message", {{"type", "string"}}},
                              {"lastTransitionTime", {{"type", "string"}, {"format", "date-time"}}}}}};
  ordered_json properties = {{"phase", {{"type", "string"}}},
                             {"observedGeneration", {{"type", "integer"}, {"format", "int64"}}},
                             {"replicas", {{"type", "integer"}, {"format", "int32"}}},
                             {"wanted", {{"type", "integer"}, {"format", "int32"}}},
                             {"readyReplicas", {{"type", "integer"}, {"format", "int32"}}},
                             {"failures", {{"type", "integer"}, {"format", "int32"}}},
                             {"selector", {{"type", "string"}}},
                             {"startTime", {{"type", "string"}, {"format", "date-time"}}},
                             {"completionTime", {{"type", "string"}, {"format", "date-time"}}},
                             {"reason", {{"type", "string"}}},
                             {"message", {{"type", "string"}}},
                             {"conditions", {{"type", "array"}, {"items", std::move(condition)}}}};
  return {{"type", "object"}, {"properties", std::move(properties)}};
}

ordered_json columns() {
  const auto column = [](const char* name, const char* type, const char* path) {
    return ordered_json{{"name", name}, {"type", type}, {"jsonPath", path}};
  };
  ordered_json reason = column("Blocked", "string", ".status.conditions[?(@.type==\"Blocked\")].reason");
  return ordered_json::array(
      {column("Phase", "string", ".status.phase"), column("Ready", "integer", ".status.readyReplicas"),
       column("Wanted", "integer", ".status.wanted"), column("Min", "integer", ".spec.minReplicas"),
       column("Max", "integer", ".spec.maxReplicas"), column("Failures", "integer", ".status.failures"),
       std::move(reason), column("Age", "date", ".metadata.creationTimestamp")});
}

ordered_json rule(std::vector<std::string> groups, std::vector<std::string> resources, std::vector<std::string> verbs) {
  return {{"apiGroups", std::move(groups)}, {"resources", std::move(resources)}, {"verbs", std::move(verbs)}};
}

// What the operator does, and no more: see controller.cc.
ordered_json job_rules(const std::vector<Kind>& kinds, bool cluster_wide) {
  ordered_json rules = ordered_json::array();
  // Their taints are notices. A role of one namespace cannot give that: pods are then moved when they are evicted.
  if (cluster_wide) rules.push_back(rule({""}, {"nodes"}, {"list", "watch"}));
  rules.push_back(rule({""}, {"pods"}, {"create", "delete", "get", "list", "watch"}));
  rules.push_back(rule({""}, {"services"}, {"create", "get"}));
  rules.push_back(rule({""}, {"events"}, {"create"}));
  for (const Kind kind : kinds) {
    const kubernetes::Resource& resource = resource_of(kind);
    rules.push_back(rule({resource.group}, {resource.plural}, {"delete", "list", "patch", "watch"}));
    rules.push_back(rule({resource.group}, {resource.plural + "/status"}, {"patch"}));
    // blockOwnerDeletion needs it where OwnerReferencesPermissionEnforcement is on (OpenShift).
    rules.push_back(rule({resource.group}, {resource.plural + "/finalizers"}, {"update"}));
  }
  return rules;
}

ordered_json metadata(const char* name, const std::string& namespace_name) {
  ordered_json out = {{"name", name}};
  if (!namespace_name.empty()) out["namespace"] = namespace_name;
  out["labels"] = {{"app.kubernetes.io/name", kName}};
  return out;
}

ordered_json role(const char* kind, const char* name, const std::string& namespace_name, ordered_json rules) {
  return {{"apiVersion", "rbac.authorization.k8s.io/v1"},
          {"kind", kind},
          {"metadata", metadata(name, namespace_name)},
          {"rules", std::move(rules)}};
}

ordered_json binding(const char* kind, const char* name, const std::string& namespace_name, const char* role_kind,
                     const std::string& account_namespace) {
  return {{"apiVersion", "rbac.authorization.k8s.io/v1"},
          {"kind", kind},
          {"metadata", metadata(name, namespace_name)},
          {"roleRef", {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", role_kind}, {"name", name}}},
          {"subjects",
           ordered_json::array({{{"kind", "ServiceAccount"}, {"name", kName}, {"namespace", account_namespace}}})}};
}

ordered_json deployment(const DeploymentSettings& settings) {
  ordered_json args = {"operator", "--leader-elect", "--launcher-image=" + settings.image};
  if (!settings.watched_namespace.empty()) args.push_back("--namespace=" + settings.watched_namespace);
  args.push_back(fmt::format("--supervisor-url=http://{}.{}.svc:{}", kName, settings.namespace_name, kSupervisorPort));
  for (const Kind kind : settings.adopted) args.push_back("--adopt=" + std::string(to_string(kind)));
  ordered_json container = {
      {"name", "operator"},
      {"image", settings.image},
      {"args", std::move(args)},
      {"ports",
       ordered_json::array({{{"name", "supervisor"}, {"containerPort", kSupervisorPort}, {"protocol", "TCP"}}})},
      {"resources", {{"requests", {{"cpu", "20m"}, {"memory", "32Mi"}}}, {"limits", {{"memory", "256Mi"}}}}},
      {"securityContext",
       {{"allowPrivilegeEscalation", false}, {"readOnlyRootFilesystem", true}, {"capabilities", {{"drop", {"ALL"}}}}}}};
  ordered_json pod_spec = {{"serviceAccountName", kName},
                           {"securityContext",
                            {{"runAsNonRoot", true},
                             {"runAsUser", 65532},
                             {"runAsGroup", 65532},
                             {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
                           {"containers", ordered_json::array({std::move(container)})}};
  const ordered_json labels = {{"app.kubernetes.io/name", kName}};
  return {{"apiVersion", "apps/v1"},
          {"kind", "Deployment"},
          {"metadata", metadata(kName, settings.namespace_name)},
          {"spec",
           {{"replicas", settings.replicas},
            {"selector", {{"matchLabels", labels}}},
            {"template", {{"metadata", {{"labels", labels}}}, {"spec", std::move(pod_spec)}}}}}};
}

// Workers of adaptive jobs report there; any operator answers. Ports without a protocol cannot be applied to 1.20.
ordered_json supervisor_service(const DeploymentSettings& settings) {
  return {
      {"apiVersion", "v1"},
      {"kind", "Service"},
      {"metadata", metadata(kName, settings.namespace_name)},
      {"spec",
       {{"selector", {{"app.kubernetes.io/name", kName}}},
        {"ports", ordered_json::array({{{"name", "supervisor"}, {"port", kSupervisorPort}, {"protocol", "TCP"}}})}}}};
}

}  // namespace

ordered_json elastic_job_crd() {
  ordered_json version = {{"name", "v1"},
                          {"served", true},
                          {"storage", true},
                          {"schema",
                           {{"openAPIV3Schema",
                             {{"type", "object"},
                              {"description", "An elastic training job: workers come and go, training goes on."},
                              {"required", {"spec"}},
                              {"properties",
                               {{"apiVersion", {{"type", "string"}}},
                                {"kind", {{"type", "string"}}},
                                {"metadata", {{"type", "object"}}},
                                {"spec", spec_schema()},
                                {"status", status_schema()}}}}}}},
                          {"subresources",
                           {{"status", ordered_json::object()},
                            {"scale",
                             {{"specReplicasPath", ".spec.replicas"},
                              {"statusReplicasPath", ".status.replicas"},
                              {"labelSelectorPath", ".status.selector"}}}}},
                          {"additionalPrinterColumns", columns()}};
  return {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", "elasticjobs.rubato.dev"}}},
          {"spec",
           {{"group", "rubato.dev"},
            {"names",
             {{"kind", "ElasticJob"},
              {"listKind", "ElasticJobList"},
              {"plural", "elasticjobs"},
              {"singular", "elasticjob"},
              {"shortNames", {"ej"}},
              {"categories", {"all"}}}},
            {"scope", "Namespaced"},
            {"versions", ordered_json::array({std::move(version)})}}}};
}

std::vector<ordered_json> job_rights(const DeploymentSettings& settings) {
  std::vector<Kind> kinds{Kind::kElasticJob};
  kinds.insert(kinds.end(), settings.adopted.begin(), settings.adopted.end());
  const std::string& home = settings.namespace_name;
  const std::string& watched = settings.watched_namespace;
  if (watched.empty()) {
    return {role("ClusterRole", kName, "", job_rules(kinds, true)),
            binding("ClusterRoleBinding", kName, "", "ClusterRole", home)};
  }
  return {role("Role", "rubato-operator-jobs", watched, job_rules(kinds, false)),
          binding("RoleBinding", "rubato-operator-jobs", watched, "Role", home)};
}

std::vector<ordered_json> operator_objects(const DeploymentSettings& settings) {
  const std::string& home = settings.namespace_name;
  ordered_json lease_rules = ordered_json::array();
  lease_rules.push_back(rule({"coordination.k8s.io"}, {"leases"}, {"create", "get", "update", "patch"}));
  // The supervisor's key, and no other secret.
  lease_rules.push_back(rule({""}, {"secrets"}, {"create"}));
  lease_rules.push_back(rule({""}, {"secrets"}, {"get"}));
  lease_rules.back()["resourceNames"] = {kSupervisorSecret};
  std::vector<ordered_json> out;
  out.push_back({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", metadata(home.c_str(), "")}});
  out.push_back({{"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", metadata(kName, home)}});
  for (ordered_json& object : job_rights(settings)) out.push_back(std::move(object));
  out.push_back(role("Role", "rubato-operator-lease", home, std::move(lease_rules)));
  out.push_back(binding("RoleBinding", "rubato-operator-lease", home, "Role", home));
  out.push_back(supervisor_service(settings));
  out.push_back(deployment(settings));
  return out;
}

}  // namespace rubato::elasticjob
