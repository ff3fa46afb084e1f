#include "os/probe.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include "core/text.h"
#include "os/python.h"

namespace rubato::os {
namespace {

constexpr Duration kPythonTimeout = 20s;

Limit limit_of(__rlimit_resource which) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0) return {};
  const auto value = [](rlim_t n) { return n == RLIM_INFINITY ? kUnlimited : static_cast<uint64_t>(n); };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

std::optional<Space> space_of(const std::string& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return Space{info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize};
}

void probe_ports(ProbeFacts& facts) {
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> facts.port_low >> facts.port_high;
  facts.port_error = probe_free_port();
}

void probe_clock(ProbeFacts& facts) {
  timex state{};
  if (adjtimex(&state) >= 0) facts.clock_synchronised = (state.status & STA_UNSYNC) == 0;
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  facts.year = parts.tm_year + 1900;
}

void probe_temporary_folder(const EnvironmentMap& env, ProbeFacts& facts) {
  const auto it = env.find("TMPDIR");
  facts.temporary_folder = it == env.end() || it->second.empty() ? "/tmp" : it->second;
  std::string name = facts.temporary_folder + "/rubato-doctor-XXXXXX";
  const int fd = mkostemp(name.data(), 0);
  if (fd < 0) {
    facts.temporary_error = std::strerror(errno);
    return;
  }
  close(fd);
  unlink(name.c_str());
  facts.temporary_space = space_of(facts.temporary_folder).value_or(Space{});
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ..." → "535.104.05".
std::string nvidia_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) return word;
  }
  return "";
}

void probe_kernel(ProbeFacts& facts) {
  utsname name{};
  if (uname(&name) == 0) facts.kernel = name.release;
  const long fd = syscall(SYS_pidfd_open, getpid(), 0);
  facts.pidfd = fd >= 0;
  if (fd >= 0) close(static_cast<int>(fd));
}

}  // namespace

ProbeFacts probe_machine(const ProbeRequest& request) {
  ProbeFacts facts;
  facts.hostname = read_machine_facts(request.env).hostname;
  facts.own_name = resolve_name(facts.hostname);
  facts.addresses = interface_addresses();
  facts.loopback_error = probe_loopback();
  probe_ports(facts);
  if (!request.endpoint_host.empty()) facts.endpoint = probe_endpoint(request.endpoint_host, request.endpoint_port);
  probe_clock(facts);
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.processes = limit_of(RLIMIT_NPROC);
  facts.locked_memory = limit_of(RLIMIT_MEMLOCK);
  facts.core_size = limit_of(RLIMIT_CORE);
  facts.shared_memory = space_of("/dev/shm");
  probe_temporary_folder(request.env, facts);
  facts.python = probe_python(request.python, request.env, kPythonTimeout);
  facts.torchrun = find_program("torchrun", request.env).value_or("");
  facts.gpus = count_gpus(request.env);
  facts.gpu_devices = count_gpus({});
  facts.gpu_driver = nvidia_driver();
  probe_kernel(facts);
  return facts;
}

}  // namespace rubato::os
