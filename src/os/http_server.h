// make_http_server: HttpServer (world/http_server.h) on a port, or at a socket's file, of this machine.
//
// A connection:  (1) handshake, if TLS ──▶ (2) idle ──first byte──▶ (3) reading ──whole request──▶ (4) handling
//                (4) ──reply written──▶ (2), or closed when either side said so
//                (3) ──refused (4xx, 5xx) or late (408)──▶ answered, closed
//                (4) ──the client closes──▶ the handler's task is destroyed
// A client that shuts down its sending half counts as closed. Pipelined requests are answered in their order.
// Until its first authenticated request, a connection has a place by the rules of connection_places.h: it may be closed
// for a newer one. Whose rate a request counts towards is told by peer.h.
#pragma once

#include <memory>

#include "core/log.h"
#include "os/runtime.h"
#include "world/http_server.h"

namespace rubato::os {

// Listens at once (port 0 picks one, an empty host means every interface, a path is a socket's file); answers once
// serve() runs. With tls.use_tls it shows tls.certificate. Throws kConflict when the port is taken, kFailed naming a
// file that cannot be used. The log gets what a handler or a stream failed with, never a header, a query or a body.
std::unique_ptr<HttpServer> make_http_server(Runtime& runtime, const Endpoint& endpoint, const TlsFiles& tls,
                                             const HttpLimits& limits, Log log = {});

}  // namespace rubato::os
