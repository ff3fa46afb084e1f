// Outlet: a stream that takes bytes in order and never makes the caller wait, whoever reads it: a terminal after
// Ctrl-S, a full pipe, a slow disk. What it has not taken yet is pending; whoever writes much waits with drained().
// Outlets: the standard streams, and files, as such.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/task.h"
#include "core/time.h"

namespace rubato {

class Outlet {
 public:
  virtual ~Outlet() = default;
  virtual void write(std::string_view bytes) = 0;
  virtual size_t pending() const = 0;
  // Why it takes nothing any more ("cannot write '/logs/stdout.log': No space left on device"); empty: it does. What
  // was pending then is lost.
  virtual const std::string& failure() const = 0;
  // Completes with true when no more than `pending_max` bytes are pending, with false at the deadline.
  virtual Task<bool> drained(size_t pending_max, Instant deadline) = 0;
};

class Outlets {
 public:
  virtual ~Outlets() = default;
  virtual Outlet& out() = 0;  // what a Console of the same process writes goes the same way
  virtual Outlet& err() = 0;
  // Created if it is not there, and added to. Throws Error when it cannot be opened.
  virtual std::unique_ptr<Outlet> open(const std::string& path) = 0;
};

}  // namespace rubato
