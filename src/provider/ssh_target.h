// SshTarget: how one machine is reached with OpenSSH's client, and the words for it. All of it is pure: `rubato attach`
// and `exec` replace themselves by these words, SshRunner starts them as processes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "model/cluster_file.h"
#include "world/files.h"

namespace rubato::provider {

struct SshTarget {
  std::string host;
  std::string user;            // empty: ssh's own choice
  int port = 0;                // 0: ssh's own choice, 22 unless its configuration says otherwise
  std::string key_file;        // empty: the agent's keys and the usual files
  std::string proxy_command;   // for ssh's ProxyCommand
  std::string proxy_jump;      // "[user@]host[:port]", several with commas
  std::string host_key_name;   // under which its key is known, where addresses go from machine to machine
  std::string known_hosts;     // the cluster's own file: a host is taken at its first word, and held to it
  std::string control_folder;  // of control_folder(); empty: each call makes its own connection
  bool operator==(const SshTarget&) const = default;
};

// What the cluster file says of a host, with the cluster's user, port, key and proxy where the host has none.
SshTarget ssh_target(const HostAddress& host, const AuthConfig& auth);

struct SshForward {
  std::string listen;  // "8265", "127.0.0.1:8265", or a path for a Unix socket
  std::string to;      // "127.0.0.1:8265" as seen from the host
};

struct SshOptions {
  bool tty = false;   // -tt: a terminal there even without one here
  bool batch = true;  // never ask a question
  bool shell = true;  // false: -N, for forwards only
  Duration connect_timeout = 10s;
  Duration control_persist = 60s;  // how long a connection stays open for the next call; 0: ends with the call
  std::vector<SshForward> forwards;
  std::string command;  // for the login shell there; empty: that shell itself
};

// Throws kUsage for a host or user that ssh would take for an option.
std::vector<std::string> ssh_argv(const SshTarget& target, const SshOptions& options);

// "ssh -O": what the master that serves this target is asked: "check", "exit", "forward", "cancel".
std::vector<std::string> ssh_control_argv(const SshTarget& target, const std::string& request,
                                          const std::vector<SshForward>& forwards);

// For rsync's -e: the words before the host.
std::string ssh_command_for_rsync(const SshTarget& target, Duration connect_timeout);

// "user@host:port", for people; parts that are ssh's own choice are left out.
std::string to_string(const SshTarget& target);

// The socket of the master connection; empty without a control folder. Under 90 bytes: ssh adds 17 while it makes the
// socket, and the kernel takes 107.
std::string control_path(const SshTarget& target);

// A folder of 0700 for sockets of this cluster whose path is short enough: in the cluster's folder, or a temporary one
// that the cluster's folder remembers.
std::string control_folder(Files& files, const std::string& cluster_folder);

// What ssh meant when it ended with 255: an Error with the fix.
Error explain_ssh(const SshTarget& target, std::string_view text);

}  // namespace rubato::provider
