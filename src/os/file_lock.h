// FileLock: an advisory lock on a file, held until it is destroyed or the process ends.
#pragma once

#include <optional>
#include <string>

#include "os/fd.h"

namespace rubato::os {

class FileLock {
 public:
  // nullopt while another process (or another FileLock of this one) holds it. Makes the file, 0600; throws when it
  // cannot. The file stays: removing it would let two hold a lock of the same name.
  static std::optional<FileLock> try_take(const std::string& path);

  // The same of a folder that is there; nullopt also where that cannot be locked. The other one waits.
  static std::optional<FileLock> try_take_folder(const std::string& path);
  static std::optional<FileLock> take_folder(const std::string& path);

 private:
  explicit FileLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace rubato::os
