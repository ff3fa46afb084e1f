#include "os/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace rubato::os {
namespace {

namespace fs = std::filesystem;

// A made-up machine below a temporary folder.
class MachineTest : public ::testing::Test {
 protected:
  MachineTest() {
    std::string name = ::testing::TempDir() + "/machineXXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~MachineTest() override { fs::remove_all(root_); }

  void file(const std::string& path, const std::string& text = "") {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void devices(int count) {
    for (int i = 0; i < count; ++i) file("/dev/nvidia" + std::to_string(i));
    for (const char* other : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset"}) file(other);
  }

  std::string root_;
};

TEST_F(MachineTest, AMachineWithoutDriverHasNoGpu) {
  EXPECT_EQ(count_gpus({}, root_), 0);
  EXPECT_EQ(count_gpus({{"CUDA_VISIBLE_DEVICES", "0"}}, root_), 0);
}

TEST_F(MachineTest, TheUsersNameIsThatOfThePasswdFile) {
  const std::string id = std::to_string(getuid());
  EXPECT_EQ(user_name(root_), id) << "without a line, its number";
  file("/etc/passwd", "other:x:99999:1::/:/bin/sh\nann:x:" + id + ":1:Ann,,,:/home/ann:/bin/bash\n");
  EXPECT_EQ(user_name(root_), "ann");
}

TEST_F(MachineTest, GpusAreTheNumberedDevices) {
  devices(4);
  fs::create_directories(root_ + "/dev/nvidia9");  // a folder is no device
  EXPECT_EQ(count_gpus({}, root_), 4);
}

TEST_F(MachineTest, WithoutDevicesTheDriversListCounts) {
  fs::create_directories(root_ + "/proc/driver/nvidia/gpus/0000:01:00.0");
  fs::create_directories(root_ + "/proc/driver/nvidia/gpus/0000:02:00.0");
  EXPECT_EQ(count_gpus({}, root_), 2);
}

TEST_F(MachineTest, CudaVisibleDevicesHidesGpus) {
  devices(4);
  const auto with = [&](const char* value) { return count_gpus({{"CUDA_VISIBLE_DEVICES", value}}, root_); };
  EXPECT_EQ(with("0,2"), 2);
  EXPECT_EQ(with(" 3 "), 1);
  EXPECT_EQ(with(""), 0);
  EXPECT_EQ(with("-1"), 0);
  EXPECT_EQ(with("0,-1,2"), 1);  // CUDA reads up to the first that is wrong
  EXPECT_EQ(with("0,7,1"), 1);
  EXPECT_EQ(with("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1"), 2);
}

TEST_F(MachineTest, NvidiaVisibleDevicesHidesGpus) {
  devices(4);
  const auto with = [&](const char* value) { return count_gpus({{"NVIDIA_VISIBLE_DEVICES", value}}, root_); };
  EXPECT_EQ(with("all"), 4);
  EXPECT_EQ(with("void"), 4);
  EXPECT_EQ(with("none"), 0);
  EXPECT_EQ(with("2,3"), 2);
  EXPECT_EQ(count_gpus({{"NVIDIA_VISIBLE_DEVICES", "2,3"}, {"CUDA_VISIBLE_DEVICES", "0"}}, root_), 1);
}

TEST_F(MachineTest, AQuotaOfTheCgroupLimitsTheCpus) {
  const int all = count_cpus(root_);
  EXPECT_GE(all, 1);
  file("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(count_cpus(root_), 1);
  file("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(count_cpus(root_), all);
  fs::remove(root_ + "/sys/fs/cgroup/cpu.max");
  file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(count_cpus(root_), 1);
  file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(count_cpus(root_), all);
}

TEST_F(MachineTest, FactsNameTheMachine) {
  file("/proc/sys/kernel/hostname", "node7\n");
  file("/proc/sys/kernel/random/boot_id", "11111111-2222\n");
  const MachineFacts facts = read_machine_facts({}, root_);
  EXPECT_EQ(facts.hostname, "node7");
  EXPECT_TRUE(facts.machine_id.starts_with("11111111-2222."));
}

TEST(Machine, ThisOneIsTheSameTwice) {
  const MachineFacts facts = read_machine_facts();
  EXPECT_FALSE(facts.hostname.empty());
  EXPECT_EQ(facts.machine_id, read_machine_facts().machine_id);
  EXPECT_GE(facts.cpus, 1);
}

}  // namespace
}  // namespace rubato::os
