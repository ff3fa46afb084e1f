// What Google answers when it refuses, and what its operations say when they fail, as typed errors. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "rest/caller.h"
#include "rest/cloud_error.h"
#include "world/network.h"

namespace rubato::gcp {

struct Fault {
  std::string reason;      // "quotaExceeded", "ZONE_RESOURCE_POOL_EXHAUSTED"; empty: none could be read
  std::string message;
  std::string permission;  // that is missing: "compute.instances.create"
  std::string service;     // that is switched off in the project: "compute.googleapis.com"
};
Fault read_fault(const HttpResponse& response);

// Whether another try may help.
rest::Verdict judge_fault(const HttpResponse& response, const Fault& fault);

struct CallName {
  std::string operation;  // "instances.insert"
  std::string project;
  std::string where;  // host that answered
};
// "compute instances.insert: quotaExceeded: Quota 'CPUS' exceeded…", with the fix.
rest::CloudError make_error(const CallName& call, const Fault& fault, int status);

// Whether the server may not know what it was asked for, which servers that are not Google's say so.
bool is_unknown_call(const rest::CloudError& error);

// What a finished operation failed with. Only for one that has "error".
rest::CloudError operation_error(const CallName& call, const nlohmann::json& operation);

}  // namespace rubato::gcp
