#include "aws/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "rest/http_date.h"
#include "rest/xml.h"
#include "core/json_bounds.h"
#include "core/text.h"

namespace rubato::aws {
namespace {

using rest::Verdict;

constexpr size_t kFaultBytesMax = size_t{1} << 20;

template <size_t N>
bool is_one_of(std::string_view code, const std::array<std::string_view, N>& list) {
  return std::ranges::find(list, code) != list.end();
}

// The lists of botocore's retry handlers ("standard" mode) and of EC2's table of error codes.
constexpr std::array<std::string_view, 13> kThrottling = {
    "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "TooManyRequestsException",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "BandwidthLimitExceeded", "RequestThrottled",
    "SlowDown", "PriorRequestNotComplete", "EC2ThrottledException", "TransactionInProgressException"};
constexpr std::array<std::string_view, 5> kTransient = {"RequestTimeout", "RequestTimeoutException", "InternalError",
                                                        "ServiceUnavailable", "IDPCommunicationError"};
constexpr std::array<std::string_view, 2> kAlwaysSkewed = {"RequestTimeTooSkewed", "RequestInTheFuture"};
constexpr std::array<std::string_view, 4> kPerhapsSkewed = {"InvalidSignatureException", "SignatureDoesNotMatch",
                                                            "AuthFailure", "RequestExpired"};
constexpr std::array<std::string_view, 3> kExpired = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"};
constexpr std::array<std::string_view, 13> kNoCapacity = {
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
    "InsufficientCapacity", "InsufficientCapacityOnHost", "SpotMaxPriceTooLow", "Unsupported",
    "UnfulfillableCapacity", "ReservationCapacityExceeded", "InsufficientFreeAddressesInSubnet",
    "InsufficientAddressCapacity", "InsufficientVolumeCapacity", "VolumeTypeNotAvailableInZone"};
constexpr std::array<std::string_view, 14> kAuth = {
    "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure", "InvalidClientTokenId",
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSignatureException", "OptInRequired", "Blocked",
    "UnrecognizedClientException", "MissingAuthenticationToken", "PendingVerification",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted"};

// Which quota an EC2 code is about, by the name that the Service Quotas console has for it.
struct Quota {
  std::string_view code, name;
};
constexpr std::array<Quota, 9> kQuotas = {{
    {"VcpuLimitExceeded", "Running On-Demand instances of that family (vCPUs)"},
    {"InstanceLimitExceeded", "Running On-Demand instances of that type"},
    {"MaxSpotInstanceCountExceeded", "All Spot Instance Requests of that family (vCPUs)"},
    {"SecurityGroupLimitExceeded", "VPC security groups per Region"},
    {"RulesPerSecurityGroupLimitExceeded", "Inbound or outbound rules per security group"},
    {"AddressLimitExceeded", "EC2-VPC Elastic IPs"},
    {"VolumeLimitExceeded", "Storage for EBS volumes"},
    {"MaxIOPSLimitExceeded", "IOPS for EBS volumes"},
    {"PlacementGroupLimitExceeded", "Placement groups per Region"},
}};

std::string_view quota_name(std::string_view code) {
  for (const Quota& quota : kQuotas) {
    if (quota.code == code) return quota.name;
  }
  return {};
}

void read_xml_fault(const std::string& body, Fault& fault) {
  const rest::XmlResult parsed = rest::parse_xml(body);
  if (!parsed.problem.empty()) return;
  const rest::XmlNode& root = parsed.root;
  const rest::XmlNode* error = root.name == "Error" ? &root : root.at("Error");
  if (error == nullptr) error = root.at("Errors/Error");
  if (error == nullptr) return;
  fault.code = error->text_at("Code");
  fault.message = error->text_at("Message");
  for (const char* path : {"RequestId", "RequestID"}) {
    if (fault.request_id.empty()) fault.request_id = root.text_at(path);
  }
}

void read_json_fault(const std::string& body, Fault& fault) {
  if (rest::XmlLimits().bytes_max < body.size() || beyond_bounds(body, JsonBounds())) return;
  const auto document = nlohmann::json::parse(body, nullptr, false);
  if (!document.is_object()) return;
  const auto text = [&](const char* key) {
    const auto found = document.find(key);
    return found != document.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  for (const char* key : {"__type", "code", "Code", "ErrorCode"}) {
    if (fault.code.empty()) fault.code = text(key);
  }
  for (const char* key : {"message", "Message"}) {
    if (fault.message.empty()) fault.message = text(key);
  }
}

bool clock_is_off(const HttpResponse& response, WallTime now) {
  const auto theirs = rest::parse_http_date(rest::header_of(response, "date"));
  return theirs && std::chrono::abs(*theirs - now) > 4min;  // AWS accepts five
}

ErrorCode code_of(const Fault& fault, int status) {
  const std::string_view code = fault.code;
  if (is_one_of(code, kNoCapacity)) return ErrorCode::kNoCapacity;
  // RequestLimitExceeded is no quota: it passes by itself.
  if (is_one_of(code, kThrottling)) return ErrorCode::kUnavailable;
  if (!quota_name(code).empty() || code.ends_with("LimitExceeded") || code == "LimitExceeded") return ErrorCode::kQuota;
  if (is_one_of(code, kAuth) || is_one_of(code, kExpired)) return ErrorCode::kAuth;
  if (is_one_of(code, kTransient) || status >= 500) return ErrorCode::kUnavailable;
  if (code.ends_with(".NotFound") || code.ends_with("NotFound") || code == "NoSuchEntity" || code.starts_with("NoSuch"))
    return ErrorCode::kNotFound;
  if (code.ends_with(".Duplicate") || code.ends_with("AlreadyExists") || code.ends_with(".InUse") ||
      code == "DependencyViolation" || code == "IncorrectInstanceState" || code == "EntityAlreadyExists" ||
      code == "PreconditionFailed" || code == "BucketAlreadyOwnedByYou" || code == "DeleteConflict" ||
      code == "ScalingActivityInProgress" || code == "ResourceInUse")
    return ErrorCode::kConflict;
  if (status == 404) return ErrorCode::kNotFound;
  if (status == 403 || status == 401) return ErrorCode::kAuth;
  if (status == 409 || status == 412) return ErrorCode::kConflict;
  return ErrorCode::kFailed;
}

bool is_in(std::string_view text, std::string_view marks) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || marks.find(c) != std::string_view::npos;
  });
}

// The word behind `before`; empty: there is none.
std::string_view word_behind(std::string_view text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + before.size());
  text = text.substr(0, text.find_first_of(" \t\r\n,"));
  while (!text.empty() && (text.front() == '"' || text.front() == '\'')) text.remove_prefix(1);
  while (!text.empty() && std::string_view("\"'.").find(text.back()) != std::string_view::npos) text.remove_suffix(1);
  return text;
}

