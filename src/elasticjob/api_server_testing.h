// For tests: a Kubernetes API server of 1.20 in virtual time: objects with versions, lists in pages, watches from a
// version on, merge patches, two-phase deletion of pods, the garbage collector's rule for owners; and its troubles.
//
// Only what the operator's client uses. Programs reach it by an ApiNetwork each; the test changes objects as
// controllers and kubelets do, by put() and erase().
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/scope.h"
#include "core/text.h"
#include "core/timestamp.h"
#include "kubernetes/client.h"
#include "rest/url.h"
#include "sim/simulation.h"
#include "world/world.h"

namespace rubato::elasticjob {

// Chances of each request, or of each event of a watch. All 0: a server without troubles.
struct ApiFaults {
  double lost = 0;         // the request never comes
  double answer_lost = 0;  // it is carried out, and nobody is told
  double throttled = 0;    // 429
  double broken = 0;       // 500
  double refused = 0;      // a pod: the quota is used up
  double watch_cut = 0;
  double watch_gone = 0;     // 410, though the version is there
  double watch_refused = 0;  // 429 before it begins
  Duration latency_max = 20ms;
  double slow = 0;  // up to slow_max
  Duration slow_max = 3s;
};

class ApiServer {
 public:
  using json = nlohmann::json;

  struct Key {
    std::string collection;  // "pods", "elasticjobs.rubato.dev"
    std::string namespace_name, name;
    auto operator<=>(const Key&) const = default;
  };
  struct Change {
    uint64_t version = 0;
    const char* type = "";
    Key key;
    json object;
  };

  ApiServer(sim::Simulation& simulation, uint64_t seed) : simulation_(simulation), random_(seed) {}

  ApiFaults faults;
  std::set<std::string> not_served;    // collections without a CRD
  std::set<std::string> no_status;     // whose CRD has no status subresource
  std::optional<std::string> refused;  // the quota is used up for pods whose names begin so

  // What a role must allow for a request. Kept of all that came, whether they were carried out or not.
  struct Call {
    std::string verb, group, resource, namespace_name, name;
    auto operator<=>(const Call&) const = default;
  };
  const std::set<Call>& calls() const { return calls_; }
  void note_call(const std::string& verb, const std::string& target) {
    const Place place = place_of(target.substr(0, target.find('?')));
    const auto parts = split_once(place.key.collection, '.');
    Call call{verb, parts ? std::string(parts->second) : "", parts ? std::string(parts->first) : place.key.collection,
              place.key.namespace_name, place.key.name};
    if (!place.subresource.empty()) call.resource += "/" + place.subresource;
    ++counts_[call.verb + " " + call.resource];
    calls_.insert(std::move(call));
  }
  // How many of them there were: "create pods", "patch elasticjobs/status".
  const std::map<std::string, uint64_t>& counts() const { return counts_; }

  // ---- As controllers, kubelets and people see it ----

