// Kubeconfig: the files that kubectl reads, as values. Pure; docs/kubernetes.md says what is read.
//
// Of several files the first one that has a cluster, a user, a context or the current context counts, as for kubectl.
// Paths in a file are relative to its folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace rubato::kubernetes {

struct ClusterEntry {
  std::string where;  // file:line:column, for errors
  std::string server;
  std::string ca;  // a file's path, or PEM text
  std::string namespace_name;
  bool insecure = false;        // insecure-skip-tls-verify
  std::string tls_server_name;  // the name in the server's certificate; empty: the server's own
  std::string proxy_url;
};

// Who a user acts as (kubectl's --as): the server judges and records that one.
struct Impersonation {
  std::string user, uid;
  std::vector<std::string> groups;
  std::map<std::string, std::vector<std::string>> extra;
};

// A program that prints credentials (client.authentication.k8s.io).
struct ExecEntry {
  std::string command;
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;
  std::string api_version;
  std::string install_hint;
  bool wants_cluster = false;   // provideClusterInfo: it is told which server it is asked for
  bool needs_person = false;    // interactiveMode: Always
};

struct UserEntry {
  std::string where;
  std::string certificate, key;  // a file's path, or PEM text
  std::string token;
  std::string token_file;
  std::string username, password;
  std::optional<ExecEntry> exec;
  Impersonation as;
  bool auth_provider = false;  // gone from kubectl since 1.26
};

struct ContextEntry {
  std::string where;
  std::string cluster, user, namespace_name;
};

struct Kubeconfig {
  std::vector<std::string> files;
  std::string current_context;
  std::map<std::string, ClusterEntry> clusters;
  std::map<std::string, UserEntry> users;
  std::map<std::string, ContextEntry> contexts;
};

// Adds what a file says to what earlier ones said. Throws a usage Error that points at the line.
void add_kubeconfig(Kubeconfig& config, std::string_view text, const std::string& file);

struct ChosenContext {
  std::string name;
  ContextEntry context;
  ClusterEntry cluster;
  UserEntry user;
};
// `name` empty: the current one. Throws a usage Error naming what there is, also for what would be unsafe
// (insecure-skip-tls-verify) or is not supported.
ChosenContext choose_context(const Kubeconfig& config, const std::string& name);

}  // namespace rubato::kubernetes
