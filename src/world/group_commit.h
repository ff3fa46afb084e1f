// GroupCommit: the part that all Journals share: appends that overlap go into one commit.
//
//   append --> queue --> one commit at a time; all that queue up meanwhile share the next one --> answers, in order
//
// An append goes whole into one commit, unless it alone is larger than a commit may be. A commit that fails, fails
// every append that is queued behind it too: they were decided in the belief that it would be in. Later appends are
// tried anew, except after kConflict, which is for good.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/channel.h"
#include "core/error.h"
#include "core/scope.h"

namespace rubato {

struct CommitLimits {
  size_t records_max = 0;       // in one commit
  size_t bytes_max = 0;         // in one commit; one record is always let in
  size_t record_bytes_max = 0;  // a larger record is refused
};

class GroupCommit {
 public:
  // Makes the records durable, all or none; returns the offset of the last one (without records: of the end).
  using Commit = std::function<Task<uint64_t>(std::vector<std::string> records)>;

  // `commit` is not called again before it has ended. This object outlives the appends that wait on it.
  GroupCommit(Loop& loop, const CommitLimits& limits, Commit commit)
      : loop_(loop), limits_(limits), commit_(std::move(commit)), scope_(loop) {}

  // As Journal::append. Throws kFailed for a record that is too large; then nothing is written.
  Task<uint64_t> append(std::vector<std::string> records);

  uint64_t commits() const { return commits_; }  // that went well

 private:
  struct Append {
    explicit Append(Loop& loop) : settled(loop) {}
    std::vector<std::string> records;
    size_t taken = 0;      // of the records: in a commit that is done or under way
    size_t committed = 0;  // of those
    std::optional<uint64_t> offset;
    std::optional<Error> error;
    Event settled;
  };
  // co_await it: whoever was made ready before goes first, and may append to the commit that comes next.
  struct NextTurn {
    Loop& loop;
    Waiter waiter;
    explicit NextTurn(Loop& loop_in) : loop(loop_in) {}
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      waiter.handle = handle;
      loop.make_ready(waiter);
    }
    void await_resume() const {}
  };
  Task<void> run();
  Task<bool> commit_some();
  std::vector<std::string> take();
  void settle(uint64_t end, size_t count);
  void fail(const Error& error);

  Loop& loop_;
  const CommitLimits limits_;
  const Commit commit_;
  std::deque<std::shared_ptr<Append>> queue_;
  bool running_ = false;
  std::optional<Error> conflict_;
  uint64_t commits_ = 0;
  Scope scope_;  // last: what runs goes before what it uses
};

}  // namespace rubato
