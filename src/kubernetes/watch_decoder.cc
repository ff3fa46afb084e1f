#include "kubernetes/watch_decoder.h"

#include <fmt/format.h>

#include "core/json_bounds.h"
#include "core/text.h"
#include "kubernetes/client.h"

namespace rubato::kubernetes {

using nlohmann::json;

namespace {

constexpr JsonBounds kEventBounds{64, 100'000, 1'000'000};
constexpr int kGone = 410;

}  // namespace

std::string_view to_string(WatchType type) {
  switch (type) {
    case WatchType::kAdded:
      return "ADDED";
    case WatchType::kModified:
      return "MODIFIED";
    case WatchType::kDeleted:
      return "DELETED";
    case WatchType::kBookmark:
      return "BOOKMARK";
    case WatchType::kExpired:
      return "expired";
    case WatchType::kFailed:
      return "failed";
  }
  return "";
}

void WatchDecoder::fail(std::string message, std::vector<WatchEvent>& out) {
  over_ = true;
  WatchEvent event;
  event.message = std::move(message);
  out.push_back(std::move(event));
}

void WatchDecoder::decode_line(std::string_view line, std::vector<WatchEvent>& out) {
  json document =
      beyond_bounds(line, kEventBounds) ? json(json::value_t::discarded) : json::parse(line, nullptr, false);
  if (!document.is_object()) return fail("a line of the watch is no JSON object, or too large", out);
  const std::string type = text_in(document, "type");
  // A refusal comes as a Status, alone or as the object of an ERROR.
  const bool bare_status = text_in(document, "kind") == "Status";
  if (type == "ERROR" || bare_status) {
    const json& status = bare_status ? document : object_in(document, "object");
    const std::string message = text_in(status, "message");
    fail(message.empty() ? "the server ended the watch" : message, out);
    if (int_in(status, "code") == kGone) out.back().type = WatchType::kExpired;
    return;
  }
  WatchEvent event;
  event.object = object_in(document, "object");
  event.resource_version = text_in(object_in(event.object, "metadata"), "resourceVersion");
  if (event.resource_version.empty()) return fail("an event of the watch has no resourceVersion", out);
  if (type == "ADDED") {
    event.type = WatchType::kAdded;
  } else if (type == "MODIFIED") {
    event.type = WatchType::kModified;
  } else if (type == "DELETED") {
    event.type = WatchType::kDeleted;
  } else if (type == "BOOKMARK") {
    event.type = WatchType::kBookmark;
    event.object = json();
  } else {
    return fail(fmt::format("an event of the watch has the unknown type '{}'", type.substr(0, 40)), out);
  }
  out.push_back(std::move(event));
}

std::vector<WatchEvent> WatchDecoder::add(std::string_view bytes) {
  std::vector<WatchEvent> out;
  if (over_) return out;
  lines_.add(bytes);
  while (!over_) {
    const std::optional<std::string> line = lines_.next();
    if (!line) break;
    if (const std::string_view text = trim(*line); !text.empty()) decode_line(text, out);
  }
  if (!over_ && lines_.size() > kLineBytesMax) fail("a line of the watch is too long", out);
  if (over_) lines_ = {};
  return out;
}

std::vector<WatchEvent> WatchDecoder::finish() {
  std::vector<WatchEvent> out;
  const std::string text = lines_.take_rest();
  // Half an event is no event: the watch goes on after the last whole one.
  const json document = over_ || beyond_bounds(text, kEventBounds) ? json() : json::parse(text, nullptr, false);
  if (document.is_object()) decode_line(text, out);
  over_ = true;
  return out;
}

}  // namespace rubato::kubernetes
