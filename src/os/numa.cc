#include "os/numa.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "os/cpu_set.h"

namespace rubato::os {
namespace {

namespace fs = std::filesystem;
using Cpus = std::set<int>;

std::optional<std::string> kernel_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int> number_in(std::string_view text) {
  text = trim(text);
  int value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc{} || end != text.end()) return std::nullopt;
  return value;
}

// "0-2,4,6-7"
Cpus parse_ranges(std::string_view text) {
  Cpus all;
  for (const std::string_view part : split(text, ',')) {
    const auto ends = split_once(part, '-');
    const std::optional<int> first = number_in(ends ? ends->first : part);
    const std::optional<int> last = ends ? number_in(ends->second) : first;
    if (!first || !last || *first < 0 || *last >= kCpusMax) continue;
    for (int cpu = *first; cpu <= *last; ++cpu) all.insert(cpu);
  }
  return all;
}

std::string value_of(const std::string& file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto pair = split_once(line, ':');
    if (pair && trim(pair->first) == key) return std::string(trim(pair->second));
  }
  return "";
}

struct Gpu {
  std::string pci;   // "0000:dc:00.0"
  std::string uuid;  // empty: not known
};

bool is_nvidia_gpu(const std::string& device) {
  const std::string vendor = kernel_line(device + "/vendor").value_or("");
  const std::string kind = kernel_line(device + "/class").value_or("");
  return vendor == "0x10de" && (kind.starts_with("0x0300") || kind.starts_with("0x0302"));
}

// The driver's list, else that of the PCI bus; by address, as nvidia-smi numbers them.
std::vector<Gpu> list_gpus(const std::string& root) {
  std::vector<Gpu> gpus;
  std::error_code ignored;  // no such folder: none
  for (const auto& entry : fs::directory_iterator(root + "/proc/driver/nvidia/gpus", ignored)) {
    gpus.push_back({entry.path().filename(), value_of(entry.path().string() + "/information", "GPU UUID")});
  }
  if (gpus.empty()) {
    for (const auto& entry : fs::directory_iterator(root + "/sys/bus/pci/devices", ignored)) {
      if (is_nvidia_gpu(entry.path())) gpus.push_back({entry.path().filename(), ""});
    }
  }
  std::ranges::sort(gpus, {}, &Gpu::pci);
  return gpus;
}

// CUDA reads the list up to the first entry that names no device.
std::vector<Gpu> visible(const std::vector<Gpu>& gpus, const EnvironmentMap& env) {
  const auto list = env.find("CUDA_VISIBLE_DEVICES");
  if (list == env.end()) return gpus;
  std::vector<Gpu> seen;
  for (const std::string_view part : split(list->second, ',')) {
    const std::string_view entry = trim(part);
    const std::optional<int> index = number_in(entry);
    const auto named = std::ranges::find_if(
        gpus, [&](const Gpu& gpu) { return entry.starts_with("GPU-") && gpu.uuid.starts_with(entry); });
    if (index && *index >= 0 && *index < static_cast<int>(gpus.size())) {
      seen.push_back(gpus[static_cast<size_t>(*index)]);
    } else if (named != gpus.end()) {
      seen.push_back(*named);
    } else {
      break;
    }
  }
  return seen;
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kFailed, "--numa-binding: " + why, "",
              "workers are bound to the processors near their GPUs; run without it here");
}

class Topology {
 public:
  Topology(const EnvironmentMap& env, const std::vector<int>& allowed, std::string root)
      : root_(std::move(root)), allowed_(allowed.begin(), allowed.end()), gpus_(visible(list_gpus(root_), env)) {
    for (const Gpu& gpu : gpus_) nodes_.push_back(node_of(gpu));
  }

  Cpus near(NumaBinding binding, int local_rank) const {
    if (local_rank >= static_cast<int>(gpus_.size())) {
      refuse(fmt::format("there is no GPU for local rank {} (GPUs that CUDA would show: {})", local_rank,
                         gpus_.size()));
    }
    const int node = nodes_[static_cast<size_t>(local_rank)];
    Cpus found;
    switch (binding) {
      case NumaBinding::kNode:
        found = cpus_of(node);
        break;
      case NumaBinding::kSocket:
        found = cpus_of_socket(node);
        break;
      case NumaBinding::kExclusive:
        found = exclusive_share(node, local_rank);
        break;
      case NumaBinding::kCoreComplex:
        found = core_complex(node, local_rank);
        break;
    }
    if (found.empty()) refuse(fmt::format("NUMA node {} has no processor that may be used", node));
    return found;
  }

 private:
  std::string cpu_file(int cpu, const std::string& name) const {
    return fmt::format("{}/sys/devices/system/cpu/cpu{}/{}", root_, cpu, name);
  }

  // A machine with a single node says -1.
  int node_of(const Gpu& gpu) const {
    const std::string pci = to_lower(gpu.pci);
    const auto line = kernel_line(fmt::format("{}/sys/bus/pci/devices/{}/numa_node", root_, pci));
    const std::optional<int> node = line ? number_in(*line) : std::nullopt;
    if (!node) refuse(fmt::format("the NUMA node of the GPU at {} is not known", pci));
    return std::max(*node, 0);
  }

