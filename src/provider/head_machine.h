// HeadMachine: the machine of a cluster's head, made and ended from a person's machine by a provider that can do so.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/task.h"
#include "model/cluster_file.h"
#include "world/world.h"

namespace rubato::provider {

struct HeadMachine {
  HostAddress host;
  std::string address;   // where other nodes reach it
  std::string instance;  // the cloud's name of it; empty: it has none
  std::string key_file;  // private: what lets a person in, where the provider had to make one
  nlohmann::json carry;  // for the head: its provider reads it there
  std::vector<HostAddress> hosts;
  bool machines_stay = false;
  bool found = true;               // of end, of find: something was there
  std::vector<std::string> notes;  // for people: what was made, what was kept and why
};

struct HeadMachineSettings {
  std::string folder;          // where the cluster file lies
  std::string cluster_folder;  // of the cluster, here
  std::vector<std::string> env;
  std::string version;                           // rubato's
  std::vector<std::string> authorized_keys;      // public keys that its machines have to let in
  std::function<void(std::string)> on_progress;  // for people: what is being done
};

struct HeadMachineMaker {
  // The file outlives the call.
  using Call = Task<HeadMachine> (*)(World& world, const ClusterFile& file, HeadMachineSettings settings);
  // The head's machine: the one there is, or a new one, with all that it needs around it. Returns when its address is
  // known; ssh may not answer yet. May be repeated.
  Call make = nullptr;
  // Every machine of the cluster that the provider knows of, the head's last, and what `make` has made around them.
  Call end = nullptr;
  // The head's machine that somebody else has made; changes nothing. `found` is false where none runs. Null: this kind
  // of provider cannot find it from its file alone.
  Call find = nullptr;
};

// Of a kind of provider; empty for one that cannot. The list is src/clouds/registry.cc.
HeadMachineMaker head_machine_maker(std::string_view provider_type);

}  // namespace rubato::provider
