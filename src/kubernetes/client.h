// Client: calls to one Kubernetes API server, with retries, as documents.
//
// Refusals throw CloudError with the server's own reason ("AlreadyExists", "Conflict", "Forbidden", "Expired") and a
// code: kNotFound, kConflict, kQuota, kAuth, kUsage (422: the object is not valid), else kUnavailable.
// Calls that time out or meet a server in trouble are tried again; what we create has a fixed name, so that a second
// try cannot make a second one. Requests are spaced (rate_limit.h). One loop; not copyable.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "kubernetes/access.h"
#include "kubernetes/rate_limit.h"
#include "kubernetes/resource.h"
#include "rest/caller.h"
#include "rest/cloud_error.h"

namespace rubato::kubernetes {

struct Request {
  std::string method = "GET";
  std::string path;  // encoded
  rest::Query query;
  std::string content_type;
  std::string body;
  std::optional<Duration> timeout;
};

struct ListPage {
  std::string body;  // the list document as it came: pages are large, and are read once
};

struct WatchStart {
  Resource resource;
  std::string namespace_name;
  std::string label_selector;
  std::string resource_version;
  int timeout_s = 300;  // the server ends the watch then
};

// Who we are in metadata.managedFields.
inline constexpr const char* kFieldManager = "rubato";

// The reason of a refusal of ours: somebody's admission webhook did not answer. Lasts until somebody mends it.
inline constexpr const char* kWebhookFailed = "WebhookFailed";

// The Error for an answer of 400 and above. Pure.
rest::CloudError read_refusal(const HttpResponse& response, const std::string& what);

class Client {
 public:
  Client(World& world, std::unique_ptr<Access> access, RateTerms rate = {});
  Client(const Client&) = delete;
  ~Client();

  Task<nlohmann::json> get(Resource resource, ObjectName object);
  Task<std::optional<nlohmann::json>> find(Resource resource, ObjectName object);  // nullopt: there is none
  Task<nlohmann::json> create(Resource resource, std::string namespace_name, nlohmann::json document);
  // Server-side apply, which takes fields over from other managers.
  Task<nlohmann::json> apply(Resource resource, ObjectName object, nlohmann::json document);
  Task<nlohmann::json> merge_patch(Resource resource, ObjectName object, std::string subresource,
                                   nlohmann::json document, std::string manager = kFieldManager);
  Task<nlohmann::json> replace(Resource resource, ObjectName object, nlohmann::json document);
  // False: it was not there, or (with a uid) another one is. What is below it goes in the background.
  Task<bool> remove(Resource resource, ObjectName object, std::string uid = {});
  // A page of a list. `next` is the token of the page before, empty for the first.
  Task<ListPage> list(Resource resource, std::string namespace_name, std::string label_selector, int limit,
                      std::string next);
  // The lines of a watch go to `chunks`; returns when the server ends it. Throws kUnavailable when it is cut.
  Task<HttpResponse> watch(WatchStart start, Channel<std::string>& chunks);
  // A log as it is now; the body goes to `chunks` when `follow`.
  Task<HttpResponse> read_text(Request request);
  Task<HttpResponse> stream_text(Request request, Channel<std::string>& chunks);

  // Asked before each write is sent, also before it is sent again; those that are not allowed throw kUnavailable.
  void guard_writes(std::function<bool()> may_write) { may_write_ = std::move(may_write); }

  World& world() { return world_; }
  Access& access() { return *access_; }

 private:
  friend class ApiExchange;
  Task<HttpResponse> call(Request request, std::string what, int foreseen = 0);
  Task<nlohmann::json> document(Request request, std::string what);

  World& world_;
  std::unique_ptr<Access> access_;
  rest::Caller caller_;
  RateLimit rate_;
  std::function<bool()> may_write_;
};

// For the log of a pod's container (empty: its only one, or its default). A node sends nothing of one that is followed,
// not even a header, before the container has written its first line: that is waited for. Pure.
Request log_request(const ObjectName& pod, const std::string& container, bool follow);

// An answer, bounded. Throws kUnavailable, naming `what` was asked, for what is no JSON object.
nlohmann::json read_document(const std::string& body, const std::string& what);

// Of a document without trust: what is absent or of another kind is empty.
std::string text_in(const nlohmann::json& object, const char* key);
int64_t int_in(const nlohmann::json& object, const char* key, int64_t absent = 0);
bool bool_in(const nlohmann::json& object, const char* key, bool absent = false);
const nlohmann::json& object_in(const nlohmann::json& object, const char* key);  // an empty object when absent
const nlohmann::json& list_in(const nlohmann::json& object, const char* key);    // an empty list when absent

}  // namespace rubato::kubernetes
