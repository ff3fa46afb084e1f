#include "provider/external_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace rubato::provider {

namespace {

using Json = nlohmann::json;

constexpr std::array kExternalCodes = {
    ExternalCode::kNoCapacity, ExternalCode::kQuota,       ExternalCode::kAuth,
    ExternalCode::kInvalid,    ExternalCode::kUnsupported, ExternalCode::kNotFound,
    ExternalCode::kThrottled,  ExternalCode::kUnavailable, ExternalCode::kInternal,
};
constexpr size_t kNodeNameMax = 256;
constexpr int kDepthMax = 64;
constexpr const char* kManual = "docs/external-providers.md has the protocol";

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kUnavailable, why, "", kManual); }

// The member as text; empty when it is absent or null.
std::string text_of(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return {};
  if (!it->is_string()) refuse(fmt::format("\"{}\" is not a text but {}", key, shown(it->dump())));
  return it->get<std::string>();
}

bool flag_of(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return false;
  if (!it->is_boolean()) refuse(fmt::format("\"{}\" is neither true nor false but {}", key, shown(it->dump())));
  return it->get<bool>();
}

std::optional<double> number_of(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return std::nullopt;
  if (!it->is_number()) refuse(fmt::format("\"{}\" is not a number but {}", key, shown(it->dump())));
  return it->get<double>();
}

// Printing JSON back to a person recurses: a hostile depth would use up the stack.
bool deeper_than(std::string_view line, int depth_max) {
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > depth_max) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

ErrorCode code_for_callers(ExternalCode code) {
  switch (code) {
    case ExternalCode::kNoCapacity:
    case ExternalCode::kQuota:
      return ErrorCode::kConflict;
    case ExternalCode::kAuth:
    case ExternalCode::kInvalid:
    case ExternalCode::kUnsupported:
      return ErrorCode::kUsage;
    case ExternalCode::kNotFound:
      return ErrorCode::kNotFound;
    case ExternalCode::kThrottled:
    case ExternalCode::kUnavailable:
    case ExternalCode::kInternal:
      return ErrorCode::kUnavailable;
  }
  CHECK(false);
  return ErrorCode::kFailed;
}

ExternalFailure parse_failure(const Json& json) {
  if (!json.is_object()) refuse("\"error\" is not an object with \"code\" and \"message\"");
  ExternalFailure failure;
  const std::string code = text_of(json, "code");
  failure.message = text_of(json, "message");
  failure.hint = text_of(json, "hint");
  const std::optional<ExternalCode> known = parse_external_code(code);
  failure.code = known.value_or(ExternalCode::kInternal);
  if (!known) failure.message = fmt::format("{} (error code '{}')", failure.message, shown(code, 60));
  if (const std::optional<double> seconds = number_of(json, "retry_after_s"); seconds && std::isfinite(*seconds)) {
    const double bounded = std::clamp(*seconds, 0.0, 3600.0);
    failure.retry_after = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(bounded));
  }
  return failure;
}

}  // namespace

std::string_view to_string(ExternalCode code) {
  switch (code) {
    case ExternalCode::kNoCapacity:
      return "no-capacity";
    case ExternalCode::kQuota:
      return "quota";
    case ExternalCode::kAuth:
      return "auth";
    case ExternalCode::kInvalid:
      return "invalid";
    case ExternalCode::kUnsupported:
      return "unsupported";
    case ExternalCode::kNotFound:
      return "not-found";
    case ExternalCode::kThrottled:
      return "throttled";
    case ExternalCode::kUnavailable:
      return "unavailable";
    case ExternalCode::kInternal:
      return "internal";
  }
  CHECK(false);
  return {};
}

std::optional<ExternalCode> parse_external_code(std::string_view text) {
  for (const ExternalCode code : kExternalCodes) {
    if (to_string(code) == text) return code;
  }
  return std::nullopt;
}

