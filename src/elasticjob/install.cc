#include "elasticjob/install.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/scope.h"
#include "core/text.h"
#include "elasticjob/supervisor.h"
#include "model/yaml_value.h"

namespace rubato::elasticjob {

using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::Resource;
using kubernetes::text_in;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr Duration kEstablishedMax = 60s;
constexpr const char* kOwnNamespace = "rubato-system";

Resource resource_named(const std::string& kind) {
  if (kind == "Namespace") return {"", "v1", "namespaces", "Namespace", false};
  if (kind == "ServiceAccount") return {"", "v1", "serviceaccounts", "ServiceAccount"};
  if (kind == "Service") return kubernetes::services();
  if (kind == "Deployment") return {"apps", "v1", "deployments", "Deployment"};
  if (kind == "CustomResourceDefinition") return kubernetes::crds();
  const bool cluster_wide = kind.starts_with("Cluster");
  return {"rbac.authorization.k8s.io", "v1", to_lower(kind) + "s", kind, !cluster_wide};
}

struct Named {
  Resource resource;
  ObjectName name;
};

Named name_of(const json& object) {
  const json& metadata = object_in(object, "metadata");
  return {resource_named(text_in(object, "kind")), {text_in(metadata, "namespace"), text_in(metadata, "name")}};
}

std::string title(const Named& named) { return to_lower(named.resource.kind) + " " + to_string(named.name); }

bool is_established(const json& crd) {
  for (const json& condition : list_in(object_in(crd, "status"), "conditions")) {
    if (text_in(condition, "type") == "Established" && text_in(condition, "status") == "True") return true;
  }
  return false;
}

// Objects of a new kind are refused until the server serves it.
Task<void> wait_until_served(kubernetes::Client& client, ObjectName name) {
  World& world = client.world();
  const Instant deadline = world.clock.now() + kEstablishedMax;
  while (world.clock.now() < deadline) {
    const json crd = co_await client.get(kubernetes::crds(), name);
    if (is_established(crd)) co_return;
    co_await Sleep(world.clock.loop(), world.clock.now() + 200ms);
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("the server does not serve {} after {}", name.name, format_duration(kEstablishedMax)), "",
              "kubectl describe crd " + name.name);
}

Task<void> apply_one(kubernetes::Client& client, json object, const Progress& progress) {
  const Named named = name_of(object);
  if (named.resource.kind == "Namespace") {
    const std::optional<json> there = co_await client.find(named.resource, named.name);
    if (there) co_return;
  }
  co_await client.apply(named.resource, named.name, std::move(object));
  progress(fmt::format("{} applied", title(named)));
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

namespace {

// The namespace whose jobs the operator that is there runs, empty for all; nullopt: there is no operator.
Task<std::optional<std::string>> find_watched(kubernetes::Client& client, std::string home) {
  const ObjectName name{home, kOperatorName};
  const std::optional<json> there = co_await client.find(resource_named("Deployment"), name);
  if (!there) co_return std::nullopt;
  const std::string flag = "--namespace=";
  const json& pod = object_in(object_in(object_in(*there, "spec"), "template"), "spec");
  for (const json& container : list_in(pod, "containers")) {
    for (const json& arg : list_in(container, "args")) {
      if (arg.is_string() && arg.get<std::string>().starts_with(flag))
        co_return arg.get<std::string>().substr(flag.size());
    }
  }
  co_return std::string();
}

// The rights of an operator in `home`, where they are its: those on all namespaces have one name in a cluster.
Task<void> remove_job_rights(kubernetes::Client& client, std::string home, std::string watched, Progress progress) {
  DeploymentSettings settings;
  settings.namespace_name = home;
  settings.watched_namespace = watched;
  const std::vector<ordered_json> rights = job_rights(settings);
  const Named binding = name_of(json::parse(rights.back().dump()));
  const std::optional<json> bound = co_await client.find(binding.resource, binding.name);
  const json there = bound.value_or(json());
  for (const json& subject : list_in(there, "subjects")) {
    if (text_in(subject, "namespace") != home) co_return;
  }
  for (auto object = rights.rbegin(); object != rights.rend(); ++object) {
    const Named named = name_of(json::parse(object->dump()));
    const bool was_there = co_await client.remove(named.resource, named.name);
    if (was_there) progress(fmt::format("{} deleted", title(named)));
  }
}

}  // namespace

Task<void> install(kubernetes::Client& client, DeploymentSettings settings, Progress progress) {
  const json crd = json::parse(elastic_job_crd().dump());
  const ObjectName crd_name = name_of(crd).name;
  Task<std::optional<std::string>> finding = find_watched(client, settings.namespace_name);
  const std::optional<std::string> before = co_await std::move(finding);
  Task<void> applying = apply_one(client, crd, progress);
  co_await std::move(applying);
  Task<void> waiting = wait_until_served(client, crd_name);
  co_await std::move(waiting);
  for (const ordered_json& object : operator_objects(settings)) {
    Task<void> next = apply_one(client, json::parse(object.dump()), progress);
    co_await std::move(next);
  }
  if (!before || *before == settings.watched_namespace) co_return;
  Task<void> removing = remove_job_rights(client, settings.namespace_name, *before, progress);
  co_await std::move(removing);
}

Task<void> uninstall(kubernetes::Client& client, DeploymentSettings settings, bool purge, Progress progress) {
  if (settings.watched_namespace.empty()) {
    Task<std::optional<std::string>> finding = find_watched(client, settings.namespace_name);
    const std::optional<std::string> watched = co_await std::move(finding);
    settings.watched_namespace = watched.value_or("");
  }
  std::vector<ordered_json> objects = operator_objects(settings);
  std::reverse(objects.begin(), objects.end());
  if (purge) objects.push_back(elastic_job_crd());
  for (const ordered_json& object : objects) {
    const Named named = name_of(json::parse(object.dump()));
    // A namespace may hold other people's things; ours is made by install alone.
    if (named.resource.kind == "Namespace" && (!purge || named.name.name != kOwnNamespace)) continue;
    const bool was_there = co_await client.remove(named.resource, named.name);
    if (was_there) progress(fmt::format("{} deleted", title(named)));
  }
  if (!purge) {
    // Workers that train on are told paths by its key: a new operator of theirs goes on with it.
    progress("the CRD and all jobs stay; --purge deletes them too");
    co_return;
  }
  const ObjectName key{settings.namespace_name, kSupervisorSecret}, lease{settings.namespace_name, kOperatorName};
  co_await client.remove(kubernetes::secrets(), key);
  co_await client.remove(kubernetes::leases(), lease);
}

std::string manifests_text(const std::vector<ordered_json>& objects) {
  std::string out;
  for (const ordered_json& object : objects) {
    if (!out.empty()) out += "---\n";
    out += yaml_text(object);
  }
  return out;
}

namespace {

// What Helm's values add to the objects. The numbers of spaces are those of the places where they go.
constexpr const char* kHelmRules = R"({{- range .Values.adopt }}
{{- $kind := splitn "." 2 . }}
  - apiGroups: [{{ $kind._1 }}]
    resources: [{{ $kind._0 }}]
    verbs: [delete, list, patch, watch]
  - apiGroups: [{{ $kind._1 }}]
    resources: [{{ $kind._0 }}/status]
    verbs: [patch]
  - apiGroups: [{{ $kind._1 }}]
    resources: [{{ $kind._0 }}/finalizers]
    verbs: [update]
{{- end }}
)";
constexpr const char* kHelmArgs = R"(            {{- with .Values.watch }}
            - "--namespace={{ . }}"
            {{- end }}
            {{- range .Values.adopt }}
            - "--adopt={{ . }}"
            {{- end }}
)";
constexpr const char* kHelmPod = R"(      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
)";

