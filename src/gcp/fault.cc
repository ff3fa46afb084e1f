#include "gcp/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "rest/json.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::list_at;
using rest::object_at;
using rest::text_at;
using rest::Verdict;


template <size_t N>
bool is_one_of(std::string_view reason, const std::array<std::string_view, N>& list) {
  return std::ranges::find(list, reason) != list.end();
}

// Of refusals (reason) and of operations (code), as far as somebody acts on them.
constexpr std::array<std::string_view, 6> kThrottled = {
    "rateLimitExceeded",   "userRateLimitExceeded",           "concurrentLimitExceeded",
    "RATE_LIMIT_EXCEEDED", "RESOURCE_OPERATION_RATE_EXCEEDED", "resourceOperationRateExceeded"};
constexpr std::array<std::string_view, 7> kNoCapacity = {
    "ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "RESOURCE_POOL_EXHAUSTED",
    "STOCKOUT", "ZONE_RESOURCES_UNAVAILABLE", "IP_SPACE_EXHAUSTED", "IP_SPACE_EXHAUSTED_WITH_DETAILS"};
constexpr std::array<std::string_view, 5> kQuota = {"quotaExceeded", "QUOTA_EXCEEDED", "limitExceeded",
                                                    "LIMIT_EXCEEDED", "dailyLimitExceeded"};
constexpr std::array<std::string_view, 6> kExists = {"alreadyExists",  "RESOURCE_ALREADY_EXISTS",
                                                     "conditionNotMet", "CONDITION_NOT_MET",
                                                     "resourceNotReady", "RESOURCE_NOT_READY"};
constexpr std::array<std::string_view, 3> kInUse = {"resourceInUseByAnotherResource",
                                                    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "aborted"};
constexpr std::array<std::string_view, 2> kAbsent = {"notFound", "RESOURCE_NOT_FOUND"};
constexpr std::array<std::string_view, 3> kTransient = {"INTERNAL_ERROR", "backendError", "internalError"};
constexpr std::array<std::string_view, 2> kSwitchedOff = {"accessNotConfigured", "SERVICE_DISABLED"};

// The text between the first two quotes behind `before`: "Required 'compute.instances.list' permission for …".
std::string quoted_behind(const std::string& message, std::string_view before) {
  const size_t begin = message.find(before);
  if (begin == std::string::npos) return {};
  const size_t first = message.find('\'', begin);
  const size_t last = first == std::string::npos ? first : message.find('\'', first + 1);
  return last == std::string::npos ? "" : message.substr(first + 1, last - first - 1);
}

ErrorCode code_of(const Fault& fault, int status) {
  if (is_one_of(fault.reason, kNoCapacity)) return ErrorCode::kNoCapacity;
  if (is_one_of(fault.reason, kQuota)) return ErrorCode::kQuota;
  if (is_one_of(fault.reason, kThrottled)) return ErrorCode::kUnavailable;
  if (is_one_of(fault.reason, kTransient)) return ErrorCode::kUnavailable;
  if (is_one_of(fault.reason, kAbsent) || status == 404) return ErrorCode::kNotFound;
  if (is_one_of(fault.reason, kExists) || is_one_of(fault.reason, kInUse)) return ErrorCode::kConflict;
  if (status == 401 || status == 403) return ErrorCode::kAuth;
  if (status == 409 || status == 412) return ErrorCode::kConflict;
  if (status == 408 || status == 429 || status >= 500) return ErrorCode::kUnavailable;
  return ErrorCode::kFailed;
}

