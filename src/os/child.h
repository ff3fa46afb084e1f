// ChildProcess: one process group that this agent started, cold or forked from the prewarmed interpreter.
#pragma once

#include <sys/types.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/loop.h"
#include "os/family.h"
#include "os/fd.h"
#include "world/processes.h"

namespace rubato::os {

class Runtime;

class ChildProcess final : public Process {
 public:
  struct Start {
    pid_t pid = -1;
    bool warm = false;
    std::vector<std::string> tokens;  // process tokens that mark a descendant as belonging to this spawn
    bool own_group = true;            // it leads a process group
    bool leaves_daemons = false;      // see RealProcesses::leave_daemons()
    Fd in, out, err;                  // our ends of its pipes, non-blocking; empty: none
    Fd out_keep, err_keep;  // where what comes through them is kept; empty: nowhere. The guard has them already
  };
  ChildProcess(Runtime& runtime, std::shared_ptr<Family> family, Start start);
  ~ChildProcess() override;

  int pid() const override { return pid_; }
  bool warm() const override { return warm_; }
  const std::optional<ExitStatus>& status() const override { return status_; }
  void signal_group(int signal) override;
  void end_by(Instant time) override;
  Task<ExitStatus> wait() override;
  Channel<OutputChunk>& output() override { return output_; }
  Task<void> write(std::string bytes) override;
  void close_input() override;

  const std::vector<std::string>& tokens() const { return tokens_; }
  // Takes the exit status if there is one.
  void check_end();

 private:
  struct Stream {
    Stream(boost::asio::io_context& io, bool is_stderr_in) : descriptor(io), is_stderr(is_stderr_in) {}
    boost::asio::posix::stream_descriptor descriptor;
    bool is_stderr;
    bool paused = false;
    Fd keep;
    uint64_t kept = 0;  // bytes in it
  };

  int target() const { return own_group_ ? -pid_ : pid_; }  // of kill()
  void watch_end();
  void ended(const ExitStatus& status);
  void open(Stream& stream, Fd pipe, Fd keep);
  void read_when_ready(Stream& stream);
  ssize_t read_some(Stream& stream, std::string& bytes);
  ssize_t read_keeping(Stream& stream, std::string& bytes);
  bool read_once(Stream& stream);  // false: nothing there now
  void take_the_rest(Stream& stream);
  void let_go(Stream& stream);
  void close(Stream& stream);
  size_t waiting_bytes();
  void resume_paused();
  void give_input();
  void end_input();

  std::shared_ptr<Family> family_;
  const pid_t pid_;
  const bool warm_;
  const bool own_group_;
  const bool leaves_daemons_;
  bool signalled_ = false;  // by us
  const std::vector<std::string> tokens_;
  std::optional<ExitStatus> status_;
  boost::asio::posix::stream_descriptor pidfd_;
  Loop& loop_;
  Event exited_;
  Channel<OutputChunk> output_;
  std::deque<size_t> chunk_sizes_;  // of the chunks in output_, oldest first
  size_t waiting_bytes_ = 0;        // their sum
  Stream out_, err_;
  boost::asio::posix::stream_descriptor in_;
  std::string input_;          // what the pipe has not taken yet
  uint64_t input_taken_ = 0;   // bytes that it has taken, ever
  bool input_closes_ = false;  // once input_ is empty
  bool input_waits_ = false;   // a handler waits for room in the pipe
  Event input_moved_;
  Alarm look_again_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // a handler that finds it gone touches nothing
};

}  // namespace rubato::os
