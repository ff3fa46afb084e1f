// PackageStore: packed working folders by the hash of their bytes, uploaded in parts, whole or not there.
#pragma once

#include <cstdint>
#include <string>

#include "head/offload.h"
#include "world/world.h"

namespace rubato::head {

class PackageStore {
 public:
  PackageStore(World& world, std::string folder, Offload offload)
      : files_(world.files), folder_(std::move(folder)), checks_(world.clock.loop(), std::move(offload)) {}

  struct Progress {
    uint64_t have = 0;
    bool complete = false;
  };
  // Throws a usage Error when `hash` is not one.
  Progress progress(const std::string& hash) const;

  // A part at `offset`, which must be where the last one ended (or before: what is there already is skipped). The last
  // part completes it: the hash is checked, and a package that differs is dropped with an Error. Who sends the last
  // part again while it is being checked waits for that.
  Task<Progress> put(std::string hash, uint64_t offset, uint64_t size, std::string bytes);

  // At most `size_max` bytes of a complete package. Throws kNotFound.
  std::string read(const std::string& hash, uint64_t offset, size_t size_max) const;
  uint64_t size(const std::string& hash) const;

 private:
  std::string path(const std::string& hash) const;
  Task<void> check(std::string hash, uint64_t size);  // and put it into its place

  Files& files_;
  std::string folder_;
  Chores<std::string> checks_;  // of packages that have come whole, by hash
};

inline constexpr uint64_t kPackageSizeMax = uint64_t{2} << 30;

}  // namespace rubato::head
