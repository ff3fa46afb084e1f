#include "client/remote_place.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "os/machine.h"
#include "provider/pod_address.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

provider::SshTarget at_place(Files& files, const ClusterPlace& place, provider::SshTarget target) {
  target.control_folder = provider::control_folder(files, place.folder);
  target.known_hosts = place.folder + "/ssh/known_hosts";
  return target;
}

AuthConfig auth_here(const AuthConfig& given, const Environment& env) {
  AuthConfig auth = given;
  auth.ssh_private_key = expand_home(given.ssh_private_key, env);
  return auth;
}

}  // namespace

std::string expand_home(const std::string& path, const Environment& env) {
  const auto home = env.find("HOME");
  if (home == env.end()) return path;
  if (path == "~") return home->second;
  if (const auto rest = strip_prefix(path, "~/")) return home->second + "/" + std::string(*rest);
  return path;
}

namespace {

RemoteHead remote_in(const json& document) {
  RemoteHead out;
  if (!document.is_object()) return out;
  out.host.host = raw_in(document, "host");
  out.host.user = raw_in(document, "user");
  out.host.port = static_cast<int>(int_in(document, "port"));
  out.key = raw_in(document, "key");
  out.proxy_command = raw_in(document, "proxy_command");
  out.proxy_jump = raw_in(document, "proxy_jump");
  out.folder = raw_in(document, "folder");
  out.program = raw_in(document, "program");
  out.api_port = static_cast<uint16_t>(int_in(document, "api_port"));
  out.api_tls = document.value("api_tls", false);
  out.power_off = document.value("power_off", false);
  out.instance = raw_in(document, "instance");
  out.provider_folder = raw_in(document, "provider_folder");
  out.public_key = raw_in(document, "public_key");
  for (const json& host : list_in(document, "keyed")) {
    if (host.is_string()) out.keyed.push_back(host.get<std::string>());
  }
  return out;
}

json way_of(const RemoteHead& remote) {
  return {{"host", remote.host.host},
          {"user", remote.host.user},
          {"port", remote.host.port},
          {"key", remote.key},
          {"proxy_command", remote.proxy_command},
          {"proxy_jump", remote.proxy_jump}};
}

json document_of(const RemoteHead& remote) {
  json document = way_of(remote);
  document.update({{"folder", remote.folder},
                   {"program", remote.program},
                   {"api_port", remote.api_port},
                   {"api_tls", remote.api_tls},
                   {"power_off", remote.power_off},
                   {"instance", remote.instance},
                   {"provider_folder", remote.provider_folder},
                   {"public_key", remote.public_key},
                   {"keyed", remote.keyed}});
  return document;
}

std::string machines_file(const ClusterPlace& place) { return place.folder + "/machines.json"; }

}  // namespace

std::optional<RemoteHead> read_remote(Files& files, const ClusterPlace& place) {
  const auto text = files.read(place.remote_file());
  if (!text) return std::nullopt;
  RemoteHead out = remote_in(json::parse(*text, nullptr, false));
  if (out.host.host.empty()) {
    throw Error(ErrorCode::kFailed, "this file does not tell where the cluster's head is", place.remote_file(),
                "run rubato up with the cluster file again");
  }
  return out;
}

void write_remote(Files& files, const ClusterPlace& place, const RemoteHead& remote) {
  files.write_atomically(place.remote_file(), document_of(remote).dump(2) + "\n");
}

KnownMachines read_machines(Files& files, const ClusterPlace& place) {
  KnownMachines out;
  const auto text = files.read(machines_file(place));
  if (!text) return out;
  const json document = json::parse(*text, nullptr, false);
  if (!document.is_object()) {
    throw Error(ErrorCode::kFailed, "this file does not tell which machines the cluster had", machines_file(place),
                "run rubato up with the cluster file again, or remove it to forget them");
  }
  if (document.contains("head") && document["head"].is_object()) out.head = remote_in(document["head"]);
  for (const json& worker : list_in(document, "workers")) out.workers.push_back(remote_in(worker));
  out.public_key = raw_in(document, "public_key");
  return out;
}

void write_machines(Files& files, const ClusterPlace& place, const KnownMachines& machines) {
  json workers = json::array();
  for (const RemoteHead& one : machines.workers) workers.push_back(way_of(one));
  json document = {{"workers", std::move(workers)}, {"public_key", machines.public_key}};
  if (machines.head) document["head"] = document_of(*machines.head);
  files.write_atomically(machines_file(place), document.dump(2) + "\n");
}

RemoteHead worker_from(const ClusterFile& file, const HostAddress& host, const Environment& env) {
  const provider::SshTarget target = provider::ssh_target(host, auth_here(file.auth, env));
  RemoteHead out;
  out.host.host = target.host;
  out.host.user = target.user;
  out.host.port = target.port;
  out.key = target.key_file;
  out.proxy_command = target.proxy_command;
  out.proxy_jump = target.proxy_jump;
  return out;
}

RemoteHead remote_from(const ClusterFile& file, const Environment& env) {
  RemoteHead out;
  if (!file.provider.head) return out;
  const AuthConfig auth = auth_here(file.auth, env);
  out.host = *file.provider.head;
  // Workers know the head by head_ip; people outside may have to use another address.
  if (!file.provider.external_head_ip.empty()) out.host.host = file.provider.external_head_ip;
  if (out.host.user.empty()) out.host.user = auth.ssh_user;
  if (out.host.port == 0) out.host.port = auth.ssh_port;
  out.key = auth.ssh_private_key;
  out.proxy_command = auth.ssh_proxy_command;
  out.proxy_jump = auth.ssh_proxy_jump;
  return out;
}

provider::SshTarget target_of(Files& files, const ClusterPlace& place, const RemoteHead& remote) {
  provider::SshTarget target;
  target.host = remote.host.host;
  target.user = remote.host.user;
  target.port = remote.host.port;
  target.key_file = remote.key;
  target.proxy_command = remote.proxy_command;
  target.proxy_jump = remote.proxy_jump;
  target.host_key_name = remote.instance;
  if (provider::is_pod(target.host)) target.proxy_command = os::own_program();
  return at_place(files, place, std::move(target));
}

provider::SshTarget worker_target(Files& files, const ClusterPlace& place, const ClusterFile& file,
                                  const HostAddress& host, const Environment& env) {
  return at_place(files, place, provider::ssh_target(host, auth_here(file.auth, env)));
}

std::string tunnel_socket(Files& files, const ClusterPlace& place) {
  return provider::control_folder(files, place.folder) + "/api.sock";
}

}  // namespace rubato::cli
