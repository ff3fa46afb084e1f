// Offload: work that takes long, beside the loop. A loop that hashes a gigabyte is taken for dead by its agents.
#pragma once

#include <functional>

#include "core/task.h"

namespace rubato::head {

// The work owns what it touches, or that outlives everything: whoever waits may be gone before it has ended.
using Offload = std::function<Task<void>(std::function<void()> work)>;

// Unset: on the loop, as in simulation.
inline Task<void> run_beside(const Offload& offload, std::function<void()> work) {
  if (!offload) {
    work();
    co_return;
  }
  Task<void> beside = offload(std::move(work));
  co_await std::move(beside);
}

}  // namespace rubato::head
