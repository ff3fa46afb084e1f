#include "os/secret.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "os/files.h"

namespace rubato::os {

std::string read_secret(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    throw Error(ErrorCode::kUsage, fmt::format("cannot read the key file: {}", strerror(errno)), path);
  }
  if (facts.st_mode & 077) {
    throw Error(ErrorCode::kUsage, fmt::format("the key file can be read by others (mode {:o})", facts.st_mode & 0777),
                path, fmt::format("chmod 600 {}", shell_quote(path)));
  }
  const std::string bytes = RealFiles().read(path).value_or("");
  std::string secret(trim(bytes));
  if (secret.empty()) {
    throw Error(ErrorCode::kUsage, "the key file is empty", path,
                fmt::format("(umask 077; openssl rand -hex 32 > {}) and copy it to every machine", shell_quote(path)));
  }
  return secret;
}

}  // namespace rubato::os