  const std::map<Key, json>& objects() const { return objects_; }
  json* find(const Key& key) {
    const auto found = objects_.find(key);
    return found == objects_.end() ? nullptr : &found->second;
  }
  // Created, or changed where it is there: `object` is the whole of it.
  void put(const Key& key, json object) {
    const auto found = objects_.find(key);
    const bool is_new = found == objects_.end();
    json& metadata = object["metadata"];
    if (is_new) {
      metadata["uid"] = fmt::format("uid-{}-{}", ++uids_, random_.hex(4));
      metadata["creationTimestamp"] = stamp();
      metadata["generation"] = 1;
      metadata["namespace"] = key.namespace_name;
      if (key.collection == "pods") object["status"]["phase"] = "Pending";
    } else if (found->second.value("spec", json()) != object.value("spec", json())) {
      metadata["generation"] = found->second["metadata"].value("generation", 1) + 1;
    }
    if (!is_new && found->second == object) return;
    record(is_new ? "ADDED" : "MODIFIED", key, std::move(object));
  }
  void erase(const Key& key) {
    const auto found = objects_.find(key);
    if (found == objects_.end()) return;
    json object = std::move(found->second);
    objects_.erase(found);
    record("DELETED", key, std::move(object), false);
  }
  // A pod that a node may run is told to go, and goes when its node says so; others go at once.
  void request_end(const Key& key) {
    json* object = find(key);
    if (object == nullptr) return;
    const std::string phase = kubernetes::text_in(kubernetes::object_in(*object, "status"), "phase");
    const bool bound = !kubernetes::text_in(kubernetes::object_in(*object, "spec"), "nodeName").empty();
    const bool graceful = key.collection == "pods" && bound && phase != "Succeeded" && phase != "Failed";
    if (!graceful) return erase(key);
    if (!kubernetes::text_in((*object)["metadata"], "deletionTimestamp").empty()) return;
    json changed = *object;
    changed["metadata"]["deletionTimestamp"] = stamp(30s);
    put(key, std::move(changed));
  }
  // Whose owner is gone.
  void collect_garbage() {
    std::set<std::string> uids;
    for (const auto& [key, object] : objects_) uids.insert(kubernetes::text_in(object["metadata"], "uid"));
    std::vector<Key> gone;
    for (const auto& [key, object] : objects_) {
      const json& owners = kubernetes::list_in(object["metadata"], "ownerReferences");
      if (!owners.empty() && !uids.contains(kubernetes::text_in(owners[0], "uid"))) gone.push_back(key);
    }
    for (const Key& key : gone) request_end(key);
  }
  void compact() { compacted_ = version_; }
  std::string stamp(Duration later = {}) const {
    const WallTime at = simulation_.machine(1).clock().wall() + std::chrono::duration_cast<std::chrono::seconds>(later);
    return format_time(at).substr(0, 19) + "Z";
  }

  // ---- As clients see it ----

  HttpResponse answer(const HttpRequest& request) {
    note_call(verb_of(request), request.target);
    const size_t mark = request.target.find('?');
    const Place place = place_of(request.target.substr(0, mark));
    std::map<std::string, std::string> query;
    if (mark != std::string::npos) {
      for (const std::string_view part : split(std::string_view(request.target).substr(mark + 1), '&')) {
        const auto pair = split_once(part, '=');
        if (pair) query[std::string(pair->first)] = rest::percent_decode(pair->second);
      }
    }
    if (request.method == "GET" && place.key.name.empty()) return list(place.key, query);
    if (request.method == "GET") return get(place.key);
    json body = json::parse(request.body);
    if (request.method == "POST") return create(place.key, std::move(body));
    if (request.method == "DELETE") return remove(place.key, body);
    return change(place, request.method, body);
  }

  // The changes after a version that a watch has not seen yet; nullopt: they are forgotten.
  std::optional<std::vector<const Change*>> changes_after(uint64_t version, const Key& collection,
                                                          const std::string& selector) const {
    if (version < compacted_) return std::nullopt;
    std::vector<const Change*> out;
    for (auto at = log_.rbegin(); at != log_.rend() && at->version > version; ++at) {
      if (at->key.collection == collection.collection && matches(at->object, selector) &&
          (collection.namespace_name.empty() || collection.namespace_name == at->key.namespace_name))
        out.insert(out.begin(), &*at);
    }
    return out;
  }
  uint64_t version() const { return version_; }

  static Key collection_of(const std::string& target) { return place_of(target.substr(0, target.find('?'))).key; }
  Random& random() { return random_; }
  sim::Simulation& simulation() { return simulation_; }
  uint64_t on_change(std::function<void()> call) {
    watchers_[++watcher_ids_] = std::move(call);
    return watcher_ids_;
  }
  void forget(uint64_t watcher) { watchers_.erase(watcher); }

