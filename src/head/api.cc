#include "head/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "api/cluster_documents.h"
#include "api/endpoints.h"
#include "core/text.h"
#include "core/timestamp.h"
#include "head/api_streams.h"
#include "head/documents.h"
#include "head/reply.h"
#include "head/scale_documents.h"
#include "model/limits.h"
#include "policy/explain.h"
#include "reconcile/admit.h"
#include "reconcile/nodes.h"
#include "world/http_reply.h"

namespace rubato::head {

using cluster::State;
using nlohmann::json;

namespace {

constexpr size_t kEventsShown = 10;
constexpr size_t kEventsDefault = 100;
constexpr size_t kEventsMax = 5000;
constexpr size_t kJobEventsShown = 20;
constexpr uint64_t kJobEventsSearched = 2000;
constexpr double kDrainMaxS = 7 * 24 * 3600;

json parse_body(const ServerRequest& request) {
  if (trim(request.body).empty()) return json::object();
  check_json_bounds(request.body, kRequestBounds, "the request's body");
  json body = json::parse(request.body, nullptr, false);
  if (!body.is_object()) throw Error(ErrorCode::kUsage, "the request's body is not a JSON object");
  return body;
}

std::optional<uint64_t> number(const ServerRequest& request, const char* name) {
  const auto it = request.query.find(name);
  if (it == request.query.end()) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(it->second.data(), it->second.data() + it->second.size(), value);
  if (error != std::errc() || end != it->second.data() + it->second.size()) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' must be a whole number, not '{}'", name, it->second));
  }
  return value;
}

std::optional<WallTime> time(const ServerRequest& request, const char* name) {
  const auto it = request.query.find(name);
  if (it == request.query.end()) return std::nullopt;
  const std::optional<WallTime> parsed = parse_time(it->second);
  if (!parsed) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a time: '{}'", name, it->second), "",
                "write it as 2026-11-15T12:00:00Z");
  }
  return parsed;
}

bool flag(const ServerRequest& request, const char* name) {
  const auto it = request.query.find(name);
  return it != request.query.end() && it->second != "0" && it->second != "false";
}

template <class T>
T field(const json& body, const char* name, T fallback) {
  const auto it = body.find(name);
  if (it == body.end()) return fallback;
  try {
    return it->get<T>();
  } catch (const json::exception&) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' in the request's body has the wrong type", name));
  }
}

// The parts of the path that stand where the pattern has {names}; nullopt when it does not match.
std::optional<std::map<std::string, std::string>> match(std::string_view pattern, std::string_view path) {
  const auto want = split(pattern, '/');
  const auto have = split(path, '/');
  if (want.size() != have.size()) return std::nullopt;
  std::map<std::string, std::string> parts;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i].starts_with('{') && !have[i].empty()) {
      parts[std::string(want[i].substr(1, want[i].size() - 2))] = have[i];
    } else if (want[i] != have[i]) {
      return std::nullopt;
    }
  }
  return parts;
}

const cluster::Node& find_node(const State& state, const std::string& id) {
  const auto it = state.nodes.find(NodeId{id});
  if (it == state.nodes.end())
    throw Error(ErrorCode::kNotFound, fmt::format("there is no node '{}'", id), "", "rubato status lists the nodes");
  return it->second;
}

// The last ones about a job.
std::vector<api::Event> events_of(const JobId& job, const SharedRecords& records) {
  std::vector<api::Event> events;
  for (auto it = records.rbegin(); it != records.rend() && events.size() < kJobEventsShown; ++it) {
    if (cluster::job_of((*it)->event) == job) events.push_back(event_document(**it));
  }
  std::ranges::reverse(events);
  return events;
}

}  // namespace

Api::Api(World& world, Controller& controller, Metrics& metrics, std::string token, size_t record_bytes_max)
    : world_(world),
      controller_(controller),
      metrics_(metrics),
      token_(std::move(token)),
      record_bytes_max_(record_bytes_max) {
  CHECK(!token_.empty());
}

