// The words between the head and a provider's program: one JSON object a line, requests one way, replies the other.
// docs/external-providers.md is its contract with people who write such programs; here is the same as pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/line_buffer.h"
#include "core/time.h"
#include "model/ids.h"
#include "provider/instances.h"

namespace rubato::provider {

inline constexpr int kExternalProtocol = 1;
inline constexpr size_t kExternalLineMax = size_t{1} << 20;
inline constexpr int kExternalParallelMax = 64;

// What a program may say went wrong. Each has one meaning for the caller; see to_error().
enum class ExternalCode {
  kNoCapacity,   // no machine of this kind is to be had now
  kQuota,        // the account's limit is reached
  kAuth,         // credentials are missing, wrong or not allowed to do this
  kInvalid,      // the request can never work: a key of the cluster file is missing or wrong
  kUnsupported,  // this program does not know the method
  kNotFound,     // there is no such node
  kThrottled,    // too many calls: wait, then ask again
  kUnavailable,  // the service did not answer; asking again may help
  kInternal,     // anything else
};
std::string_view to_string(ExternalCode code);
std::optional<ExternalCode> parse_external_code(std::string_view text);

struct ExternalFailure {
  ExternalCode code = ExternalCode::kInternal;
  std::string message, hint;
  std::optional<Duration> retry_after;
};

// As Instances promises it: kUsage never works, kConflict has none now, kUnavailable may work later, kNotFound.
// `who`: the program's name; `what`: "create small-3".
Error to_error(const ExternalFailure& failure, const std::string& who, const std::string& what);

std::string request_line(uint64_t id, std::string_view method, const nlohmann::json& params, Duration timeout);

// One line of the program: the answer to a request, or a word on how far it is.
struct ExternalReply {
  uint64_t id = 0;
  std::variant<nlohmann::json, ExternalFailure, std::string> what;  // result, error, progress
};
// Throws kUnavailable with the line and what is wrong with it.
ExternalReply parse_reply(std::string_view line);

// What a program says of itself. Throws kUsage when this rubato cannot work with it.
struct ExternalGreeting {
  std::string name, version;
  int parallel = 1;            // requests that it takes at a time
  bool machines_stay = false;  // a machine outlives its node: stop what runs on it before
  std::vector<std::string> methods;
  nlohmann::json carry;            // for the program on the head's machine; null: nothing
  std::vector<HostAddress> hosts;  // machines that are there already: the head's key is let into them
  bool knows(std::string_view method) const;
};
ExternalGreeting parse_greeting(const nlohmann::json& result);

// A machine as `create`, `describe` and `list` tell it. `ready` is false while its address is not known.
struct ExternalMachine {
  NodeId node;
  Machine machine;
  std::string id;  // in the program's own words, for people
  bool ready = false;
};
// `node`: which one was asked for; empty where the reply has to say it. Throws kUnavailable for what is none.
ExternalMachine parse_machine(const nlohmann::json& json, const NodeId& node);
// Of `describe`: null when the node has none.
std::optional<ExternalMachine> parse_described(const nlohmann::json& json, const NodeId& node);
// Of `launch`: {"failed": {NODE: {"code": ..., "message": ...}}}; absent: all are on their way.
std::map<NodeId, ExternalFailure> parse_launch(const nlohmann::json& json);
// Of `list`: {"nodes": [...]}.
std::vector<ExternalMachine> parse_list(const nlohmann::json& json);

// The next line of what a program writes. What is longer than kExternalLineMax without an end is a line as it is.
std::optional<std::string> next_line(LineBuffer& lines);

// The first `size_max` bytes of a line for people, with control characters as \x1b.
std::string shown(std::string_view line, size_t size_max = 200);

}  // namespace rubato::provider