 private:
  struct Place {
    Key key;
    std::string subresource;
  };
  static std::string verb_of(const HttpRequest& request) {
    if (request.method == "POST") return "create";
    if (request.method == "PUT") return "update";
    if (request.method == "PATCH") return "patch";
    if (request.method == "DELETE") return "delete";
    return place_of(request.target.substr(0, request.target.find('?'))).key.name.empty() ? "list" : "get";
  }
  // /api/v1/namespaces/NS/pods/NAME/status, /apis/GROUP/VERSION/...
  static Place place_of(std::string_view path) {
    std::vector<std::string_view> parts = split(path, '/');
    Place out;
    size_t at = parts[1] == "api" ? 3 : 4;
    const std::string group = parts[1] == "api" ? "" : "." + std::string(parts[2]);
    if (parts.size() > at + 2 && parts[at] == "namespaces") {
      out.key.namespace_name = parts[at + 1];
      at += 2;
    }
    out.key.collection = std::string(parts[at]) + group;
    if (parts.size() > at + 1) out.key.name = parts[at + 1];
    if (parts.size() > at + 2) out.subresource = parts[at + 2];
    return out;
  }

  static bool matches(const json& object, const std::string& selector) {
    const json& labels = kubernetes::object_in(kubernetes::object_in(object, "metadata"), "labels");
    if (selector.empty()) return true;
    for (const std::string_view term : split(selector, ',')) {
      const auto pair = split_once(term, '=');
      const std::string name(pair ? pair->first : term);
      if (!labels.contains(name)) return false;
      if (pair && labels[name] != std::string(pair->second)) return false;
    }
    return true;
  }

  void record(const char* type, const Key& key, json object, bool kept = true) {
    object["metadata"]["name"] = key.name;
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    if (kept) objects_[key] = object;
    log_.push_back({version_, type, key, std::move(object)});
    for (const auto& [watcher, call] : watchers_) call();
  }

  static HttpResponse reply(int status, const json& body) {
    HttpResponse out;
    out.status = status;
    out.body = body.dump();
    return out;
  }
  static HttpResponse refusal(int status, const char* reason, const std::string& message = "refused") {
    return reply(status, {{"kind", "Status"}, {"code", status}, {"reason", reason}, {"message", message}});
  }

  HttpResponse list(const Key& collection, const std::map<std::string, std::string>& query) {
    if (not_served.contains(collection.collection)) return refusal(404, "NotFound");
    std::vector<json> items;
    uint64_t version = version_;
    const auto next = query.find("continue");
    if (next != query.end()) {
      const auto kept = pages_.find(next->second);
      if (kept == pages_.end() || kept->second.first < compacted_) return refusal(410, "Expired");
      version = kept->second.first;
      items = std::move(kept->second.second);
      pages_.erase(kept);
    } else {
      const auto selector = query.find("labelSelector");
      for (const auto& [key, object] : objects_) {
        if (key.collection != collection.collection) continue;
        if (!collection.namespace_name.empty() && collection.namespace_name != key.namespace_name) continue;
        if (matches(object, selector == query.end() ? "" : selector->second)) items.push_back(object);
      }
    }
    json out = {{"metadata", {{"resourceVersion", std::to_string(version)}}}, {"items", json::array()}};
    const auto limit = query.find("limit");
    const size_t most = limit == query.end() ? items.size() : static_cast<size_t>(std::stoi(limit->second));
    for (size_t i = 0; i < std::min(most, items.size()); ++i) out["items"].push_back(items[i]);
    if (items.size() > most) {
      items.erase(items.begin(), items.begin() + static_cast<ptrdiff_t>(most));
      const std::string token = fmt::format("page-{}", ++tokens_);
      pages_[token] = {version, std::move(items)};
      out["metadata"]["continue"] = token;
    }
    return reply(200, out);
  }

  HttpResponse get(const Key& key) {
    const json* found = find(key);
    return found == nullptr ? refusal(404, "NotFound") : reply(200, *found);
  }

