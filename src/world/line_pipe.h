// LinePipe: a named pipe that other processes of this machine write lines to. TimerHost: what of the machine a watchdog
// of workers needs.
#pragma once

#include <memory>
#include <string>

#include "core/channel.h"

namespace rubato {

class LinePipe {
 public:
  virtual ~LinePipe() = default;
  virtual Channel<std::string>& lines() = 0;
};

class TimerHost {
 public:
  virtual ~TimerHost() = default;
  // Makes the pipe anew, for this user only; it is removed with the LinePipe. Throws Error.
  virtual std::unique_ptr<LinePipe> make_pipe(const std::string& path) = 0;
  // To a process that descends from this one; false: there is none of that number.
  virtual bool signal(int pid, int signal) = 0;
};

}  // namespace rubato
