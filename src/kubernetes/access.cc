#include "kubernetes/access.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/json_bounds.h"
#include "core/scope.h"
#include "core/text.h"
#include "core/timestamp.h"
#include "rest/base64.h"
#include "rest/proxy.h"
#include "world/server_name.h"

namespace rubato::kubernetes {
namespace {

using nlohmann::json;

constexpr std::string_view kServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/";
constexpr Duration kTokenFileReadAgainAfter = 60s;  // as client-go
constexpr Duration kPluginMax = 60s;
constexpr size_t kPluginBytesMax = 1 << 20;
constexpr auto kRenewBefore = std::chrono::seconds(60);

std::string variable(const std::map<std::string, std::string>& env, const std::string& name) {
  const auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

std::optional<ChosenContext> in_cluster(World& world, const std::map<std::string, std::string>& env) {
  const std::string host = variable(env, "KUBERNETES_SERVICE_HOST");
  const std::string port = variable(env, "KUBERNETES_SERVICE_PORT");
  const std::string folder(kServiceAccount);
  if (host.empty() || port.empty() || !world.files.exists(folder + "token")) return std::nullopt;
  ChosenContext out;
  out.name = "in-cluster";
  out.cluster.server =
      fmt::format("https://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port);
  out.cluster.ca = folder + "ca.crt";
  out.user.token_file = folder + "token";
  out.context.namespace_name = std::string(trim(world.files.read(folder + "namespace").value_or("")));
  return out;
}

Error no_configuration(const std::string& looked_at) {
  return Error(ErrorCode::kUsage, "no Kubernetes cluster is configured", looked_at,
               "write the kubeconfig (aws eks update-kubeconfig, gcloud container clusters get-credentials, ...), or "
               "give --kubeconfig FILE");
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Of a name everything but letters, digits and a few signs is written as %XX, as client-go does.
std::string header_part(const std::string& name) { return rest::percent_encode(to_lower(name)); }

Task<std::string> output_of(Process& process) {
  std::string out;
  while (true) {
    std::optional<OutputChunk> chunk = co_await process.output().pop();
    if (!chunk) break;
    if (!chunk->is_stderr && out.size() < kPluginBytesMax) out += chunk->bytes;
  }
  co_await process.wait();
  co_return out;
}

}  // namespace

Access::Access(World& world, ChosenContext chosen, std::map<std::string, std::string> env)
    : world_(world), chosen_(std::move(chosen)), env_(std::move(env)) {
  server_ = rest::parse_url(chosen_.cluster.server, "the cluster's server");
  namespace_ = chosen_.context.namespace_name.empty() ? "default" : chosen_.context.namespace_name;
}

void Access::forget() { cached_.reset(); }

void Access::introduce(const Login& login, HttpRequest& request) const {
  if (!login.authorization.empty()) request.headers["authorization"] = login.authorization;
  if (!chosen_.cluster.tls_server_name.empty()) request.headers[kServerNameTerm] = chosen_.cluster.tls_server_name;
  const Impersonation& as = chosen_.user.as;
  if (as.user.empty()) return;
  request.headers["impersonate-user"] = as.user;
  if (!as.uid.empty()) request.headers["impersonate-uid"] = as.uid;
  if (!as.groups.empty()) request.headers["impersonate-group"] = join(as.groups, "\n");
  for (const auto& [key, values] : as.extra) {
    if (!values.empty()) request.headers["impersonate-extra-" + header_part(key)] = join(values, "\n");
  }
}

std::optional<HttpProxy> Access::proxy() const {
  const std::string& named = chosen_.cluster.proxy_url;
  if (named.empty()) return rest::proxy_for(server_, env_);
  return rest::read_proxy({named, fmt::format("proxy-url of cluster '{}'", chosen_.context.cluster)});
}

Login Access::from_token_file() {
  const std::string& path = chosen_.user.token_file;
  std::string token(trim(world_.files.read(path).value_or("")));
  if (token.empty()) token = chosen_.user.token;
  if (token.empty())
    throw Error(ErrorCode::kAuth, fmt::format("cannot read the token in {}", path), path,
                "in a pod: is a service account mounted (automountServiceAccountToken)?");
  Login out;
  out.authorization = "Bearer " + token;
  return out;
}

Task<Login> Access::login() {
  const UserEntry& user = chosen_.user;
  const Instant now = world_.clock.now();
  const bool old_file = !user.token_file.empty() && now - fetched_ >= kTokenFileReadAgainAfter;
  const bool expired = expires_ && world_.clock.wall() + kRenewBefore >= *expires_;
  if (cached_ && !old_file && !expired) co_return *cached_;
  Login made;
  if (!user.token_file.empty()) {
    made = from_token_file();
  } else if (user.exec) {
    made = co_await run_plugin();
  } else if (!user.token.empty()) {
    made.authorization = "Bearer " + user.token;
  } else if (!user.username.empty()) {
    made.authorization = "Basic " + rest::base64(user.username + ":" + user.password);
  }
  made.tls.use_tls = server_.https;
  made.tls.ca = chosen_.cluster.ca;
  if (made.tls.certificate.empty()) made.tls.certificate = user.certificate;
  if (made.tls.key.empty()) made.tls.key = user.key;
  cached_ = made;
  fetched_ = now;
  co_return made;
}

Task<Login> Access::run_plugin() {
  const ExecEntry& exec = *chosen_.user.exec;
  SpawnSpec spec;
  spec.argv.push_back(exec.command);
  spec.argv.insert(spec.argv.end(), exec.args.begin(), exec.args.end());
  std::map<std::string, std::string> env = env_;
  for (const auto& [name, value] : exec.env) env[name] = value;
  const std::string& ca = chosen_.cluster.ca;
  const bool is_path = ca.starts_with('/');
  ClusterEntry asked_for = chosen_.cluster;
  if (is_path) asked_for.ca = world_.files.read(ca).value_or("");
  env["KUBERNETES_EXEC_INFO"] = plugin_question(exec, asked_for);
  for (const auto& [name, value] : env) spec.env.push_back(name + "=" + value);
  spec.in = InputSource::kNull;
  spec.out.kind = OutputTarget::Kind::kPipe;
  std::unique_ptr<Process> process;
  try {
    process = world_.processes.spawn(spec);
  } catch (Error& error) {
    error.code = ErrorCode::kAuth;
    if (!exec.install_hint.empty()) error.hint = exec.install_hint;
    throw;
  }
  Task<std::string> reading = output_of(*process);
  const Instant deadline = world_.clock.now() + kPluginMax;
  std::optional<std::string> text = co_await with_deadline(world_.clock.loop(), deadline, std::move(reading));
  const bool ended_well = text && process->status() && process->status()->ok();
  if (!ended_well)
    throw Error(
        ErrorCode::kAuth,
        fmt::format("{} printed no credentials: {}", exec.command,
                    !text ? "it took longer than " + format_duration(kPluginMax) : describe(*process->status())),
        chosen_.user.where, "run it by hand: " + shell_join(spec.argv));
  const PluginAnswer answer = read_plugin_answer(*text, exec.command);
  Login out;
  if (!answer.token.empty()) out.authorization = "Bearer " + answer.token;
  out.tls.certificate = answer.certificate;
  out.tls.key = answer.key;
  expires_ = answer.expires;
  co_return out;
}

std::string plugin_question(const ExecEntry& exec, const ClusterEntry& cluster) {
  json spec = {{"interactive", false}};
  if (exec.wants_cluster) {
    json told = {{"server", cluster.server}};
    if (!cluster.ca.empty()) told["certificate-authority-data"] = rest::base64(cluster.ca);
    if (!cluster.tls_server_name.empty()) told["tls-server-name"] = cluster.tls_server_name;
    if (!cluster.proxy_url.empty()) told["proxy-url"] = cluster.proxy_url;
    spec["cluster"] = std::move(told);
  }
  return json{{"apiVersion", exec.api_version}, {"kind", "ExecCredential"}, {"spec", std::move(spec)}}.dump();
}

PluginAnswer read_plugin_answer(const std::string& text, const std::string& command) {
  const json document = beyond_bounds(text, JsonBounds()) ? json() : json::parse(text, nullptr, false);
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::kAuth, fmt::format("{}: {}", command, why), "",
                 "run it by hand and look at what it prints");
  };
  if (!document.is_object() || text_at(document, "kind") != "ExecCredential")
    throw refuse("what it printed is no ExecCredential");
  const json status = document.value("status", json::object());
  PluginAnswer out;
  out.token = text_at(status, "token");
  out.certificate = text_at(status, "clientCertificateData");
  out.key = text_at(status, "clientKeyData");
  if (out.token.empty() && (out.certificate.empty() || out.key.empty()))
    throw refuse("its answer has neither a token nor a certificate with its key");
  if (const std::string at = text_at(status, "expirationTimestamp"); !at.empty()) {
    out.expires = parse_time(at);
    if (!out.expires) throw refuse(fmt::format("'{}' is no time", at));
  }
  return out;
}

std::unique_ptr<Access> open_access(World& world, const AccessSettings& settings) {
  std::vector<std::string> files;
  const std::string variable_text = variable(settings.env, "KUBECONFIG");
  if (!settings.kubeconfig.empty()) {
    files.push_back(settings.kubeconfig);
  } else if (!variable_text.empty()) {
    for (const std::string_view one : split(variable_text, ':')) {
      if (!one.empty()) files.emplace_back(one);
    }
  } else if (settings.context.empty()) {
    std::optional<ChosenContext> chosen = in_cluster(world, settings.env);
    if (chosen) return std::make_unique<Access>(world, std::move(*chosen), settings.env);
  }
  if (files.empty()) files.push_back(variable(settings.env, "HOME") + "/.kube/config");
  Kubeconfig config;
  for (const std::string& file : files) {
    const std::optional<std::string> text = world.files.read(file);
    if (text) add_kubeconfig(config, *text, file);
  }
  if (config.files.empty()) throw no_configuration(join(files, ", "));
  return std::make_unique<Access>(world, choose_context(config, settings.context), settings.env);
}

}  // namespace rubato::kubernetes
