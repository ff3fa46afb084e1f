// BulkWork: a few threads for what may take seconds (hashing, reading long files), so that a commit or a name, which
// wait for the one thread of Runtime::offload, do not stand behind it.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <functional>

#include "os/runtime.h"

namespace rubato::os {

class BulkWork {
 public:
  explicit BulkWork(Runtime& runtime) : runtime_(runtime), pool_(kThreads) {}
  ~BulkWork() { pool_.stop(); }

  // As Runtime::offload: the work owns what it touches, and throws to who waits for it.
  Task<void> run(std::function<void()> work);

 private:
  static constexpr size_t kThreads = 3;
  Runtime& runtime_;
  boost::asio::thread_pool pool_;
};

}  // namespace rubato::os
