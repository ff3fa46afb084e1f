// PackageStore: the packed working directories that jobs on this node need, fetched from the head and unpacked once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/channel.h"
#include "core/error.h"
#include "core/scope.h"
#include "elastic/node_wire.h"
#include "world/world.h"

namespace rubato::node {

class PackageStore {
 public:
  // Makes the folder `target` out of the package in `file`, if that has this hash: archive::unpack. The target is there
  // whole afterwards, or an Error is thrown.
  using Unpack =
      std::function<void(Files& files, const std::string& file, const std::string& hash, const std::string& target)>;

  // Runs work that takes long beside the loop, so that beats go on. Unset: on the loop.
  using Offload = std::function<Task<void>(std::function<void()> work)>;

  // In `folder`: HASH/ is an unpacked package, whole as soon as it is there.
  PackageStore(World& world, std::string folder, Unpack unpack, Offload offload = nullptr);

  // The folder with the package. It takes as long as it takes for a head to send it; throws when what came is no
  // package, and may then be asked again.
  Task<std::string> get(std::string hash);

  // While a head is there: how to ask it. What is wanted is asked for at once.
  using Ask = std::function<void(const elastic::PackageWanted&)>;
  void connected(Ask ask);
  void disconnected() { ask_ = nullptr; }
  void take(const elastic::PackagePart& part);

 private:
  struct Fetch {
    explicit Fetch(Loop& loop) : changed(loop) {}
    Event changed;
    std::unique_ptr<Appender> file;
    uint64_t have = 0;
    std::optional<Error> error;
    bool unpacking = false;
    bool done = false;
  };
  std::string part_path(const std::string& hash) const { return folder_ + "/" + hash + ".part"; }
  Task<void> finish(std::string hash, std::shared_ptr<Fetch> fetch);
  void close(const std::string& hash, Fetch& fetch);

  World& world_;
  const std::string folder_;
  Unpack unpack_;
  Offload offload_;
  Ask ask_;
  std::map<std::string, std::shared_ptr<Fetch>> fetches_;  // that are wanted now
  Scope scope_;
};

PackageStore::Unpack package_unpacker();  // archive::unpack

// A copy of everything in a folder that shares nothing with it. Gives others a turn after each piece.
Task<void> copy_tree(World& world, std::string from, std::string to);

}  // namespace rubato::node
