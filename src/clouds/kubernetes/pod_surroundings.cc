#include "clouds/kubernetes/pod_surroundings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "clouds/kubernetes/pod_launch.h"
#include "core/text.h"
#include "model/cluster_spec.h"
#include "provider/pod_address.h"

namespace rubato::clouds {
namespace {

using kubernetes::ObjectName;
using kubernetes::Resource;
using kubernetes::text_in;
using nlohmann::json;

constexpr const char* kRbac = "rbac.authorization.k8s.io";

const Resource& resource_of(const std::string& kind) {
  static const Resource accounts{"", "v1", "serviceaccounts", "ServiceAccount"};
  static const Resource roles{kRbac, "v1", "roles", "Role"};
  static const Resource bindings{kRbac, "v1", "rolebindings", "RoleBinding"};
  static const Resource sets{"apps", "v1", "statefulsets", "StatefulSet"};
  if (kind == "Service") return kubernetes::services();
  if (kind == "StatefulSet") return sets;
  if (kind == "ServiceAccount") return accounts;
  return kind == "Role" ? roles : bindings;
}

}  // namespace

HeadAccount head_account_of(const std::string& cluster, const std::string& node_config) {
  const json config = pod_of_config(json::parse(node_config, nullptr, false));
  const std::string given = text_in(kubernetes::object_in(config, "spec"), "serviceAccountName");
  HeadAccount out;
  out.ours = given.empty();
  out.name = out.ours ? head_account(cluster) : given;
  return out;
}

std::vector<json> account_manifests(const std::string& namespace_name, const std::string& cluster,
                                    const HeadAccount& account) {
  const std::string name = head_account(cluster);
  const auto metadata = [&](const std::string& of) {
    return json{{"name", of},
                {"namespace", namespace_name},
                {"labels", {{kClusterLabelOfPods, cluster}, {"app.kubernetes.io/managed-by", "rubato"}}}};
  };
  const std::string version = std::string(kRbac) + "/v1";
  std::vector<json> out;
  if (account.ours) {
    out.push_back({{"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", metadata(account.name)}});
  }
  const json on_pods = {{"apiGroups", {""}},
                        {"resources", {"pods"}},
                        {"verbs", {"create", "delete", "get", "list", "patch"}}};
  // A WebSocket is opened by GET; newer servers ask for create all the same.
  const json on_exec = {{"apiGroups", {""}}, {"resources", {"pods/exec"}}, {"verbs", {"create", "get"}}};
  out.push_back({{"apiVersion", version},
                 {"kind", "Role"},
                 {"metadata", metadata(name)},
                 {"rules", json::array({on_pods, on_exec})}});
  const json subject = {{"kind", "ServiceAccount"}, {"name", account.name}, {"namespace", namespace_name}};
  out.push_back({{"apiVersion", version},
                 {"kind", "RoleBinding"},
                 {"metadata", metadata(name)},
                 {"roleRef", {{"apiGroup", kRbac}, {"kind", "Role"}, {"name", name}}},
                 {"subjects", json::array({subject})}});
  return out;
}

Task<void> apply_head_account(kubernetes::Client& client, std::string namespace_name, std::string cluster,
                              HeadAccount account) {
  std::vector<json> manifests = account_manifests(namespace_name, cluster, account);
  for (json& one : manifests) {
    const Resource resource = resource_of(text_in(one, "kind"));
    const ObjectName object{namespace_name, text_in(kubernetes::object_in(one, "metadata"), "name")};
    co_await client.apply(resource, object, std::move(one));
  }
}

Task<std::optional<std::string>> apply_head_service(kubernetes::Client& client, std::string namespace_name,
                                                    std::string cluster) {
  json service = head_service(namespace_name, cluster);
  const ObjectName object{namespace_name, text_in(kubernetes::object_in(service, "metadata"), "name")};
  try {
    co_await client.apply(kubernetes::services(), object, std::move(service));
  } catch (const Error& error) {
    if (error.code != ErrorCode::kAuth && error.code != ErrorCode::kUsage) throw;
    co_return fmt::format("note: no service leads to the head ({}): if its pod moves, workers are made anew",
                          error.message);
  }
  co_return std::nullopt;
}

namespace {

// One object of ours. A person's own may have its name.
Task<void> remove_ours(kubernetes::Client& client, std::string kind, ObjectName object, std::string cluster,
                       RemovedSurroundings& out) {
  const std::string name = fmt::format("{} {}", to_lower(kind), object.name);
  try {
    const std::optional<json> found = co_await client.find(resource_of(kind), object);
    if (!found) co_return;
    const json& metadata = kubernetes::object_in(*found, "metadata");
    if (text_in(kubernetes::object_in(metadata, "labels"), kClusterLabelOfPods) != cluster) {
      out.kept.push_back(name + ": it is not ours");
      co_return;
    }
    std::string uid = text_in(metadata, "uid");
    if (co_await client.remove(resource_of(kind), object, std::move(uid))) out.removed.push_back(name);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kAuth) throw;
    out.kept.push_back(fmt::format("{}: {}", name, error.message));
  }
}

}  // namespace

Task<RemovedSurroundings> remove_head_set(kubernetes::Client& client, std::string namespace_name,
                                          std::string cluster) {
  RemovedSurroundings out;
  const ObjectName object{namespace_name, provider::pod_name(cluster, kHeadNode)};
  Task<void> removing = remove_ours(client, "StatefulSet", object, cluster, out);
  co_await std::move(removing);
  co_return out;
}

Task<RemovedSurroundings> remove_head_account(kubernetes::Client& client, std::string namespace_name,
                                              std::string cluster) {
  RemovedSurroundings out;
  const ObjectName service{namespace_name, provider::pod_name(cluster, kHeadNode)};
  Task<void> first = remove_ours(client, "Service", service, cluster, out);
  co_await std::move(first);
  const ObjectName account{namespace_name, head_account(cluster)};
  const std::vector<std::string> kinds = {"RoleBinding", "Role", "ServiceAccount"};
  for (const std::string& kind : kinds) {
    Task<void> next = remove_ours(client, kind, account, cluster, out);
    co_await std::move(next);
  }
  co_return out;
}

}  // namespace rubato::clouds