Error to_error(const ExternalFailure& failure, const std::string& who, const std::string& what) {
  const std::string why = failure.message.empty() ? std::string("it gave no reason") : failure.message;
  std::string hint = failure.hint;
  if (hint.empty() && failure.code == ExternalCode::kAuth) hint = "give the provider's program its credentials";
  if (hint.empty() && failure.code == ExternalCode::kQuota) hint = "ask for a higher quota, or lower max_workers";
  return Error(code_for_callers(failure.code), fmt::format("{}: {}: {}", what, to_string(failure.code), why), who,
               hint);
}

std::string request_line(uint64_t id, std::string_view method, const Json& params, Duration timeout) {
  const Json request{{"id", id},
                     {"method", method},
                     {"params", params},
                     {"timeout_s", std::chrono::duration<double>(timeout).count()}};
  // Bytes that are not UTF-8 come from nowhere but a broken file; a request that cannot be written would be worse.
  return request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

ExternalReply parse_reply(std::string_view line) {
  if (line.size() >= kExternalLineMax) refuse(fmt::format("wrote a line of more than {} bytes", kExternalLineMax));
  if (deeper_than(line, kDepthMax)) refuse(fmt::format("wrote a line that is nested too deep: {}", shown(line)));
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded()) refuse(fmt::format("wrote a line that is not JSON: {}", shown(line)));
  if (!json.is_object()) refuse(fmt::format("wrote a line that is not a JSON object: {}", shown(line)));
  ExternalReply reply;
  const auto id = json.find("id");
  if (id == json.end() || !id->is_number_unsigned()) {
    refuse(fmt::format("wrote a reply without the \"id\" of a request: {}", shown(line)));
  }
  reply.id = id->get<uint64_t>();
  const auto result = json.find("result");
  const auto error = json.find("error");
  const auto progress = json.find("progress");
  const int given = (result != json.end()) + (error != json.end() && !error->is_null()) + (progress != json.end());
  if (given != 1) refuse(fmt::format("wrote a reply with other than one of result, error, progress: {}", shown(line)));
  if (result != json.end()) {
    reply.what = *result;
  } else if (progress != json.end()) {
    reply.what = text_of(json, "progress");
  } else {
    reply.what = parse_failure(*error);
  }
  return reply;
}

