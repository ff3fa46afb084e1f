// Clock: the time of one machine. Clocks of different machines may differ in offset and in rate.
#pragma once

#include "core/loop.h"
#include "core/time.h"

namespace rubato {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;    // monotonic
  virtual WallTime wall() const = 0;  // for people and files

  // The loop whose timers run in this clock's time: deadlines given to Sleep, Event and Channel are of this clock.
  virtual Loop& loop() = 0;
};

}  // namespace rubato
