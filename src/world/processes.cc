#include "world/processes.h"

#include <fmt/format.h>

#include <array>

namespace rubato {

namespace {

// Linux's numbers on x86 and ARM; strsignal() and sigabbrev_np() would tie this layer to one libc.
constexpr std::array<const char*, 32> kSignals = {
    "",          "SIGHUP",  "SIGINT",    "SIGQUIT", "SIGILL",   "SIGTRAP", "SIGABRT", "SIGBUS",
    "SIGFPE",    "SIGKILL", "SIGUSR1",   "SIGSEGV", "SIGUSR2",  "SIGPIPE", "SIGALRM", "SIGTERM",
    "SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",  "SIGTTIN", "SIGTTOU", "SIGURG",
    "SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO",   "SIGPWR",  "SIGSYS"};
constexpr int kFirstRealTime = 34;  // 32 and 33 belong to the C library
constexpr int kLastRealTime = 64;

}  // namespace

std::string signal_name(int signal) {
  if (signal > 0 && signal < static_cast<int>(kSignals.size())) return kSignals[static_cast<size_t>(signal)];
  if (signal == kFirstRealTime) return "SIGRTMIN";
  if (signal > kFirstRealTime && signal <= kLastRealTime) return fmt::format("SIGRTMIN+{}", signal - kFirstRealTime);
  return fmt::format("signal {}", signal);
}

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exit code {}", status.code);
  const std::string name = signal_name(status.signal);
  const std::string number = fmt::format("signal {}", status.signal);
  return name == number ? "killed by " + number : fmt::format("killed by {} ({})", name, number);
}

}  // namespace rubato
