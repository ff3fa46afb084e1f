// Signals: those sent to this process, as a channel.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <vector>

#include "core/channel.h"
#include "os/runtime.h"

namespace rubato::os {

class Signals {
 public:
  // From now on these signals do not end the process; they arrive in channel().
  Signals(Runtime& runtime, const std::vector<int>& numbers);

  Channel<int>& channel() { return channel_; }

 private:
  void wait();

  boost::asio::signal_set set_;
  Channel<int> channel_;
};

// These, without SIGHUP where whoever started this process has it ignored: nohup means what it says. Before Signals.
std::vector<int> without_ignored_hangup(std::vector<int> numbers);

// Ends this process by the signal's default action, so that whoever started it sees the signal.
[[noreturn]] void die_by_signal(int number);

}  // namespace rubato::os
