// RemotePast: what a cluster whose head is another machine has left there after `down`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client/shell.h"

namespace rubato::cli {

struct RemotePast {
  std::unique_ptr<Api> api;  // past_api.h; it goes there when it is first asked for something
  std::string host;
};

// nullopt: the cluster is up, or no machine is known that could still have its files.
std::optional<RemotePast> open_remote_past(const ClusterPlace& place, const Shell& shell);

}  // namespace rubato::cli
