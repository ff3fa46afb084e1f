#include "api/endpoints.h"

#include "api/cluster_documents.h"
#include "api/openapi.h"
#include "api/requests.h"
#include "model/limits.h"

namespace rubato::api {

namespace {

using Kind = Parameter::Kind;

template <class T>
OrderedJson schema_of(Components& components) {
  return components.schema<T>();
}

template <class T>
Answer answer(int status = 200, std::string about = "") {
  return {status, about.empty() ? T::kName : std::move(about), schema_of<T>};
}

Answer refusal(int status) {
  switch (status) {
    case 400:
      return answer<ErrorAnswer>(400, "It makes no sense: what, where, and how to fix it");
    case 404:
      return answer<ErrorAnswer>(404, "There is no such thing");
    case 413:
      return answer<ErrorAnswer>(413, "It is too large");
    default:
      return answer<ErrorAnswer>(status, "It is in conflict with what there is");
  }
}

Answer text(std::string about) { return {200, std::move(about), nullptr}; }

std::vector<Endpoint> cluster_endpoints() {
  return {
      {.method = "GET",
       .path = "/healthz",
       .summary = "Whether the head answers",
       .body_bytes_max = kPlainBodyMax,
       .is_open = true,
       .answers = {answer<Health>()}},
      {.method = "GET",
       .path = "/metrics",
       .summary = "Prometheus text",
       .body_bytes_max = kPlainBodyMax,
       .answers = {text("text/plain")}},
      {.method = "GET",
       .path = "/api/v1/status",
       .summary = "Cluster, nodes, jobs that have not ended and the last ten that have, last events",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Status>()}},
      {.method = "PUT",
       .path = "/api/v1/cluster",
       .summary = "Make the cluster what this file says; nothing but what differs is touched",
       .body_bytes_max = kClusterFileBodyMax,
       .body = schema_of<Configure>,
       .answers = {answer<Configured>(), refusal(400)}},
      {.method = "POST",
       .path = "/api/v1/shutdown",
       .summary = "Stop all jobs, remove all nodes, end the head",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Accepted>(202, "It has begun")}},
      {.method = "GET",
       .path = "/api/v1/events",
       .summary = "Records of the journal",
       .body_bytes_max = kPlainBodyMax,
       .query = {{"after", Kind::kInteger, "an offset"},
                 {"limit", Kind::kInteger, "100; 5000 at most"},
                 {"follow", Kind::kBoolean, "as text/event-stream: an Event a message, its offset as the id"}},
       .answers = {answer<Events>()}},
      {.method = "GET",
       .path = "/api/v1/replay",
       .summary = "The status document as it was",
       .body_bytes_max = kPlainBodyMax,
       .query = {{"until", Kind::kTime, ""}, {"offset", Kind::kInteger, "of the last record that counts"}},
       .answers = {answer<Status>(), refusal(404)}},
  };
}

std::vector<Endpoint> node_endpoints() {
  return {
      {.method = "GET",
       .path = "/api/v1/nodes",
       .summary = "All nodes",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Nodes>()}},
      {.method = "GET",
       .path = "/api/v1/nodes/{id}",
       .summary = "One node",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Node>(), refusal(404)}},
      {.method = "DELETE",
       .path = "/api/v1/nodes/{id}",
       .summary = "Drain it and remove it",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Accepted>(202, "It has begun"), refusal(404)}},
      {.method = "POST",
       .path = "/api/v1/nodes/{id}/drain",
       .summary = "Move its jobs away, by a deadline if there is one, and remove it",
       .body_bytes_max = kPlainBodyMax,
       .body = schema_of<Drain>,
       .answers = {answer<Accepted>(202, "It has begun"), refusal(400), refusal(404)}},
      {.method = "DELETE",
       .path = "/api/v1/nodes/{id}/drain",
       .summary = "It is kept after all; not where its machine goes away by itself",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Accepted>(202, "It is written down"), refusal(404), refusal(409)}},
      {.method = "POST",
       .path = "/api/v1/nodes/{id}/lost",
       .summary = "A person knows that it is dead: its jobs need not wait for their lease",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Accepted>(202, "It is written down"), refusal(404), refusal(409)}},
      {.method = "GET",
       .path = "/api/v1/nodes/{id}/why",
       .summary = "Why it is as it is; also of one that is gone",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Why>(), refusal(404)}},
      {.method = "GET",
       .path = "/api/v1/nodes/{id}/log",
       .summary = "How it was set up: what its commands wrote",
       .body_bytes_max = kPlainBodyMax,
       .answers = {text("text/plain"), refusal(404)}},
  };
}

