// PodAddress: a container of a pod in the place of a host. Where a host is kept (HostAddress::host, remote.json,
// SshTarget::host) the text of it stands; SshTarget::proxy_command is then the program that reaches it: rubato itself,
// which is to pods what ssh is to hosts (`rubato k8s shell`). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "provider/ssh_target.h"

namespace rubato::provider {

struct PodAddress {
  std::string namespace_name, pod, container;
  std::string context;  // of the kubeconfig; empty: its current one, in a pod the pod's own account
  bool operator==(const PodAddress&) const = default;
};

// "pod:NAMESPACE/POD/CONTAINER", with "@CONTEXT" after it. nullopt: it is a host.
std::optional<PodAddress> parse_pod_address(std::string_view host);
std::string to_string(const PodAddress& address);
inline bool is_pod(std::string_view host) { return host.starts_with("pod:"); }

// What a node's pod is called. The same node has the same name always; no two have one.
std::string pod_name(std::string_view cluster, std::string_view node);

// Of another node of the cluster whose head is `head`: its container has the same name.
std::string sibling_pod(const std::string& head, std::string_view cluster, std::string_view node);

// As ssh_argv's. `target` is a pod's.
std::vector<std::string> pod_argv(const SshTarget& target, const SshOptions& options);
std::vector<std::string> pod_forward_argv(const SshTarget& target, const std::string& socket, uint16_t port);

// The one line that `rubato k8s shell` writes when it fails itself, and what it meant.
std::string pod_failure_line(const Error& error);
Error explain_pod(const SshTarget& target, std::string_view text);

}  // namespace rubato::provider
