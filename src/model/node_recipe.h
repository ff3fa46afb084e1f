// NodeRecipe: how a node is reached, set up, contained and ended. Compiled from a cluster file when the file is
// accepted, and written into the journal with it; each node refers to the one that it was made with, by its id. So a
// node is ended as it was made, whatever the newest file says.
//
// What makes the machine itself (node_config) is not here: NodeType has it, and the launch hash.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/ray_commands.h"

namespace rubato {

struct ClusterFile;

// What runs on a node of a type, merged as Ray merges it.
struct NodeCommands {
  std::vector<std::string> host, setup;
  StartCommands start;
  bool login_shells = true;
  bool operator==(const NodeCommands&) const = default;
};

// The container of a node of a type.
struct NodeContainer {
  std::string image, name;
  bool pull_before_run = true;
  std::vector<std::string> run_options;
  bool operator==(const NodeContainer&) const = default;
};

struct ContainerSpec {
  NodeContainer container;
  bool use_podman = false;
  bool detect_gpus = true;      // pass the machine's GPUs on when it has some
  bool detect_shm_size = true;  // a third of the memory, as Ray does
  bool operator==(const ContainerSpec&) const = default;
};

struct NodeRecipe {
  std::string cluster;  // the folder on the machine has this name
  // ---- reach ----
  std::string ssh_user;  // empty: who runs the head
  int ssh_port = 22;
  bool fresh_machine = false;  // it was just made: it may refuse logins for a while
  // ---- set up ----
  std::vector<std::string> mounts;  // paths on the node; `up` has put their contents beside the head
  std::vector<std::string> exclude, ignore_files;
  NodeCommands commands;
  // ---- contain, and so end ----
  std::optional<ContainerSpec> container;
  bool operator==(const NodeRecipe&) const = default;

  // Whether an agent made by the other recipe is in the same place: on the machine, or in the container of that name.
  bool same_place(const NodeRecipe& other) const;
};

// Of a file without errors.
NodeRecipe node_recipe_of(const ClusterFile& file, const std::string& type, bool head);

nlohmann::json to_json(const NodeRecipe& recipe);
NodeRecipe node_recipe_from_json(const nlohmann::json& json);  // throws a usage Error for what is none

// The same for the same recipe.
std::string recipe_id(const NodeRecipe& recipe);

}  // namespace rubato