const std::vector<Api::Route>& Api::routes() {
  static const std::map<std::string, Handler> handlers = {
      {"GET /healthz", &Api::healthz},
      {"GET /metrics", &Api::show_metrics},
      {"GET /api/v1/status", &Api::status},
      {"PUT /api/v1/cluster", &Api::configure},
      {"POST /api/v1/shutdown", &Api::shutdown},
      {"GET /api/v1/nodes", &Api::nodes},
      {"GET /api/v1/nodes/{id}", &Api::node},
      {"DELETE /api/v1/nodes/{id}", &Api::drain_node},
      {"POST /api/v1/nodes/{id}/drain", &Api::drain_node_by},
      {"DELETE /api/v1/nodes/{id}/drain", &Api::keep_node},
      {"POST /api/v1/nodes/{id}/lost", &Api::declare_lost},
      {"GET /api/v1/nodes/{id}/why", &Api::node_why},
      {"GET /api/v1/nodes/{id}/log", &Api::node_log},
      {"POST /api/v1/requests", &Api::request_resources},
      {"GET /api/v1/audit", &Api::audit},
      {"GET /api/v1/decisions", &Api::decisions},
      {"POST /api/v1/plan", &Api::plan},
      {"GET /api/v1/packages/{hash}", &Api::package},
      {"PUT /api/v1/packages/{hash}", &Api::put_package},
      {"POST /api/v1/jobs", &Api::submit},
      {"GET /api/v1/jobs", &Api::jobs},
      {"GET /api/v1/jobs/{ref}", &Api::job},
      {"POST /api/v1/jobs/{ref}/stop", &Api::stop},
      {"POST /api/v1/jobs/{ref}/rerun", &Api::rerun},
      {"GET /api/v1/jobs/{ref}/why", &Api::job_why},
      {"GET /api/v1/jobs/{ref}/logs", &Api::logs},
      {"GET /api/v1/jobs/{ref}/output", &Api::output},
      {"GET /api/v1/events", &Api::events},
      {"GET /api/v1/replay", &Api::replay},
  };
  static const std::vector<Route> table = [] {
    std::vector<Route> routes;
    for (const api::Endpoint& endpoint : api::endpoints())
      routes.push_back({&endpoint, handlers.at(endpoint.method + " " + endpoint.path)});
    CHECK(routes.size() == handlers.size());
    return routes;
  }();
  return table;
}

bool Api::authorized(const ServerRequest& request) const {
  const auto it = request.headers.find("authorization");
  if (it == request.headers.end()) return false;
  const auto given = strip_prefix(it->second, "Bearer ");
  return given && constant_time_equal(*given, token_);
}

Task<JobId> Api::admit(reconcile::Request request) {
  const State& state = *co_await controller_.settled();
  reconcile::AdmitLimits limits;
  limits.record_bytes_max = record_bytes_max_;
  reconcile::Admitted admitted = reconcile::admit_or_throw(state, request, controller_.now(), limits);
  // What a repetition repeats may be on its way to the journal: it is answered when that is durable.
  const bool on_its_way = !admitted.job.value.empty() && !state.jobs.contains(admitted.job);
  if (!admitted.events.empty() || on_its_way) co_await controller_.submit(std::move(admitted.events));
  co_return std::move(admitted.job);
}

HttpAdmission Api::admit_headers(const ServerRequest& head) const {
  HttpAdmission admission;
  admission.authenticated = authorized(head);
  admission.body_bytes_max = kPlainBodyMax;
  for (const Route& route : routes()) {
    const api::Endpoint& endpoint = *route.endpoint;
    if (head.method == endpoint.method && match(endpoint.path, head.path))
      admission.body_bytes_max = endpoint.body_bytes_max;
  }
  return admission;
}

