#include "os/etcd_store.h"

#include <algorithm>
#include <map>

#include "core/line_buffer.h"
#include "core/scope.h"
#include "core/text.h"
#include "os/etcd_json.h"

namespace rubato::os {

using namespace etcd_json;

namespace {

// An endpoint's first chance to answer; it doubles each round, so that a slow cluster is not hurried for ever.
constexpr Duration kPatienceMin = 3s;
constexpr Duration kPauseMin = 50ms;
constexpr Duration kPauseMax = 1s;
constexpr Duration kMembersFreshFor = 60s;
constexpr Duration kMembersPatience = 1s;
// A watch is silent when nothing changes; so its server is asked now and then whether it lives and has a leader.
constexpr Duration kProbeEvery = 5s;
constexpr Duration kProbePatience = 5s;
constexpr size_t kWatchLineBytesMax = 64 << 20;
constexpr Duration kMarkerTtl = 600s;
constexpr Duration kMarkerRenewAfter = 180s;
constexpr const char* kNotEtcd = "it answers, but not as etcd does";
constexpr size_t kTransactionOpsMax = 128;  // etcd's --max-txn-ops

HttpRequest post_request(const std::string& path, std::string body) {
  HttpRequest request;
  request.method = "POST";
  request.target = path;
  request.headers["content-type"] = "application/json";
  request.body = std::move(body);
  return request;
}

// 3.4: {"error": "words", "code": 14}; 3.6: {"code": 14, "message": "words"}; in a stream: {"error": {"grpc_code": 14,
// "message": "words"}}.
std::string error_text(const Json& body) {
  if (!body.is_object()) return "";
  const Json& error = body.contains("error") && body.at("error").is_object() ? body.at("error") : body;
  for (const char* name : {"message", "error"}) {
    if (error.contains(name) && error.at(name).is_string()) return error.at(name).get<std::string>();
  }
  return body.contains("error") ? body.at("error").dump() : "";
}

// What the next endpoint may answer otherwise: no leader, overload, shutdown, and 408 and 499 for a call broken off.
bool passing(int status, const std::string& sentence) {
  if (sentence.find("space exceeded") != std::string::npos) return false;
  return status >= 500 || status == 408 || status == 429 || status == 499;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::string url_of(const Endpoint& endpoint, bool use_tls) {
  return (use_tls ? "https://" : "http://") + to_string(endpoint);
}

}  // namespace

// What one endpoint said: a good answer (no words), words that another endpoint may answer better, or a refusal.
struct EtcdStore::Told {
  Json body;
  std::string message;
  std::optional<Error> refusal;
};

struct EtcdStore::Answer {
  Json body;
  int tries = 0;  // more than 1: an earlier try may have taken effect, or may yet
};

std::vector<Endpoint> etcd_endpoints(std::string_view address) {
  std::vector<Endpoint> endpoints;
  for (const std::string_view text : split(strip_prefix(address, "etcd://").value_or(address), ','))
    endpoints.push_back(parse_endpoint(text, 2379));
  return endpoints;
}

EtcdStore::EtcdStore(Network& network, Clock& clock, std::vector<Endpoint> endpoints, TlsFiles tls,
                     std::string marker_prefix)
    : network_(network),
      clock_(clock),
      given_(std::move(endpoints)),
      tls_(std::move(tls)),
      marker_prefix_(std::move(marker_prefix)),
      endpoints_(given_) {
  CHECK(!given_.empty());
}

EtcdStore::Told EtcdStore::read_answer(const HttpResponse& response) {
  Told told;
  told.body = Json::parse(response.body, nullptr, false);
  if (response.status == 200 && told.body.is_object() && !told.body.contains("error")) {
    const Json& inner = told.body.contains("result") ? told.body.at("result") : told.body;
    if (!inner.is_object() || !inner.contains("header")) {
      told.message = kNotEtcd;
      return told;
    }
    const std::string cluster = inner.at("header").value("cluster_id", "");
    if (cluster_.empty()) cluster_ = cluster;
    if (cluster != cluster_) told.message = "it belongs to another etcd cluster";
    return told;
  }
  told.message = error_text(told.body);
  if (told.message.empty()) told.message = "HTTP status " + std::to_string(response.status);
  if (response.status == 200 || passing(response.status, told.message)) return told;
  const bool is_etcd = told.body.is_object();
  const bool not_found = is_etcd && response.status == 404;
  told.refusal.emplace(not_found ? ErrorCode::kNotFound : ErrorCode::kFailed, "etcd refused: " + told.message, "",
                       is_etcd ? "" : "is this etcd 3.4 or newer, with --enable-grpc-gateway (the default)?");
  return told;
}

Task<EtcdStore::Told> EtcdStore::ask(Endpoint endpoint, std::string path, std::string body, Instant deadline) {
  HttpRequest request = post_request(path, std::move(body));
  Told told;
  try {
    HttpResponse response = co_await network_.call(endpoint, tls_, std::move(request), deadline);
    told = read_answer(response);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kUnavailable) throw;
    // "POST URL: why": the summary names the endpoint itself.
    const size_t at = error.message.find(path + ": ");
    told.message = at == std::string::npos ? error.message : error.message.substr(at + path.size() + 2);
  } catch (const Json::exception&) {
    told.message = kNotEtcd;
  }
  if (told.refusal) told.refusal->where = url_of(endpoint, tls_.use_tls);
  co_return told;
}

// One call until some endpoint has answered it. `first` is the body of the first try, `again` of all later ones.
Task<EtcdStore::Answer> EtcdStore::post(std::string path, std::string first, std::string again, Instant deadline) {
  Answer answer;
  std::map<Endpoint, std::string> said;
  Duration pause = kPauseMin, patience = kPatienceMin;
  for (bool late = false; !late;) {
    for (size_t left = endpoints_.size(); left > 0 && !late; --left) {
      const Endpoint endpoint = endpoints_[preferred_];
      const Instant until = std::min(deadline, clock_.now() + patience);
      std::string body = answer.tries++ == 0 ? first : again;
      Told told = co_await ask(endpoint, path, std::move(body), until);
      if (told.refusal) throw Error(*told.refusal);
      if (told.message.empty()) {
        co_await learn_members(deadline);
        answer.body = std::move(told.body);
        co_return answer;
      }
      said[endpoint] = told.message;
      prefer_after(endpoint);
      late = clock_.now() >= deadline;
    }
    if (!late) co_await Sleep(clock_.loop(), std::min(deadline, clock_.now() + pause));
    late = clock_.now() >= deadline;
    pause = std::min(2 * pause, kPauseMax);
    patience *= 2;
  }
  std::vector<std::string> lines, names;
  for (const auto& [endpoint, sentence] : said) {
    lines.push_back(to_string(endpoint) + ": " + sentence);
    names.push_back(to_string(endpoint));
  }
  throw Error(ErrorCode::kUnavailable, "no etcd endpoint answered " + path + " in time: " + join(lines, "; "),
              join(names, ","),
              "is etcd running there? check: etcdctl --endpoints=" + join(urls(), ",") + " endpoint health");
}

void EtcdStore::prefer_after(const Endpoint& failed) {
  members_due_ = Instant{};
  if (endpoints_[preferred_] == failed) preferred_ = (preferred_ + 1) % endpoints_.size();
}

Endpoint EtcdStore::after(const Endpoint& endpoint) const {
  const auto at = std::find(endpoints_.begin(), endpoints_.end(), endpoint);
  return at == endpoints_.end() || at + 1 == endpoints_.end() ? endpoints_.front() : *(at + 1);
}

std::vector<std::string> EtcdStore::urls() const {
  std::vector<std::string> urls;
  for (const Endpoint& endpoint : endpoints_) urls.push_back(url_of(endpoint, tls_.use_tls));
  return urls;
}

// Best effort, after a call that went well: a member list that cannot be had now is asked for again later.
Task<void> EtcdStore::learn_members(Instant deadline) {
  const Instant now = clock_.now();
  if (now < members_due_) co_return;
  members_due_ = now + kMembersFreshFor;
  const Endpoint asked = endpoints_[preferred_];
  Told told = co_await ask(asked, "/v3/cluster/member/list", "{}", std::min(deadline, now + kMembersPatience));
  if (!told.message.empty()) co_return;
  std::vector<Endpoint> all = given_;
  const std::string scheme = tls_.use_tls ? "https://" : "http://";
  for (const Json& member : told.body.value("members", Json::array())) {
    for (const Json& url : member.value("clientURLs", Json::array())) {
      const std::string text = url.get<std::string>();
      const std::optional<std::string_view> rest = strip_prefix(text, scheme);
      if (!rest) continue;
      const Endpoint endpoint = parse_endpoint(strip_suffix(*rest, "/").value_or(*rest), 2379);
      // "localhost" as advertised by another machine is not ours.
      if (is_loopback(endpoint.host) && !is_loopback(asked.host)) continue;
      if (std::find(all.begin(), all.end(), endpoint) == all.end()) all.push_back(endpoint);
    }
  }
  const Endpoint preferred = endpoints_[preferred_];
  endpoints_ = std::move(all);
  const auto at = std::find(endpoints_.begin(), endpoints_.end(), preferred);
  preferred_ = at == endpoints_.end() ? 0 : static_cast<size_t>(at - endpoints_.begin());
}

Task<std::optional<StoreEntry>> EtcdStore::get(std::string key, Instant deadline) {
  CHECK(!key.empty());
  const std::string body = Json{{"key", encode(key)}}.dump();
  Answer answer = co_await post("/v3/kv/range", body, body, deadline);
  if (!answer.body.contains("kvs")) co_return std::nullopt;
  co_return entry_of(answer.body.at("kvs").at(0));
}

Task<std::vector<StoreEntry>> EtcdStore::scan(std::string prefix, Instant deadline) {
  const std::string body = key_range(prefix).dump();
  Answer answer = co_await post("/v3/kv/range", body, body, deadline);
  std::vector<StoreEntry> entries;
  for (const Json& kv : answer.body.value("kvs", Json::array())) {
    StoreEntry entry = entry_of(kv);
    if (!entry.key.starts_with(marker_prefix_)) entries.push_back(std::move(entry));
  }
  co_return entries;
}

Task<int64_t> EtcdStore::grant_lease(Duration ttl, Instant deadline) {
  const int64_t whole_s = std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(ttl).count());
  const std::string body = Json{{"TTL", std::to_string(whole_s)}}.dump();
  // A try that was not answered may leave a lease that nobody uses; it expires.
  Answer answer = co_await post("/v3/lease/grant", body, body, deadline);
  co_return number_of(answer.body, "ID");
}

