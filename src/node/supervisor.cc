#include "node/supervisor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "model/supervisor_request.h"
#include "world/http_reply.h"

namespace rubato::node {

using nlohmann::json;

namespace {

constexpr std::string_view kNamespace = "rubato";

}  // namespace

std::string adaptdl_job_id(const JobId& job) { return fmt::format("{}/{}", kNamespace, job.value); }

uint64_t adaptdl_group(Generation generation) { return generation > 0 ? generation - 1 : 0; }

Supervisor::Supervisor(World& world, uint16_t port, Hints hints)
    : world_(world), port_(port), hints_(std::move(hints)), changed_(world.clock.loop()) {}

Supervisor::Served& Supervisor::served(const JobId& job) {
  Served& one = jobs_[job];
  if (one.secret.empty()) one.secret = world_.random.hex(32);
  return one;
}

std::string Supervisor::url_for(const JobId& job) {
  return fmt::format("http://127.0.0.1:{}/{}", port_, served(job).secret);
}

void Supervisor::follow(const elastic::JobOrder& job_order) {
  Served& one = served(job_order.job);
  one.generation = job_order.generation;
  one.addresses.clear();
  for (const elastic::PeerSeat& peer : job_order.peers) {
    for (int i = 0; i < peer.workers; ++i) one.addresses.push_back(peer.address);
  }
  // Nobody needs more of very many than where the first one is.
  if (one.addresses.empty()) one.addresses.push_back(job_order.master_addr);
  changed_.notify();
}

// All are compared, however early one is found: the time says nothing of a guess.
const JobId* Supervisor::owner_of(std::string_view secret) const {
  const JobId* owner = nullptr;
  for (const auto& [job, one] : jobs_) {
    if (constant_time_equal(one.secret, secret)) owner = &job;
  }
  return owner;
}

HttpAdmission Supervisor::admit(const ServerRequest& head) const {
  const std::vector<std::string_view> parts = split(head.path, '/');
  return {parts.size() > 1 && owner_of(parts[1]) != nullptr, kHintsBytesMax};
}

Task<ServerReply> Supervisor::handle(ServerRequest request) {
  const std::vector<std::string_view> parts = split(request.path, '/');  // "", secret, verb, ...
  const JobId* owner = parts.size() > 2 ? owner_of(parts[1]) : nullptr;
  if (!owner) co_return error_reply(404, "not_found", "there is nothing here");
  const JobId job = *owner;
  const auto timeout = request.query.find("timeout");
  std::optional<std::string> asked;
  if (timeout != request.query.end()) asked = timeout->second;
  // The secret says which job it is; its name in the path says nothing more.
  const SupervisorRequest order = read_supervisor_request(request.method, std::span(parts).subspan(2), asked);
  switch (order.verb) {
    case SupervisorRequest::Verb::kHealth: {
      ServerReply reply;
      reply.headers["content-type"] = "text/plain";
      reply.body = "OK";
      co_return reply;
    }
    case SupervisorRequest::Verb::kDiscover:
      co_return co_await discover(job, order.group, order.patience);
    case SupervisorRequest::Verb::kHints:
      co_return take_hints(job, request.body);
    case SupervisorRequest::Verb::kMalformed:
      co_return error_reply(400, "usage", "expected /discover/NAMESPACE/JOB/GROUP?timeout=SECONDS");
    case SupervisorRequest::Verb::kUnknown:
      break;
  }
  co_return error_reply(404, "not_found", "there is nothing here", "",
                        "healthz, discover/NAMESPACE/JOB/GROUP and hints/NAMESPACE/JOB are");
}

// A worker asks for its own group, which is here already; one of a later group waits until it comes.
Task<ServerReply> Supervisor::discover(JobId job, uint64_t group, Duration patience) {
  const Instant deadline = world_.clock.now() + patience;
  while (true) {
    const auto it = jobs_.find(job);
    if (it == jobs_.end()) co_return error_reply(404, "not_found", "this job has no workers here any more");
    if (it->second.generation > 0 && adaptdl_group(it->second.generation) == group) {
      ServerReply reply;
      reply.headers["content-type"] = "application/json";
      reply.body = json(it->second.addresses).dump();
      co_return reply;
    }
    if (world_.clock.now() >= deadline) break;
    co_await changed_.wait_until(deadline);
  }
  co_return error_reply(408, "unavailable", "these workers are not all there yet", "", "ask again");
}

ServerReply Supervisor::take_hints(const JobId& job, const std::string& body) {
  const json hints = json::parse(body, nullptr, false);
  if (hints.is_discarded()) return error_reply(400, "usage", "hints are not JSON");
  try {
    hints_({job, job_profile_from_json(hints)});
  } catch (const Error& error) {
    return error_reply(error);
  }
  ServerReply reply;
  reply.headers["content-type"] = "text/plain";
  reply.body = "OK";
  return reply;
}

}  // namespace rubato::node
