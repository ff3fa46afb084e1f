// What AWS answers when it refuses, as typed errors. Pure.
#pragma once

#include <string>
#include <string_view>

#include "rest/caller.h"
#include "rest/cloud_error.h"
#include "world/network.h"

namespace rubato::aws {

// The refusal in an answer, whatever its protocol: XML of EC2, of the query services, of S3; JSON with a type.
struct Fault {
  std::string code;  // "InsufficientInstanceCapacity"; empty: none could be read
  std::string message;
  std::string request_id;
};
Fault read_fault(const HttpResponse& response);

// Whether another try may help. `now` is our idea of the cloud's time: a signature that is refused although our clock
// is right is no matter of the clock.
rest::Verdict judge_fault(const HttpResponse& response, const Fault& fault, WallTime now);

struct CallName {
  std::string service;    // "ec2": the prefix of its permissions
  std::string operation;  // "RunInstances"
  std::string where;      // host that answered
};
// "ec2 RunInstances: InsufficientInstanceCapacity: We currently do not have…", with the request id and the fix.
rest::CloudError make_error(const CallName& call, const Fault& fault, int status);

// The IAM statement that allows a call, as one line of JSON.
std::string missing_statement(std::string_view service, std::string_view operation);

}  // namespace rubato::aws
