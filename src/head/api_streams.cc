#include "head/api_streams.h"

#include <fmt/format.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "archive/folder_stream.h"
#include "core/timestamp.h"
#include "head/documents.h"

namespace rubato::head {

using nlohmann::json;

namespace {

constexpr Duration kKeepAlive = 15s;
constexpr size_t kEventsAtOnce = 500;
constexpr uint64_t kTailMax = 100'000;

bool matches(const LogQuery& query, const std::string& line) {
  if (!query.rank && !query.since) return true;
  const json entry = json::parse(line, nullptr, false);
  if (!entry.is_object()) return false;
  if (query.rank && entry.value("rank", -1) != *query.rank) return false;
  if (!query.since) return true;
  const std::optional<WallTime> time = parse_time(entry.value("time", ""));
  return time && *time >= *query.since;
}

bool has_ended(const Controller& controller, const JobId& id) {
  const auto it = controller.state().jobs.find(id);
  return it == controller.state().jobs.end() || cluster::ended(it->second.phase);
}

Task<void> write_logs(World& world, Controller& controller, LogQuery query, HttpStreamWriter& writer) {
  uint64_t offset = 0;
  std::deque<std::string> kept;  // with `tail`: the last lines before the end was reached for the first time
  bool tailing = query.tail.has_value();
  const uint64_t tail = std::min(query.tail.value_or(0), kTailMax);
  while (true) {
    // Asked before the reading: lines are stored before their job ends.
    const bool ended = has_ended(controller, query.job);
    const std::vector<std::string> lines = controller.logs().read(query.job, offset);
    std::string block;
    for (const std::string& line : lines) {
      if (!matches(query, line)) continue;
      if (tailing) {
        kept.push_back(line);
        if (kept.size() > tail) kept.pop_front();
      } else {
        block += line + "\n";
      }
    }
    if (lines.empty() && tailing) {
      for (const std::string& line : kept) block += line + "\n";
      kept.clear();
      tailing = false;
    }
    if (!block.empty()) co_await writer.write(std::move(block));
    if (!lines.empty()) continue;
    if (ended || !query.follow) co_return;
    const Instant deadline = world.clock.now() + kKeepAlive;
    co_await controller.logs().grown().wait_until(deadline);
    if (world.clock.now() >= deadline) co_await writer.write("\n");
  }
}

Task<void> write_events(Controller& controller, uint64_t after, HttpStreamWriter& writer) {
  while (true) {
    const auto records = co_await controller.history().records(after, kEventsAtOnce);
    std::string block;
    for (const cluster::Record& record : records) {
      block += fmt::format("id: {}\ndata: {}\n\n", record.offset,
                           event_document(record).dump(-1, ' ', false, json::error_handler_t::replace));
      after = record.offset;
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

Task<void> write_output(World& world, std::string folder, HttpStreamWriter& writer) {
  if (!world.files.exists(folder)) world.files.make_folders(folder);
  archive::FolderTar tar(world.files, folder);
  while (std::optional<std::string> chunk = tar.next()) co_await writer.write(std::move(*chunk));
}

Task<void> write_merged(World& world, std::shared_ptr<archive::MergedTree> tree, HttpStreamWriter& writer) {
  archive::MergedTar tar(world.files, std::move(*tree));
  while (std::optional<std::string> chunk = tar.next()) co_await writer.write(std::move(*chunk));
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

ServerReply stream_output(World& world, std::string folder) {
  ServerReply reply;
  reply.headers["content-type"] = "application/x-tar+zstd";
  reply.stream = [&world, folder = std::move(folder)](HttpStreamWriter& writer) {
    return write_output(world, folder, writer);
  };
  return reply;
}

ServerReply stream_merged(World& world, std::shared_ptr<archive::MergedTree> tree) {
  ServerReply reply;
  reply.headers["content-type"] = "application/x-tar+zstd";
  reply.stream = [&world, tree = std::move(tree)](HttpStreamWriter& writer) {
    return write_merged(world, tree, writer);
  };
  return reply;
}

}  // namespace rubato::head
