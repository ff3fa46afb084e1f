// Machines of Compute Engine in virtual time: what Google answers when things go wrong, in the forms in which it does,
// drawn by a seed. Whatever comes, and however often the head is another one: a node has one machine, or none.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "clouds/gcp/gcp_instances.h"
#include "core/random.h"
#include "core/text.h"
#include "rest/json.h"
#include "rest/rest_testing.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using rest::http_answer;
using rest::SentRequest;

enum class Fault { kNone, kLostBefore, kLostAfter, kTooMany, kRateLimit, kBackend, kQuota, kStockOut, kInternal };
constexpr int kFaults = 9;

HttpResponse refusal(int status, const std::string& reason, const std::string& message) {
  const json error = {{"code", status},
                      {"message", message},
                      {"errors", {{{"domain", "usageLimits"}, {"reason", reason}, {"message", message}}}}};
  return http_answer(status, json{{"error", error}}.dump(), {{"content-type", "application/json; charset=UTF-8"}});
}

// As much of Compute as machines need.
class Compute {
 public:
  explicit Compute(uint64_t seed) : random_(seed) {}

  HttpResponse answer(const SentRequest& sent) {
    const std::string target = sent.request.target, path = target.substr(0, target.find('?'));
    if (sent.endpoint.host != "cloud.lab") throw Error(ErrorCode::kUnavailable, "no route", sent.endpoint.host);
    const Fault fault = draw(sent.request.method == "POST" && path.ends_with("/instances"));
    ++hit[fault];
    switch (fault) {
      case Fault::kLostBefore: throw Error(ErrorCode::kUnavailable, "connection reset", sent.endpoint.host);
      case Fault::kTooMany: return refusal(429, "rateLimitExceeded", "Resource has been exhausted");
      case Fault::kRateLimit: return refusal(403, "rateLimitExceeded", "Queries per minute");
      case Fault::kBackend: return refusal(503, "backendError", "Backend Error");
      case Fault::kQuota: return refusal(403, "quotaExceeded", "Quota 'CPUS' exceeded.  Limit: 8.0 in region west.");
      case Fault::kNone:
      case Fault::kLostAfter:
      case Fault::kStockOut:
      case Fault::kInternal: break;
    }
    HttpResponse response = serve(sent, path, fault);
    if (fault == Fault::kLostAfter) throw Error(ErrorCode::kUnavailable, "connection reset", sent.endpoint.host);
    return response;
  }

  bool calm = false;
  std::map<Fault, int> hit;
  std::map<std::string, json> machines;  // by "zone/name"

 private:
  Fault draw(bool is_insert) {
    if (calm || random_.below(3) > 0) return Fault::kNone;
    const auto fault = static_cast<Fault>(random_.below(kFaults));
    return !is_insert && fault >= Fault::kQuota ? Fault::kNone : fault;
  }

  HttpResponse serve(const SentRequest& sent, const std::string& path, Fault fault) {
    const auto parts = split(path, '/');
    const std::string last(parts.back());
    if (path.ends_with("/aggregated/instances")) return list(sent.request.target);
    if (path.find("/operations/") != std::string::npos) return http_answer(200, operation(parts).dump());
    const size_t at = path.find("/zones/") + 7;
    const std::string zone = path.substr(at, path.find('/', at) - at);
    if (sent.request.method == "POST" && last == "instances") return insert(sent, zone, fault);
    const bool is_verb = last == "setLabels" || last == "stop" || last == "start";
    const std::string key = zone + "/" + std::string(is_verb ? parts[parts.size() - 2] : parts.back());
    const auto found = machines.find(key);
    if (found == machines.end()) return refusal(404, "notFound", "The resource was not found");
    if (sent.request.method == "GET") return http_answer(200, found->second.dump());
    if (last == "setLabels") found->second["labels"] = json::parse(sent.request.body)["labels"];
    const std::string id = rest::text_at(found->second, "id");
    if (sent.request.method == "DELETE") machines.erase(found);
    return http_answer(200, begin(zone, id, json()).dump());
  }

  HttpResponse insert(const SentRequest& sent, const std::string& zone, Fault fault) {
    const std::string& target = sent.request.target;
    const std::string request = target.substr(target.find("requestId="));
    if (const auto known = requests_.find(request); known != requests_.end()) {
      return http_answer(200, operations_.at(known->second).dump());
    }
    json body = json::parse(sent.request.body);
    const std::string key = zone + "/" + body["name"].get<std::string>();
    if (machines.contains(key)) return refusal(409, "alreadyExists", "The resource already exists");
    json error;
    if (fault == Fault::kStockOut) error = {{"code", "ZONE_RESOURCE_POOL_EXHAUSTED"}, {"message", "not enough"}};
    if (fault == Fault::kInternal) error = {{"code", "INTERNAL_ERROR"}, {"message", "Internal error."}};
    const std::string id = std::to_string(++number_);
    if (error.is_null()) {
      body["id"] = id;
      body["zone"] = "https://cloud.lab/compute/v1/projects/p/zones/" + zone;
      body["status"] = "RUNNING";
      body["labelFingerprint"] = "f";
      body["networkInterfaces"] = json::array({{{"networkIP", "10.0.0." + id}}});
      machines[key] = std::move(body);
    }
    json begun = begin(zone, id, error);
    requests_[request] = begun["name"];
    return http_answer(200, begun.dump());
  }

