// HttpServer: HTTP/1.1 on one port, bounded in every direction. Whole requests in; whole or streamed replies out.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/task.h"
#include "core/time.h"
#include "world/network.h"

namespace rubato {

struct HttpLimits {
  size_t header_bytes_max = size_t{16} << 10;
  size_t body_bytes_max = size_t{16} << 20;     // one chunk of an upload is smaller
  size_t connections_max = 512;                 // that have shown what they need, shared fairly among peers; for others
                                                // see os/connection_places.h
  Duration header_max = 10s;                    // from the first byte of a request to the end of its header
  Duration stranger_idle_max = 10s;             // of a connection that has not shown what it needs
  Duration request_max = 30s;                   // from the first byte to the whole request
  Duration idle_max = 60s;                      // between requests on one connection
  Duration write_stall_max = 30s;               // a client that takes nothing for so long is dropped
  size_t bodies_bytes_max = size_t{256} << 20;  // of all requests that are being read
  double requests_per_second = 200;             // of one peer, in the long run; more get 429
  double requests_burst = 400;                  // of one peer, at once
};

// A request as a handler sees it: the method, the path without the query, decoded query values.
struct ServerRequest {
  std::string method;
  std::string path;  // percent-decoded once; never holds "..", "//" or control characters: those get 400 before
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string peer;  // address of the client
};

// Writes a streamed reply. write() waits while the client is slow; it throws kUnavailable once the client is gone.
class HttpStreamWriter {
 public:
  virtual ~HttpStreamWriter() = default;
  virtual Task<void> write(std::string bytes) = 0;
};

struct ServerReply {
  int status = 200;
  std::map<std::string, std::string> headers;  // content-type and the like; lengths are the server's
  std::string body;
  // Set: `body` is unused; the reply is chunked and lasts until this ends or the client goes.
  std::function<Task<void>(HttpStreamWriter&)> stream;
};

using HttpHandler = std::function<Task<ServerReply>(ServerRequest)>;

// What the server is told of a request when its header is there, before its body is read.
struct HttpAdmission {
  bool authenticated = false;             // whoever sent it has shown what he needs
  size_t body_bytes_max = size_t{0} - 1;  // further bounded by HttpLimits. Strangers may send no body at all
};
using HttpAdmit = std::function<HttpAdmission(const ServerRequest& head)>;

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // closes every connection
  virtual uint16_t port() const = 0;
  // Serves until cancelled. An Error from the handler becomes a JSON reply (see docs/api: {"error": {...}}); what is
  // not an Error becomes 500 and a line in the log. Connections of strangers, their requests and their time are counted
  // apart from those of the authenticated, so that they cost them nothing.
  virtual Task<void> serve(HttpHandler handler, HttpAdmit admit) = 0;
};

}  // namespace rubato