Task<bool> EtcdStore::renew_lease(int64_t lease, Instant deadline) {
  const std::string body = Json{{"ID", std::to_string(lease)}}.dump();
  Answer answer = co_await post("/v3/lease/keepalive", body, body, deadline);
  co_return number_of(answer.body.at("result"), "TTL") > 0;
}

Task<void> EtcdStore::revoke_lease(int64_t lease, Instant deadline) {
  const std::string body = Json{{"ID", std::to_string(lease)}}.dump();
  try {
    Answer answer = co_await post("/v3/lease/revoke", body, body, deadline);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kNotFound) throw;  // gone already: what we want
  }
}

Task<void> EtcdStore::hold_marker_lease(Instant deadline) {
  const Instant now = clock_.now();
  if (marker_lease_ != 0 && now - marker_lease_renewed_ < kMarkerRenewAfter) co_return;
  bool renewed = false;
  if (marker_lease_ != 0) renewed = co_await renew_lease(marker_lease_, deadline);
  if (!renewed) marker_lease_ = co_await grant_lease(kMarkerTtl, deadline);
  marker_lease_renewed_ = now;
}

Task<CommitResult> EtcdStore::commit(std::vector<StoreCondition> conditions, std::vector<StoreWrite> writes,
                                     Instant deadline) {
  for (bool new_lease = false;; new_lease = true) {
    co_await hold_marker_lease(deadline);
    try {
      co_return co_await commit_marked(conditions, writes, deadline);
    } catch (const Error& error) {
      // A lease is gone: the caller's, or ours (a machine that slept). The second time it is not ours.
      if (error.code != ErrorCode::kNotFound || new_lease) throw;
      marker_lease_ = 0;
    }
  }
}

