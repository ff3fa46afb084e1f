#include "os/cpu_set.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace rubato::os {

namespace {
constexpr int kBits = 8 * sizeof(unsigned long);
}  // namespace

CpuSet::CpuSet(const std::vector<int>& cpus) {
  for (const int cpu : cpus) {
    const auto word = static_cast<size_t>(cpu / kBits);
    if (mask_.size() <= word) mask_.resize(word + 1);
    mask_[word] |= 1UL << (cpu % kBits);
  }
}

bool CpuSet::bind(pid_t pid) const {
  return ::syscall(SYS_sched_setaffinity, pid, mask_.size() * sizeof(unsigned long), mask_.data()) == 0;
}

std::vector<int> allowed_cpus() {
  std::vector<unsigned long> mask(kCpusMax / kBits);
  const long bytes = ::syscall(SYS_sched_getaffinity, 0, mask.size() * sizeof(unsigned long), mask.data());
  std::vector<int> cpus;
  for (int cpu = 0; cpu < bytes * 8; ++cpu) {
    if (mask[static_cast<size_t>(cpu / kBits)] & (1UL << (cpu % kBits))) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace rubato::os
