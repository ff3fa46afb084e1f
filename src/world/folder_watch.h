// FolderWatch: what happens to the names in one folder. It tells a file that was renamed into place, which is whole,
// from one that is being written there.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rubato {

class FolderWatch {
 public:
  enum class Kind {
    kPlaced,   // renamed to this name, or a link that was made: whole from its first moment
    kWritten,  // made or opened for writing under this name
    kGone,     // removed, or renamed to another name
    kMissed,   // so much happened that some of it is not known; no name
  };
  struct Change {
    Kind kind = Kind::kMissed;
    std::string name;
  };
  virtual ~FolderWatch() = default;
  // Since the last call, in order. Never waits.
  virtual std::vector<Change> take() = 0;
};

// Null where a folder cannot be watched: then nothing in it is known to be whole.
using WatchFolder = std::function<std::unique_ptr<FolderWatch>(const std::string& folder)>;

}  // namespace rubato