Task<CommitResult> EtcdStore::commit_marked(std::vector<StoreCondition> conditions, std::vector<StoreWrite> writes,
                                            Instant deadline) {
  const std::string marker = marker_prefix_ + std::to_string(marker_lease_) + "/" + std::to_string(++commits_);
  Json compare = Json::array({created_at(marker, 0)});
  for (const StoreCondition& condition : conditions) compare.push_back(created_at(condition.key, condition.created));
  Json success = Json::array({put_op(marker, "committed", marker_lease_)});
  for (const StoreWrite& write : writes) success.push_back(write_op(write));
  std::vector<std::string> removed = std::exchange(settled_markers_, {});
  for (const std::string& settled : removed) {
    if (success.size() < kTransactionOpsMax) success.push_back(remove_op(settled));
  }
  Json transaction{{"compare", std::move(compare)}, {"success", std::move(success)}};
  const std::string first = transaction.dump();
  Json fence{{"compare", Json::array({created_at(marker, 0)})},
             {"success", Json::array({put_op(marker, "void", marker_lease_)})},
             {"failure", Json::array({Json{{"request_range", Json{{"key", encode(marker)}}}}})}};
  transaction["failure"] = Json::array({Json{{"request_txn", std::move(fence)}}});
  const std::string again = transaction.dump();

  Answer answer = co_await post("/v3/kv/txn", first, again, deadline);
  CommitResult result;
  result.committed = answer.body.value("succeeded", false);
  result.revision = revision_of(answer.body);
  if (answer.tries == 1) {
    // After several tries the marker stays until its lease ends, against stragglers.
    if (result.committed) removed = {marker};
    settled_markers_.insert(settled_markers_.end(), removed.begin(), removed.end());
  }
  if (answer.tries == 1 || result.committed) co_return result;
  const Json& fenced = answer.body.at("responses").at(0).at("response_txn");
  if (fenced.value("succeeded", false)) co_return result;
  const StoreEntry found = entry_of(fenced.at("responses").at(0).at("response_range").at("kvs").at(0));
  result.committed = found.value == "committed";
  if (result.committed) result.revision = found.modified;
  co_return result;
}