// "... is not authorized to perform: iam:PassRole on resource: arn:...": what is missing may be another action than the
// one that was asked for.
std::string permission_hint(const CallName& call, const std::string& message) {
  if (message.find("explicit deny") != std::string::npos) {
    return "a policy forbids it by an explicit deny, which no other statement lifts: ask whoever manages the account";
  }
  std::string_view action = word_behind(message, "not authorized to perform: ");
  std::string_view resource = word_behind(message, " on resource: ");
  if (action.find(':') == std::string_view::npos || !is_in(action, ":-")) action = {};
  if (!resource.starts_with("arn:") || !is_in(resource, ":/*-_.+=@$")) resource = "*";
  const std::string statement =
      action.empty() ? missing_statement(call.service, call.operation)
                     : fmt::format(R"({{"Effect": "Allow", "Action": "{}", "Resource": "{}"}})", action, resource);
  return "add this statement to the policy of the user or role (rubato aws policy has all): " + statement;
}

std::string hint_of(const CallName& call, const Fault& fault, ErrorCode code) {
  const std::string_view reason = fault.code;
  if (call.service == "portal.sso" && code == ErrorCode::kAuth) {
    return "sign on again (aws sso login); may you use that account and role?";
  }
  if (reason == "InvalidClientTokenId" || reason == "InvalidAccessKeyId" || reason == "UnrecognizedClientException") {
    return "these credentials are not known to AWS: rubato aws whoami shows where they come from";
  }
  if (reason == "SignatureDoesNotMatch" || reason == "InvalidSignatureException") {
    return "the secret key does not belong to this access key: rubato aws whoami shows where they come from";
  }
  if (reason == "AuthFailure") {
    return "these credentials, or what the message names, may not be used: rubato aws whoami shows whose they are";
  }
  if (reason == "AuthFailure.ServiceLinkedRoleCreationNotPermitted") {
    return "the account's first spot machine needs a role, once: aws iam create-service-linked-role "
           "--aws-service-name spot.amazonaws.com";
  }
  if (reason == "PendingVerification" || reason == "Blocked") return "AWS holds this account back: see the message";
  if (is_one_of(reason, kExpired)) return "get new credentials (aws sso login, or a new session token), and try again";
  if (reason == "OptInRequired") return "this account must subscribe to that image or service first: see the message";
  if (const std::string_view quota = quota_name(reason); !quota.empty()) {
    return fmt::format("ask for more in Service Quotas ('{}'), or use another type, zone or region", quota);
  }
  if (reason == "SpotMaxPriceTooLow") return "raise the maximum price, or use on-demand instances";
  switch (code) {
    case ErrorCode::kAuth: return permission_hint(call, fault.message);
    case ErrorCode::kNoCapacity: return "try another zone or instance type, or wait";
    case ErrorCode::kQuota: return "ask for more in the Service Quotas console";
    case ErrorCode::kUnavailable: return "AWS asks to slow down or has a problem: try again later";
    case ErrorCode::kFailed:
    case ErrorCode::kUsage:
    case ErrorCode::kConflict:
    case ErrorCode::kNotFound: return {};
  }
  return {};
}

