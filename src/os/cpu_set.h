// CpuSet: processors that a process is bound to.
#pragma once

#include <sys/types.h>

#include <vector>

namespace rubato::os {

constexpr int kCpusMax = 16384;  // more than any kernel's mask today (CONFIG_NR_CPUS is at most 8192)

class CpuSet {
 public:
  CpuSet() = default;
  explicit CpuSet(const std::vector<int>& cpus);
  explicit operator bool() const { return !mask_.empty(); }
  // The process, and what it starts from now on; 0 is the caller. False: errno says why. One system call, so that it
  // may stand between fork and exec.
  bool bind(pid_t pid) const;

 private:
  std::vector<unsigned long> mask_;
};

// Those that this process may run on, in order.
std::vector<int> allowed_cpus();

}  // namespace rubato::os
