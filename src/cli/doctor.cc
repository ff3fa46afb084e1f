#include "cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/doctor_network.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

constexpr uint64_t kMiB = 1024 * 1024;
constexpr uint64_t kGiB = 1024 * kMiB;
constexpr uint64_t kOpenFilesMin = 1024;  // one data-loader batch in flight may hold hundreds
constexpr uint64_t kProcessesMin = 4096;
constexpr uint64_t kLockedMemoryMin = 64 * kMiB;  // what InfiniBand's verbs need to register at all
constexpr uint64_t kSharedMemoryMin = kGiB;       // Docker gives 64 MiB, which data loaders outgrow
constexpr uint64_t kTemporarySpaceMin = kGiB;

Finding ok(std::string check, std::string found) { return {std::move(check), Health::kOk, std::move(found), ""}; }
Finding warn(std::string check, std::string found, std::string fix) {
  return {std::move(check), Health::kWarn, std::move(found), std::move(fix)};
}
Finding fail(std::string check, std::string found, std::string fix) {
  return {std::move(check), Health::kFail, std::move(found), std::move(fix)};
}

std::string size_text(uint64_t bytes) {
  if (bytes == os::kUnlimited) return "unlimited";
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  if (bytes >= kMiB) return fmt::format("{} MiB", bytes / kMiB);
  return fmt::format("{} KiB", bytes / 1024);
}

std::string count_text(uint64_t count) { return count == os::kUnlimited ? "unlimited" : fmt::format("{}", count); }

Finding judge_clock(const os::ProbeFacts& facts) {
  constexpr int kYearMin = 2024, kYearMax = 2100;  // before this program was written, or after anyone runs it
  if (facts.year < kYearMin || facts.year > kYearMax) {
    return fail("clock", fmt::format("the year is {}: certificates and logs will be wrong", facts.year),
                "set the clock: timedatectl set-ntp true");
  }
  if (!facts.clock_synchronised)
    return ok("clock", fmt::format("{}; the kernel does not say if synchronised", facts.year));
  if (*facts.clock_synchronised) return ok("clock", "synchronised");
  return warn("clock", "not synchronised: times in logs of several machines will not fit together",
              "timedatectl set-ntp true, or install chrony (in a container: on its host)");
}

void judge_limits(const os::ProbeFacts& facts, std::vector<Finding>& out) {
  const uint64_t files = facts.open_files.soft;
  const std::string files_text = fmt::format("{} (at most {})", count_text(files), count_text(facts.open_files.hard));
  out.push_back(files >= kOpenFilesMin
                    ? ok("open files", files_text)
                    : warn("open files", files_text + ": data loaders will fail with 'Too many open files'",
                           "ulimit -n 65536, or LimitNOFILE= / nofile in limits.conf"));
  const uint64_t processes = facts.processes.soft;
  out.push_back(processes >= kProcessesMin
                    ? ok("processes", count_text(processes))
                    : warn("processes", count_text(processes) + ": threads count too, and are many",
                           "ulimit -u 65536, or docker run --pids-limit=-1"));
  const uint64_t locked = facts.locked_memory.soft;
  out.push_back(locked >= kLockedMemoryMin || facts.gpus == 0
                    ? ok("locked memory", size_text(locked))
                    : warn("locked memory", size_text(locked) + ": too little for InfiniBand or RDMA",
                           "ulimit -l unlimited, or docker run --ulimit memlock=-1"));
  out.push_back(ok("core files", facts.core_size.soft == 0 ? "none are written" : size_text(facts.core_size.soft)));
}

Finding judge_shared_memory(const os::ProbeFacts& facts) {
  const std::string fix = "docker run --ipc=host or --shm-size=8g; in Kubernetes an emptyDir with medium Memory";
  if (!facts.shared_memory) return warn("/dev/shm", "not there: data loaders with workers will fail", fix);
  const std::string text =
      fmt::format("{}, {} free", size_text(facts.shared_memory->total), size_text(facts.shared_memory->free));
  if (facts.shared_memory->total >= kSharedMemoryMin) return ok("/dev/shm", text);
  return warn("/dev/shm", text + ": data loaders with workers may die with a bus error", fix);
}

Finding judge_temporary(const os::ProbeFacts& facts) {
  if (!facts.temporary_error.empty()) {
    return fail("temporary folder", fmt::format("{}: {}", facts.temporary_folder, facts.temporary_error),
                "set TMPDIR to a folder that can be written");
  }
  const std::string text = fmt::format("{}, {} free", facts.temporary_folder, size_text(facts.temporary_space.free));
  if (facts.temporary_space.free >= kTemporarySpaceMin) return ok("temporary folder", text);
  return warn("temporary folder", text, "free some space, or set TMPDIR to another disk");
}

Finding judge_python(const os::PythonProbe& python) {
  if (python.path.empty()) {
    return fail("Python", python.error, "activate your environment, or give --python PATH");
  }
  if (!python.error.empty()) {
    return fail("Python", fmt::format("{}: {}", python.path, python.error), "give another with --python PATH");
  }
  if (python.version.empty()) {
    return fail("Python", fmt::format("{} did not answer within 20 s", python.path),
                "run it by hand: is its disk slow, or the machine overloaded?");
  }
  if (!python.version.starts_with("3.")) {
    return fail("Python", fmt::format("{} is Python {}", python.path, python.version),
                "give a Python 3 with --python PATH");
  }
  return ok("Python", fmt::format("{} ({})", python.version, python.path));
}

