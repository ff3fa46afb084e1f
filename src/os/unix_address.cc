#include "os/unix_address.h"

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace rubato::os {

UnixAddress::UnixAddress(const std::string& path) {
  std::string named = path;
  if (path.size() >= sizeof address_.sun_path) {
    const size_t slash = path.rfind('/');
    const std::string folder = path.substr(0, slash);
    folder_ = Fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder_) {
      throw Error(ErrorCode::kFailed, "cannot open the folder of the socket: " + std::string(std::strerror(errno)),
                  folder);
    }
    named = "/proc/self/fd/" + std::to_string(folder_.get()) + path.substr(slash);
  }
  if (named.size() >= sizeof address_.sun_path) {
    throw Error(ErrorCode::kFailed, "the name of the socket's file is too long", path, "use a shorter one");
  }
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path, named.c_str(), named.size() + 1);
}

}  // namespace rubato::os
