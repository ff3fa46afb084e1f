// The bytes of HTTP/1.1 replies.
#pragma once

#include <map>
#include <string>

#include "os/http_request.h"
#include "world/http_server.h"

namespace rubato::os {

ServerReply refusal_reply(const HttpRefusal& refusal);

// A value that ended the line early would let whoever chose it write headers of his own.
bool is_safe(const std::map<std::string, std::string>& headers);

enum class BodyKind { kSized, kChunked, kUntilClose };

// The status line and the headers; with kSized the body, too.
std::string reply_head(const ServerReply& reply, BodyKind kind, bool keep_alive);

}  // namespace rubato::os
