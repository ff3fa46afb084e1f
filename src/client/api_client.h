// ApiClient: the Api over HTTP to the head whose address and token are in a cluster's folder.
#pragma once

#include <memory>

#include "client/api.h"
#include "client/cluster_home.h"
#include "client/remote.h"

namespace rubato::cli {

// Nothing is read or sent before the first call. Each exchange looks up head.json anew: a head that was started again
// listens elsewhere. A head on another machine (remote.json) is reached through a socket that ssh forwards, which is
// made when it is missing. Throws kNotFound when the cluster is not open, kUnavailable when its head is dead or silent,
// and kUsage when others can read the token.
using RemoteMaker = std::function<std::unique_ptr<Remote>()>;
std::unique_ptr<Api> open_api(const ClusterPlace& place, RemoteMaker remote);

// The Error that a reply with this status and body stands for.
Error error_from_reply(int status, std::string_view body, const std::string& where);

}  // namespace rubato::cli
