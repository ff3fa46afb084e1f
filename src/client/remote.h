// Remote: what commands do on the machines of a cluster that is elsewhere. Calls block; tests have a canned one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "provider/cloud_survey.h"
#include "provider/command_runner.h"
#include "provider/external_config.h"
#include "provider/head_machine.h"
#include "provider/node_setup.h"
#include "provider/ssh_target.h"
#include "terminal/flags.h"

namespace rubato::cli {

class Remote {
 public:
  virtual ~Remote() = default;

  // As CommandRunner's, on one machine after the other.
  virtual provider::CommandResult run(const provider::SshTarget& target, provider::Command command) = 0;
  virtual void upload(const provider::SshTarget& target, const std::string& local, const std::string& remote,
                      provider::SyncOptions options) = 0;
  virtual void download(const provider::SshTarget& target, const std::string& remote, const std::string& local,
                        provider::SyncOptions options) = 0;
  // The same into, and out of, a container on the machine.
  virtual void upload_inside(const provider::SshTarget& target, provider::ContainerSpec container,
                             const std::string& local, const std::string& remote, provider::SyncOptions options) = 0;
  virtual void download_inside(const provider::SshTarget& target, provider::ContainerSpec container,
                               const std::string& remote, const std::string& local, provider::SyncOptions options) = 0;
  // Of a file or folder here; as provider::tree_hash.
  virtual std::string tree_hash(const std::string& path, provider::SyncOptions options) = 0;
  // The name of our own program on other machines: it has a hash of it.
  virtual std::string program_name() = 0;
  // Our own program, on the machine; its path there.
  virtual std::string put_program(const provider::SshTarget& target) = 0;

  // On many machines at once; what happened on each, in their order.
  struct HostCommand {
    provider::SshTarget target;
    provider::Command command;
  };
  struct Outcome {
    std::optional<provider::CommandResult> result;
    std::optional<Error> error;
  };
  virtual std::vector<Outcome> run_all(std::vector<HostCommand> host_commands) = 0;

  // Opens the connection that later calls and commands share, if it is not open. Throws with the reason and the fix.
  virtual void connect(const provider::SshTarget& target) = 0;
  // Lets `socket` here lead to 127.0.0.1:port there, from now on.
  virtual void forward(const provider::SshTarget& target, const std::string& socket, uint16_t port) = 0;
  virtual void disconnect(const provider::SshTarget& target) = 0;
  // Every shared connection whose socket is in the cluster's control folder.
  virtual void disconnect_all(const std::string& cluster_folder) = 0;

  // The head's machine as the file's provider makes it, or finds it. `settings` lack environment and version.
  virtual provider::HeadMachine make_head_machine(const ClusterFile& file, provider::HeadMachineSettings settings) = 0;
  // The head's machine, made from another machine; nothing is changed. nullopt: the provider cannot find it from the
  // file alone.
  virtual std::optional<provider::HeadMachine> find_head_machine(const ClusterFile& file,
                                                                 provider::HeadMachineSettings settings) = 0;
  // Every machine of the cluster that the provider knows of here, and what was made around them.
  virtual provider::HeadMachine end_head_machine(const ClusterFile& file, provider::HeadMachineSettings settings) = 0;
  // Starts a provider's program and asks it what it is; nothing is made.
  virtual provider::ExternalGreeting greet_external(const ClusterFile& file, provider::ExternalSettings settings) = 0;

  // What spot machines of the file's node types cost now; empty where the provider does not say.
  virtual std::vector<provider::LivePrice> live_prices(const ClusterFile& file) = 0;

  // A command there with our terminal, or what we have instead. Its exit code, as a shell tells it; 255: ssh's own.
  virtual int in_front(const provider::SshTarget& target, const provider::SshOptions& options) = 0;
  // The same for a program on this machine.
  virtual int in_front_here(const std::vector<std::string>& argv) = 0;
};

// "12 files, 3.4 MiB"; "nothing new to send".
std::string sent_text(const provider::SyncSent& sent);

// A person who types commands does not wait for a new connection each time.
inline constexpr Duration kLaptopPersist = 600s;

std::unique_ptr<Remote> real_remote(const Environment& env);

}  // namespace rubato::cli
