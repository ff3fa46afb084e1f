#include "os/machine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "core/text.h"
#include "os/cpu_set.h"

extern char** environ;

namespace rubato::os {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

int count_devices(const std::string& root) {
  std::error_code ignored;  // no such folder: no device
  int devices = 0;
  for (const auto& entry : fs::directory_iterator(root + "/dev", ignored)) {
    const std::string name = entry.path().filename();
    const auto number = strip_prefix(name, "nvidia");
    if (number && all_digits(*number) && !entry.is_directory(ignored)) ++devices;
  }
  if (devices > 0) return devices;
  const fs::directory_iterator gpus(root + "/proc/driver/nvidia/gpus", ignored);
  return static_cast<int>(std::distance(begin(gpus), end(gpus)));
}

// CUDA reads the list up to the first entry that names no device, so "-1" and "" hide all.
int count_visible(const std::string& list, int devices) {
  int visible = 0;
  for (const std::string_view part : split(list, ',')) {
    const std::string_view entry = trim(part);
    int index = 0;
    const bool number = all_digits(entry) && std::from_chars(entry.begin(), entry.end(), index).ec == std::errc{};
    const bool uuid = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!uuid && (!number || index >= devices)) break;
    ++visible;
  }
  return visible;
}

// The quota of the cgroup in whole CPUs, rounded up; nullopt when there is none.
std::optional<int> cpu_quota(const std::string& root) {
  double quota = 0, period = 0;
  if (const auto line = first_line(root + "/sys/fs/cgroup/cpu.max")) {  // version 2: "200000 100000" or "max 100000"
    if (!(std::istringstream(*line) >> quota >> period)) return std::nullopt;
  } else {
    const auto quota_line = first_line(root + "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");  // version 1: -1 is none
    const auto period_line = first_line(root + "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!quota_line || !period_line) return std::nullopt;
    std::istringstream(*quota_line) >> quota;
    std::istringstream(*period_line) >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

int cpus_by_affinity() {
  const int cpus = static_cast<int>(allowed_cpus().size());
  return std::max(1, cpus > 0 ? cpus : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string namespace_of(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? std::to_string(info.st_ino) : "0";
}

std::string host_name(const std::string& root) {
  if (!root.empty()) return first_line(root + "/proc/sys/kernel/hostname").value_or("localhost");
  char name[256] = {};  // the kernel's limit is 64; there may be no /proc in a chroot
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

// Two agents are on one machine when they share a boot, processes and network: a container or a network namespace
// is a machine of its own. /etc/machine-id is no help, it is copied with disk images.
std::string machine_id(const std::string& root, const std::string& hostname) {
  const std::string boot = first_line(root + "/proc/sys/kernel/random/boot_id").value_or(hostname);
  return boot + "." + namespace_of(root + "/proc/self/ns/pid") + "." + namespace_of(root + "/proc/self/ns/net");
}

}  // namespace

EnvironmentMap read_environment() {
  EnvironmentMap out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (const auto pair = split_once(*entry, '=')) out.emplace(pair->first, pair->second);
  }
  return out;
}

int count_gpus(const EnvironmentMap& env, const std::string& root) {
  int devices = count_devices(root);
  // Set by container runtimes. "all", "void" and empty say nothing beyond which devices are there.
  if (const auto it = env.find("NVIDIA_VISIBLE_DEVICES"); it != env.end()) {
    if (it->second == "none") return 0;
    const bool says_nothing = it->second.empty() || it->second == "all" || it->second == "void";
    if (!says_nothing) devices = std::min(devices, static_cast<int>(split(it->second, ',').size()));
  }
  const auto visible = env.find("CUDA_VISIBLE_DEVICES");
  return visible == env.end() ? devices : std::min(devices, count_visible(visible->second, devices));
}

int count_cpus(const std::string& root) {
  const int cpus = cpus_by_affinity();
  return std::min(cpus, cpu_quota(root).value_or(cpus));
}

WallTime wall_now() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

uint64_t entropy() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

std::string user_name(const std::string& root) {
  const std::string id = std::to_string(getuid());
  std::ifstream lines(root + "/etc/passwd");
  for (std::string line; std::getline(lines, line);) {
    // name:password:uid:...
    const std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() > 2 && fields[2] == id && !fields[0].empty()) return std::string(fields[0]);
  }
  return id;
}

MachineFacts read_machine_facts(const EnvironmentMap& env, const std::string& root) {
  MachineFacts facts;
  facts.pid = getpid();
  facts.hostname = host_name(root);
  facts.machine_id = machine_id(root, facts.hostname);
  facts.cpus = count_cpus(root);
  facts.gpus = count_gpus(env, root);
  return facts;
}

MachineFacts read_machine_facts() { return read_machine_facts(read_environment()); }

}  // namespace rubato::os
