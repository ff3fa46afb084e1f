#include "elasticjob/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_bounds.h"
#include "core/text.h"
#include "elasticjob/manifest.h"
#include "elasticjob/sizing.h"
#include "model/supervisor_request.h"
#include "rest/hmac.h"
#include "world/http_reply.h"

namespace rubato::elasticjob {

using kubernetes::object_in;
using kubernetes::text_in;
using nlohmann::json;

namespace {

constexpr Duration kWriteEvery = 20s;
constexpr Duration kLookEvery = 1s;
constexpr size_t kJobsMax = 10'000;  // remembered; a job that is forgotten costs one more write
constexpr size_t kPathParts = 6;     // "", kind, namespace, name, uid, signature
constexpr int kPodsPage = 500;
constexpr int kGroupMax = 10'000;
constexpr JsonBounds kHintsBounds{8, 10'000, 10'000};

std::string signature_of(std::string_view key, Kind kind, const ObjectName& name, const std::string& uid) {
  const std::string text = fmt::format("supervisor/{}/{}/{}", to_string(kind), to_string(name), uid);
  return rest::HmacKey(key).sign_hex(text);
}

ServerReply ok_reply() {
  ServerReply reply;
  reply.headers["content-type"] = "text/plain";
  reply.body = "OK";
  return reply;
}

std::string key_in(const json& secret) { return text_in(object_in(secret, "data"), "key"); }

// Clears the flag also when whoever reads hangs up.
class ReadingMark {
 public:
  ReadingMark(bool& reading, Event& changed) : reading_(reading), changed_(changed) { reading_ = true; }
  ReadingMark(const ReadingMark&) = delete;
  ~ReadingMark() {
    reading_ = false;
    changed_.notify();
  }

