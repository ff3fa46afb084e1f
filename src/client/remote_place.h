// remote.json: of a cluster whose head is another machine, how this one reaches it. Written by `up`, gone with `down`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cluster_home.h"
#include "model/cluster_file.h"
#include "provider/ssh_target.h"
#include "world/files.h"

namespace rubato::cli {

struct RemoteHead {
  HostAddress host;
  std::string key, proxy_command, proxy_jump;
  std::string folder;   // of the cluster, on the head's machine
  std::string program;  // rubato, on the head's machine
  uint16_t api_port = 0;
  bool api_tls = false;
  bool power_off = false;          // a provider made it: it goes for good when it is off and `down` has seen so
  std::string instance;            // of a provider that makes machines
  std::string provider_folder;     // where a provider's program of one's own belongs to: the cluster file's
  std::string public_key;          // of the head: what its workers let in
  std::vector<std::string> keyed;  // the workers that know it
  bool operator==(const RemoteHead&) const = default;
};

// nullopt: the cluster is one of this machine, or not known. Throws when the file is damaged.
std::optional<RemoteHead> read_remote(Files& files, const ClusterPlace& place);
void write_remote(Files& files, const ClusterPlace& place, const RemoteHead& remote);

// machines.json: every machine that has ever belonged to a cluster of other machines, and how it is reached. `up`
// writes it before anything is put there; `down` leaves it; a purge takes off what it has cleaned.
struct KnownMachines {
  std::optional<RemoteHead> head;
  std::vector<RemoteHead> workers;  // of each, only the way there
  std::string public_key;           // of the head
  bool empty() const { return !head && workers.empty(); }
};
KnownMachines read_machines(Files& files, const ClusterPlace& place);  // empty when there is no file
void write_machines(Files& files, const ClusterPlace& place, const KnownMachines& machines);

// How a worker of the file is reached, to be kept.
RemoteHead worker_from(const ClusterFile& file, const HostAddress& host, const Environment& env);

// As the cluster file says, before anything was found out there.
RemoteHead remote_from(const ClusterFile& file, const Environment& env);

// With the known hosts and the control folder of this place; makes the folder.
provider::SshTarget target_of(Files& files, const ClusterPlace& place, const RemoteHead& remote);
// Another host of the same cluster.
provider::SshTarget worker_target(Files& files, const ClusterPlace& place, const ClusterFile& file,
                                  const HostAddress& host, const Environment& env);

// "~/x" with the home of `env`.
std::string expand_home(const std::string& path, const Environment& env);

// The socket here that leads to the head's API.
std::string tunnel_socket(Files& files, const ClusterPlace& place);

}  // namespace rubato::cli