// What S3 calls a permission is not what it calls the request.
std::string_view s3_permission(std::string_view operation) {
  if (operation == "HeadObject") return "GetObject";
  if (operation == "ListObjectsV2" || operation == "HeadBucket") return "ListBucket";
  if (operation == "CreateMultipartUpload" || operation == "UploadPart" || operation == "CompleteMultipartUpload" ||
      operation == "CopyObject" || operation == "UploadPartCopy")
    return "PutObject";
  if (operation == "ListParts") return "ListMultipartUploadParts";
  return operation;
}

}  // namespace

Fault read_fault(const HttpResponse& response) {
  Fault fault;
  for (const char* name : {"x-amzn-requestid", "x-amz-request-id", "x-amzn-request-id"}) {
    if (fault.request_id.empty()) fault.request_id = rest::header_of(response, name);
  }
  if (response.body.size() <= kFaultBytesMax) {
    const std::string_view body = trim(response.body);
    if (body.starts_with('<')) read_xml_fault(response.body, fault);
    if (body.starts_with('{')) read_json_fault(response.body, fault);
  }
  if (const std::string type = rest::header_of(response, "x-amzn-errortype"); !type.empty()) fault.code = type;
  // "com.amazonaws.ssm#ParameterNotFound:http://…": the name between.
  if (const size_t hash = fault.code.rfind('#'); hash != std::string::npos) fault.code.erase(0, hash + 1);
  if (const size_t colon = fault.code.find(':'); colon != std::string::npos) fault.code.erase(colon);
  return fault;
}

Verdict judge_fault(const HttpResponse& response, const Fault& fault, WallTime now) {
  const std::string_view code = fault.code;
  if (is_one_of(code, kThrottling) || response.status == 429) return Verdict::kThrottled;
  if (is_one_of(code, kAlwaysSkewed)) return Verdict::kSkewed;
  // A refused HEAD has no body that could name a code.
  const bool unnamed = code.empty() && response.status == 403;
  if ((unnamed || is_one_of(code, kPerhapsSkewed)) && clock_is_off(response, now)) return Verdict::kSkewed;
  if (is_one_of(code, kExpired)) return Verdict::kExpired;
  if (is_one_of(code, kTransient)) return Verdict::kRetry;
  // InsufficientInstanceCapacity comes with status 500, but is an answer: the caller looks elsewhere.
  if (is_one_of(code, kNoCapacity)) return Verdict::kDone;
  if (response.status >= 500 && response.status != 501) return Verdict::kRetry;
  return Verdict::kDone;
}

rest::CloudError make_error(const CallName& call, const Fault& fault, int status) {
  const ErrorCode code = code_of(fault, status);
  const std::string message = rest::shown_message(fault.message);
  const std::string reason = fault.code.empty() ? fmt::format("HTTP status {}", status) : fault.code;
  std::string what = fmt::format("{} {}: {}", call.service, call.operation, reason);
  if (!message.empty()) what += ": " + message;
  std::string where = call.where;
  if (!fault.request_id.empty()) where += ", request id " + fault.request_id;
  rest::CloudError error(code, std::move(what), std::move(where), hint_of(call, fault, code));
  error.status = status;
  error.reason = fault.code;
  error.request_id = fault.request_id;
  return error;
}

std::string missing_statement(std::string_view service, std::string_view operation) {
  const std::string_view permission = service == "s3" ? s3_permission(operation) : operation;
  return fmt::format(R"({{"Effect": "Allow", "Action": "{}:{}", "Resource": "*"}})", service, permission);
}

}  // namespace rubato::aws
