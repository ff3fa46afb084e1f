// The flags of `rubato run`: torchrun's, then ours. Sources: torch/distributed/run.py of PyTorch 1.13 to 2.12.
#include "cli/commands.h"

namespace rubato::cli {
namespace {

constexpr auto kValue = FlagKind::kValue;
constexpr std::string_view kGroup = "The group";
constexpr std::string_view kProgram = "The program";
constexpr std::string_view kRendezvous = "Rendezvous";
constexpr std::string_view kFaults = "Faults and ends";
constexpr std::string_view kOutput = "Output";
constexpr std::string_view kCompatible = "torchrun's that rubato does without";

std::vector<Flag> group_flags() {
  return {
      {.name = "nnodes",
       .kind = kValue,
       .value = "N|MIN:MAX[:STEP]",
       .help = "how many machines; a range is elastic, in steps of STEP",
       .group = kGroup,
       .default_text = "1",
       .env = "PET_NNODES"},
      {.name = "nproc-per-node",
       .kind = kValue,
       .value = "N|auto|gpu|cpu",
       .help = "workers on this machine; auto: its GPUs, else its CPUs",
       .group = kGroup,
       .default_text = "1",
       .env = "PET_NPROC_PER_NODE",
       .choices = "auto gpu cpu"},
      {.name = "standalone",
       .help = "this machine alone; nothing listens, nothing to agree on",
       .group = kGroup,
       .env = "PET_STANDALONE"},
      {.name = "node-rank",
       .kind = kValue,
       .value = "N",
       .help = "rank of this machine, for the static backend",
       .group = kGroup,
       .default_text = "0",
       .env = "PET_NODE_RANK"},
      {.name = "role",
       .kind = kValue,
       .value = "NAME",
       .help = "ROLE_NAME of the workers",
       .group = kGroup,
       .default_text = "default",
       .env = "PET_ROLE"},
      {.name = "virtual-local-rank",
       .help = "every worker gets LOCAL_RANK=0 and sees its own GPU only",
       .group = kGroup,
       .env = "PET_VIRTUAL_LOCAL_RANK"},
      {.name = "numa-binding",
       .kind = kValue,
       .value = "node|socket|exclusive|core-complex",
       .help = "bind each worker to processors near the GPU that has its local rank",
       .group = kGroup,
       .env = "PET_NUMA_BINDING",
       .choices = "node socket exclusive core-complex"},
  };
}

std::vector<Flag> program_flags() {
  return {
      {.name = "module",
       .short_name = 'm',
       .help = "the program is a Python module, as in python -m",
       .group = kProgram,
       .env = "PET_MODULE"},
      {.name = "no-python",
       .help = "the program is started as it is, without Python",
       .group = kProgram,
       .env = "PET_NO_PYTHON"},
      {.name = "run-path", .help = "the program is run by runpy.run_path", .group = kProgram, .env = "PET_RUN_PATH"},
      {.name = "python",
       .kind = kValue,
       .value = "PATH",
       .help = "the interpreter",
       .group = kProgram,
       .default_text = "$PYTHON_EXEC, python3 or python in PATH",
       .env = "PET_PYTHON",
       .abbreviates = false},
      {.name = "prewarm",
       .kind = kValue,
       .value = "MODULES",
       .help = "import these once (torch,numpy) and fork workers from there: fast restarts",
       .group = kProgram,
       .env = "PET_PREWARM",
       .abbreviates = false},
  };
}

std::vector<Flag> rendezvous_flags() {
  return {
      {.name = "rdzv-endpoint",
       .kind = kValue,
       .value = "HOST[:PORT]",
       .help = "where the agents meet; the one at HOST hosts it",
       .group = kRendezvous,
       .default_text = "port 29400",
       .env = "PET_RDZV_ENDPOINT"},
      {.name = "rdzv-backend",
       .kind = kValue,
       .value = "embedded|etcd|static",
       .help = "who keeps the group; c10d is embedded, etcd-v2 is etcd",
       .group = kRendezvous,
       .default_text = "embedded, or static with --master-addr",
       .env = "PET_RDZV_BACKEND",
       .choices = "embedded c10d etcd etcd-v2 static"},
      {.name = "rdzv-id",
       .kind = kValue,
       .value = "NAME",
       .help = "name of the job, the same on every machine",
       .group = kRendezvous,
       .default_text = "none",
       .env = "PET_RDZV_ID"},
      {.name = "rdzv-conf",
       .kind = kValue,
       .value = "KEY=VALUE,...",
       .help = "join_timeout, last_call_timeout, cacert, cert, key, ... as torchrun",
       .group = kRendezvous,
       .env = "PET_RDZV_CONF"},
      {.name = "rdzv-key-file",
       .kind = kValue,
       .value = "FILE",
       .help = "a secret that every agent must hold",
       .group = kRendezvous,
       .default_text = "the rendezvous id is the secret",
       .env = "PET_RDZV_KEY_FILE",
       .abbreviates = false},
      {.name = "master-addr",
       .kind = kValue,
       .value = "HOST",
       .help = "MASTER_ADDR, for the static backend",
       .group = kRendezvous,
       .default_text = "127.0.0.1",
       .env = "PET_MASTER_ADDR"},
      {.name = "master-port",
       .kind = kValue,
       .value = "PORT",
       .help = "MASTER_PORT, where rank 0 of the workers listens",
       .group = kRendezvous,
       .default_text = "a free one; 29500 for static",
       .env = "PET_MASTER_PORT"},
      {.name = "local-addr",
       .kind = kValue,
       .value = "ADDRESS",
       .help = "the address others reach this machine at",
       .group = kRendezvous,
       .default_text = "the one that reaches the endpoint",
       .env = "PET_LOCAL_ADDR"},
  };
}

std::vector<Flag> fault_flags() {
  return {
      {.name = "max-restarts",
       .kind = kValue,
       .value = "N",
       .help = "restarts after failures, for the whole job; joins and leaves are free",
       .group = kFaults,
       .default_text = "0",
       .env = "PET_MAX_RESTARTS"},
      {.name = "spares",
       .kind = kValue,
       .value = "N",
       .help = "agents beyond MAX whose workers wait, started and imported (with the training library)",
       .group = kFaults,
       .default_text = "0",
       .env = "PET_SPARES",
       .abbreviates = false},
      {.name = "always-restart",
       .help = "restart workers when the group changes, also those that could change in place",
       .group = kFaults,
       .env = "PET_ALWAYS_RESTART",
       .abbreviates = false},
      {.name = "adaptdl",
       .kind = kValue,
       .value = "auto|rubato",
       .help = "whose names `import adaptdl` finds: rubato's also where that package is installed",
       .group = kFaults,
       .default_text = "auto",
       .env = "PET_ADAPTDL",
       .abbreviates = false},
      {.name = "shutdown-timeout",
       .kind = kValue,
       .value = "SECONDS",
       .help = "torchrun's name for --grace",
       .group = kFaults,
       .default_text = "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30",
       .env = "PET_SHUTDOWN_TIMEOUT"},
      {.name = "grace",
       .kind = kValue,
       .value = "TIME",
       .help = "from SIGTERM to SIGKILL of the workers",
       .group = kFaults,
       .default_text = "30s",
       .env = "PET_GRACE",
       .abbreviates = false},
      {.name = "notice",
       .kind = kValue,
       .value = "FILE",
       .help = "leave when FILE appears; the workers have until the time in it",
       .group = kFaults,
       .env = "PET_NOTICE",
       .abbreviates = false},
      {.name = "heartbeat",
       .kind = kValue,
       .value = "TIME",
       .help = "a machine that is silent for this long is lost",
       .group = kFaults,
       .default_text = "3s",
       .env = "PET_HEARTBEAT",
       .abbreviates = false},
      {.name = "signals-to-handle",
       .kind = kValue,
       .value = "NAMES",
       .help = "signals that are passed to the workers",
       .group = kFaults,
       .default_text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
       .env = "PET_SIGNALS_TO_HANDLE"},
  };
}

std::vector<Flag> output_flags() {
  return {
      {.name = "log-dir",
       .kind = kValue,
       .value = "FOLDER",
       .help = "where log files and error files go",
       .group = kOutput,
       .default_text = "a temporary folder",
       .env = "PET_LOG_DIR"},
      {.name = "redirects",
       .short_name = 'r',
       .kind = kValue,
       .value = "0-3|RANK:0-3,...",
       .help = "to log files: 1 stdout, 2 stderr, 3 both",
       .group = kOutput,
       .default_text = "0",
       .env = "PET_REDIRECTS"},
      {.name = "tee",
       .short_name = 't',
       .kind = kValue,
       .value = "0-3|RANK:0-3,...",
       .help = "to log files and to the console",
       .group = kOutput,
       .default_text = "0",
       .env = "PET_TEE"},
      {.name = "local-ranks-filter",
       .kind = kValue,
       .value = "RANKS",
       .help = "show only these local ranks (0,1)",
       .group = kOutput,
       .default_text = "all",
       .env = "PET_LOCAL_RANKS_FILTER"},
      {.name = "duplicate-stdout-filters",
       .kind = kValue,
       .value = "WORDS",
       .help = "teed lines with one of these words also go to filtered_stdout.log",
       .group = kOutput,
       .env = "PET_DUPLICATE_STDOUT_FILTERS"},
      {.name = "duplicate-stderr-filters",
       .kind = kValue,
       .value = "WORDS",
       .help = "the same for stderr, to filtered_stderr.log",
       .group = kOutput,
       .env = "PET_DUPLICATE_STDERR_FILTERS"},
      {.name = "events",
       .kind = kValue,
       .value = "FILE",
       .help = "write what happens as JSON lines; - is stdout",
       .group = kOutput,
       .env = "PET_EVENTS",
       .abbreviates = false},
      {.name = "quiet",
       .help = "only errors, and what the workers say",
       .group = kOutput,
       .env = "PET_QUIET",
       .abbreviates = false},
  };
}

std::vector<Flag> compatible_flags() {
  return {
      {.name = "monitor-interval",
       .kind = kValue,
       .value = "SECONDS",
       .help = "no effect: a death is seen at once",
       .group = kCompatible,
       .env = "PET_MONITOR_INTERVAL"},
      {.name = "start-method",
       .kind = kValue,
       .value = "spawn|fork|forkserver",
       .help = "no effect: workers are programs",
       .group = kCompatible,
       .env = "PET_START_METHOD",
       .choices = "spawn fork forkserver"},
      {.name = "event-log-handler",
       .kind = kValue,
       .value = "NAME",
       .help = "no effect: see --events",
       .group = kCompatible,
       .env = "PET_EVENT_LOG_HANDLER"},
      {.name = "exit-barrier-timeout",
       .kind = kValue,
       .value = "SECONDS",
       .help = "no effect: agents wait until all workers have ended",
       .group = kCompatible,
       .env = "PET_EXIT_BARRIER_TIMEOUT",
       .abbreviates = false},
      {.name = "use-env",
       .help = "no effect: the rank is always in the environment",
       .group = kCompatible,
       .env = "PET_USE_ENV"},
      {.name = "logs-specs",
       .kind = kValue,
       .value = "NAME",
       .help = "'default' only",
       .group = kCompatible,
       .env = "PET_LOGS_SPECS"},
  };
}

std::vector<Flag> run_flags() {
  std::vector<Flag> all;
  for (const auto& part :
       {group_flags(), program_flags(), rendezvous_flags(), fault_flags(), output_flags(), compatible_flags()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<Flag> launch_flags() {
  std::vector<Flag> all = run_flags();
  for (Flag& flag : all) {
    if (flag.name == "use-env") flag.help = "the script gets no --local-rank: it reads LOCAL_RANK";
  }
  return all;
}

}  // namespace

const Command& run_table() {
  static const Command table{
      .name = "run",
      .summary = "start training workers here and keep them going; takes torchrun's flags",
      .usage = "rubato run [flags] script.py|-m module|--no-python program [args...]",
      .about =
          "Flags end at the program: what follows is the program's. Dashes and underscores are the same,\n"
          "a unique start of a torchrun flag is enough, and PET_NAME=value stands in for --name value.\n"
          "Times: 30s, 250ms, 2m; a bare number is seconds. A script may be s3://BUCKET/KEY or gs://BUCKET/KEY.\n"
          "'rubato launch' stands for python -m torch.distributed.launch: as run, but the script also gets\n"
          "--local-rank=N, unless --use-env is given.",
      .positional = {.name = "script.py [args...]", .help = "the program and its arguments", .remainder = true},
      .flags = run_flags(),
      .examples = {{"two workers on this machine", "rubato run --standalone --nproc-per-node 2 train.py --epochs 3"},
                   {"elastic over one to four machines; the same line on each",
                    "rubato run --nnodes 1:4 --nproc-per-node gpu --rdzv-endpoint node0:29400 --rdzv-id job7 train.py"},
                   {"restarts without paying for 'import torch' again",
                    "rubato run --nproc-per-node gpu --max-restarts 3 --prewarm torch train.py"},
                   {"two machines with fixed ranks, as torchrun's default",
                    "rubato run --nnodes 2 --node-rank 0 --master-addr node0 --nproc-per-node 8 train.py"}}};
  return table;
}

// Hidden: the help of run names it, and its flags are run's.
const Command& launch_table() {
  static const Command table{
      .name = "launch",
      .summary = "as run, and the script gets --local-rank=N, as by torch.distributed.launch",
      .usage = "rubato launch [flags] script.py|-m module [args...]",
      .about = "As 'rubato run', but the script also gets --local-rank=N (--local_rank=N before PyTorch 2), unless\n"
               "--use-env is given. New scripts read LOCAL_RANK from the environment.",
      .positional = run_table().positional,
      .flags = launch_flags(),
      .examples = {{"a script that parses --local-rank", "rubato launch --nproc-per-node 2 train.py --epochs 3"}},
      .hidden = true};
  return table;
}

}  // namespace rubato::cli