bool ExternalGreeting::knows(std::string_view method) const {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

ExternalGreeting parse_greeting(const Json& result) {
  if (!result.is_object()) refuse(fmt::format("answered hello with {}", shown(result.dump())));
  const std::optional<double> protocol = number_of(result, "protocol");
  if (!protocol) refuse("answered hello without \"protocol\"");
  if (*protocol != kExternalProtocol) {
    throw Error(ErrorCode::kUsage,
                fmt::format("speaks version {} of the protocol; this rubato speaks {}", *protocol, kExternalProtocol),
                "", "use a rubato and a provider's program that fit each other");
  }
  ExternalGreeting greeting;
  greeting.name = text_of(result, "name");
  greeting.version = text_of(result, "version");
  const double parallel = number_of(result, "parallel").value_or(1);
  if (!(parallel >= 1)) refuse("answered hello with \"parallel\" under 1");
  greeting.parallel = static_cast<int>(std::min<double>(parallel, kExternalParallelMax));
  greeting.machines_stay = flag_of(result, "machines_stay");
  if (const auto it = result.find("methods"); it != result.end() && it->is_array()) {
    for (const Json& method : *it) {
      if (method.is_string()) greeting.methods.push_back(method.get<std::string>());
    }
  }
  if (const auto it = result.find("carry"); it != result.end()) greeting.carry = *it;
  if (const auto it = result.find("hosts"); it != result.end() && !it->is_null()) {
    if (!it->is_array()) refuse("answered hello with \"hosts\" that is no list");
    for (const Json& each : *it) {
      const auto host = each.is_string() ? parse_host_address(each.get<std::string>()) : std::nullopt;
      if (!host) refuse(fmt::format("\"hosts\" has what is not [user@]host[:port]: {}", shown(each.dump())));
      greeting.hosts.push_back(*host);
    }
  }
  return greeting;
}

ExternalMachine parse_machine(const Json& json, const NodeId& node) {
  if (!json.is_object()) refuse(fmt::format("is not a machine: {}", shown(json.dump())));
  ExternalMachine out;
  out.node.value = text_of(json, "node");
  if (out.node.value.empty()) out.node = node;
  if (out.node.value.empty()) refuse(fmt::format("a machine without \"node\": {}", shown(json.dump())));
  if (!node.value.empty() && out.node != node) {
    refuse(fmt::format("a machine of node {} in answer to node {}", shown(out.node.value), node.value));
  }
  if (out.node.value.size() > kNodeNameMax) refuse("a node's name of more than 256 bytes");
  out.id = text_of(json, "id");
  const std::string host = text_of(json, "host");
  if (host.empty()) return out;  // not yet
  const std::optional<HostAddress> address = parse_host_address(host);
  if (!address) refuse(fmt::format("\"host\" is not [user@]host[:port]: {}", shown(host)));
  out.machine.host = *address;
  if (const std::string user = text_of(json, "user"); !user.empty()) {
    // The same rules for what becomes a word of ssh's.
    const auto checked = parse_host_address(user + "@" + "host");
    if (!checked || checked->user != user) refuse(fmt::format("\"user\" is not a user's name: {}", shown(user)));
    out.machine.host.user = user;
  }
  if (const std::optional<double> port = number_of(json, "port")) {
    if (!(*port >= 1 && *port <= 65535) || *port != std::floor(*port)) refuse("\"port\" is not between 1 and 65535");
    out.machine.host.port = static_cast<int>(*port);
  }
  out.machine.address = text_of(json, "address");
  if (!out.machine.address.empty()) {
    const auto checked = parse_host_address(out.machine.address);
    if (!checked || checked->host != out.machine.address) {
      refuse(fmt::format("\"address\" is not an address: {}", shown(out.machine.address)));
    }
  }
  if (const auto it = json.find("leftovers"); it != json.end() && it->is_array()) {
    for (const Json& each : *it) {
      if (!each.is_string()) refuse("\"leftovers\" is not a list of nodes");
      out.machine.leftovers.push_back(NodeId{each.get<std::string>()});
    }
  }
  out.ready = true;
  return out;
}

std::optional<ExternalMachine> parse_described(const Json& json, const NodeId& node) {
  if (json.is_null()) return std::nullopt;
  return parse_machine(json, node);
}

std::map<NodeId, ExternalFailure> parse_launch(const Json& json) {
  if (!json.is_object()) refuse(fmt::format("answered launch with {}", shown(json.dump())));
  std::map<NodeId, ExternalFailure> out;
  const auto failed = json.find("failed");
  if (failed == json.end() || failed->is_null()) return out;
  if (!failed->is_object()) refuse("answered launch with \"failed\" that is no object");
  for (const auto& [node, error] : failed->items()) out.emplace(NodeId{node}, parse_failure(error));
  return out;
}

std::vector<ExternalMachine> parse_list(const Json& json) {
  const auto nodes = json.is_object() ? json.find("nodes") : json.end();
  if (!json.is_object() || nodes == json.end() || !nodes->is_array()) {
    refuse(fmt::format("answered list with {} instead of {{\"nodes\": [...]}}", shown(json.dump())));
  }
  std::vector<ExternalMachine> out;
  const NodeId any;
  for (const Json& each : *nodes) out.push_back(parse_machine(each, any));
  return out;
}

std::optional<std::string> next_line(LineBuffer& lines) {
  std::optional<std::string> line = lines.next_text();
  if (!line && lines.size() >= kExternalLineMax) line = lines.take_rest();
  return line;
}

std::string shown(std::string_view line, size_t size_max) {
  std::string out;
  for (const char c : line) {
    if (out.size() >= size_max) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace rubato::provider
