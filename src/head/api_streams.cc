#include "head/api_streams.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "archive/folder_stream.h"
#include "core/timestamp.h"
#include "head/documents.h"

namespace rubato::head {

using nlohmann::json;

namespace {

constexpr Duration kKeepAlive = 15s;
constexpr size_t kEventsAtOnce = 100;
constexpr uint64_t kTailMax = 100'000;

bool has_ended(const Controller& controller, const JobId& id) {
  const auto it = controller.state().jobs.find(id);
  return it == controller.state().jobs.end() || cluster::ended(it->second.phase);
}

Task<void> write_logs(World& world, Controller& controller, LogQuery query, HttpStreamWriter& writer) {
  JobLogs& logs = controller.logs();
  std::optional<uint64_t> tail = query.tail;
  if (tail) tail = std::min(*tail, kTailMax);
  LogFilter filter = log_filter(query.rank, query.since);
  JobLogs::Cursor cursor = co_await logs.find(query.job, std::move(filter), tail);
  while (true) {
    // Asked before the reading: lines are stored before their job ends.
    const bool ended = has_ended(controller, query.job);
    std::optional<std::string> lines = co_await logs.read(cursor);
    if (lines) {
      co_await writer.write(std::move(*lines));
      continue;
    }
    if (ended || !query.follow) co_return;
    const Instant deadline = world.clock.now() + kKeepAlive;
    do co_await logs.grown().wait_until(deadline);
    while (world.clock.now() < deadline && logs.at_end(cursor));
    if (world.clock.now() >= deadline) co_await writer.write("\n");
  }
}

Task<void> write_events(Controller& controller, uint64_t after, HttpStreamWriter& writer) {
  while (true) {
    const auto records = co_await controller.history().records(after, kEventsAtOnce);
    std::string block;
    for (const auto& record : records) {
      block += fmt::format("id: {}\ndata: {}\n\n", record->offset,
                           api::to_json(event_document(*record)).dump(-1, ' ', false, json::error_handler_t::replace));
      after = record->offset;
    }
    if (block.empty()) {
      Event& grown = controller.history().grown();
      const Instant deadline = grown.loop().now() + kKeepAlive;
      co_await grown.wait_until(deadline);
      if (grown.loop().now() >= deadline) block = ": alive\n\n";
    }
    if (!block.empty()) co_await writer.write(std::move(block));
  }
}

// A chunk is read and compressed beside the loop.
template <class Tar>
Task<void> write_tar(const Offload& offload, std::shared_ptr<Tar> tar, HttpStreamWriter& writer) {
  while (true) {
    const auto chunk = std::make_shared<std::optional<std::string>>();
    std::function<void()> work = [tar, chunk] { *chunk = tar->next(); };
    co_await run_beside(offload, std::move(work));
    if (!*chunk) co_return;
    co_await writer.write(std::move(**chunk));
  }
}

Task<void> write_output(World& world, const Offload& offload, std::string folder, HttpStreamWriter& writer) {
  if (!world.files.exists(folder)) world.files.make_folders(folder);
  const auto tar = std::make_shared<archive::FolderTar>(world.files, folder);
  co_await write_tar(offload, tar, writer);
}

Task<void> write_merged(World& world, const Offload& offload, std::shared_ptr<archive::MergedTree> tree,
                        HttpStreamWriter& writer) {
  const auto tar = std::make_shared<archive::MergedTar>(world.files, std::move(*tree));
  co_await write_tar(offload, tar, writer);
}

}  // namespace

ServerReply stream_logs(World& world, Controller& controller, LogQuery query) {
  ServerReply reply;
  reply.headers["content-type"] = "application/x-ndjson";
  reply.stream = [&world, &controller, query = std::move(query)](HttpStreamWriter& writer) {
    return write_logs(world, controller, query, writer);
  };
  return reply;
}

ServerReply stream_events(Controller& controller, uint64_t after) {
  ServerReply reply;
  reply.headers["content-type"] = "text/event-stream";
  reply.headers["cache-control"] = "no-store";
  reply.stream = [&controller, after](HttpStreamWriter& writer) { return write_events(controller, after, writer); };
  return reply;
}

ServerReply stream_output(World& world, const Offload& offload, std::string folder) {
  ServerReply reply;
  reply.headers["content-type"] = "application/x-tar+zstd";
  reply.stream = [&world, &offload, folder = std::move(folder)](HttpStreamWriter& writer) {
    return write_output(world, offload, folder, writer);
  };
  return reply;
}

ServerReply stream_merged(World& world, const Offload& offload, std::shared_ptr<archive::MergedTree> tree) {
  ServerReply reply;
  reply.headers["content-type"] = "application/x-tar+zstd";
  reply.stream = [&world, &offload, tree = std::move(tree)](HttpStreamWriter& writer) {
    return write_merged(world, offload, tree, writer);
  };
  return reply;
}

}  // namespace rubato::head