std::vector<Endpoint> scale_endpoints() {
  return {
      {.method = "POST",
       .path = "/api/v1/requests",
       .summary = "Have the cluster keep room for these bundles, instead of those asked for before",
       .body_bytes_max = kResourcesBodyMax,
       .body = schema_of<Bundles>,
       .answers = {answer<Autoscaler>(202), refusal(400)}},
      {.method = "GET",
       .path = "/api/v1/audit",
       .summary = "Machines that are owned or leaked, and what they have cost",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Audit>()}},
      {.method = "GET",
       .path = "/api/v1/decisions",
       .summary = "The last decisions of the autoscaler with their reasons",
       .body_bytes_max = kPlainBodyMax,
       .query = {{"limit", Kind::kInteger, "1; 100 at most"}},
       .answers = {answer<ScaleDecisions>()}},
      {.method = "POST",
       .path = "/api/v1/plan",
       .summary = "What up and the autoscaler would do with a cluster file, and what it would cost. Changes nothing",
       .body_bytes_max = kClusterFileBodyMax,
       .body = schema_of<PlanRequest>,
       .answers = {answer<Plan>(), refusal(400)}},
  };
}

std::vector<Endpoint> job_endpoints() {
  return {
      {.method = "GET",
       .path = "/api/v1/packages/{hash}",
       .summary = "How much of a package is here",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<PackageProgress>()}},
      {.method = "PUT",
       .path = "/api/v1/packages/{hash}",
       .summary = "A part of a package; the last one is checked against the hash (SHA-256 of the bytes)",
       .body_bytes_max = kPackagePartBodyMax,
       .query = {{"offset", Kind::kInteger, ""}, {"size", Kind::kInteger, "of the whole package"}},
       .answers = {answer<PackageProgress>(), refusal(409), refusal(413)}},
      {.method = "GET",
       .path = "/api/v1/jobs",
       .summary = "Jobs that have not ended: those with workers, then the queue in its order",
       .body_bytes_max = kPlainBodyMax,
       .query = {{"all", Kind::kBoolean, "ended ones too"}},
       .answers = {answer<Jobs>()}},
      {.method = "POST",
       .path = "/api/v1/jobs",
       .summary = "Submit a job: a spec as `rubato job show --json` prints it, and a request_id of yours. The same "
                  "request_id twice is the same job",
       .body_bytes_max = kJobBodyMax,
       .body = schema_of<JobSpec>,
       .answers = {answer<Job>(201), refusal(400), refusal(409)}},
      {.method = "GET",
       .path = "/api/v1/jobs/{ref}",
       .summary = "One job, by id, unique prefix of it, or name (the newest with it)",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<JobDetail>(), refusal(404)}},
      {.method = "POST",
       .path = "/api/v1/jobs/{ref}/stop",
       .summary = "SIGTERM to its workers, SIGKILL after its grace",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Job>(202), refusal(404)}},
      {.method = "POST",
       .path = "/api/v1/jobs/{ref}/rerun",
       .summary = "Submit the same again",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Job>(201), refusal(404)}},
      {.method = "GET",
       .path = "/api/v1/jobs/{ref}/why",
       .summary = "What is wanted, what stands against it, what would change it and when",
       .body_bytes_max = kPlainBodyMax,
       .answers = {answer<Why>(), refusal(404)}},
      {.method = "GET",
       .path = "/api/v1/jobs/{ref}/logs",
       .summary = "Its lines",
       .body_bytes_max = kPlainBodyMax,
       .query = {{"follow", Kind::kBoolean, "until it has ended"},
                 {"rank", Kind::kInteger, ""},
                 {"since", Kind::kTime, ""},
                 {"tail", Kind::kInteger, "the last ones"}},
       .answers = {text("application/x-ndjson: {\"time\", \"rank\", \"node\", \"generation\", \"stream\", \"text\"} a "
                        "line; \"missing\": {\"lines\", \"bytes\"} in one that stands for lines that a node with a "
                        "full disk could not keep; \"continues\": true in one whose line was longer than 64 KiB and "
                        "goes on in the next of this output"),
                   refusal(404)}},
      {.method = "GET",
       .path = "/api/v1/jobs/{ref}/output",
       .summary = "Its output folder",
       .body_bytes_max = kPlainBodyMax,
       .answers = {text("application/x-tar+zstd"), refusal(404)}},
  };
}

}  // namespace

const std::vector<Endpoint>& endpoints() {
  static const std::vector<Endpoint> all = [] {
    std::vector<Endpoint> out;
    for (std::vector<Endpoint>& part :
         std::vector{cluster_endpoints(), node_endpoints(), scale_endpoints(), job_endpoints()})
      out.insert(out.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
    return out;
  }();
  return all;
}

}  // namespace rubato::api
