#include "provider/pod_address.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/sha256.h"
#include "core/text.h"

namespace rubato::provider {
namespace {

constexpr std::string_view kScheme = "pod:";
constexpr std::string_view kFailure = "rubato k8s shell: ";
constexpr std::string_view kNever = "refused: ";  // trying again does not help
constexpr size_t kPodNameMax = 63;                // it is also the pod's host name

bool is_label(std::string_view text) {
  const auto fine = [](char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= 253 && std::ranges::all_of(text, fine) && text.front() != '-';
}

std::string pod_text(const PodAddress& address) {
  return fmt::format("{}/{}/{}", address.namespace_name, address.pod, address.container);
}

PodAddress pod_of(const SshTarget& target) {
  const std::optional<PodAddress> pod = parse_pod_address(target.host);
  CHECK(pod.has_value());
  return *pod;
}

std::vector<std::string> begin_argv(const SshTarget& target, const char* command, const PodAddress& pod) {
  std::vector<std::string> argv = {target.proxy_command, "k8s", command};
  if (!pod.context.empty()) argv.insert(argv.end(), {"--context", pod.context});
  return argv;
}

}  // namespace

std::optional<PodAddress> parse_pod_address(std::string_view host) {
  const auto rest = strip_prefix(host, kScheme);
  if (!rest) return std::nullopt;
  const size_t at = rest->find('@');
  const std::vector<std::string_view> parts = split(rest->substr(0, at), '/');
  if (parts.size() != 3 || !std::ranges::all_of(parts, is_label)) return std::nullopt;
  PodAddress out;
  out.namespace_name = std::string(parts[0]);
  out.pod = std::string(parts[1]);
  out.container = std::string(parts[2]);
  if (at != std::string_view::npos) out.context = std::string(rest->substr(at + 1));
  return out;
}

std::string to_string(const PodAddress& address) {
  const std::string text = std::string(kScheme) + pod_text(address);
  return address.context.empty() ? text : text + "@" + address.context;
}

std::string pod_name(std::string_view cluster, std::string_view node) {
  const std::string whole = fmt::format("{}-{}", cluster, node);
  std::string name;
  for (const char c : to_lower(whole)) {
    const bool fine = ('a' <= c && c <= 'z') || ('0' <= c && c <= '9');
    name += fine ? c : '-';
  }
  while (name.starts_with('-')) name.erase(0, 1);
  if (name == whole && name.size() <= kPodNameMax && !name.ends_with('-')) return name;
  Sha256 hash;
  hash.update(whole);
  return fmt::format("{}-{}", name.substr(0, kPodNameMax - 9), hash.hex().substr(0, 8));
}

std::string sibling_pod(const std::string& head, std::string_view cluster, std::string_view node) {
  PodAddress address = parse_pod_address(head).value_or(PodAddress());
  address.pod = pod_name(cluster, node);
  return to_string(address);
}

std::vector<std::string> pod_argv(const SshTarget& target, const SshOptions& options) {
  const PodAddress pod = pod_of(target);
  std::vector<std::string> argv = begin_argv(target, "shell", pod);
  if (options.tty) argv.emplace_back("--tty");
  for (const SshForward& forward : options.forwards) {
    const size_t colon = forward.to.rfind(':');
    argv.insert(argv.end(), {"--forward", fmt::format("{}={}", forward.listen, forward.to.substr(colon + 1))});
  }
  argv.push_back(pod_text(pod));
  if (!options.command.empty()) argv.push_back(options.command);
  return argv;
}

std::vector<std::string> pod_forward_argv(const SshTarget& target, const std::string& socket, uint16_t port) {
  const PodAddress pod = pod_of(target);
  std::vector<std::string> argv = begin_argv(target, "forward", pod);
  argv.insert(argv.end(), {socket, pod_text(pod), std::to_string(port)});
  return argv;
}

std::string pod_failure_line(const Error& error) {
  const bool never = error.code == ErrorCode::kUsage || error.code == ErrorCode::kAuth;
  std::string text = error.message;
  if (!error.hint.empty()) text += fmt::format(" ({})", error.hint);
  std::ranges::replace(text, '\n', ' ');
  return fmt::format("{}{}{}\n", kFailure, never ? kNever : "", text);
}

Error explain_pod(const SshTarget& target, std::string_view text) {
  const std::string where = to_string(target);
  std::string reason;
  bool never = false;
  for (const std::string_view line : split(text, '\n')) {
    const auto rest = strip_prefix(line, kFailure);
    if (!rest) continue;
    const auto refused = strip_prefix(*rest, kNever);
    never = refused.has_value();
    reason = std::string(trim(refused.value_or(*rest)));
  }
  if (reason.empty()) reason = "the connection was lost";
  return Error(never ? ErrorCode::kUsage : ErrorCode::kUnavailable, fmt::format("{}: {}", where, reason), where,
               "look at the pod: kubectl describe pod, or rubato why");
}

}  // namespace rubato::provider
