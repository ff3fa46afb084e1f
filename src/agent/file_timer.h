// FileTimer: torch's watchdog for workers (torch.distributed.elastic.timer, TORCHELASTIC_ENABLE_FILE_TIMER=1). A worker
// writes lines of JSON to a named pipe: when it begins something, until when that must be over; and that it is over.
// A worker whose time has passed gets the signal that it named itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "world/line_pipe.h"
#include "world/world.h"

namespace rubato::agent {

// The timers that are set. Pure.
class TimerTable {
 public:
  struct Expired {
    int pid = 0;
    int signal = 0;  // 0: none was named
    std::string scope;
  };
  // One line of the pipe; what is no request is ignored.
  void take(std::string_view line);
  // Those whose time has passed, one for each process, which has no timer any more.
  std::vector<Expired> expire(WallTime now);
  std::optional<WallTime> next() const;
  void clear() { timers_.clear(); }

 private:
  struct Timer {
    double expires = 0;  // seconds of the wall clock, as Python's time.time()
    int signal = 0;
  };
  std::map<std::pair<int, std::string>, Timer> timers_;
};

class FileTimer {
 public:
  using OnExpired = std::function<void(const TimerTable::Expired&)>;
  FileTimer(World& world, TimerHost& host, std::string path, OnExpired on_expired);
  const std::string& path() const { return path_; }
  Task<void> run();                 // until cancelled
  void clear() { table_.clear(); }  // the workers that set them are gone

 private:
  World& world_;
  TimerHost& host_;
  std::string path_;
  OnExpired on_expired_;
  std::unique_ptr<LinePipe> pipe_;
  TimerTable table_;
};

}  // namespace rubato::agent