  Cpus cpus_of(int node) const {
    const auto line = kernel_line(fmt::format("{}/sys/devices/system/node/node{}/cpulist", root_, node));
    if (!line) refuse(fmt::format("the processors of NUMA node {} are not known", node));
    Cpus usable;
    std::ranges::set_intersection(parse_ranges(*line), allowed_, std::inserter(usable, usable.end()));
    return usable;
  }

  std::optional<int> socket_of(const Cpus& cpus) const {
    if (cpus.empty()) return std::nullopt;
    const auto line = kernel_line(cpu_file(*cpus.begin(), "topology/physical_package_id"));
    const std::optional<int> socket = line ? number_in(*line) : std::nullopt;
    if (!socket) refuse(fmt::format("the socket of processor {} is not known", *cpus.begin()));
    return socket;
  }

  Cpus cpus_of_socket(int node) const {
    const std::optional<int> socket = socket_of(cpus_of(node));
    Cpus all;
    const auto nodes = kernel_line(root_ + "/sys/devices/system/node/possible");
    for (const int other : parse_ranges(nodes.value_or(std::to_string(node)))) {
      std::error_code ignored;
      // A possible node need not be there.
      if (!fs::exists(fmt::format("{}/sys/devices/system/node/node{}", root_, other), ignored)) continue;
      const Cpus cpus = cpus_of(other);
      if (socket_of(cpus) == socket) all.insert(cpus.begin(), cpus.end());
    }
    return all;
  }

  // How many of the GPUs of that node there are, and which of them is this one.
  std::pair<size_t, size_t> place_among_gpus(int node, int index) const {
    size_t count = 0, place = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i] != node) continue;
      if (i < static_cast<size_t>(index)) ++place;
      ++count;
    }
    return {count, place};
  }

  // The node's cores are dealt out evenly; the first GPUs get what is left over.
  Cpus exclusive_share(int node, int index) const {
    std::map<int, Cpus> cores;  // by their first processor
    for (const int cpu : cpus_of(node)) {
      const Cpus siblings = parse_ranges(kernel_line(cpu_file(cpu, "topology/thread_siblings_list")).value_or(""));
      cores[siblings.empty() ? cpu : *siblings.begin()].insert(cpu);
    }
    const auto [count, place] = place_among_gpus(node, index);
    const size_t each = cores.size() / count;
    const size_t extra = cores.size() % count;
    if (each < 1) refuse(fmt::format("NUMA node {} has {} cores for {} GPUs", node, cores.size(), count));
    const size_t start = place * each + std::min(place, extra);
    const size_t end = start + each + (place < extra ? 1 : 0);
    Cpus share;
    size_t at = 0;
    for (const auto& [first, cpus] : cores) {
      if (at >= start && at < end) share.insert(cpus.begin(), cpus.end());
      ++at;
    }
    return share;
  }

  Cpus sharing_cache(int cpu) const {
    int level_max = -1;
    Cpus sharing;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(cpu_file(cpu, "cache"), ignored)) {
      const std::string folder = entry.path();
      const std::string kind = kernel_line(folder + "/type").value_or("");
      const std::optional<int> level = number_in(kernel_line(folder + "/level").value_or(""));
      if ((kind != "Unified" && kind != "Data") || !level || *level <= level_max) continue;
      level_max = *level;
      sharing = parse_ranges(kernel_line(folder + "/shared_cpu_list").value_or(""));
    }
    return sharing;
  }

  // The caches with most processors first; several GPUs may have to share one.
  Cpus core_complex(int node, int index) const {
    std::map<int, Cpus> by_cache;  // by the first processor that shares it
    for (const int cpu : cpus_of(node)) {
      const Cpus sharing = sharing_cache(cpu);
      by_cache[sharing.empty() ? cpu : *sharing.begin()].insert(cpu);
    }
    if (by_cache.empty()) return {};
    std::vector<std::pair<int, Cpus>> complexes(by_cache.begin(), by_cache.end());
    std::ranges::sort(complexes, {}, [](const auto& one) { return std::pair(-std::ssize(one.second), one.first); });
    return complexes[place_among_gpus(node, index).second % complexes.size()].second;
  }

  std::string root_;
  Cpus allowed_;
  std::vector<Gpu> gpus_;
  std::vector<int> nodes_;  // of each GPU
};

}  // namespace

std::vector<std::vector<int>> cpus_near_gpus(NumaBinding binding, int workers, const EnvironmentMap& env,
                                             const std::vector<int>& allowed, const std::string& root) {
  const Topology topology(env, allowed, root);
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < workers; ++rank) {
    const Cpus cpus = topology.near(binding, rank);
    all.emplace_back(cpus.begin(), cpus.end());
  }
  return all;
}

}  // namespace rubato::os
