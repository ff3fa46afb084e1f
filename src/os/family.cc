#include "os/family.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <algorithm>

#include "os/child.h"
#include "os/proc_scan.h"
#include "os/runtime.h"

namespace rubato::os {

namespace {

std::string random_token() {
  uint64_t numbers[2] = {};
  CHECK(::getrandom(numbers, sizeof numbers, 0) == sizeof numbers);
  return fmt::format("{:016x}{:016x}", numbers[0], numbers[1]);
}

bool names(const std::string& entry, std::string_view variable) {
  return entry.starts_with(variable) && entry.size() > variable.size() && entry[variable.size()] == '=';
}

}  // namespace

Family::Family(Runtime& runtime) : token_(random_token()), guard_(runtime, token_), deaths_(runtime.io(), SIGCHLD) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  watch_deaths();
}

Family::~Family() {
  alive_.reset();
  sweep();
  if (!let_live_.empty() && owned_.empty()) guard_.dismiss();
}

void Family::take_back() {
  if (let_live_.empty()) return;
  let_live_.clear();
  sweep();
}

std::string Family::next_process_token() { return fmt::format("{}-{}", token_, ++spawns_); }

std::vector<std::string> Family::with_tokens(std::vector<std::string> env, const std::string& process_token) const {
  std::erase_if(env, [](const std::string& entry) { return names(entry, kAgentToken) || names(entry, kProcessToken); });
  env.push_back(fmt::format("{}={}", kAgentToken, token_));
  env.push_back(fmt::format("{}={}", kProcessToken, process_token));
  return env;
}

void Family::enter(pid_t pid, ChildProcess& child) {
  owned_[pid] = &child;
  guard_.add(pid);
}

void Family::leave(pid_t pid) {
  owned_.erase(pid);
  guard_.remove(pid);
}

void Family::watch_deaths() {
  deaths_.async_wait([this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error, int) {
    if (error || alive.expired()) return;
    const std::map<pid_t, ChildProcess*> owned = owned_;  // an end changes owned_
    for (const auto& [pid, child] : owned) child->check_end();
    sweep();
    watch_deaths();
  });
}

bool Family::may_live(pid_t adopted) const {
  const auto came_from = [&](const std::string& token) {
    return environ_has(adopted, fmt::format("{}={}", kProcessToken, token));
  };
  if (std::ranges::any_of(let_live_, came_from)) return true;
  for (const auto& [pid, child] : owned_) {
    if (std::ranges::any_of(child->tokens(), came_from)) return true;
  }
  return false;
}

void Family::sweep() {
  const std::string ours = fmt::format("{}={}", kAgentToken, token_);
  for (const pid_t pid : own_children()) {
    if (owned_.contains(pid) || pid == guard_.pid()) continue;
    if (::waitpid(pid, nullptr, WNOHANG) != 0) continue;
    if (environ_has(pid, ours) && !may_live(pid)) ::kill(pid, SIGKILL);
  }
}

}  // namespace rubato::os
