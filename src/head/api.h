// Api: the head's HTTP interface. src/api describes it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/endpoints.h"
#include "core/metrics.h"
#include "head/controller.h"
#include "reconcile/admit.h"
#include "world/http_server.h"

namespace rubato::head {

class Api {
 public:
  // `token`: what people must show. `record_bytes_max`: what the journal takes as one record.
  Api(World& world, Controller& controller, Metrics& metrics, std::string token, size_t record_bytes_max);

  Task<ServerReply> handle(ServerRequest request);

  // Whether it shows the token, and how much it may say.
  HttpAdmission admit_headers(const ServerRequest& head) const;

 private:
  struct Call {
    ServerRequest request;
    std::map<std::string, std::string> parts;  // of the path, by the names in the pattern
  };
  using Handler = Task<ServerReply> (Api::*)(Call);
  struct Route {
    const api::Endpoint* endpoint;
    Handler handler;
  };
  static const std::vector<Route>& routes();

  Task<ServerReply> healthz(Call call);
  Task<ServerReply> show_metrics(Call call);
  Task<ServerReply> status(Call call);
  Task<ServerReply> configure(Call call);
  Task<ServerReply> shutdown(Call call);
  Task<ServerReply> nodes(Call call);
  Task<ServerReply> node(Call call);
  Task<ServerReply> drain_node(Call call);
  Task<ServerReply> drain_node_by(Call call);
  Task<ServerReply> keep_node(Call call);
  Task<ServerReply> declare_lost(Call call);
  Task<ServerReply> node_why(Call call);
  Task<ServerReply> request_resources(Call call);
  Task<ServerReply> audit(Call call);
  Task<ServerReply> decisions(Call call);
  Task<ServerReply> plan(Call call);
  Task<ServerReply> node_log(Call call);
  Task<ServerReply> package(Call call);
  Task<ServerReply> put_package(Call call);
  Task<ServerReply> submit(Call call);
  Task<ServerReply> jobs(Call call);
  Task<ServerReply> job(Call call);
  Task<ServerReply> stop(Call call);
  Task<ServerReply> rerun(Call call);
  Task<ServerReply> job_why(Call call);
  Task<ServerReply> logs(Call call);
  Task<ServerReply> output(Call call);
  Task<ServerReply> events(Call call);
  Task<ServerReply> replay(Call call);

  Task<ServerReply> accept_job(JobSpec spec, std::string request_id, std::string rerun_of);
  Task<ClusterSpec> parse_spec(std::string text, std::string file, std::string files_hash);
  // A document that may be long, made beside the loop; `make` owns what it touches.
  using MakeDocument = std::function<nlohmann::json(const cluster::State& state)>;
  Task<ServerReply> reply_from_state(MakeDocument make, int status = 200);
  // Through the front door, and into the journal: durable when it returns. Throws the refusal. Returns the job, if it
  // is about one.
  Task<JobId> admit(reconcile::Request request);
  bool authorized(const ServerRequest& request) const;

  World& world_;
  Controller& controller_;
  Metrics& metrics_;
  std::string token_;
  const size_t record_bytes_max_;
};

}  // namespace rubato::head