Task<ServerReply> Api::handle(ServerRequest request) {
  bool path_known = false;
  for (const Route& route : routes()) {
    auto parts = match(route.endpoint->path, request.path);
    if (!parts) continue;
    path_known = true;
    if (request.method != route.endpoint->method) continue;
    if (!route.endpoint->is_open && !authorized(request)) break;
    Call call;
    call.request = std::move(request);
    call.parts = std::move(*parts);
    co_return co_await (this->*route.handler)(std::move(call));
  }
  // Who has no token learns nothing of what there is.
  if (!authorized(request)) {
    ServerReply refused =
        error_reply(401, "unauthorized", "a token is needed", "", "the cluster's folder has it in the file 'token'");
    refused.headers["www-authenticate"] = "Bearer";
    co_return refused;
  }
  if (path_known) {
    co_return error_reply(405, "usage", fmt::format("{} is not possible on {}", request.method, request.path));
  }
  co_return error_reply(404, "not_found", fmt::format("there is nothing at {}", request.path), "",
                        "docs/openapi.yaml lists the paths");
}

Task<ServerReply> Api::reply_from_state(MakeDocument make, int status) {
  const auto made = std::make_shared<ServerReply>();
  std::function<void(const State&)> read = [make = std::move(make), made, status](const State& state) {
    *made = json_reply(make(state), status);
  };
  co_await controller_.read_state(std::move(read));
  co_return std::move(*made);
}

// A file of a mebibyte takes longer than a turn may.
Task<ClusterSpec> Api::parse_spec(std::string text, std::string file, std::string files_hash) {
  const auto spec = std::make_shared<ClusterSpec>();
  std::function<void()> work = [spec, text = std::move(text), file = std::move(file),
                                files_hash = std::move(files_hash)] {
    *spec = read_cluster_spec(text, file, files_hash);
  };
  co_await run_beside(controller_.settings().offload, std::move(work));
  co_return std::move(*spec);
}

Task<ServerReply> Api::healthz(Call) { co_return reply(api::Health{}); }

Task<ServerReply> Api::show_metrics(Call) {
  ServerReply out;
  out.headers["content-type"] = std::string(Metrics::kContentType);
  controller_.gauge();
  out.body = metrics_.expose();
  co_return out;
}

Task<ServerReply> Api::status(Call) {
  const uint64_t last = (co_await controller_.settled())->offset;
  SharedRecords recent =
      co_await controller_.history().records(last > kEventsShown ? last - kEventsShown : 0, kEventsShown);
  const MissingByJob missing = controller_.logs().missing_by_job();
  const HeadSettings& settings = controller_.settings();
  const HeadSupervision kept = settings.supervision ? settings.supervision() : HeadSupervision();
  MakeDocument make = [recent = std::move(recent), now = controller_.now(), missing, kept](const State& state) {
    api::Status document = status_document(state, recent, now);
    document.cluster.head.supervisor = api::Supervisor{kept.kind, kept.pid, kept.restarts, kept.last_end};
    add_missing(document.jobs, missing);
    return api::to_json(document);
  };
  co_return co_await reply_from_state(std::move(make));
}

Task<ServerReply> Api::configure(Call call) {
  const json body = parse_body(call.request);
  const std::string text = field<std::string>(body, "text", "");
  const std::string file = field<std::string>(body, "file", "cluster.yaml");
  const ClusterSpec spec = co_await parse_spec(text, file, field<std::string>(body, "files_hash", ""));
  const State& state = *co_await controller_.settled();
  reconcile::ConfigureCluster request;
  request.spec = spec;
  request.text = text;
  request.no_restart = field<bool>(body, "no_restart", false);
  request.restart = field<bool>(body, "restart", false);
  (void)reconcile::admit_or_throw(state, request, controller_.now());
  api::Configured document;
  document.changes = changes_document(reconcile::plan_changes(state, spec));
  document.wanted_nodes = reconcile::nodes_wanted(spec);
  if (document.changes.empty() && state.spec && state.spec_text != text && !state.shutting_down)
    document.changes.push_back({"text", "", 0, "no node and no limit changes"});
  if (field<bool>(body, "apply", true)) {
    reconcile::Request change = std::move(request);
    co_await admit(std::move(change));
  }
  co_return reply(document);
}

