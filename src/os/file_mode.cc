#include "os/file_mode.h"

#include <sys/stat.h>

namespace rubato::os {

uint32_t usual_file_mode() {
  const mode_t mask = ::umask(077);  // it cannot be asked for without being set
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace rubato::os
