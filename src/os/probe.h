// Probe: what `rubato doctor` asks of this machine. Facts only; cli/doctor.cc judges them.
//
// Every probe is bounded: connects by 3 s, the interpreter by 20 s; only the resolver has its own limits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/time.h"
#include "os/machine.h"

namespace rubato::os {

struct ResolvedName {
  std::vector<std::string> addresses;  // empty: it does not resolve
  std::string error;                   // then why
};

struct InterfaceAddress {
  std::string interface, address;
  bool loopback = false;
};

struct EndpointProbe {
  enum class Result {
    kNoSuchHost,
    kConnected,    // something listens there
    kRefused,      // the machine answers, nothing listens
    kTimedOut,     // no answer
    kUnreachable,  // no route, or another error in `error`
    kPortFree,     // the endpoint is this machine, and its port can be bound
    kPortTaken,    // the endpoint is this machine, and somebody listens
  };
  std::string host;
  uint16_t port = 0;
  Result result = Result::kNoSuchHost;
  std::string address;            // the one tried last
  std::string source, interface;  // ours, on the way there
  std::string error;
};

struct Limit {
  uint64_t soft = 0, hard = 0;
};
constexpr uint64_t kUnlimited = UINT64_MAX;

struct Space {
  uint64_t total = 0, free = 0;
};

struct PythonProbe {
  std::string path;   // empty: none found, then `error`
  std::string error;  // why it could not be found or run
  bool timed_out = false;
  std::string version;
  std::string torch, torch_error;  // both empty: there is no torch
  std::string cuda;                // CUDA version that torch was built for, empty: CPU only
  bool gloo = false, nccl = false;
  int devices = 0;  // that torch sees
};

struct ProbeFacts {
  std::string hostname;
  ResolvedName own_name;
  std::vector<InterfaceAddress> addresses;
  std::string loopback_error;  // empty: a connection over 127.0.0.1 works
  int port_low = 0, port_high = 0;
  std::string port_error;  // empty: a free port can be bound
  std::optional<EndpointProbe> endpoint;

  std::optional<bool> clock_synchronised;  // nullopt: the kernel does not say
  int year = 0;

  Limit open_files, processes, locked_memory, core_size;
  std::optional<Space> shared_memory;  // /dev/shm
  std::string temporary_folder, temporary_error;
  Space temporary_space;

  PythonProbe python;
  std::string torchrun;  // path, or empty

  int gpus = 0, gpu_devices = 0;  // visible to a CUDA program; there at all
  std::string gpu_driver;         // version, or empty
  bool pidfd = false;
  std::string kernel;
};

struct ProbeRequest {
  std::string endpoint_host;  // empty: none
  uint16_t endpoint_port = 0;
  std::string python;
  EnvironmentMap env;
};

ProbeFacts probe_machine(const ProbeRequest& request);

// Parts of it, which tests call alone.
ResolvedName resolve_name(const std::string& host);
std::vector<InterfaceAddress> interface_addresses();
std::string probe_loopback();   // the error, or empty
std::string probe_free_port();  // the error, or empty
EndpointProbe probe_endpoint(const std::string& host, uint16_t port);
// The name and the port of each, many at once: a host that is down does not hold up the others.
struct HostProbe {
  std::string host;
  uint16_t port = 0;
  ResolvedName resolved;
  std::optional<EndpointProbe> door;  // absent: the name has no address
};
void probe_hosts(std::vector<HostProbe>& hosts);
PythonProbe probe_python(const std::string& wanted, const EnvironmentMap& env, Duration timeout);

}  // namespace rubato::os