std::string hint_of(const CallName& call, const Fault& fault, ErrorCode code, int status) {
  const std::string project = call.project.empty() ? "PROJECT" : call.project;
  if (!fault.service.empty() || is_one_of(fault.reason, kSwitchedOff)) {
    return fmt::format("switch it on: gcloud services enable {} --project {}",
                       fault.service.empty() ? "compute.googleapis.com" : fault.service, project);
  }
  switch (code) {
    case ErrorCode::kAuth:
      if (status == 401) return "get new credentials: gcloud auth application-default login";
      if (fault.permission.empty()) return fmt::format("is project_id '{}' right, and may you use it?", project);
      return fmt::format("a role with the permission {} is missing: see docs/gcp.md, \"Permissions\"",
                         fault.permission);
    case ErrorCode::kNoCapacity: return "try another zone or machine type, or wait";
    case ErrorCode::kQuota:
      return fmt::format("ask for more at https://console.cloud.google.com/iam-admin/quotas?project={}, or use another "
                         "machine type or region",
                         project);
    case ErrorCode::kUnavailable: return "Google asks to slow down or has a problem: try again later";
    case ErrorCode::kFailed:
    case ErrorCode::kUsage:
    case ErrorCode::kConflict:
    case ErrorCode::kNotFound: return {};
  }
  return {};
}

void read_details(const json& error, Fault& fault) {
  for (const json& one : list_at(error, "details")) {
    if (!one.is_object()) continue;
    const std::string reason = text_at(one, "reason");
    if (!reason.empty() && fault.reason.empty()) fault.reason = reason;
    const auto more = one.find("metadata");
    if (more == one.end()) continue;
    if (reason == "SERVICE_DISABLED") fault.service = text_at(*more, "service");
    if (fault.permission.empty()) fault.permission = text_at(*more, "permission");
  }
}

}  // namespace

Fault read_fault(const HttpResponse& response) {
  Fault fault;
  const json document = rest::parse_bounded(response.body);
  if (!document.is_object() || !document.contains("error")) return fault;
  const json& error = document["error"];
  if (error.is_string()) {  // OAuth's form
    fault.reason = error.get<std::string>();
    fault.message = text_at(document, "error_description");
    return fault;
  }
  if (!error.is_object()) return fault;
  fault.message = text_at(error, "message");
  if (const json list = list_at(error, "errors"); !list.empty()) {
    fault.reason = text_at(list.front(), "reason");
  }
  read_details(error, fault);
  if (fault.reason.empty()) fault.reason = text_at(error, "status");
  if (fault.permission.empty()) fault.permission = quoted_behind(fault.message, "Required '");
  if (fault.permission.empty()) fault.permission = quoted_behind(fault.message, "Permission '");
  return fault;
}

Verdict judge_fault(const HttpResponse& response, const Fault& fault) {
  if (response.status == 401) return Verdict::kExpired;
  if (response.status == 429 || is_one_of(fault.reason, kThrottled)) return Verdict::kThrottled;
  if (response.status == 408 || (response.status >= 500 && response.status != 501)) return Verdict::kRetry;
  return Verdict::kDone;
}

rest::CloudError make_error(const CallName& call, const Fault& fault, int status) {
  const ErrorCode code = code_of(fault, status);
  const std::string message = rest::shown_message(fault.message);
  std::string what = fmt::format("{}: {}", call.operation,
                                 fault.reason.empty() ? fmt::format("HTTP status {}", status) : fault.reason);
  if (!message.empty()) what += ": " + message;
  rest::CloudError error(code, std::move(what), call.where, hint_of(call, fault, code, status));
  error.status = status;
  error.reason = fault.reason;
  return error;
}

bool is_unknown_call(const rest::CloudError& error) {
  return error.status == 404 || error.status == 405 || error.status == 501;
}

rest::CloudError operation_error(const CallName& call, const json& operation) {
  Fault fault;
  const json error = object_at(operation, "error");
  const json list = list_at(error, "errors");
  // A stock-out comes with others beside it ("insufficient capacity" of a quota's name): it is what counts.
  for (const json& one : list) {
    const std::string code = text_at(one, "code");
    if (!fault.reason.empty() && !is_one_of(code, kNoCapacity)) continue;
    fault.reason = code;
    fault.message = text_at(one, "message");
  }
  const auto status = operation.find("httpErrorStatusCode");
  return make_error(call, fault, status != operation.end() && status->is_number() ? status->get<int>() : 0);
}

}  // namespace rubato::gcp