void insert_behind_line(std::string& text, std::string_view mark, std::string_view lines) {
  const size_t at = text.find(mark);
  CHECK(at != std::string::npos);
  text.insert(text.find('\n', at) + 1, lines);
}

// The rights on jobs, and on those that Helm's values adopt.
std::string helm_rights(const DeploymentSettings& settings) {
  std::string text = manifests_text(job_rights(settings));
  const size_t roles_end = text.find("---\n", text.find("elasticjobs/finalizers"));
  CHECK(roles_end != std::string::npos);
  text.insert(roles_end, kHelmRules);
  return text;
}

}  // namespace

std::string helm_templates() {
  DeploymentSettings settings;
  settings.namespace_name = "HELM_NAMESPACE";
  settings.image = "HELM_IMAGE";
  settings.replicas = 424242;
  DeploymentSettings watching = settings;
  watching.watched_namespace = "HELM_WATCH";
  const std::vector<ordered_json> all = operator_objects(settings), rights = job_rights(settings);
  // Helm makes the namespace (--create-namespace).
  const auto begin = all.begin() + 1;
  const auto at = std::find(begin, all.end(), rights.front());
  CHECK(at != all.end());
  std::string text = manifests_text(std::vector<ordered_json>(begin, at));
  text += "{{- if .Values.watch }}\n---\n" + helm_rights(watching);
  text += "{{- else }}\n---\n" + helm_rights(settings) + "{{- end }}\n---\n";
  text += manifests_text(std::vector<ordered_json>(at + static_cast<ptrdiff_t>(rights.size()), all.end()));
  replace_all(text, "HELM_NAMESPACE", "{{ .Release.Namespace }}");
  replace_all(text, "HELM_IMAGE", "{{ .Values.image }}");
  replace_all(text, "HELM_WATCH", "{{ .Values.watch }}");
  replace_all(text, "424242", "{{ .Values.replicas }}");
  insert_behind_line(text, "--supervisor-url=", kHelmArgs);
  insert_behind_line(text, "serviceAccountName:", kHelmPod);
  return text;
}

}  // namespace rubato::elasticjob
