#include "world/http_reply.h"

#include <nlohmann/json.hpp>

namespace rubato {

ServerReply error_reply(int status, std::string_view code, std::string_view message, std::string_view where,
                        std::string_view hint) {
  nlohmann::ordered_json error;
  error["code"] = code;
  error["message"] = message;
  error["where"] = where;
  error["hint"] = hint;
  nlohmann::ordered_json document;
  document["error"] = std::move(error);
  ServerReply reply;
  reply.status = status;
  reply.headers["content-type"] = "application/json";
  // A message may quote bytes that are not UTF-8.
  reply.body = document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  return reply;
}

ServerReply error_reply(const Error& error) {
  const auto reply = [&error](int status, std::string_view code) {
    return error_reply(status, code, error.message, error.where, error.hint);
  };
  switch (error.code) {
    case ErrorCode::kUsage:
      return reply(400, "usage");
    case ErrorCode::kNotFound:
      return reply(404, "not_found");
    case ErrorCode::kConflict:
      return reply(409, "conflict");
    case ErrorCode::kNoCapacity:
    case ErrorCode::kQuota:
    case ErrorCode::kAuth:
    case ErrorCode::kUnavailable:
      return reply(503, "unavailable");
    case ErrorCode::kFailed:
      break;
  }
  return reply(500, "failed");
}

}  // namespace rubato
