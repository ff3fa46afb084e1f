// The replies of the API that last: logs, events, a job's output.
#pragma once

#include <optional>

#include "archive/merged_tree.h"
#include "head/controller.h"
#include "world/http_server.h"

namespace rubato::head {

struct LogQuery {
  JobId job;
  bool follow = false;  // until the job has ended and all its lines are out
  std::optional<int> rank;
  std::optional<WallTime> since;
  std::optional<uint64_t> tail;  // of the lines that match, the last so many
};

// application/x-ndjson: a line a line. An empty line now and then shows that the connection lives.
ServerReply stream_logs(World& world, Controller& controller, LogQuery query);

// text/event-stream from the record after `after`.
ServerReply stream_events(Controller& controller, uint64_t after);

// A .tar.zst of the folder; of an empty one when there is none. Made beside the loop; `offload` outlives the reply.
ServerReply stream_output(World& world, const Offload& offload, std::string folder);
ServerReply stream_merged(World& world, const Offload& offload, std::shared_ptr<archive::MergedTree> tree);

}  // namespace rubato::head
