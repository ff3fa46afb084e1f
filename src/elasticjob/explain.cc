#include "elasticjob/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/timestamp.h"
#include "elasticjob/manifest.h"
#include "elasticjob/sizing.h"

namespace rubato::elasticjob {

using kubernetes::Client;
using kubernetes::int_in;
using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::text_in;
using nlohmann::json;

namespace {

constexpr size_t kEventsMax = 8;
constexpr size_t kPodsMax = 8;
constexpr int kPageMax = 500;

// What a person does about it; empty: nothing, or the reason says it.
std::string fix_of(const std::string& reason, const Job& job) {
  const std::string& home = job.name.namespace_name;
  if (reason == "ImagePullFailed")
    return "the image's name is mended, or the nodes may pull it (spec.template.spec.imagePullSecrets)";
  if (reason == "Unschedulable")
    return "nodes are added or become free, or the pods ask for less (resources.requests, nodeSelector, tolerations)";
  if (reason == "SchedulingGated")
    return "whoever gates the pods admits them (Kueue: kubectl get workloads), or the gates leave the template";
  if (reason == "PodRefused")
    return fmt::format(
        "the pods are as the namespace admits them (Pod Security, LimitRange, webhooks): "
        "kubectl describe namespace {}, kubectl describe limitrange -n {}",
        home, home);
  if (reason == "QuotaExceeded") return fmt::format("room in the quota: kubectl describe quota -n {}", home);
  if (reason == "ContainerCannotStart")
    return "what the container names is there: its secrets, config maps, volumes, its command";
  if (reason == "InvalidSpec")
    return fmt::format("the job is mended: kubectl edit {} {} -n {}", to_string(job.kind), job.name.name, home);
  if (reason == kAsideReason)
    return fmt::format("that controller is stopped, or the operator runs without --adopt {}", to_string(job.kind));
  if (reason == "RangeChanged") return "the job is suspended and resumed: its group then starts with the new range";
  if (reason == "ReplicasOutOfRange") return "maxReplicas or minReplicas is changed, or replicas";
  if (reason == "ServiceRefused") return fmt::format("a service may be made: kubectl describe quota -n {}", home);
  if (reason == "NameTaken") return "that pod goes, or the job gets another name";
  if (reason == "HeldByFinalizer")
    return "whoever has set the finalizer takes it away: is that controller running? (kubectl describe pod POD)";
  if (reason == "NodeLost") return "the node returns, or: kubectl delete pod POD --force, if the machine is surely off";
  return "";
}

void add_obstacle(api::Why& why, const Block& block, const Job& job, std::set<std::string>& known) {
  if (block.reason.empty() || !known.insert(block.message).second) return;
  why.against.push_back({fmt::format("{}: {}", block.reason, block.message), std::nullopt});
  const std::string fix = fix_of(block.reason, job);
  const auto is_same = [&](const api::Change& one) { return one.text == fix; };
  if (!fix.empty() && std::ranges::none_of(why.changes, is_same)) why.changes.push_back({fix, std::nullopt});
}

std::optional<WallTime> time_of(const json& event) {
  for (const char* key : {"lastTimestamp", "eventTime", "firstTimestamp"}) {
    if (const auto at = parse_time(text_in(event, key))) return at;
  }
  return parse_time(text_in(object_in(event, "metadata"), "creationTimestamp"));
}

std::vector<api::Change> history_of(const std::vector<json>& events) {
  std::vector<api::Change> out;
  for (const json& event : events) {
    const int64_t count = int_in(event, "count", 1);
    std::string text = fmt::format("{}: {}", text_in(event, "reason"), text_in(event, "message"));
    if (count > 1) text += fmt::format(" ({} times)", count);
    out.push_back({std::move(text), time_of(event)});
  }
  std::ranges::stable_sort(out, {}, [](const api::Change& one) { return one.when.value_or(WallTime{}); });
  if (out.size() > kEventsMax) out.erase(out.begin(), out.end() - kEventsMax);
  return out;
}

std::string ratio_of(const Job& job) {
  if (job.min_replicas == job.max_replicas) return std::to_string(job.replicas);
  return fmt::format("{} ({}:{})", job.replicas, job.min_replicas, job.max_replicas);
}

}  // namespace

api::Why explain(const Job& job, const std::vector<Pod>& pods, const std::vector<json>& events) {
  api::Why why;
  why.subject = fmt::format("{} {}", kubernetes::Resource(resource_of(job.kind)).kind, to_string(job.name));
  why.phase = to_string(job.status.phase);
  why.wanted = fmt::format("workers: {}, {} ready", ratio_of(job), job.status.ready);
  if (job.adaptive) why.wanted += "; " + explain_size(job);
  why.state = job.status.message;
  std::set<std::string> known;
  if (job.ignored) {
    why.against.push_back(
        {"it is none of those that the operator runs: it has no elasticPolicy, or its "
         "runPolicy.managedBy names somebody else",
         std::nullopt});
  } else if (job.status.observed_generation < job.generation && !is_final(job.status.phase)) {
    why.against.push_back({"no operator has seen it as it is now", std::nullopt});
    why.changes.push_back(
        {job.kind == Kind::kElasticJob
             ? "an operator runs for its namespace: rubato k8s install"
             : fmt::format("an operator adopts it: rubato k8s install --adopt {}", to_string(job.kind)),
         std::nullopt});
  }
  if (!job.invalid.empty()) add_obstacle(why, {"InvalidSpec", job.invalid}, job, known);
  for (const Condition& one : job.status.conditions) {
    if (one.type == "Blocked" && one.is_true) add_obstacle(why, {one.reason, one.message}, job, known);
  }
  size_t shown = 0;
  for (const Pod& pod : pods) {
    if (pod.deleting || pod.waiting.reason.empty() || ++shown > kPodsMax) continue;
    add_obstacle(why, pod.waiting, job, known);
  }
  if (is_final(job.status.phase) && !job.status.reason.empty()) {
    why.against.push_back({fmt::format("{}: {}", job.status.reason, job.status.message), std::nullopt});
  }
  if (job.suspended) {
    why.against.push_back({"it is suspended (spec.suspend)", std::nullopt});
    why.changes.push_back({"spec.suspend is false again", std::nullopt});
  }
  why.history = history_of(events);
  return why;
}

namespace {

Task<std::vector<json>> list_events(Client& client, std::string home, std::string uid) {
  kubernetes::Request request;
  request.path = path_of(kubernetes::events(), {home, ""});
  request.query.emplace_back("fieldSelector", "involvedObject.uid=" + uid);
  request.query.emplace_back("limit", std::to_string(kPageMax));
  const HttpResponse answer = co_await client.read_text(std::move(request));
  const json document = kubernetes::read_document(answer.body, "the events of a job");
  const json& items = list_in(document, "items");
  std::vector<json> out(items.begin(), items.end());
  co_return out;
}

Task<std::vector<Pod>> list_pods(Client& client, const Job& job) {
  const kubernetes::ListPage page =
      co_await client.list(kubernetes::pods(), job.name.namespace_name, selector_of(job), kPageMax, "");
  const json document = kubernetes::read_document(page.body, "the pods of a job");
  std::vector<Pod> out;
  for (const json& one : list_in(document, "items")) out.push_back(read_pod(one));
  co_return out;
}

}  // namespace

Task<FoundJob> find_job(Client& client, ObjectName name) {
  std::optional<Error> refusal;
  for (const Kind kind : kAllKinds) {
    std::optional<json> found;
    try {
      found = co_await client.find(resource_of(kind), name);
    } catch (const Error& error) {
      // Who may not read one kind may still read the one that it is of.
      if (error.code != ErrorCode::kAuth) throw;
      if (!refusal) refusal = error;
    }
    if (!found) continue;
    FoundJob out;
    out.kind = kind;
    out.document = found->dump();
    co_return out;
  }
  if (refusal) throw *refusal;
  throw Error(ErrorCode::kNotFound,
              fmt::format("no elastic job is called '{}' in the namespace '{}'", name.name, name.namespace_name), "",
              "kubectl get elasticjobs -A lists them; --namespace names another");
}

Task<api::Why> fetch_explanation(Client& client, ObjectName name) {
  Task<FoundJob> finding = find_job(client, name);
  const FoundJob found = co_await std::move(finding);
  const Job job = read_job(found.kind, json::parse(found.document));
  const std::vector<Pod> pods = co_await list_pods(client, job);
  const std::vector<json> events = co_await list_events(client, name.namespace_name, job.uid);
  co_return explain(job, pods, events);
}

}  // namespace rubato::elasticjob
