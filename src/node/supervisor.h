// Supervisor: AdaptDL's supervisor protocol for the workers of this node, so that the original package runs unmodified.
//
//   GET /SECRET/healthz
//   GET /SECRET/discover/NAMESPACE/JOB/GROUP?timeout=30   the addresses of all workers by rank; 408: ask again
//   PUT /SECRET/hints/NAMESPACE/JOB                       what the job has found out about itself
//
// Its client sends no credentials. So it listens on loopback, and each job's workers are told a path of their own that
// nobody can guess.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "elastic/node_wire.h"
#include "world/http_server.h"
#include "world/world.h"

namespace rubato::node {

class Supervisor {
 public:
  using Hints = std::function<void(elastic::JobHints)>;

  Supervisor(World& world, uint16_t port, Hints hints);

  // ADAPTDL_SUPERVISOR_URL of this job's workers here.
  std::string url_for(const JobId& job);
  // Workers of this generation are about to run.
  void follow(const elastic::JobOrder& job_order);
  void forget(const JobId& job) { jobs_.erase(job); }

  Task<ServerReply> handle(ServerRequest request);
  HttpAdmission admit(const ServerRequest& head) const;

 private:
  struct Served {
    std::string secret;
    Generation generation = 0;
    std::vector<std::string> addresses;  // by rank
  };
  const JobId* owner_of(std::string_view secret) const;
  Served& served(const JobId& job);
  Task<ServerReply> discover(JobId job, uint64_t group, Duration patience);
  ServerReply take_hints(const JobId& job, const std::string& body);

  World& world_;
  const uint16_t port_;
  const Hints hints_;
  std::map<JobId, Served> jobs_;
  Event changed_;
};

// AdaptDL's id of a job, "namespace/name", and its count of restarts, which names the group of workers.
std::string adaptdl_job_id(const JobId& job);
uint64_t adaptdl_group(Generation generation);

}  // namespace rubato::node
