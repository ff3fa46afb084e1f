// Launcher: the life of one `rubato run` agent: join, run workers as the views say, report, end.
#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "agent/file_timer.h"
#include "agent/in_place.h"
#include "agent/membership.h"
#include "agent/notice.h"
#include "agent/report.h"
#include "agent/worker_group.h"

namespace rubato::agent {

// How it ended: an exit code, or the signal that this process should end by.
struct Outcome {
  int exit_code = 0;
  int signal = 0;
};

struct LaunchContext {
  World& world;
  LaunchSpec spec;
  ChannelKey key;
  std::string python;       // empty for --no-python
  Environment environment;  // inherited
  bool old_torch = false;
  Store* store = nullptr;           // for the etcd backend; outlives the agent
  Channel<int>* signals = nullptr;  // SIGTERM and its like, as they come
  // What its console and its files are written through; null: they make nobody wait. Both outlive the agent.
  Outlets* outlets = nullptr;
  TimerHost* timers = nullptr;      // null: no watchdog can be had
  InPlaceHost* in_place = nullptr;  // null: workers are restarted when their group changes. Outlives the agent
};

// Runs one agent to its end. Throws Error for what a person must mend.
Task<Outcome> launch(LaunchContext context);

class Launcher {
 public:
  Launcher(LaunchContext& context, AgentId self);
  Task<Outcome> run();

 private:
  struct WorkersChanged {};
  struct Signal {
    int number;
  };
  struct PeaceOver {};  // this agent leaves, and no plan without its workers has come
  using Happening = std::variant<Membership::Update, WorkersChanged, Signal, Notice, PeaceOver>;

  Task<void> read_signals();
  Task<void> watch_notice();
  std::optional<Notice> read_notice();
  void prewarm();
  void start_file_timer();
  void handle(const Happening& happening);
  void on_update(const Membership::Update& update);
  void on_view(const elastic::View& view);
  void on_signal(int number);
  void on_notice(const Notice& notice);
  void leave(int signal, const std::string& why, Duration time);
  Duration grace() const;
  void follow();  // brings the workers nearer to what the view wants
  void follow_gathering();
  void follow_running();
  void start_workers();
  void use_static_master(elastic::View& place) const;
  void report_workers();

  WorkerGroup::Setup own_setup(WorkerGroup::Setup setup);

  // launcher_in_place.cc
  bool survives();
  void open_in_place();
  bool keeps_workers() const;
  void stop_unkept();
  void renew_ended(Generation generation);
  void report_unplanned(const std::vector<elastic::Failure>& failures);
  void follow_gathering_in_place();
  void follow_running_in_place();
  bool adopt_plan(const elastic::GroupPlan& plan);
  bool publish(const elastic::GroupPlan& plan);
  void report_members(const elastic::GroupPlan& plan, Generation generation);
  void prepare_workers();
  void add_worker(InPlace::Slot& slot);
  void offer_workers(Generation generation);
  bool leaves_in_peace() const;
  void wait_for_peace();

  void say(const std::string& text);
  std::string describe_ranks(const elastic::View& view) const;
  void announce(const elastic::View& view);
  bool over() const;
  Task<Outcome> finish();
  Outcome outcome();
  ReportContext report_context() const;
  Task<void> say_goodbye(bool ended);
  Task<void> flush_output(bool keep_logs);
  void write_error_file(const Outcome& result);

  World& world_;
  LaunchSpec spec_;
  LaunchContext& context_;
  AgentId self_;
  std::unique_ptr<Outlets> own_outlets_;  // when none were given
  Outlets& outlets_;
  EventLog events_;
  std::string temporary_logs_;  // the folder that a good end removes; empty: the logs stay
  std::string log_folder_;      // empty: no log files are wanted

  std::unique_ptr<Finder> finder_;
  Channel<Happening> inbox_;
  std::string timer_file_;             // TORCHELASTIC_TIMER_FILE of the workers; empty: none
  std::unique_ptr<FileTimer> timer_;   // null: no watchdog is wanted
  std::unique_ptr<InPlace> in_place_;  // null: workers are restarted when their group changes
  WorkerGroup workers_;
  Membership membership_;
  Alarm peace_;

  std::optional<elastic::View> view_;
  bool started_ = false;  // to join the group
  bool told_provisional_ = false;
  std::unique_ptr<PortLease> port_;
  std::optional<Error> failure_;
  int signal_ = 0;  // this agent leaves; its workers get this signal
  std::string leave_reason_;
  bool signalled_ = false;                                 // somebody sent it
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // interpreters are prewarmed beyond our end, and tell of it
  bool noticed_ = false;                                   // a file said that this machine goes away
  std::optional<Instant> leave_by_;                        // when the workers of an agent that leaves are killed
  Scope scope_;
};

}  // namespace rubato::agent