Finding judge_torch(const os::ProbeFacts& facts) {
  const os::PythonProbe& python = facts.python;
  if (python.version.empty()) return warn("PyTorch", "not known without Python", "fix Python first");
  if (!python.torch_error.empty()) {
    return fail(
        "PyTorch",
        fmt::format("{} cannot be imported: {}", python.torch.empty() ? "torch" : python.torch, python.torch_error),
        fmt::format("{} -c 'import torch' shows the whole error", python.path));
  }
  if (python.timed_out) {
    return warn("PyTorch", "import torch took more than 20 s", "is its folder on a slow disk? try --prewarm torch");
  }
  if (python.torch.empty()) {
    return warn("PyTorch", fmt::format("not installed for {}", python.path),
                fmt::format("{} -m pip install torch, or name another interpreter with --python PATH", python.path));
  }
  const std::string build = python.cuda.empty() ? "CPU build" : fmt::format("CUDA {}", python.cuda);
  const std::string text =
      fmt::format("{} ({}{}{})", python.torch, build, python.gloo ? ", gloo" : "", python.nccl ? ", nccl" : "");
  if (!python.gloo) {
    return warn("PyTorch", text + ": built without gloo", "install a build with torch.distributed and gloo");
  }
  if (facts.gpus == 0) return ok("PyTorch", text);
  if (python.cuda.empty()) {
    return warn("PyTorch", fmt::format("{}: it will not use the {} GPU(s) here", text, facts.gpus),
                "install the CUDA build: https://pytorch.org/get-started/locally");
  }
  if (python.devices == 0) {
    return fail("PyTorch", fmt::format("{}: it sees none of the {} GPU(s)", text, facts.gpus),
                "the driver may be older than this CUDA: compare with the 'GPUs' line");
  }
  if (!python.nccl) return warn("PyTorch", text + ": built without nccl", "install a build with nccl for GPUs");
  return ok("PyTorch", text);
}

Finding judge_gpus(const os::ProbeFacts& facts) {
  if (facts.gpu_devices == 0 && facts.gpu_driver.empty()) return ok("GPUs", "none");
  if (facts.gpu_devices == 0) {
    return warn("GPUs", fmt::format("driver {} is loaded, but there is no /dev/nvidia0", facts.gpu_driver),
                "nvidia-modprobe -c 0 -u; in a container: docker run --gpus all");
  }
  std::string text = fmt::format("{}", facts.gpus);
  if (facts.gpus != facts.gpu_devices) {
    text += fmt::format(" of {} (CUDA_VISIBLE_DEVICES or NVIDIA_VISIBLE_DEVICES hides the rest)", facts.gpu_devices);
  }
  if (!facts.gpu_driver.empty()) text += fmt::format(", driver {}", facts.gpu_driver);
  return ok("GPUs", text);
}

std::string paint_health(Health health, bool colour) {
  const std::string word = fmt::format("{:<5}", to_string(health));
  if (!colour) return word;
  switch (health) {
    case Health::kOk:
      return "\x1b[32m" + word + "\x1b[0m";
    case Health::kWarn:
      return "\x1b[33m" + word + "\x1b[0m";
    case Health::kFail:
      return "\x1b[31m" + word + "\x1b[0m";
  }
  return word;
}

}  // namespace

std::string_view to_string(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarn:
      return "warn";
    case Health::kFail:
      return "fail";
  }
  return "unknown";
}

std::vector<Finding> judge(const os::ProbeFacts& facts) {
  std::vector<Finding> out = judge_network(facts);
  out.push_back(judge_clock(facts));
  judge_limits(facts, out);
  out.push_back(judge_shared_memory(facts));
  out.push_back(judge_temporary(facts));
  out.push_back(judge_python(facts.python));
  out.push_back(judge_torch(facts));
  out.push_back(judge_gpus(facts));
  out.push_back(ok("torchrun", facts.torchrun.empty() ? "not there, and not needed" : facts.torchrun));
  out.push_back(facts.pidfd ? ok("kernel", facts.kernel)
                            : fail("kernel", facts.kernel + " without pidfd: worker ends cannot be watched",
                                   "Linux 5.4 or newer is needed; in a sandbox, allow pidfd_open"));
  return out;
}

int doctor_exit_code(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.health == Health::kFail; });
}

std::string findings_table(const std::vector<Finding>& findings, bool colour) {
  size_t width = std::string_view("CHECK").size();
  for (const Finding& finding : findings) width = std::max(width, finding.check.size());
  std::string out = fmt::format("{:<{}}  STATE  FOUND\n", "CHECK", width);
  int warnings = 0, failures = 0;
  for (const Finding& finding : findings) {
    warnings += finding.health == Health::kWarn;
    failures += finding.health == Health::kFail;
    out += fmt::format("{:<{}}  {}  {}\n", finding.check, width, paint_health(finding.health, colour), finding.found);
    if (!finding.fix.empty()) out += fmt::format("{:<{}}  fix    {}\n", "", width, finding.fix);
  }
  if (warnings + failures > 0) out += fmt::format("\n{} to fix, {} to look at\n", failures, warnings);
  return out;
}

std::string findings_json(const std::vector<Finding>& findings) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"check", finding.check},
                      {"state", to_string(finding.health)},
                      {"found", finding.found},
                      {"fix", finding.fix}});
  }
  const nlohmann::json all = {{"ok", doctor_exit_code(findings) == 0}, {"checks", checks}};
  // Names and messages of the system may hold any bytes.
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace rubato::cli
