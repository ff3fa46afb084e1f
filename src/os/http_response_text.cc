#include "os/http_response_text.h"

#include <algorithm>

#include "core/text.h"
#include "world/http_reply.h"

namespace rubato::os {

namespace {

const char* reason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

}  // namespace

ServerReply refusal_reply(const HttpRefusal& refusal) {
  const bool large = refusal.status == 413 || refusal.status == 431;
  const bool busy = refusal.status == 429 || refusal.status == 503;
  const char* code = large ? "too_large" : busy ? "unavailable" : "usage";
  if (refusal.status == 401) code = "unauthorized";
  ServerReply reply = error_reply(refusal.status, code, refusal.message);
  if (refusal.status == 405) reply.headers["allow"] = "GET, PUT, POST, DELETE";
  if (refusal.status == 401) reply.headers["www-authenticate"] = "Bearer";
  if (busy) reply.headers["retry-after"] = "1";
  return reply;
}

bool is_safe(const std::map<std::string, std::string>& headers) {
  return std::ranges::all_of(headers, [](const auto& entry) {
    const auto clean = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; };
    return !entry.first.empty() && entry.first.find_first_of(" :") == std::string::npos &&
           std::ranges::all_of(entry.first, clean) && std::ranges::all_of(entry.second, clean);
  });
}

std::string reply_head(const ServerReply& reply, BodyKind kind, bool keep_alive) {
  std::map<std::string, std::string> headers{{"cache-control", "no-store"}, {"x-content-type-options", "nosniff"}};
  for (const auto& [name, value] : reply.headers) headers[to_lower(name)] = value;
  for (const char* ours : {"content-length", "transfer-encoding", "connection"}) headers.erase(ours);
  if (kind == BodyKind::kChunked) headers["transfer-encoding"] = "chunked";
  const bool bodyless = reply.status == 204 || reply.status == 304;
  if (kind == BodyKind::kSized && !bodyless) headers["content-length"] = std::to_string(reply.body.size());
  if (!keep_alive) headers["connection"] = "close";
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " " + reason(reply.status) + "\r\n";
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  head += "\r\n";
  if (kind == BodyKind::kSized && !bodyless) head += reply.body;
  return head;
}

}  // namespace rubato::os