Task<void> EtcdStore::watch(std::string prefix, Channel<StoreChange>& changes) {
  int64_t next = 0;  // 0: from now on
  Duration pause = kPauseMin;
  Endpoint endpoint = endpoints_[preferred_];
  for (;;) {
    const int64_t before = next;
    co_await watch_at(endpoint, prefix, next, changes);
    endpoint = after(endpoint);
    pause = next != before ? kPauseMin : std::min(2 * pause, kPauseMax);
    co_await Sleep(clock_.loop(), clock_.now() + pause);
  }
}

// Watches at one endpoint until that fails or must begin anew.
Task<void> EtcdStore::watch_at(Endpoint endpoint, std::string prefix, int64_t& next, Channel<StoreChange>& changes) {
  Json create = key_range(prefix);
  if (next > 0) create["start_revision"] = std::to_string(next);
  HttpRequest request = post_request("/v3/watch", Json{{"create_request", std::move(create)}}.dump());
  request.headers["grpc-metadata-hasleader"] = "true";  // end the stream rather than stay with a server cut off
  Channel<std::string> chunks(clock_.loop());
  HttpResponse head;
  std::optional<Error> refusal;
  Scope scope(clock_.loop());
  Task<void> reading = read_stream(endpoint, std::move(request), chunks, head, refusal);
  scope.spawn(std::move(reading));
  Task<void> probing = probe(endpoint, chunks);
  scope.spawn(std::move(probing));
  LineBuffer lines;
  for (;;) {
    const std::optional<std::string> chunk = co_await chunks.pop();
    if (!chunk) break;
    lines.add(*chunk);
    while (const auto line = lines.next()) {
      if (!deliver(*line, next, changes)) co_return;
    }
    if (lines.size() > kWatchLineBytesMax) co_return;
  }
  if (head.status != 0 && head.status != 200) {
    head.body = lines.take_rest();
    refusal = read_answer(head).refusal;
  }
  if (!refusal) co_return;
  refusal->where = url_of(endpoint, tls_.use_tls);
  throw Error(*refusal);
}

// Feeds `chunks` and closes it at the end of the stream; `head` is then the status and headers, if there were any.
Task<void> EtcdStore::read_stream(Endpoint endpoint, HttpRequest request, Channel<std::string>& chunks,
                                  HttpResponse& head, std::optional<Error>& refusal) {
  try {
    const Instant header_deadline = clock_.now() + kPatienceMin;
    head = co_await network_.stream(endpoint, tls_, std::move(request), header_deadline, chunks);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kUnavailable) refusal = error;
  }
  chunks.close();
}

Task<void> EtcdStore::probe(Endpoint endpoint, Channel<std::string>& chunks) {
  const std::string body = Json{{"key", encode(marker_prefix_)}, {"count_only", true}}.dump();
  for (;;) {
    co_await Sleep(clock_.loop(), clock_.now() + kProbeEvery);
    Told told = co_await ask(endpoint, "/v3/kv/range", body, clock_.now() + kProbePatience);
    if (!told.message.empty() && !told.refusal) break;
  }
  chunks.close();
}

// False: this stream is of no more use. A line without a result is an error, after which the server ends the stream.
bool EtcdStore::deliver(const std::string& line, int64_t& next, Channel<StoreChange>& changes) const {
  if (trim(line).empty()) return true;
  const Json message = Json::parse(line, nullptr, false);
  if (!message.is_object() || !message.contains("result")) return true;
  const Json& result = message.at("result");
  if (!cluster_.empty() && result.at("header").value("cluster_id", "") != cluster_) return false;
  if (result.value("canceled", false)) {
    if (number_of(result, "compact_revision") > 0) next = 0;
    return false;
  }
  if (result.value("created", false) && next == 0) {
    StoreChange read_again;
    read_again.revision = revision_of(result);
    next = read_again.revision + 1;
    changes.push(std::move(read_again));
  }
  for (const Json& event : result.value("events", Json::array())) {
    StoreEntry entry = entry_of(event.at("kv"));
    next = std::max(next, entry.modified + 1);
    if (entry.key.starts_with(marker_prefix_)) continue;
    StoreChange change;
    change.key = std::move(entry.key);
    if (event.value("type", "PUT") != "DELETE") change.value = std::move(entry.value);
    change.revision = entry.modified;
    changes.push(std::move(change));
  }
  return true;
}

}  // namespace rubato::os
