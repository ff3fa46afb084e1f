// Watching for the word that this machine will be taken away: the services of EC2 and of Google's cloud, a file, a
// command.
#pragma once

#include <map>
#include <string>

#include "core/channel.h"
#include "model/ids.h"
#include "model/notice_source.h"
#include "node/machine_notice.h"
#include "world/world.h"

namespace rubato::node {

struct NoticeWatchSettings {
  NoticeSource source;
  NodeId node;
  // For commands; and AWS_EC2_METADATA_SERVICE_ENDPOINT, GCE_METADATA_HOST.
  std::map<std::string, std::string> environment;
};

// Never ends, whatever fails: a service that does not answer is asked again. Each notice is pushed once; one with
// another deadline comes as another. `world` and `notices` outlive it.
Task<void> watch_notices(World& world, NoticeWatchSettings settings, Channel<MachineNotice>& notices);

}  // namespace rubato::node
