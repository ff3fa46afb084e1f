#include "os/bulk_work.h"

#include <boost/asio/post.hpp>

namespace rubato::os {

Task<void> BulkWork::run(std::function<void()> work) {
  struct Shared {
    explicit Shared(Loop& loop) : ended(loop) {}
    Event ended;
    bool done = false;
    std::exception_ptr error;
  };
  auto shared = std::make_shared<Shared>(runtime_);
  boost::asio::post(pool_, [&io = runtime_.io(), shared, work = std::move(work)] {
    std::exception_ptr error;
    try {
      work();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    boost::asio::post(io, [shared, error] {
      shared->error = error;
      shared->done = true;
      shared->ended.notify();
    });
  });
  while (!shared->done) co_await shared->ended.wait();
  if (shared->error) std::rethrow_exception(shared->error);
}

}  // namespace rubato::os
