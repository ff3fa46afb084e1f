#include "os/turn_watch.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>

namespace rubato::os {

namespace {

constexpr int kFramesMax = 48;
constexpr int kFramesOfHandler = 2;  // the handler, and the kernel's call of it

// Written by the signal's handler on the thread that reads them.
thread_local std::array<void*, kFramesMax> frames;
thread_local volatile int frame_count = 0;

thread_local TurnWatch* watching = nullptr;

int stack_signal() { return SIGRTMIN + 7; }

void take_stack(int) { frame_count = ::backtrace(frames.data(), kFramesMax); }

Duration thread_cpu() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec);
}

// Where this binary was loaded: addr2line wants addresses without it.
uintptr_t base_address() {
  uintptr_t base = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first one is the program itself
      },
      &base);
  return base;
}

std::string taken_stack() {
  std::string text;
  const uintptr_t base = base_address();
  for (int i = kFramesOfHandler; i < frame_count; ++i) {
    text += fmt::format("{}{:#x}", text.empty() ? "" : " ", reinterpret_cast<uintptr_t>(frames[i]) - base);
  }
  frame_count = 0;
  return text;
}

}  // namespace

TurnWatchSettings TurnWatchSettings::from(const std::map<std::string, std::string>& environment) {
  TurnWatchSettings settings;
  const auto set = environment.find("RUBATO_TURN_LIMIT_MS");
  if (set == environment.end()) return settings;
  int64_t ms = 0;
  const auto [end, error] = std::from_chars(set->second.data(), set->second.data() + set->second.size(), ms);
  if (error != std::errc() || ms <= 0) return settings;
  settings.limit = std::chrono::milliseconds(ms);
  settings.stacks = true;
  return settings;
}

TurnWatch::TurnWatch(TurnWatchSettings settings) : settings_(settings) {
  if (!settings_.stacks) return;
  // Its first call may allocate, which a signal's handler must not.
  std::array<void*, 1> first;
  ::backtrace(first.data(), 1);
  struct sigaction action {};
  action.sa_handler = take_stack;
  action.sa_flags = SA_RESTART;
  ::sigaction(stack_signal(), &action, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = stack_signal();
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
  has_timer_ = ::timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
}

TurnWatch::~TurnWatch() {
  stop();
  if (has_timer_) ::timer_delete(timer_);
}

void TurnWatch::start() { watching = this; }

void TurnWatch::stop() {
  if (watching == this) watching = nullptr;
}

void TurnWatch::begin_turn() {
  if (watching) watching->begin();
}

void TurnWatch::end_turn() {
  if (watching) watching->end();
}

void TurnWatch::arm(Duration after) {
  if (!has_timer_) return;
  itimerspec when{};
  when.it_value.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(after).count();
  when.it_value.tv_nsec = static_cast<long>((after % std::chrono::seconds(1)).count());
  ::timer_settime(timer_, 0, &when, nullptr);
}

void TurnWatch::begin() {
  began_ = thread_cpu();
  arm(settings_.limit);
}

void TurnWatch::end() {
  const Duration cpu = thread_cpu() - began_;
  arm(Duration(0));
  if (observe) observe(cpu);
  if (cpu <= settings_.limit) return;
  LongTurn turn;
  turn.cpu = cpu;
  if (settings_.stacks) turn.stack = taken_stack();
  if (report) report(turn);
}

}  // namespace rubato::os
