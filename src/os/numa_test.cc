#include "os/numa.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/error.h"
#include "os/cpu_set.h"

namespace rubato::os {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<int>;

// Two sockets with two NUMA nodes each, four cores with two threads per node (cpu n and n + 16), one last-level cache
// for every two cores. GPUs 0 and 1 are at node 1, GPU 2 at node 2.
class NumaTest : public ::testing::Test {
 protected:
  NumaTest() {
    std::string name = ::testing::TempDir() + "/numaXXXXXX";
    root_ = mkdtemp(name.data());
    file("/sys/devices/system/node/possible", "0-7");
    for (int node = 0; node < 4; ++node) {
      const int first = 4 * node;
      file(fmt::format("/sys/devices/system/node/node{}/cpulist", node),
           fmt::format("{}-{},{}-{}", first, first + 3, first + 16, first + 19));
    }
    for (int cpu = 0; cpu < 32; ++cpu) {
      const int core = cpu % 16;
      const int pair = core / 2 * 2;
      const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}", cpu);
      file(folder + "/topology/physical_package_id", core < 8 ? "0" : "1");
      file(folder + "/topology/thread_siblings_list", fmt::format("{},{}", core, core + 16));
      cache(folder + "/cache/index0", "Data", "1", fmt::format("{},{}", core, core + 16));
      cache(folder + "/cache/index3", "Unified", "3", fmt::format("{}-{},{}-{}", pair, pair + 1, pair + 16, pair + 17));
      cache(folder + "/cache/index9", "Instruction", "9", "0-31");
    }
    gpu("0000:0a:00.0", "GPU-aaaa", "1");
    gpu("0000:0b:00.0", "GPU-bbbb", "1");
    gpu("0000:c1:00.0", "GPU-cccc", "2");
  }
  ~NumaTest() override { fs::remove_all(root_); }

  void file(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  void cache(const std::string& folder, const char* type, const char* level, const std::string& shared) {
    file(folder + "/type", type);
    file(folder + "/level", level);
    file(folder + "/shared_cpu_list", shared);
  }
  void gpu(const std::string& pci, const std::string& uuid, const std::string& node) {
    file("/proc/driver/nvidia/gpus/" + pci + "/information", "Model: \t\t H200\nGPU UUID: \t " + uuid);
    file("/sys/bus/pci/devices/" + pci + "/numa_node", node);
  }

  std::vector<Cpus> bound(NumaBinding binding, int workers = 3, const EnvironmentMap& env = {}) {
    return cpus_near_gpus(binding, workers, env, allowed_, root_);
  }
  std::string refusal(int workers, const EnvironmentMap& env = {}) {
    try {
      bound(NumaBinding::kNode, workers, env);
    } catch (const Error& error) {
      return error.message;
    }
    return "";
  }

  static Cpus first_32() {
    Cpus all(32);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  std::string root_;
  Cpus allowed_ = first_32();
};

const Cpus kNode1{4, 5, 6, 7, 20, 21, 22, 23};
const Cpus kNode2{8, 9, 10, 11, 24, 25, 26, 27};

TEST_F(NumaTest, ANodeIsThatOfTheGpu) {
  EXPECT_EQ(bound(NumaBinding::kNode), (std::vector<Cpus>{kNode1, kNode1, kNode2}));
}

TEST_F(NumaTest, ASocketHasAllNodesOfTheGpusSocket) {
  const std::vector<Cpus> found = bound(NumaBinding::kSocket);
  EXPECT_EQ(found[0], (Cpus{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(found[2].front(), 8);
  EXPECT_EQ(found[2].size(), 16u);
}

TEST_F(NumaTest, ExclusiveSharesCoresAmongTheGpusOfANode) {
  EXPECT_EQ(bound(NumaBinding::kExclusive), (std::vector<Cpus>{{4, 5, 20, 21}, {6, 7, 22, 23}, kNode2}));
  std::erase(allowed_, 7);
  std::erase(allowed_, 23);  // three cores for two GPUs: the first has one more
  EXPECT_EQ(bound(NumaBinding::kExclusive, 2), (std::vector<Cpus>{{4, 5, 20, 21}, {6, 22}}));
}

TEST_F(NumaTest, ACoreComplexSharesACacheAndLargerOnesComeFirst) {
  EXPECT_EQ(bound(NumaBinding::kCoreComplex, 2), (std::vector<Cpus>{{4, 5, 20, 21}, {6, 7, 22, 23}}));
  std::erase(allowed_, 4);
  EXPECT_EQ(bound(NumaBinding::kCoreComplex, 2), (std::vector<Cpus>{{6, 7, 22, 23}, {5, 20, 21}}));
}

TEST_F(NumaTest, OnlyProcessorsThatMayBeUsedCount) {
  allowed_ = {5, 21, 30};
  EXPECT_EQ(bound(NumaBinding::kNode, 1), (std::vector<Cpus>{{5, 21}}));
  EXPECT_EQ(refusal(3), "--numa-binding: NUMA node 2 has no processor that may be used");
}

TEST_F(NumaTest, GpusAreCountedAsCudaShowsThem) {
  EXPECT_EQ(bound(NumaBinding::kNode, 1, {{"CUDA_VISIBLE_DEVICES", "2,0"}}), std::vector<Cpus>{kNode2});
  EXPECT_EQ(bound(NumaBinding::kNode, 2, {{"CUDA_VISIBLE_DEVICES", "GPU-cccc, GPU-aa"}}),
            (std::vector<Cpus>{kNode2, kNode1}));
  EXPECT_EQ(refusal(1, {{"CUDA_VISIBLE_DEVICES", "-1"}}),
            "--numa-binding: there is no GPU for local rank 0 (GPUs that CUDA would show: 0)");
  EXPECT_EQ(refusal(4), "--numa-binding: there is no GPU for local rank 3 (GPUs that CUDA would show: 3)");
}

TEST_F(NumaTest, AMachineWithOneNodeSaysMinusOne) {
  file("/sys/bus/pci/devices/0000:0a:00.0/numa_node", "-1");
  EXPECT_EQ(bound(NumaBinding::kNode, 1), (std::vector<Cpus>{{0, 1, 2, 3, 16, 17, 18, 19}}));
  fs::remove_all(root_ + "/sys/devices/system/node");
  EXPECT_EQ(refusal(1), "--numa-binding: the processors of NUMA node 0 are not known");
}

TEST_F(NumaTest, WithoutTheDriversListThePciBusIsRead) {
  fs::remove_all(root_ + "/proc");
  for (const char* pci : {"0000:0a:00.0", "0000:c1:00.0"}) {
    file(fmt::format("/sys/bus/pci/devices/{}/vendor", pci), "0x10de");
    file(fmt::format("/sys/bus/pci/devices/{}/class", pci), "0x030200");
  }
  EXPECT_EQ(bound(NumaBinding::kNode, 2), (std::vector<Cpus>{kNode1, kNode2}));
}

TEST(CpuSet, WhatIsAllowedCanBeBoundTo) {
  const std::vector<int> allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  EXPECT_TRUE(CpuSet(allowed).bind(0));
  EXPECT_EQ(allowed_cpus(), allowed);
  EXPECT_FALSE(CpuSet{});
}

}  // namespace
}  // namespace rubato::os
