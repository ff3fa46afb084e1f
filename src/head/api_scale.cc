// The routes of the autoscaler: requests, decisions, the audit.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "head/api.h"
#include "head/documents.h"
#include "head/reply.h"
#include "head/scale_documents.h"
#include "model/limits.h"
#include "reconcile/admit.h"

namespace rubato::head {

using cluster::State;
using nlohmann::json;

namespace {

constexpr uint64_t kSearched = 5000;  // records that are looked through for decisions
constexpr size_t kDecisionsMax = 100;

// {"bundles": [{"resources": {"CPU": 1}, "count": 64}]}; an empty list clears.
std::vector<cluster::Bundle> read_bundles(const std::string& body) {
  check_json_bounds(body, kRequestBounds, "the request's body");
  const json document = json::parse(body, nullptr, false);
  const Error wrong(ErrorCode::kUsage,
                    "the request's body is not {\"bundles\": [{\"resources\": {...}, \"count\": N}]}");
  if (!document.is_object() || !document.contains("bundles") || !document["bundles"].is_array()) throw wrong;
  if (document["bundles"].size() > kBundlesMax)
    throw Error(ErrorCode::kUsage, fmt::format("more than {} different bundles", kBundlesMax));
  std::vector<cluster::Bundle> out;
  for (const json& one : document["bundles"]) {
    if (!one.is_object() || !one.contains("resources")) throw wrong;
    cluster::Bundle bundle;
    bundle.each = resources_from_json(one["resources"]);
    const json count = one.value("count", json(1));
    if (!count.is_number_integer()) throw wrong;
    bundle.count = count.get<int64_t>();
    if (bundle.each.empty()) throw Error(ErrorCode::kUsage, "a bundle without resources asks for nothing");
    if (bundle.count < 1 || bundle.count > kBundleCountMax)
      throw Error(ErrorCode::kUsage, fmt::format("a count of {} bundles is out of range", bundle.count));
    out.push_back(std::move(bundle));
  }
  return out;
}

}  // namespace

Task<ServerReply> Api::request_resources(Call call) {
  reconcile::Request request = reconcile::RequestResources{read_bundles(call.request.body)};
  co_await admit(std::move(request));
  MakeDocument make = [now = controller_.now()](const State& durable) {
    return api::to_json(autoscaler_document(durable, now));
  };
  co_return co_await reply_from_state(std::move(make), 202);
}

Task<ServerReply> Api::audit(Call) {
  const std::optional<std::vector<NodeId>> there = co_await controller_.list_machines();
  MakeDocument make = [there, now = controller_.now()](const State& state) {
    return api::to_json(audit_document(state, there, now));
  };
  co_return co_await reply_from_state(std::move(make));
}

Task<ServerReply> Api::decisions(Call call) {
  size_t limit = 1;
  if (const auto it = call.request.query.find("limit"); it != call.request.query.end()) {
    limit = std::min<size_t>(kDecisionsMax, static_cast<size_t>(std::max(0, std::atoi(it->second.c_str()))));
  }
  const uint64_t last = controller_.history().last();
  SharedRecords records =
      co_await controller_.history().records(last > kSearched ? last - kSearched : 0, kSearched);
  const auto made = std::make_shared<ServerReply>();
  std::function<void()> work = [records = std::move(records), limit, made] {
    api::ScaleDecisions document;
    for (auto it = records.rbegin(); it != records.rend() && document.decisions.size() < limit; ++it) {
      if (std::optional<api::ScaleDecision> one = decision_document(**it))
        document.decisions.push_back(std::move(*one));
    }
    std::ranges::reverse(document.decisions);
    *made = reply(document);
  };
  co_await run_beside(controller_.settings().offload, std::move(work));
  co_return std::move(*made);
}

Task<ServerReply> Api::plan(Call call) {
  check_json_bounds(call.request.body, kRequestBounds, "the request's body");
  const json body = json::parse(call.request.body, nullptr, false);
  if (!body.is_object() || !body.value("text", json()).is_string())
    throw Error(ErrorCode::kUsage, "the request's body is not {\"text\": CLUSTER FILE, \"file\": NAME}");
  const std::string file = body.value("file", json()).is_string() ? body["file"].get<std::string>() : "cluster.yaml";
  ClusterSpec spec = co_await parse_spec(body["text"].get<std::string>(), file, "");
  MakeDocument make = [spec = std::move(spec), now = controller_.now()](const State& state) {
    return api::to_json(plan_document(state, spec, now));
  };
  co_return co_await reply_from_state(std::move(make));
}

Task<ServerReply> Api::node_why(Call call) {
  const NodeId id{call.parts["id"]};
  const State& state = *co_await controller_.settled();
  const uint64_t last = state.offset;
  SharedRecords records =
      co_await controller_.history().records(last > kSearched ? last - kSearched : 0, kSearched);
  MakeDocument make = [id, records = std::move(records)](const State& durable) {
    const std::optional<api::Why> past = why_from_records(id, records);
    const auto node = durable.nodes.find(id);
    if (node == durable.nodes.end()) {
      if (past) return api::to_json(*past);
      throw Error(ErrorCode::kNotFound, fmt::format("there is no node '{}'", id.value), "",
                  "rubato status lists the nodes");
    }
    api::Why why = why_node(durable, node->second);
    if (past) why.history = past->history;
    return api::to_json(why);
  };
  co_return co_await reply_from_state(std::move(make));
}

}  // namespace rubato::head
