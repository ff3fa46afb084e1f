// Controller: the operator's loop. Watches jobs and pods, asks `decide`, and carries out what it says.
//
// It holds no fact that is not in the API's objects, but pauses after refusals. A job that does not change costs no
// call. Several jobs are worked on at a time, each by one coroutine. What fails is tried again with growing pauses.
// Order of one turn: failures and status first, then pods that go, then pods that come; so that a turn that is cut
// anywhere is continued by the next, of this operator or of another.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/log.h"
#include "core/scope.h"
#include "elasticjob/decide.h"
#include "elasticjob/pod_manifest.h"
#include "elasticjob/supervisor.h"
#include "kubernetes/client.h"
#include "kubernetes/reflector.h"

namespace rubato::elasticjob {

struct ControllerSettings {
  std::string namespace_name;  // empty: all
  std::vector<Kind> kinds{Kind::kElasticJob};
  LauncherDelivery delivery;
  SupervisorAddress supervisor;  // where workers of adaptive jobs report
  int parallel = 8;              // jobs that are worked on at a time
};

struct JobKey {
  Kind kind = Kind::kElasticJob;
  ObjectName name;
  auto operator<=>(const JobKey&) const = default;
};

class Controller {
 public:
  // `client` outlives it.
  Controller(kubernetes::Client& client, ControllerSettings settings, Log log);
  ~Controller();

  // Never returns; cancel it. Throws when jobs or pods cannot be listed at all (no CRD of ours, no permission). An
  // adopted kind without a CRD is waited for.
  Task<void> run();

 private:
  class JobSink;
  class PodSink;
  class NodeSink;
  struct Entry {
    std::shared_ptr<const Job> job;  // null: pods without a job
    std::map<std::string, Pod> pods;
    Trouble trouble;
    int refusals = 0;
    Instant make_after{};  // no pod is made before: the server refused one
    int errors = 0;
    int services_for = -1;  // replicas that services were made for
    std::string services_uid;
    std::string alone_uid;  // of the job that no other controller has pods of
    std::string aside_uid;  // of the job that another controller runs, and that this was told of
    bool busy = false;
    std::optional<Instant> due;
  };

  enum class News {
    kListed,
    kRewound,  // of a list that is older than what was seen before: it counts all the same
    kWatched,
    kAnswered,  // to what we wrote: the watch may have overtaken it
  };

  void put_job(Kind kind, const nlohmann::json& document, News news);
  void remove_job(const JobKey& key, const std::string& uid);
  void put_pod(const nlohmann::json& document, News news);
  void remove_pod(const JobKey& key, const std::string& name, const std::string& uid);
  void wake(const JobKey& key);
  void wake_at(const JobKey& key, Instant at);
  Task<void> keep_time();
  Task<void> work();
  Task<void> reconcile(JobKey key);
  Task<std::optional<WallTime>> take_turn(JobKey key, std::shared_ptr<const Job> job);  // when to come again
  Task<std::string> find_other_controller(JobKey key, std::shared_ptr<const Job> job);  // empty: there is none
  Task<void> step_aside(JobKey key, std::shared_ptr<const Job> job, std::string why);
  void put_node(const std::string& name, NodeNotice notice);
  Task<void> follow_nodes();
  Task<void> follow_when_served(kubernetes::Reflector& reflector, kubernetes::ObjectSink& sink);
  Task<void> write_size(JobKey key, std::shared_ptr<const Job> job, SizeNote size);
  Task<void> act(JobKey key, std::shared_ptr<const Job> job, Decision decision);
  Task<nlohmann::json> patch_status(std::shared_ptr<const Job> job, nlohmann::json patch, const char* manager);
  Task<void> write_status(JobKey key, std::shared_ptr<const Job> job, const Status& status);
  Task<void> remove_pods(JobKey key, std::shared_ptr<const Job> job, std::vector<RemovePod> orders);
  Task<bool> ensure_services(JobKey key, std::shared_ptr<const Job> job);  // false: refused
  void refuse(const JobKey& key, Block block);                             // the server did: no pod is made for a while
  Task<void> make_pods(JobKey key, std::shared_ptr<const Job> job, std::vector<MakePod> orders);
  Task<bool> make_one_pod(JobKey key, std::shared_ptr<const Job> job, MakePod order);  // false: refused
  Task<void> report(std::shared_ptr<const Job> job, bool is_warning, std::string reason, std::string message);

  kubernetes::Client& client_;
  World& world_;
  const ControllerSettings settings_;
  Log log_;
  std::map<JobKey, Entry> entries_;
  std::map<Kind, uint64_t> reached_;  // the versions that the watches, or lists, have come to
  uint64_t pods_reached_ = 0;
  std::map<std::string, NodeNotice> noticed_nodes_;
  std::deque<JobKey> line_;   // of those that are to have a turn
  std::set<JobKey> pending_;  // the same
  std::set<std::pair<Instant, JobKey>> timers_;
  Event changed_, timers_changed_;
  size_t lists_missing_ = 0;
  std::vector<std::unique_ptr<kubernetes::ObjectSink>> sinks_;
  std::vector<std::unique_ptr<kubernetes::Reflector>> reflectors_;
  std::unique_ptr<kubernetes::ObjectSink> node_sink_;
  std::unique_ptr<kubernetes::Reflector> node_reflector_;
  Scope scope_;
};

}  // namespace rubato::elasticjob