  // An operation that runs until it is waited for.
  json begin(const std::string& zone, const std::string& target, const json& error) {
    const std::string name = fmt::format("operation-{}", ++number_);
    json running = {{"kind", "compute#operation"}, {"name", name}, {"zone", "zones/" + zone}, {"targetId", target},
                    {"status", "RUNNING"}};
    operations_[name] = running;
    if (!error.is_null()) errors_[name] = error;
    return running;
  }
  json operation(const std::vector<std::string_view>& parts) {
    json& one = operations_.at(std::string(parts.back() == "wait" ? parts[parts.size() - 2] : parts.back()));
    one["status"] = "DONE";
    const auto error = errors_.find(one["name"]);
    if (error != errors_.end()) {
      one["error"] = {{"errors", json::array({error->second})}};
      one["httpErrorStatusCode"] = 503;
    }
    return one;
  }

  HttpResponse list(const std::string& target) {
    constexpr size_t kPage = 2;
    const size_t at = target.find("pageToken=");
    const size_t from = at == std::string::npos ? 0 : std::stoul(target.substr(at + 10));
    json scopes = json::object();
    size_t index = 0;
    for (const auto& [key, machine] : machines) {
      const bool here = index >= from && index < from + kPage;
      ++index;
      if (here) scopes["zones/" + key.substr(0, key.find('/'))]["instances"].push_back(machine);
    }
    json out = {{"items", scopes}};
    if (from + kPage < machines.size()) out["nextPageToken"] = std::to_string(from + kPage);
    return http_answer(200, out.dump());
  }

  Random random_;
  int number_ = 0;
  std::map<std::string, std::string> requests_;  // the operations that they began
  std::map<std::string, json> operations_, errors_;
};

std::unique_ptr<CloudInstances> another_head(World& world) {
  GcpMachinesSettings of_cloud;
  of_cloud.env = {{"HOME", "/home/ann"}, {"RUBATO_GCP_ENDPOINT", "http://cloud.lab"}};
  of_cloud.given = gcp::GivenCredentials{"credentials_token", "token", ""};
  GcpSurroundings around;
  around.project = "p";
  around.region = "west";
  around.zones = {"west-a", "west-b"};
  around.images = {{"worker", "projects/x/global/images/y"}};
  of_cloud.around = std::move(around);
  CloudInstancesSettings of;
  of.own = provider::Machine();
  auto out = std::make_unique<CloudInstances>(world, std::make_unique<GcpMachines>(world, std::move(of_cloud)),
                                              std::move(of), Log());
  out->configure(R"({"cluster": "lab", "project": "p", "region": "west"})");
  return out;
}

provider::NodeOrder order_of(int number) {
  provider::NodeOrder out;
  out.node.value = fmt::format("worker-{}", number);
  out.type.name = "worker";
  out.type.node_config = R"({"machineType": "n1-standard-2"})";
  out.launch_hash = "hash";
  return out;
}

struct Outcome {
  int failures = 0, wrong_codes = 0;
  size_t ended = 0;
};

// Asks until every node has its machine; whenever something fails, the next head does.
Task<void> play(World& world, Compute& compute, int nodes, uint64_t seed, Outcome& out) {
  Random dice(seed);
  std::unique_ptr<CloudInstances> head = another_head(world);
  for (int number = 0; number < nodes;) {
    std::optional<Error> failed;
    provider::NodeOrder wanted = order_of(number);
    try {
      (void)co_await head->create(std::move(wanted));
    } catch (const Error& error) {
      failed = error;
    }
    if (!failed) {
      ++number;
      continue;
    }
    ++out.failures;
    const bool passes = failed->code == ErrorCode::kNoCapacity || failed->code == ErrorCode::kQuota ||
                        failed->code == ErrorCode::kUnavailable;
    if (!passes) ++out.wrong_codes;
    if (dice.below(2) == 0) head = another_head(world);
    co_await Sleep(world.clock.loop(), world.clock.now() + 10s);
    if (out.failures > 200) co_return;
  }
  compute.calm = true;
  head = another_head(world);
  const std::vector<NodeId> listed = co_await head->list();
  EXPECT_EQ(listed.size(), static_cast<size_t>(nodes)) << "seed " << seed;
  std::set<std::string> names;
  for (const auto& [key, machine] : compute.machines) names.insert(machine["labels"]["rubato-node"].get<std::string>());
  EXPECT_EQ(names.size(), compute.machines.size()) << "a node has two machines, seed " << seed;
  out.ended = co_await head->end_all();
}

TEST(GcpSimulated, ANodeHasOneMachineWhateverGoogleAnswers) {
  constexpr int kNodes = 5;
  std::map<Fault, int> hit;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    rest::ScriptedWorld scripted(seed);
    Compute compute(seed);
    Outcome out;
    scripted.network.answer = [&](const SentRequest& sent) { return compute.answer(sent); };
    scripted.run([&](World& world) { return play(world, compute, kNodes, seed, out); });
    EXPECT_EQ(out.wrong_codes, 0) << "seed " << seed;
    EXPECT_EQ(out.ended, static_cast<size_t>(kNodes)) << "seed " << seed;
    EXPECT_TRUE(compute.machines.empty()) << "seed " << seed;
    for (const auto& [fault, count] : compute.hit) hit[fault] += count;
  }
  EXPECT_EQ(hit.size(), static_cast<size_t>(kFaults)) << "every kind was drawn";
}

}  // namespace
}  // namespace rubato::clouds
