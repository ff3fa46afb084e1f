// What an agent of a cluster's node is told at its start.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "agent/worker_env.h"
#include "model/ids.h"
#include "model/resources.h"
#include "node/packages.h"
#include "world/folder_watch.h"
#include "world/http_server.h"
#include "world/in_place.h"
#include "world/network.h"

namespace rubato::node {

struct NodeSettings {
  NodeId node;
  Endpoint head;
  // Asked before each try to connect: a new head may listen elsewhere. Unset or nullopt: `head`.
  std::function<std::optional<Endpoint>()> find_head;
  // Another way to say where the head is, tried in turn with the first while that leads nowhere: a name that follows
  // the head when its address changes. Empty: there is none. Whoever connects by it calls `head_moved`.
  std::string head_name;
  std::function<void(Endpoint)> head_moved;
  std::string address;  // at which other nodes reach this one's workers
  std::string folder;   // holds jobs/, packages/, spool/, outputs/, checkpoints/ and copies/
  Resources resources;
  ChannelKey key;
  std::string python;
  agent::Environment environment;  // of the workers; CUDA_VISIBLE_DEVICES in it names the node's GPUs
  bool old_torch = false;
  // $RUBATO_OUTPUT is a folder here, outputs/JOB, and is delivered: the head's disk is not to be seen from here.
  bool own_disk = false;
  InPlaceHost* in_place = nullptr;  // null: its workers cannot change in place; it outlives the agent
  HttpServer* supervisor = nullptr;  // on loopback: serves AdaptDL's protocol; it outlives the agent
  WatchFolder watch_folder;          // by which finished checkpoints are known; unset: none is
  uint64_t checkpoint_bytes_per_s = uint64_t{256} << 20;  // to the head, and from it; 0: as fast as it goes
  std::string version;
  PackageStore::Unpack unpack = package_unpacker();
  PackageStore::Offload offload;  // of unpacking; unset: on the loop
};

}  // namespace rubato::node