  HttpResponse create(Key key, json body) {
    key.name = kubernetes::text_in(kubernetes::object_in(body, "metadata"), "name");
    if (find(key) != nullptr) return refusal(409, "AlreadyExists");
    if (key.collection == "events") return reply(201, body);  // nobody reads them here
    if (key.collection == "pods" && refused && key.name.starts_with(*refused))
      return refusal(403, "Forbidden", "exceeded quota: few");
    body["metadata"].erase("resourceVersion");
    if (key.collection != "leases.coordination.k8s.io") body.erase("status");
    put(key, std::move(body));
    return reply(201, *find(key));
  }

  HttpResponse remove(const Key& key, const json& options) {
    const json* found = find(key);
    if (found == nullptr) return refusal(404, "NotFound");
    const std::string wanted = kubernetes::text_in(kubernetes::object_in(options, "preconditions"), "uid");
    if (!wanted.empty() && wanted != (*found)["metadata"]["uid"]) return refusal(409, "Conflict");
    request_end(key);
    return reply(200, json::object());
  }

  HttpResponse change(const Place& place, const std::string& method, const json& body) {
    const json* found = find(place.key);
    const bool has_status = !no_status.contains(place.key.collection);
    if (found == nullptr || (place.subresource == "status" && !has_status)) return refusal(404, "NotFound");
    const json& given = kubernetes::object_in(body, "metadata");
    for (const char* field : {"resourceVersion", "uid"}) {
      const std::string expected = kubernetes::text_in(given, field);
      if (!expected.empty() && expected != (*found)["metadata"][field]) return refusal(409, "Conflict");
    }
    json changed = *found;
    if (method == "PUT") {
      changed["spec"] = body.value("spec", json::object());
    } else if (place.subresource == "status") {
      if (body.contains("status")) changed["status"].merge_patch(body["status"]);
    } else {
      json patch = body;
      if (has_status) patch.erase("status");
      if (place.subresource == "scale") patch = {{"spec", {{"replicas", body["spec"]["replicas"]}}}};
      changed.merge_patch(patch);
    }
    put(place.key, std::move(changed));
    return reply(200, *find(place.key));
  }

  sim::Simulation& simulation_;
  Random random_;
  std::map<Key, json> objects_;
  std::deque<Change> log_;
  uint64_t version_ = 1, compacted_ = 0, uids_ = 0, tokens_ = 0;
  std::map<std::string, std::pair<uint64_t, std::vector<json>>> pages_;
  std::set<Call> calls_;
  std::map<std::string, uint64_t> counts_;
  uint64_t watcher_ids_ = 0;
  std::map<uint64_t, std::function<void()>> watchers_;  // in the order in which they came
};

// What one program sees of the server.
class ApiNetwork final : public Network {
 public:
  ApiNetwork(ApiServer& server, Loop& loop, Clock& clock) : server_(server), loop_(loop), clock_(clock) {}

  std::unique_ptr<Listener> listen(const Endpoint&, const ChannelKey&, Duration) override { throw none(); }
  Task<ConnectResult> connect(Endpoint, ChannelKey, Instant, Duration) override { throw none(); }
  Task<bool> is_local(std::string) override { co_return false; }
  Task<std::vector<std::string>> resolve(std::string) override { co_return std::vector<std::string>(); }
  std::unique_ptr<PortLease> lease_port(uint16_t) override { throw none(); }
  std::vector<std::string> addresses() override { return {}; }

