// The API's reply for what went wrong: {"error": {"code", "message", "where", "hint"}}.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"
#include "world/http_server.h"

namespace rubato {

// `code` is a word of docs/api: usage, unauthorized, not_found, conflict, too_large, unavailable, failed.
ServerReply error_reply(int status, std::string_view code, std::string_view message, std::string_view where = {},
                        std::string_view hint = {});

// kUsage 400, kNotFound 404, kConflict 409, kUnavailable 503, kFailed 500.
ServerReply error_reply(const Error& error);

}  // namespace rubato
