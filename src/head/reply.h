// Documents as replies.
#pragma once

#include <nlohmann/json.hpp>

#include "api/fields.h"
#include "world/http_server.h"

namespace rubato::head {

inline ServerReply json_reply(const nlohmann::json& document, int status = 200) {
  ServerReply out;
  out.status = status;
  out.headers["content-type"] = "application/json";
  // A log line or a message may hold bytes that are not UTF-8.
  out.body = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return out;
}

template <class Document>
ServerReply reply(const Document& document, int status = 200) {
  return json_reply(api::to_json(document), status);
}

}  // namespace rubato::head