Task<ServerReply> Api::shutdown(Call) {
  reconcile::Request request = reconcile::ShutDown{};
  co_await admit(std::move(request));
  co_return reply(api::Accepted{}, 202);
}

Task<ServerReply> Api::nodes(Call) {
  MakeDocument make = [now = controller_.now()](const State& state) {
    return api::to_json(nodes_document(state, now));
  };
  co_return co_await reply_from_state(std::move(make));
}

Task<ServerReply> Api::node(Call call) {
  const State& state = *co_await controller_.settled();
  co_return reply(node_document(state, find_node(state, call.parts["id"]), controller_.now()));
}

Task<ServerReply> Api::drain_node(Call call) {
  reconcile::Request request = reconcile::DrainNode{NodeId{call.parts["id"]}, "a person asked for it"};
  co_await admit(std::move(request));
  co_return reply(api::Accepted{}, 202);
}

Task<ServerReply> Api::drain_node_by(Call call) {
  reconcile::DrainNode drain;
  drain.node = NodeId{call.parts["id"]};
  drain.reason = "drained by a person";
  const json body = parse_body(call.request);
  if (body.contains("deadline_s")) {
    const double in_s = field<double>(body, "deadline_s", 0);
    if (!(in_s >= 0 && in_s <= kDrainMaxS)) {
      throw Error(ErrorCode::kUsage, fmt::format("a deadline in {:g} s is none", in_s), "deadline_s",
                  "write seconds from now, at most a week of them");
    }
    drain.deadline = cluster::later(controller_.now(), seconds(in_s));
  }
  reconcile::Request request = std::move(drain);
  co_await admit(std::move(request));
  co_return reply(api::Accepted{}, 202);
}

Task<ServerReply> Api::keep_node(Call call) {
  reconcile::Request request = reconcile::KeepNode{NodeId{call.parts["id"]}, "a person asked for it"};
  co_await admit(std::move(request));
  co_return reply(api::Accepted{}, 202);
}

Task<ServerReply> Api::declare_lost(Call call) {
  reconcile::DeclareNodeLost lost;
  lost.node = NodeId{call.parts["id"]};
  lost.by = "a person";
  lost.is_heard = controller_.is_connected(lost.node);
  reconcile::Request request = std::move(lost);
  co_await admit(std::move(request));
  co_return reply(api::Accepted{}, 202);
}

// Of a node that is gone, too, as long as the file is there.
Task<ServerReply> Api::node_log(Call call) {
  const std::string& id = call.parts["id"];
  const State& state = *co_await controller_.settled();
  const bool plain = id.find_first_of("/\\") == std::string::npos && !id.starts_with('.');
  const std::string path = controller_.settings().folder + "/nodes/" + id + ".log";
  if (!plain || !world_.files.exists(path)) {
    (void)find_node(state, id);
    throw Error(ErrorCode::kNotFound, fmt::format("the node '{}' has no log of its set-up", id), "",
                "only nodes on machines of their own are set up");
  }
  const auto text = std::make_shared<std::string>();
  std::function<void()> work = [&files = world_.files, path, text] {
    constexpr size_t kLogMax = size_t{4} << 20;
    const uint64_t size = file_size(files, path);
    *text = files.read_range(path, size > kLogMax ? size - kLogMax : 0, kLogMax);
    if (size > kLogMax) text->erase(0, text->find('\n') + 1);
  };
  co_await run_beside(controller_.settings().offload, std::move(work));
  ServerReply out;
  out.headers["content-type"] = "text/plain; charset=utf-8";
  out.body = std::move(*text);
  co_return out;
}

