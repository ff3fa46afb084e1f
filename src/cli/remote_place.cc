#include "cli/remote_place.h"

#include <nlohmann/json.hpp>

#include "cli/document.h"
#include "core/error.h"
#include "core/text.h"

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

std::optional<RemoteHead> read_remote(Files& files, const ClusterPlace& place) {
  const auto text = files.read(place.remote_file());
  if (!text) return std::nullopt;
  const json document = json::parse(*text, nullptr, false);
  RemoteHead out;
  if (document.is_object()) out.host.host = raw_in(document, "host");
  if (out.host.host.empty()) {
    throw Error(ErrorCode::kFailed, "this file does not tell where the cluster's head is", place.remote_file(),
                "run rubato up with the cluster file again");
  }
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

void write_remote(Files& files, const ClusterPlace& place, const RemoteHead& remote) {
  const json document = {{"host", remote.host.host},
                         {"user", remote.host.user},
                         {"port", remote.host.port},
                         {"key", remote.key},
                         {"proxy_command", remote.proxy_command},
                         {"proxy_jump", remote.proxy_jump},
                         {"folder", remote.folder},
                         {"program", remote.program},
                         {"api_port", remote.api_port},
                         {"api_tls", remote.api_tls},
                         {"power_off", remote.power_off},
                         {"instance", remote.instance},
                         {"provider_folder", remote.provider_folder},
                         {"public_key", remote.public_key},
                         {"keyed", remote.keyed}};
  files.write_atomically(place.remote_file(), document.dump(2) + "\n");
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