 private:
  bool& reading_;
  Event& changed_;
};

// The addresses of the newest group by rank; empty while one of them has none.
std::vector<std::string> addresses_of(const std::vector<Pod>& pods, int group) {
  std::vector<std::string> out;
  size_t found = 0;
  for (const Pod& pod : pods) {
    if (pod.group != group || pod.ended() || pod.deleting || pod.address.empty() || pod.index < 0) continue;
    if (pod.index >= pod.group_size || pod.group_size > kGroupMax) continue;
    out.resize(static_cast<size_t>(pod.group_size));
    std::string& place = out[static_cast<size_t>(pod.index)];
    found += place.empty() ? 1 : 0;
    place = pod.address;
  }
  if (found < out.size()) out.clear();
  return out;
}

}  // namespace

std::string supervisor_url(const SupervisorAddress& address, const Job& job) {
  if (address.url.empty() || !job.adaptive) return "";
  return fmt::format("{}/{}/{}/{}/{}", address.url, to_string(job.kind), to_string(job.name), job.uid,
                     signature_of(address.key, job.kind, job.name, job.uid));
}

Task<std::string> fetch_supervisor_key(kubernetes::Client& client, std::string namespace_name) {
  const ObjectName name{namespace_name, kSupervisorSecret};
  const std::optional<json> there = co_await client.find(kubernetes::secrets(), name);
  if (there && !key_in(*there).empty()) co_return key_in(*there);
  json document = {{"apiVersion", "v1"},
                   {"kind", "Secret"},
                   {"metadata", {{"name", name.name}, {"namespace", namespace_name}}},
                   {"stringData", {{"key", client.world().random.hex(64)}}}};
  bool taken = false;
  try {
    const json made = co_await client.create(kubernetes::secrets(), namespace_name, std::move(document));
    co_return key_in(made);
  } catch (const rest::CloudError& error) {
    taken = error.reason == "AlreadyExists";
    if (!taken) throw;
  }
  // Another operator was faster, or our first answer was lost.
  const json made = co_await client.get(kubernetes::secrets(), name);
  if (key_in(made).empty()) {
    throw Error(ErrorCode::kFailed, fmt::format("the secret {} has no key", to_string(name)), "",
                "delete it: the operator makes it anew");
  }
  co_return key_in(made);
}

Supervisor::Supervisor(kubernetes::Client& client, std::string key, Log log)
    : client_(client),
      world_(client.world()),
      key_(std::move(key)),
      log_(std::move(log)),
      changed_(world_.clock.loop()) {}

std::optional<Supervisor::Asker> Supervisor::asker_of(const std::vector<std::string_view>& parts) const {
  if (parts.size() < kPathParts) return std::nullopt;
  const std::optional<Kind> kind = parse_kind(parts[1]);
  if (!kind || to_string(*kind) != parts[1]) return std::nullopt;
  Asker asker;
  asker.kind = *kind;
  asker.name = {std::string(parts[2]), std::string(parts[3])};
  asker.uid = std::string(parts[4]);
  if (!constant_time_equal(signature_of(key_, *kind, asker.name, asker.uid), parts[5])) return std::nullopt;
  return asker;
}

HttpAdmission Supervisor::admit(const ServerRequest& head) const {
  return {asker_of(split(head.path, '/')).has_value(), kHintsBytesMax};
}

Task<ServerReply> Supervisor::handle(ServerRequest request) {
  const std::vector<std::string_view> parts = split(request.path, '/');
  std::optional<Asker> asker = asker_of(parts);
  if (!asker) co_return error_reply(404, "not_found", "there is nothing here");
  const auto timeout = request.query.find("timeout");
  std::optional<std::string> asked;
  if (timeout != request.query.end()) asked = timeout->second;
  const SupervisorRequest order = read_supervisor_request(request.method, std::span(parts).subspan(kPathParts), asked);
  switch (order.verb) {
    case SupervisorRequest::Verb::kHealth:
      co_return ok_reply();
    case SupervisorRequest::Verb::kDiscover: {
      Task<ServerReply> discovering = discover(std::move(*asker), order.group, order.patience);
      co_return co_await std::move(discovering);
    }
    case SupervisorRequest::Verb::kHints: {
      Task<ServerReply> taking = take_hints(std::move(*asker), std::move(request.body));
      co_return co_await std::move(taking);
    }
    case SupervisorRequest::Verb::kMalformed:
      co_return error_reply(400, "usage", "expected /discover/NAMESPACE/JOB/GROUP?timeout=SECONDS");
    case SupervisorRequest::Verb::kUnknown:
      break;
  }
  co_return error_reply(404, "not_found", "there is nothing here", "",
                        "healthz, discover/NAMESPACE/JOB/GROUP and hints/NAMESPACE/JOB are");
}

Task<ServerReply> Supervisor::take_hints(Asker asker, std::string body) {
  JobProfile profile;
  try {
    const json hints =
        beyond_bounds(body, kHintsBounds) ? json(json::value_t::discarded) : json::parse(body, nullptr, false);
    if (!hints.is_object()) co_return error_reply(400, "usage", "hints are no JSON object, or too large");
    profile = job_profile_from_json(hints);
  } catch (const Error& error) {
    co_return error_reply(error);
  }
  const Instant now = world_.clock.now();
  const auto told = told_.find(asker.uid);
  if (told != told_.end() && (now - told->second.written < kWriteEvery || !is_news(told->second.profile, profile))) {
    co_return ok_reply();
  }
  const std::string text = to_json(profile).dump(-1, ' ', false, json::error_handler_t::replace);
  // With the uid: a later job of the same name has its own workers.
  json patch = {{"metadata", {{"uid", asker.uid}, {"annotations", {{kAnnotationHints, text}}}}}};
  try {
    co_await client_.merge_patch(resource_of(asker.kind), asker.name, "", std::move(patch));
  } catch (const rest::CloudError& error) {
    const bool gone = error.status == 404 || error.status == 409 || error.status == 422;
    if (gone) co_return error_reply(404, "not_found", "this job is gone");
    log_.warning("cannot keep the hints of a job", {{"job", to_string(asker.name)}, {"why", error.message}});
    co_return error_reply(error);
  }
  if (told_.size() >= kJobsMax) told_.clear();
  told_[asker.uid] = {now, std::move(profile)};
  co_return ok_reply();
}

// Lists the pods of a job for all who ask for them now.
Task<void> Supervisor::read_group(Asker asker) {
  if (groups_.size() >= kJobsMax) {
    std::erase_if(groups_, [](const auto& one) { return !one.second.reading; });
  }
  Group& group = groups_[asker.uid];
  if (group.reading || world_.clock.now() - group.read < kLookEvery) co_return;
  const ReadingMark mark(group.reading, changed_);
  Job job;
  job.kind = asker.kind;
  job.name = asker.name;
  std::vector<Pod> pods;
  std::string next;
  do {
    Task<kubernetes::ListPage> listing =
        client_.list(kubernetes::pods(), asker.name.namespace_name, selector_of(job), kPodsPage, next);
    const kubernetes::ListPage page = co_await std::move(listing);
    const json document = kubernetes::read_document(page.body, "the pods of a job");
    for (const json& one : kubernetes::list_in(document, "items")) {
      Pod pod = read_pod(one);
      if (pod.owner_uid == asker.uid) pods.push_back(std::move(pod));
    }
    next = text_in(object_in(document, "metadata"), "continue");
  } while (!next.empty());
  group.number = -1;
  for (const Pod& pod : pods) group.number = std::max(group.number, pod.group);
  group.addresses = addresses_of(pods, group.number);
  group.read = world_.clock.now();
}

Task<ServerReply> Supervisor::discover(Asker asker, uint64_t group, Duration patience) {
  // Others meet by their launcher.
  if (asker.kind != Kind::kAdaptdlJob)
    co_return error_reply(404, "not_found", "the workers of this job meet elsewhere");
  const Instant deadline = world_.clock.now() + patience;
  while (true) {
    try {
      Task<void> reading = read_group(asker);
      co_await std::move(reading);
    } catch (const Error& error) {
      log_.warning("cannot list the pods of a job", {{"job", to_string(asker.name)}, {"why", error.message}});
    }
    const Group& known = groups_[asker.uid];
    if (known.number >= 0 && static_cast<uint64_t>(known.number) == group && !known.addresses.empty()) {
      ServerReply reply;
      reply.headers["content-type"] = "application/json";
      reply.body = json(known.addresses).dump();
      co_return reply;
    }
    if (world_.clock.now() >= deadline) break;
    co_await changed_.wait_until(std::min(deadline, world_.clock.now() + kLookEvery));
  }
  co_return error_reply(408, "unavailable", "these workers are not all there yet", "", "ask again");
}

}  // namespace rubato::elasticjob