Task<ServerReply> Api::package(Call call) {
  const PackageStore::Progress progress = controller_.packages().progress(call.parts["hash"]);
  api::PackageProgress document;
  document.present = progress.complete;
  document.have_bytes = progress.have;
  co_return reply(document);
}

Task<ServerReply> Api::put_package(Call call) {
  if (call.request.body.size() > kPackagePartBodyMax) {
    co_return error_reply(413, "too_large", "a part of a package has 4 MiB at most", "", "send it in smaller parts");
  }
  const uint64_t offset = number(call.request, "offset").value_or(0);
  const uint64_t size = number(call.request, "size").value_or(call.request.body.size());
  std::string bytes = std::move(call.request.body);
  const PackageStore::Progress progress =
      co_await controller_.packages().put(call.parts["hash"], offset, size, std::move(bytes));
  api::PackageProgress document;
  document.complete = progress.complete;
  document.have_bytes = progress.have;
  co_return reply(document);
}

Task<ServerReply> Api::accept_job(JobSpec spec, std::string request_id, std::string rerun_of) {
  const State& state = *co_await controller_.settled();
  reconcile::SubmitJob submit;
  submit.package_is_here = spec.package.empty() || controller_.packages().progress(spec.package).complete;
  submit.spec = std::move(spec);
  do submit.id.value = "j-" + world_.random.hex(8);
  while (state.jobs.contains(submit.id));
  if (!request_id.empty()) submit.pending = controller_.pending_request(request_id);
  submit.request_id = std::move(request_id);
  submit.rerun_of = std::move(rerun_of);
  reconcile::Request request = std::move(submit);
  const JobId id = co_await admit(std::move(request));
  MakeDocument make = [id](const State& durable) {
    const cluster::Job& job = cluster::find_job(durable, id.value);
    api::Job document = job_document(durable, job);
    if (const auto never = policy::why_never(durable, job.spec)) document.never_fits = reasons_document(*never);
    return api::to_json(document);
  };
  co_return co_await reply_from_state(std::move(make), 201);
}

Task<ServerReply> Api::submit(Call call) {
  json body = parse_body(call.request);
  std::string request_id = field<std::string>(body, "request_id", "");
  if (request_id.size() > kRequestIdBytesMax)
    throw Error(ErrorCode::kUsage, fmt::format("request_id is longer than {} characters", kRequestIdBytesMax));
  body.erase("request_id");
  co_return co_await accept_job(job_spec_from_json(body), std::move(request_id), "");
}

Task<ServerReply> Api::rerun(Call call) {
  const State& state = *co_await controller_.settled();
  const cluster::Job& job = cluster::find_job(state, call.parts["ref"]);
  co_return co_await accept_job(job.spec, "", job.id.value);
}

Task<ServerReply> Api::jobs(Call call) {
  const MissingByJob missing = controller_.logs().missing_by_job();
  MakeDocument make = [all = flag(call.request, "all"), missing](const State& state) {
    api::Jobs document = jobs_document(state, all);
    add_missing(document.jobs, missing);
    return api::to_json(document);
  };
  co_return co_await reply_from_state(std::move(make));
}

Task<ServerReply> Api::job(Call call) {
  const State& state = *co_await controller_.settled();
  const JobId id = cluster::find_job(state, call.parts["ref"]).id;
  const uint64_t last = state.offset;
  const uint64_t from = last > kJobEventsSearched ? last - kJobEventsSearched : 0;
  SharedRecords records = co_await controller_.history().records(from, kJobEventsSearched);
  MakeDocument make = [id, records = std::move(records), missing = controller_.logs().missing(id),
                       checkpoints = checkpoints_document(controller_.checkpoints(), id)](const State& durable) {
    api::JobDetail document;
    static_cast<api::Job&>(document) = job_document(durable, cluster::find_job(durable, id.value));
    document.events = events_of(id, records);
    if (!missing.empty()) document.missing_lines = missing_lines_document(missing);
    document.checkpoints = checkpoints;
    return api::to_json(document);
  };
  co_return co_await reply_from_state(std::move(make));
}

