// --rdzv-conf: torchrun's rendezvous settings, of its c10d, etcd, etcd-v2 and static backends alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/time.h"
#include "terminal/flags.h"

namespace rubato::cli {

struct RdzvConf {
  std::optional<Duration> join_timeout, last_call, heartbeat;
  std::optional<int> rank;
  std::optional<bool> is_host;
  std::string identity;
  bool https = false;
  std::string ca, certificate, key;
  std::vector<std::string> notes;  // keys that mean nothing to us
};

// Throws a usage Error for what is not KEY=VALUE, for an unknown key (with the nearest) and for a bad value.
RdzvConf parse_rdzv_conf(const Given& given);

}  // namespace rubato::cli
