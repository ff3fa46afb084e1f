// LaunchSpec: what a person asked of `rubato run`, after flags and PET_* variables are read. Plain values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/numa_binding.h"
#include "core/time.h"

namespace rubato {

enum class Backend { kEmbedded, kEtcd, kStatic };
std::string_view to_string(Backend backend);

// Which of a worker's streams: bit 1 stdout, bit 2 stderr, as torchrun's 0..3.
struct StreamChoice {
  int all = 0;
  std::map<int, int> by_local_rank;  // overrides `all`
  int of(int local_rank) const {
    const auto it = by_local_rank.find(local_rank);
    return it == by_local_rank.end() ? all : it->second;
  }
};

enum class ProgramKind {
  kScript,   // python -u PROGRAM
  kModule,   // python -u -m PROGRAM
  kRunPath,  // runpy.run_path(PROGRAM) in a fresh interpreter
  kBinary,   // PROGRAM itself
};
std::string_view to_string(ProgramKind kind);

struct LaunchSpec {
  // The program.
  ProgramKind kind = ProgramKind::kScript;
  std::string program;
  std::vector<std::string> args;
  std::string python;                // empty: $PYTHON_EXEC, else python3 or python in PATH
  std::vector<std::string> prewarm;  // modules; empty: off
  std::string local_rank_flag;       // "--local-rank": handed to the program with its rank; empty: not

  // The group.
  int min_nodes = 1;
  int max_nodes = 1;
  int nodes_step = 1;  // the group has a multiple of so many; both bounds are such
  int nproc = 1;  // already counted for auto, cpu, gpu
  std::string role = "default";
  std::optional<int> node_rank;  // always set for Backend::kStatic
  std::string local_addr;
  bool virtual_local_rank = false;  // each worker sees LOCAL_RANK=0 and only its own GPU in CUDA_VISIBLE_DEVICES
  std::optional<NumaBinding> numa_binding;
  std::vector<std::vector<int>> cpus;  // that it means on this machine, by local rank; empty: no binding

  // The rendezvous.
  Backend backend = Backend::kEmbedded;
  bool standalone = false;  // one node, no endpoint, nothing listens
  std::string endpoint;     // as given; for etcd several with commas; empty for standalone and static
  std::string run_id;       // empty: the launcher makes a random one (standalone only)
  std::string key_file;     // holds the secret that agents must share; empty: the run id is the secret
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: any free port
  Duration last_call = 1s;
  Duration join_timeout = 600s;
  Duration heartbeat = 3s;
  std::optional<bool> is_host;
  std::string identity;  // only one agent at a time has this name: who comes with it takes the place of the one before
  struct {
    bool https = false;
    std::string ca, certificate, key;
  } etcd;

  // Restarts and ends.
  int max_restarts = 0;
  bool in_place = true;  // workers that can change their group in place are not restarted when it changes
  bool our_adaptdl = false;  // `import adaptdl` is the training library's, also where that package is installed
  int spares = 0;        // agents beyond max_nodes whose workers are started, and wait for a place
  Duration grace = 30s;
  std::string notice_file;   // that says, once it is there, when this machine goes away; empty: none
  std::vector<int> signals;  // that are forwarded; filled with SIGTERM, SIGINT, SIGHUP, SIGQUIT when none were named

  // Output.
  std::string log_dir;  // empty: a temporary one, removed after success
  StreamChoice redirects, tee;
  std::optional<std::vector<int>> local_ranks_filter;
  // Lines of a teed stream that have one of these words also go to a file for all workers.
  std::vector<std::string> stdout_filters, stderr_filters;
  std::string events_file;  // "-" is standard output
  bool quiet = false;
  std::vector<std::string> notes;  // flags that mean nothing here, one sentence each; printed unless quiet
};

}  // namespace rubato