Task<ServerReply> Api::stop(Call call) {
  const State& state = *co_await controller_.settled();
  const JobId id = cluster::find_job(state, call.parts["ref"]).id;
  reconcile::Request request = reconcile::StopJob{id, "a person asked for it"};
  co_await admit(std::move(request));
  MakeDocument make = [id](const State& durable) {
    return api::to_json(job_document(durable, cluster::find_job(durable, id.value)));
  };
  co_return co_await reply_from_state(std::move(make), 202);
}

Task<ServerReply> Api::job_why(Call call) {
  const State& state = *co_await controller_.settled();
  const cluster::Job& job = cluster::find_job(state, call.parts["ref"]);
  MakeDocument make = [id = job.id, why = why_job(state, controller_.observed(), job, controller_.now())](
                          const State& durable) mutable {
    why.queue = queue_document(durable, cluster::find_job(durable, id.value));
    return api::to_json(why);
  };
  co_return co_await reply_from_state(std::move(make));
}

Task<ServerReply> Api::logs(Call call) {
  const State& state = *co_await controller_.settled();
  LogQuery query;
  query.job = cluster::find_job(state, call.parts["ref"]).id;
  query.follow = flag(call.request, "follow");
  query.since = time(call.request, "since");
  if (const auto rank = number(call.request, "rank"))
    query.rank = static_cast<int>(std::min<uint64_t>(*rank, 1'000'000));
  query.tail = number(call.request, "tail");
  co_return stream_logs(world_, controller_, std::move(query));
}

Task<ServerReply> Api::output(Call call) {
  const State& state = *co_await controller_.settled();
  const std::vector<archive::Layer> layers = controller_.outputs().layers(cluster::find_job(state, call.parts["ref"]));
  if (layers.size() == 1) co_return stream_output(world_, controller_.settings().offload, layers.front().folder);
  const auto tree = std::make_shared<archive::MergedTree>();
  std::function<void()> work = [&files = world_.files, layers, tree] { *tree = archive::merge(files, layers); };
  co_await run_beside(controller_.settings().offload, std::move(work));
  co_return stream_merged(world_, controller_.settings().offload, tree);
}

Task<ServerReply> Api::events(Call call) {
  const uint64_t last = controller_.history().last();
  const size_t limit =
      static_cast<size_t>(std::min<uint64_t>(number(call.request, "limit").value_or(kEventsDefault), kEventsMax));
  const uint64_t after = number(call.request, "after").value_or(last > limit ? last - limit : 0);
  if (flag(call.request, "follow")) co_return stream_events(controller_, after);
  const auto records = std::make_shared<SharedRecords>();
  *records = co_await controller_.history().records(after, limit);
  const auto made = std::make_shared<ServerReply>();
  std::function<void()> work = [records, made] { *made = reply(events_document(*records)); };
  co_await run_beside(controller_.settings().offload, std::move(work));
  co_return std::move(*made);
}

Task<ServerReply> Api::replay(Call call) {
  const std::optional<WallTime> until = time(call.request, "until");
  const std::optional<uint64_t> offset = number(call.request, "offset");
  std::shared_ptr<State> state = co_await controller_.history().replay(until, offset);
  const uint64_t last = state->offset;
  const auto recent = std::make_shared<SharedRecords>();
  *recent = co_await controller_.history().records(last > kEventsShown ? last - kEventsShown : 0,
                                                   std::min<size_t>(kEventsShown, last));
  const auto made = std::make_shared<ServerReply>();
  const auto holder = std::make_shared<std::shared_ptr<State>>(std::move(state));
  std::function<void()> work = [holder, recent, made, until] {
    *made = reply(status_document(**holder, *recent, until.value_or((*holder)->time)));
    holder->reset();  // here, not on the loop
  };
  co_await run_beside(controller_.settings().offload, std::move(work));
  co_return std::move(*made);
}

}  // namespace rubato::head
