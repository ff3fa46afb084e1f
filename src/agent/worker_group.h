// WorkerGroup: the worker processes of one agent in one generation, or in several where they change in place.
//
//   IDLE --start--> RUNNING --all exit 0--> SUCCEEDED
//                      |  \--one exits badly--> FAILED (the others are stopped; or, if they survive it, go on: then
//                      |                                it stays RUNNING until the last one has ended)
//                      \--stop/kill--> (any) --the last one ends--> IDLE
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "agent/event_log.h"
#include "agent/tee.h"
#include "agent/worker_env.h"
#include "agent/worker_output.h"
#include "core/scope.h"
#include "elastic/restart.h"
#include "elastic/view.h"

namespace rubato::agent {

class WorkerGroup {
 public:
  enum class State { kIdle, kRunning, kSucceeded, kFailed };

  struct Setup {
    std::string python;
    Environment environment;     // group_environment()
    std::string log_folder;      // <log_dir>/<run_id>_<random>; empty: no log or error file
    Outlets* outlets = nullptr;  // for teed output; null: there is none. Outlives the group
    std::string prefix;          // of a teed line, with ${role_name}, ${rank} and ${local_rank}
    std::string cwd;             // empty: ours
    // What one worker gets beside torchrun's variables.
    std::function<Environment(const WorkerPlace&)> own_variables;
    // Set: all output comes here, whole lines without their ends, and nowhere else. The last one comes before the
    // worker counts as ended.
    LineSink lines;
    // The same, by the generation in which a worker has started; unset: `lines` is for all.
    std::function<LineSink(Generation)> lines_of;
    LineGate gate;  // for them; unset: always open
    // Asked when a worker has ended badly; true: the others go on in place. Unset: never.
    std::function<bool()> survives;
    // With `lines`: the file that keeps one output of a worker until the sink's owner has its lines elsewhere.
    std::function<std::string(int rank, bool is_stderr)> kept_in;
  };

  // `on_change` is called from a later turn of the loop after the state or the number of live workers changed.
  WorkerGroup(World& world, const LaunchSpec& spec, Setup setup, EventLog& events, std::function<void()> on_change);

  // Only when no worker is alive. Throws what spawn throws; nothing is left running then.
  void start(const elastic::View& view);

  // For groups that change in place. A worker has a name, which is in the plan, or will be.
  // Starts one beside those that live, if none of its local rank does. Throws what spawn throws.
  void add(const elastic::View& view, int local_rank, const std::string& id);
  // Those that live are now of this generation, with these ranks. What failed before is forgotten.
  void advance(Generation generation, const std::map<std::string, int>& ranks);
  // All leave by themselves; who is still there after `grace` is killed.
  void retire(Duration grace);
  // The same for one of several: how it ends means nothing. It gets `signal`, if that is not 0.
  void dismiss(const std::string& id, int signal, Duration grace);
  bool retired() const { return retired_; }
  bool stopping() const { return stopping_; }
  int living_count() const { return live_; }
  struct Named {
    bool alive = false;
    bool dismissed = false;
    bool ended_well = false;                  // and not because it was told to stop
    bool reading_last = false;                // it has ended; what it printed last may still be read
    std::optional<elastic::Failure> failure;  // it ended badly, and not by us
  };
  std::optional<Named> find(const std::string& id) const;  // nullopt: never started
  std::vector<std::string> living() const;

  // Sends `signal` to the groups and SIGKILL after `grace`. Calling it again can only shorten the time.
  void stop(int signal, Duration grace);
  void kill() { stop(9, 0s); }
  // Workers that are being stopped have at least this long from now on.
  void prolong(Duration grace);

  // Those who live then get SIGKILL, also if this agent stands still. Renewed again and again (elastic/lease.h).
  void end_by(Instant time);
  // Somebody ended by that. It looks like a failure, and is none.
  bool ended_by_lease() const { return ended_by_lease_; }

  // Forgets the last generation: state becomes idle. Only when no worker is alive.
  void clear();

  State state() const { return state_; }
  bool alive() const { return live_ > 0; }
  // All ended well before anybody told them to stop: their work is done, whatever has been asked for since.
  bool finished() const { return state_ == State::kSucceeded && unasked_; }
  Generation generation() const { return generation_; }
  const std::vector<elastic::Failure>& failures() const { return failures_; }
  // Ranks of this generation that were still there when the grace after stop() was over.
  const std::vector<int>& forced() const { return forced_; }

 private:
  struct Worker {
    int local_rank = 0;
    int rank = 0;
    Generation born = 0;
    std::string id;      // empty: its group does not change in place
    std::string folder;  // empty: none
    std::optional<elastic::Failure> failure;
    std::unique_ptr<Process> process;
    uint64_t started = 0;    // counts all of them
    bool dismissed = false;
    bool ended = false;      // and what it means was noted
    bool reading_last = false;
    bool by_itself = false;  // it had ended when stop() was called first
    bool asked = false;      // stop() has told it to end
    std::unique_ptr<Tee> tee;  // null: its output does not come through us, or goes to `lines`
    bool output_lost() const { return tee && !tee->failure().empty(); }
  };

  void spawn(int local_rank, const elastic::View& view, const std::string& id = "");
  bool newest(const Worker& worker) const;  // of its local rank
  Task<void> watch(Worker& worker);
  Task<void> kill_late(Worker& worker, Instant deadline);
  OutputPlan output_plan(const Worker& worker) const;
  std::unique_ptr<Tee> make_tee(Worker& worker);
  void on_output_lost(Worker& worker);
  void grace_is_over();
  void record_failure(Worker& worker, const ExitStatus& status);

  World& world_;
  const LaunchSpec& spec_;
  Setup setup_;
  EventLog& events_;
  std::function<void()> on_change_;

  State state_ = State::kIdle;
  Generation generation_ = 0;
  int live_ = 0;
  uint64_t spawned_ = 0;
  bool stopping_ = false;
  bool retired_ = false;
  bool unasked_ = true;  // who has ended so far did so by itself
  std::optional<Instant> kill_at_;
  std::optional<Instant> end_by_;
  bool was_late_ = false;  // with a renewal
  bool ended_by_lease_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<elastic::Failure> failures_;
  std::vector<int> forced_;
  Alarm killer_;
  Scope scope_;
};

}  // namespace rubato::agent
