// WriterThread: writes to terminals, pipes and files beside the loop. A write may wait for a reader who stalls
// (Ctrl-S, less, a slow collector) or for a disk that hangs; the loop must not.
//
// The thread takes what it is given in order, for one stream or for several. It is never joined: one that hangs in a
// write is left behind, and ends with the process.
#pragma once

#include <memory>
#include <string>

#include "world/outlet.h"
#include "world/world.h"

namespace rubato::os {

class Runtime;

class WriterThread {
 public:
  WriterThread();
  WriterThread(const WriterThread&) = delete;
  ~WriterThread();  // the thread writes what it has, and ends

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// What is more than this is dropped, and said with the next write: the memory of whoever nobody reads is bounded.
inline constexpr size_t kPendingMax = size_t{64} << 20;

// The standard streams of a process with a loop, and files. When both standard streams are one file, the order between
// them is kept. Plain files share a thread; a pipe or a device has its own, for it may stall for long. The end of an
// outlet of a file waits a second at most for what is pending.
class LoopOutlets final : public Outlets {
 public:
  explicit LoopOutlets(Runtime& runtime);

  Outlet& out() override { return *out_; }
  Outlet& err() override { return *err_; }
  std::unique_ptr<Outlet> open(const std::string& path) override;

 private:
  Runtime& runtime_;
  std::unique_ptr<Outlet> out_, err_;
  std::shared_ptr<WriterThread> disk_;
};

// What is written here goes through the outlets.
class LoopConsole final : public Console {
 public:
  explicit LoopConsole(Outlets& outlets) : outlets_(outlets) {}
  void out(std::string_view text) override { outlets_.out().write(text); }
  void err(std::string_view text) override { outlets_.err().write(text); }

 private:
  Outlets& outlets_;
};

}  // namespace rubato::os
