#include "provider/ssh_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/sha256.h"
#include "core/text.h"
#include "provider/pod_address.h"

namespace rubato::provider {

namespace {

constexpr size_t kControlPathMax = 90;
constexpr size_t kControlNameSize = 16;

// ssh expands %h and the like in file names, and splits values at spaces.
std::string file_value(std::string_view path) {
  std::string value;
  for (const char c : path) {
    if (c == '%') value += '%';
    value += c;
  }
  return value.find_first_of(" \t") == std::string::npos ? value : fmt::format("\"{}\"", value);
}

void add_option(std::vector<std::string>& argv, std::string option) {
  argv.emplace_back("-o");
  argv.push_back(std::move(option));
}

int64_t whole_seconds(Duration duration) { return std::max<int64_t>(1, (to_ms(duration) + 999) / 1000); }

void check_word(std::string_view what, std::string_view word) {
  const auto odd = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; };
  if (word.starts_with('-') || std::ranges::any_of(word, odd)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' cannot be the {} of an SSH connection", word, what));
  }
}

// As ssh's -J does, but with the cluster's known hosts and key for the host in between, and without questions.
std::string jump_command(const SshTarget& target) {
  std::vector<std::string> quoted = {"ssh"};
  add_option(quoted, "BatchMode=yes");
  add_option(quoted, "StrictHostKeyChecking=accept-new");
  if (!target.known_hosts.empty()) add_option(quoted, "UserKnownHostsFile=" + file_value(target.known_hosts));
  if (!target.key_file.empty()) add_option(quoted, "IdentityFile=" + file_value(target.key_file));
  std::string last = target.proxy_jump;
  const size_t comma = last.rfind(',');
  if (comma != std::string::npos) {
    quoted.insert(quoted.end(), {"-J", last.substr(0, comma)});
    last.erase(0, comma + 1);
  }
  const std::optional<HostAddress> host = parse_host_address(last);
  if (!host) throw Error(ErrorCode::kUsage, fmt::format("'{}' is no host to jump over", last));
  if (!host->user.empty()) quoted.insert(quoted.end(), {"-l", host->user});
  if (host->port != 0) quoted.insert(quoted.end(), {"-p", std::to_string(host->port)});
  check_word("host", host->host);
  check_word("user", host->user);
  // The value is expanded once more by the ssh that starts it, but for the part that it is to expand.
  std::string command;
  for (const char c : shell_join(quoted)) {
    if (c == '%') command += '%';
    command += c;
  }
  return command + " -W '[%h]:%p' -- " + shell_quote(host->host);
}

std::vector<std::string> words_before_host(const SshTarget& target, Duration connect_timeout, bool batch) {
  check_word("host", target.host);
  check_word("user", target.user);
  check_word("host key's name", target.host_key_name);
  std::vector<std::string> argv = {"ssh"};
  if (batch) add_option(argv, "BatchMode=yes");
  add_option(argv, "LogLevel=ERROR");
  add_option(argv, "StrictHostKeyChecking=accept-new");
  if (!target.known_hosts.empty()) add_option(argv, "UserKnownHostsFile=" + file_value(target.known_hosts));
  if (!target.host_key_name.empty()) add_option(argv, "HostKeyAlias=" + target.host_key_name);
  if (!target.key_file.empty()) {
    add_option(argv, "IdentityFile=" + file_value(target.key_file));
    add_option(argv, "IdentitiesOnly=yes");
  }
  add_option(argv, fmt::format("ConnectTimeout={}", whole_seconds(connect_timeout)));
  // A host that is gone is noticed after 15 s of silence.
  add_option(argv, "ServerAliveInterval=5");
  add_option(argv, "ServerAliveCountMax=3");
  if (!target.proxy_command.empty()) {
    add_option(argv, "ProxyCommand=" + target.proxy_command);
  } else if (!target.proxy_jump.empty()) {
    add_option(argv, "ProxyCommand=" + jump_command(target));
  }
  if (!target.user.empty()) argv.insert(argv.end(), {"-l", target.user});
  if (target.port != 0) argv.insert(argv.end(), {"-p", std::to_string(target.port)});
  return argv;
}

void add_control(std::vector<std::string>& argv, const SshTarget& target, Duration persist) {
  const std::string path = control_path(target);
  if (path.empty()) return;
  add_option(argv, "ControlMaster=auto");
  add_option(argv, "ControlPath=" + file_value(path));
  add_option(argv, persist > 0s ? fmt::format("ControlPersist={}", whole_seconds(persist)) : "ControlPersist=no");
}

}  // namespace

