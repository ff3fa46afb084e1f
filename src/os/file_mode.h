// The mode of files that are made for people to pass on, unlike those of a cluster, which nobody else may read.
#pragma once

#include <cstdint>

namespace rubato::os {

// What this process's umask leaves of 0666. Not for threads: the umask is the whole process's.
uint32_t usual_file_mode();

}  // namespace rubato::os
