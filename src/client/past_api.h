// PastApi: what a cluster that is down has left in its folder, in the documents of its head's API. Only GETs that need
// no head: status, jobs, jobs/ID, jobs/ID/why, jobs/ID/logs, events, replay, nodes/ID/log.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "client/api.h"
#include "client/cluster_home.h"

namespace rubato::cli {

// Null when the folder has no journal: there is nothing to read. Nothing is read before the first call.
std::unique_ptr<Api> open_past_api(const ClusterPlace& place);

// "etcd://..." of a cluster of this machine whose journal is there; else empty.
std::string past_store(const ClusterPlace& place);

// For a folder that is elsewhere: before a file or folder of it is read, `bring` puts it into the folder of `place`, if
// it is there.
using BringPast = std::function<void(const std::string& path)>;
std::unique_ptr<Api> open_past_api(const ClusterPlace& place, BringPast bring);

}  // namespace rubato::cli
