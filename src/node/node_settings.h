// What an agent of a cluster's node is told at its start.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "agent/worker_env.h"
#include "model/ids.h"
#include "model/resources.h"
#include "node/packages.h"
#include "world/http_server.h"
#include "world/network.h"

namespace rubato::node {

struct NodeSettings {
  NodeId node;
  Endpoint head;
  // Asked before each try to connect: a new head may listen elsewhere. Unset or nullopt: `head`.
  std::function<std::optional<Endpoint>()> find_head;
  std::string address;  // at which other nodes reach this one's workers
  std::string folder;   // holds jobs/, packages/, spool/ and outputs/
  Resources resources;
  ChannelKey key;
  std::string python;
  agent::Environment environment;  // of the workers; CUDA_VISIBLE_DEVICES in it names the node's GPUs
  bool old_torch = false;
  // $RUBATO_OUTPUT is a folder here, outputs/JOB, and is delivered: the head's disk is not to be seen from here.
  bool own_disk = false;
  HttpServer* supervisor = nullptr;  // on loopback: serves AdaptDL's protocol; it outlives the agent
  std::string version;
  PackageStore::Unpack unpack = package_unpacker();
  PackageStore::Offload offload;  // of unpacking; unset: on the loop
};

}  // namespace rubato::node