SshTarget ssh_target(const HostAddress& host, const AuthConfig& auth) {
  SshTarget target;
  target.host = host.host;
  target.user = host.user.empty() ? auth.ssh_user : host.user;
  target.port = host.port == 0 ? auth.ssh_port : host.port;
  target.key_file = auth.ssh_private_key;
  target.proxy_command = auth.ssh_proxy_command;
  target.proxy_jump = auth.ssh_proxy_jump;
  return target;
}

std::vector<std::string> ssh_argv(const SshTarget& target, const SshOptions& options) {
  if (is_pod(target.host)) return pod_argv(target, options);
  std::vector<std::string> argv = words_before_host(target, options.connect_timeout, options.batch);
  add_control(argv, target, options.control_persist);
  if (!options.forwards.empty()) {
    add_option(argv, "ExitOnForwardFailure=yes");
    add_option(argv, "StreamLocalBindUnlink=yes");
  }
  for (const SshForward& forward : options.forwards) {
    argv.insert(argv.end(), {"-L", fmt::format("{}:{}", forward.listen, forward.to)});
  }
  if (options.tty) argv.emplace_back("-tt");
  if (!options.shell) argv.emplace_back("-N");
  argv.insert(argv.end(), {"--", target.host});
  if (!options.command.empty()) argv.push_back(options.command);
  return argv;
}

std::vector<std::string> ssh_control_argv(const SshTarget& target, const std::string& request,
                                          const std::vector<SshForward>& forwards) {
  std::vector<std::string> argv = words_before_host(target, SshOptions{}.connect_timeout, true);
  add_option(argv, "ControlPath=" + file_value(control_path(target)));
  add_option(argv, "StreamLocalBindUnlink=yes");
  argv.insert(argv.end(), {"-O", request});
  for (const SshForward& forward : forwards) {
    argv.insert(argv.end(), {"-L", fmt::format("{}:{}", forward.listen, forward.to)});
  }
  argv.insert(argv.end(), {"--", target.host});
  return argv;
}

// rsync takes quotes, but no backslashes, and quotes inside of them are doubled.
std::string ssh_command_for_rsync(const SshTarget& target, Duration connect_timeout) {
  std::vector<std::string> argv = words_before_host(target, connect_timeout, true);
  add_control(argv, target, SshOptions{}.control_persist);
  std::string quoted;
  for (const std::string& word : argv) {
    if (!quoted.empty()) quoted += ' ';
    if (word.find_first_of(" \t'\"") == std::string::npos) {
      quoted += word;
      continue;
    }
    quoted += '\'';
    for (const char c : word) {
      if (c == '\'') quoted += '\'';
      quoted += c;
    }
    quoted += '\'';
  }
  return quoted;
}

std::string to_string(const SshTarget& target) {
  if (const auto pod = parse_pod_address(target.host)) return fmt::format("pod {}/{}", pod->namespace_name, pod->pod);
  HostAddress address;
  address.user = target.user;
  address.host = target.host;
  address.port = target.port == 22 ? 0 : target.port;
  return to_string(address);
}

std::string control_path(const SshTarget& target) {
  if (target.control_folder.empty() || is_pod(target.host)) return {};
  Sha256 hash;
  for (const std::string& part : {target.host, target.user, std::to_string(target.port), target.key_file,
                                  target.proxy_command, target.proxy_jump, target.known_hosts}) {
    hash.update(std::to_string(part.size()) + ":" + part);
  }
  if (!target.host_key_name.empty()) hash.update(target.host_key_name);
  return fmt::format("{}/{}", target.control_folder, hash.hex().substr(0, kControlNameSize));
}

std::string control_folder(Files& files, const std::string& cluster_folder) {
  std::string folder = cluster_folder + "/ssh";
  files.make_folders(folder);
  files.set_mode(folder, 0700);
  if (folder.size() + 1 + kControlNameSize <= kControlPathMax) return folder;
  const std::string note = folder + "/control-folder";
  const std::string kept(trim(files.read(note).value_or("")));
  if (!kept.empty() && files.exists(kept)) return kept;
  const std::string made = files.make_temporary_folder("rubato-ssh-");
  files.write_atomically(note, made + "\n");
  return made;
}

}  // namespace rubato::provider
