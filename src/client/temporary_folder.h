// TemporaryFolder: goes with its contents, whatever happens.
#pragma once

#include <string>

#include "os/files.h"

namespace rubato::cli {

class TemporaryFolder {
 public:
  TemporaryFolder(os::RealFiles& files, const std::string& prefix)
      : files_(files), path_(files.make_temporary_folder(prefix)) {}
  ~TemporaryFolder() { files_.remove_tree(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  os::RealFiles& files_;
  const std::string path_;
};

}  // namespace rubato::cli
