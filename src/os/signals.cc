#include "os/signals.h"

#include <signal.h>
#include <unistd.h>

namespace rubato::os {

Signals::Signals(Runtime& runtime, const std::vector<int>& numbers) : set_(runtime.io()), channel_(runtime) {
  for (const int number : numbers) set_.add(number);
  wait();
}

void Signals::wait() {
  set_.async_wait([this](boost::system::error_code error, int number) {
    if (error) return;
    channel_.push(number);
    wait();
  });
}

std::vector<int> without_ignored_hangup(std::vector<int> numbers) {
  struct sigaction now {};
  if (sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) std::erase(numbers, SIGHUP);
  return numbers;
}

void die_by_signal(int number) {
  signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(number);
  _exit(128 + number);
}

}  // namespace rubato::os
