// StandIn: a small process beside its parent that acts when the parent was killed. The supervisor of a head has one, so
// that it is replaced also when the head cannot do that, for it stands still (SIGSTOP).
//
// It is a fork of the parent, which must have no threads: it shares the parent's memory, holds none of its descriptors,
// and ends at SIGTERM. In an orderly end the parent ends it first.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>

#include "core/time.h"

namespace rubato::os {

class StandIn {
 public:
  // From the parent's death until `act`: whoever has killed it on purpose has time to say that nobody is wanted. Once
  // that is said, it ends at once.
  static constexpr Duration kPatience = 500ms;

  StandIn(std::function<bool()> is_wanted, std::function<void()> act);
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  // Starts it if there is none; a second after the last start at the soonest.
  void keep();
  // The parent has reaped this child, which may be the stand-in.
  void note_end(pid_t pid);
  // Until keep() has something to do; nullopt: it has not, as it is now.
  std::optional<Duration> until_due() const;
  void end();

 private:
  std::function<bool()> is_wanted_;
  std::function<void()> act_;
  pid_t pid_ = 0;  // 0: none
  bool is_ended_ = false;
  std::chrono::steady_clock::time_point due_{};
};

}  // namespace rubato::os
