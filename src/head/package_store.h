// PackageStore: packed working folders by the hash of their bytes, uploaded in parts, whole or not there.
#pragma once

#include <cstdint>
#include <string>

#include "world/files.h"

namespace rubato::head {

class PackageStore {
 public:
  PackageStore(Files& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  struct Progress {
    uint64_t have = 0;
    bool complete = false;
  };
  // Throws a usage Error when `hash` is not one.
  Progress progress(const std::string& hash) const;

  // A part at `offset`, which must be where the last one ended (or before: what is there already is skipped). The last
  // part completes it: the hash is checked, and a package that differs is dropped with an Error.
  Progress put(const std::string& hash, uint64_t offset, uint64_t size, const std::string& bytes);

  // At most `size_max` bytes of a complete package. Throws kNotFound.
  std::string read(const std::string& hash, uint64_t offset, size_t size_max) const;
  uint64_t size(const std::string& hash) const;

 private:
  std::string path(const std::string& hash) const;

  Files& files_;
  std::string folder_;
};

inline constexpr uint64_t kPackageSizeMax = uint64_t{2} << 30;
inline constexpr size_t kPackagePartMax = size_t{4} << 20;  // of one request

}  // namespace rubato::head
