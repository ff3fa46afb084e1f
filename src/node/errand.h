// ErrandRunner: one job's part on this node, brought to what the head says.
//
//   GATHERING g: (1) older workers stop ──▶ (2) package and working folder ──▶ (3) kReady, with a port kept free
//   RUNNING g:   (2) if it was skipped ──▶ (4) workers run ──▶ (5) kSucceeded or kFailed; g never runs twice here
//   ENDED:       (1) ──▶ (6) lines are out, folders are gone: kGone
//
// Each step looks at what is, never at how it came about: an errand may be repeated, skipped or taken back at any time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/event_log.h"
#include "agent/worker_group.h"
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
  Devices& devices;
  agent::EventLog& events;
  std::function<void()> stir;  // something changed: call follow() soon, in another turn
  // One interpreter is kept warm on a node: prewarm() makes it this job's, whose program is there by now.
  std::function<void(const elastic::Errand&, const std::string& python, const std::string& work)> prewarm;
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

class ErrandRunner {
 public:
  ErrandRunner(NodeParts& parts, JobId job);

  void obey(const elastic::Errand& errand);
  // The head does not know this job (any more): as if it had ended.
  void abandon();
  // The node goes away: workers get SIGTERM and the errand's grace; nothing is started any more.
  void leave(const std::string& reason);
  void kill();

  // What NodeParts::lease_end says has changed.
  void renew();

  // One step nearer to what was asked for. Called after each of the above and after each stir().
  void follow();

  elastic::ErrandReport report();
  // Of the workers that are alive; null: there are none.
  const elastic::RoundId* live_round() const { return idle() ? nullptr : &group_->terms.round; }
  bool idle() const { return !group_ || !group_->workers.alive(); }
  Duration grace() const { return errand_.grace; }
  // Abandoned, and nothing is left of it.
  bool forgotten() const { return abandoned_ && gone_; }
  LogSpool& log() { return log_; }

 private:
  // The workers of one generation with what they must not outlive.
  struct Group {
    Group(NodeParts& parts, LaunchSpec spec_in, agent::WorkerGroup::Setup setup, Devices::Share devices_in);
    LaunchSpec spec;
    elastic::LeaseTerms terms;  // of the order that they were started by, whatever is ordered since
    Devices::Share devices;
    agent::WorkerGroup workers;
  };

  void follow_gathering();
  void follow_running();
  void follow_ended();
  void stop_workers();
  bool is_lease_over(const elastic::LeaseTerms& terms) const;
  void begin_preparing();
  Task<void> prepare();
  Task<void> make_work_folder();
  void start_workers();
  agent::WorkerGroup::Setup make_setup(const std::string& visible_devices);
  void could_not_start(const Error& error);
  void settle_log();
  elastic::ErrandReport running_report(elastic::ErrandReport report);
  std::vector<elastic::Failure> failures() const;
  void remember(int rank, const std::string& line);
  const std::string& python() const;
  std::string folder() const { return parts_.settings.folder + "/jobs/" + job_.value; }

  NodeParts& parts_;
  const JobId job_;
  LogSpool log_;
  elastic::Errand errand_;  // kEnded before the first: what is here then is what an earlier agent left
  bool abandoned_ = false;
  bool waits_for_lease_ = false;  // to start its workers
  std::string leaving_;           // why nothing is started any more

  bool preparing_ = false, prepared_ = false;
  std::string problem_;
  std::string told_;  // the last problem that the log was told
  std::unique_ptr<PortLease> port_;
  Generation started_ = 0;                    // the newest generation that was tried
  Generation finished_ = 0;                   // the same, if its workers all ended well by themselves
  std::optional<elastic::Failure> no_start_;  // of that generation
  std::vector<std::string> forced_;
  std::map<int, std::deque<std::string>> last_words_;  // on standard error, by rank: why a worker ended
  bool settled_ = false;                               // the log knows that the workers have ended
  bool gone_ = false;
  std::unique_ptr<Group> group_;
  Scope scope_;
};

}  // namespace rubato::node
