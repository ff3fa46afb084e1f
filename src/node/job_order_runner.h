// JobOrderRunner: one job's part on this node, brought to what the head says.
//
//   GATHERING g: (1) older workers stop ──▶ (2) package and working folder ──▶ (3) kReady, with a port kept free
//   RUNNING g:   (2) if it was skipped ──▶ (4) workers run ──▶ (5) kSucceeded or kFailed; g never runs twice here
//   ENDED:       (1) ──▶ (6) lines are out, folders are gone: kGone
//
// Workers that can change in place (job_order_in_place.cc) skip (1): they go on until a plan comes by which they join
// the next generation, or leave.
//
// Each step looks at what is, never at how it came about: a job order may be repeated, skipped or taken back at any
// time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/event_log.h"
#include "agent/in_place.h"
#include "agent/worker_group.h"
#include "node/checkpoint_keeper.h"
#include "node/devices.h"
#include "node/log_spool.h"
#include "node/node_settings.h"
#include "node/packages.h"
#include "node/supervisor.h"

namespace rubato::node {

// What the runners of one node share; outlives them.
struct NodeParts {
  World& world;
  const NodeSettings& settings;
  PackageStore& packages;
  CheckpointKeeper& checkpoints;
  Devices& devices;
  agent::EventLog& events;
  std::function<void()> wake;  // something changed: call follow() soon, in another turn
  // One interpreter is kept warm on a node: prewarm() makes it this job's, whose program is there by now.
  std::function<void(const elastic::JobOrder&, const std::string& python, const std::string& work)> prewarm;
  std::function<bool(const JobId&)> is_warm_for;
  std::function<void(const std::string& folder)> discard;  // it is out of the way at once, and removed bit by bit
  std::function<bool()> head_takes_lines;
  // Until when workers may live; nullopt: as long as they will.
  std::function<std::optional<Instant>(const elastic::LeaseTerms&)> lease_end;
  Event& room;  // for lines: a head has taken some, or is gone
  AgentId self;
  Supervisor* supervisor = nullptr;
  uint64_t first_sequence = 1;  // of the lines of a job that is new here: above those of all that were forgotten
};

class JobOrderRunner {
 public:
  JobOrderRunner(NodeParts& parts, JobId job);

  void obey(const elastic::JobOrder& job_order);
  // The head does not know this job (any more): as if it had ended.
  void abandon();
  // The node goes away: workers get SIGTERM and the job order's grace; nothing is started any more. `in_peace`: a head
  // may hear of it. Then workers that can leave their group in place have a moment for that before.
  void leave(const std::string& reason, bool in_peace = false);
  // The workers get SIGTERM, as if the head had said so.
  void save_and_stop() { stop_workers(); }
  void kill();

  // None of its workers may live then, whatever happens; nullopt: nobody says so (any more).
  void set_drain_end(std::optional<Instant> end);

  // What NodeParts::lease_end says has changed.
  void renew();

  // One step nearer to what was asked for. Called after each of the above and after each wake().
  void follow();

  elastic::JobOrderReport report();
  // Of the workers that are alive; null: there are none.
  const elastic::RoundId* live_round() const { return idle() ? nullptr : &group_->terms.round; }
  bool idle() const { return !group_ || !group_->workers.alive(); }
  Duration grace() const { return job_order_.grace; }
  // Abandoned, and nothing is left of it.
  bool forgotten() const { return abandoned_ && gone_; }
  LogSpool& log() { return log_; }

 private:
  // The workers of one generation with what they must not outlive.
  struct Group {
    Group(NodeParts& parts, LaunchSpec spec_in, agent::WorkerGroup::Setup setup, Devices::Share devices_in);
    LaunchSpec spec;
    elastic::LeaseTerms terms;  // of the order that they were started by, or whose plan they follow
    bool waits = false;         // all of them wait for their first plan
    Devices::Share devices;
    agent::WorkerGroup workers;
  };

  void follow_gathering();
  void follow_running();
  void follow_ended();
  void stop_workers();
  void bound_workers();
  bool is_lease_over(const elastic::LeaseTerms& terms) const;
  void begin_preparing();
  Task<void> prepare();
  Task<void> make_work_folder();
  void start_workers();
  void begin_checkpoints();
  bool are_checkpoints_here();
  bool is_all_kept() const;  // lines and checkpoints: the head has them
  agent::WorkerGroup::Setup make_setup(const std::string& visible_devices);
  void could_not_start(const Error& error);
  void settle_log();
  elastic::JobOrderReport running_report(elastic::JobOrderReport report);
  std::vector<elastic::Failure> failures() const;
  std::vector<elastic::Failure> explained(std::vector<elastic::Failure> list) const;
  void make_group();

  // job_order_in_place.cc
  bool open_in_place();
  void begin_anew();
  void note_ended();
  bool follow_kept();
  void add_newcomers();
  bool may_leave_in_peace() const;
  bool in_peace() const;
  Task<void> end_peace();
  bool holds_workers();
  bool leaves_by_plan();
  void follow_plan();
  void adopt_plan();
  void add_worker(agent::InPlace::Slot& slot);
  void fit_devices();
  bool lease_port();
  elastic::JobOrderReport kept_report(elastic::JobOrderReport report) const;
  std::optional<elastic::InPlaceReport> in_place_report() const;
  std::vector<elastic::Failure> dead_members() const;
  void remember(int rank, const std::string& line);
  const std::string& python() const;
  std::string folder() const { return parts_.settings.folder + "/jobs/" + job_.value; }
  std::string share_folder() const { return folder() + "/share"; }

  NodeParts& parts_;
  const JobId job_;
  LogSpool log_;
  elastic::JobOrder job_order_;  // kEnded before the first: what is here then is what an earlier agent left
  bool abandoned_ = false;
  bool waits_for_lease_ = false;  // to start its workers
  std::string leaving_;           // why nothing is started any more
  Instant peace_until_{};
  std::optional<Instant> drain_end_;
  bool bounded_ = false;  // its workers have a time by which they end

  bool preparing_ = false, prepared_ = false;
  std::string problem_;
  std::string told_;  // the last problem that the log was told
  std::unique_ptr<PortLease> port_;
  Generation started_ = 0;                    // the newest generation that was tried
  Generation finished_ = 0;                   // the same, if its workers all ended well by themselves
  std::optional<elastic::Failure> no_start_;  // of that generation
  std::vector<std::string> forced_;
  std::map<int, std::deque<std::string>> last_output_;  // on standard error, by rank: why a worker ended
  bool settled_ = false;                               // the log knows that the workers have ended
  bool gone_ = false;
  std::unique_ptr<Group> group_;

  std::unique_ptr<agent::InPlace> in_place_;
  bool no_in_place_ = false;                       // it could not be had
  Generation anew_for_ = 0;                        // its slots are for all to begin together in this generation
  std::map<std::string, elastic::Failure> dead_;   // of the newest plan, by name
  Generation declined_ = 0;                        // for this one a newcomer ended before it could join
  std::string declined_why_;
  Scope scope_;
};

}  // namespace rubato::node