  Task<HttpResponse> call(Endpoint, TlsFiles, HttpRequest request, Instant deadline) override {
    co_await Sleep(loop_, clock_.now() + latency());
    Random& random = server_.random();
    const ApiFaults& faults = server_.faults;
    if (random.chance(faults.lost)) {
      mark("api.lost");
      co_await Sleep(loop_, deadline);
      throw Error(ErrorCode::kUnavailable, "no answer");
    }
    HttpResponse answer;
    if (random.chance(faults.throttled)) {
      mark("api.throttled");
      answer.status = 429;
      answer.headers["retry-after"] = "1";
    } else if (random.chance(faults.broken)) {
      mark("api.broken");
      answer.status = 500;
    } else if (request.method == "POST" && request.target.find("/pods") != std::string::npos &&
               random.chance(faults.refused)) {
      mark("api.refused");
      answer.status = 403;
      answer.body = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"exceeded quota: few"})";
    } else {
      answer = server_.answer(request);
    }
    const bool lost = random.chance(faults.answer_lost);
    co_await Sleep(loop_, clock_.now() + latency());
    if (lost) {
      mark("api.answer-lost");
      throw Error(ErrorCode::kUnavailable, "the connection was reset");
    }
    co_return answer;
  }

  Task<HttpResponse> stream(Endpoint, TlsFiles, HttpRequest request, Instant, Channel<std::string>& chunks) override {
    co_await Sleep(loop_, clock_.now() + latency());
    Random& random = server_.random();
    HttpResponse answer;
    answer.status = 200;
    server_.note_call("watch", request.target);
    if (random.chance(server_.faults.watch_refused)) {
      mark("watch.refused");
      answer.status = 429;
      answer.headers["retry-after"] = "1";
      co_return answer;
    }
    const ApiServer::Key collection = ApiServer::collection_of(request.target);
    uint64_t version = std::stoull(query_of(request.target, "resourceVersion"));
    const std::string selector = rest::percent_decode(query_of(request.target, "labelSelector"));
    const Instant end = clock_.now() + std::chrono::seconds(std::stoi(query_of(request.target, "timeoutSeconds")));
    Event changed(loop_);
    const Watching watching(server_, [&changed] { changed.notify(); });
    while (clock_.now() < end) {
      const auto changes = server_.changes_after(version, collection, selector);
      if (!changes || random.chance(server_.faults.watch_gone)) {
        mark("watch.gone");
        chunks.push(R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}})"
                    "\n");
        co_return answer;
      }
      std::vector<std::string> lines;
      for (const ApiServer::Change* change : *changes) {
        lines.push_back(nlohmann::json{{"type", change->type}, {"object", change->object}}.dump() + "\n");
        version = change->version;
      }
      if (changes->empty() && random.chance(0.2)) {
        // Nothing of this kind has happened up to here.
        version = server_.version();
        lines.push_back(fmt::format(
            "{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{}\"}}}}}}\n", version));
      }
      for (std::string& line : lines) {
        co_await Sleep(loop_, clock_.now() + latency());
        if (random.chance(server_.faults.watch_cut)) {
          mark("watch.cut");
          chunks.push(line.substr(0, line.size() / 2));
          throw Error(ErrorCode::kUnavailable, "the watch was cut");
        }
        chunks.push(std::move(line));
      }
      if (server_.version() == version || lines.empty()) co_await changed.wait_until(end);
    }
    co_return answer;
  }

 private:
  class Watching {
   public:
    Watching(ApiServer& server, std::function<void()> call) : server_(server), id_(server.on_change(std::move(call))) {}
    Watching(const Watching&) = delete;
    ~Watching() { server_.forget(id_); }

   private:
    ApiServer& server_;
    const uint64_t id_;
  };

  static Error none() { return Error(ErrorCode::kFailed, "this network has one server"); }
  static std::string query_of(const std::string& target, const std::string& name) {
    const size_t mark = target.find('?');
    for (const std::string_view part : split(std::string_view(target).substr(mark + 1), '&')) {
      const auto pair = split_once(part, '=');
      if (pair && pair->first == name) return std::string(pair->second);
    }
    return "";
  }
  void mark(std::string_view name) { server_.simulation().simulator.mark(name); }
  Duration latency() {
    Random& random = server_.random();
    const ApiFaults& faults = server_.faults;
    const Duration most = random.chance(faults.slow) ? faults.slow_max : faults.latency_max;
    return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(most.count()) + 1)));
  }

  ApiServer& server_;
  Loop& loop_;
  Clock& clock_;
};

}  // namespace rubato::elasticjob
