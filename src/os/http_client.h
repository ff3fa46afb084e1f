// http_client: one HTTP/1.1 exchange with another's server, over TCP or TLS. RealNetwork forwards to it.
// An endpoint whose host is a path ("/run/x.sock") is a unix socket; its server's certificate, if any, says
// "localhost".
//
// Every address of the name is tried, each with its share of the time that is left. A server's certificate must be
// signed by tls.ca (or by the system's roots) and carry the endpoint's name, or the one that the request's term
// kServerNameTerm (world/server_name.h) says; TLS is 1.2 or newer. Each of tls's files may also be the PEM text itself,
// as a kubeconfig carries it; a key with a passphrase is refused. A header whose value has several lines is sent once
// for each of them.
// Connections are kept alive for the next call (a few for each endpoint, for seconds), so that a call to etcd pays no
// handshake; a request is never sent twice. No redirect is followed; a proxy is used where the request names one.
//
// Cancel = destroy: destroying the task closes the socket, at any moment.
// Limits: header 64 KiB, body of a call 64 MiB. A stream stops reading while its reader lags behind.
// Failures throw kUnavailable ("POST http://127.0.0.1:2379/v3/kv/range: connection refused", at 127.0.0.1:2379);
// an unusable certificate file throws kFailed and a malformed request kUsage, for neither gets better by trying again.
// Any answered status is a value, not an Error.
#pragma once

#include "os/runtime.h"
#include "world/byte_stream.h"

namespace rubato::os {

Task<HttpResponse> http_call(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline);

// The body goes to `chunks` as it comes, whatever the status; the answer has the status and headers only. `chunks`
// stays open: the end of the task is the end of the stream. The header must be there by `header_deadline`; then the
// stream may be silent for ever, unless the other machine does not acknowledge TCP's keep-alive for 30 s.
Task<HttpResponse> http_stream(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request,
                               Instant header_deadline, Channel<std::string>& chunks);

// As HttpUpgrades (world/byte_stream.h). A refusal's body has the bound of a call's.
Task<UpgradeResult> http_upgrade(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request,
                                 Instant deadline);

}  // namespace rubato::os
