// Access: where the API server is, and who we are to it.
//
// Found as controllers find it: --kubeconfig, KUBECONFIG (files joined by ':'), inside a pod its own service account,
// ~/.kube/config. Tokens in files are read again when they are a minute old, because the kubelet rotates them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "kubernetes/kubeconfig.h"
#include "rest/caller.h"
#include "rest/url.h"
#include "world/world.h"

namespace rubato::kubernetes {

struct AccessSettings {
  std::map<std::string, std::string> env;
  std::string kubeconfig;  // of --kubeconfig
  std::string context;     // of --context
};

// What one request carries.
struct Login {
  TlsFiles tls;
  std::string authorization;  // the header's value; empty: the certificate says who we are
};

class Access {
 public:
  Access(World& world, ChosenContext chosen, std::map<std::string, std::string> env);

  const rest::Url& server() const { return server_; }
  // The context's namespace; "default" where it has none.
  const std::string& namespace_name() const { return namespace_; }
  const std::string& context() const { return chosen_.name; }

  // Reads token files and runs exec plugins when what they gave is too old. Throws kAuth when that fails.
  Task<Login> login();
  // Adds to a request who we are, whom we act for, and by which name the server proves itself.
  void introduce(const Login& login, HttpRequest& request) const;
  // The proxy that the kubeconfig names, else the one of the environment. Throws kUsage for one that we do not speak.
  std::optional<HttpProxy> proxy() const;
  // The server refused the credentials: the next login fetches new ones.
  void forget();

 private:
  Task<Login> run_plugin();
  Login from_token_file();

  World& world_;
  const ChosenContext chosen_;
  const std::map<std::string, std::string> env_;
  rest::Url server_;
  std::string namespace_;
  std::optional<Login> cached_;
  Instant fetched_{};
  std::optional<WallTime> expires_;
};

// What an exec plugin is told in KUBERNETES_EXEC_INFO. The cluster's `ca` is PEM here, no path. Pure.
std::string plugin_question(const ExecEntry& exec, const ClusterEntry& cluster);

// What an exec plugin printed. Throws kAuth naming `command`. Pure.
struct PluginAnswer {
  std::string token, certificate, key;
  std::optional<WallTime> expires;
};
PluginAnswer read_plugin_answer(const std::string& text, const std::string& command);

// Throws kUsage when there is no configuration, or a wrong one.
std::unique_ptr<Access> open_access(World& world, const AccessSettings& settings);

}  // namespace rubato::kubernetes
