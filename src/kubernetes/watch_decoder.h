// WatchDecoder: the bytes of a watch as events. Pure: bytes in, events out, cut wherever the network cuts them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/line_buffer.h"

namespace rubato::kubernetes {

enum class WatchType {
  kAdded,
  kModified,
  kDeleted,
  kBookmark,
  kExpired,  // 410: what we knew is too old, list again
  kFailed,   // any other error of the server's
};
std::string_view to_string(WatchType type);

struct WatchEvent {
  WatchType type = WatchType::kFailed;
  nlohmann::json object;         // of kAdded, kModified, kDeleted
  std::string resource_version;  // where to go on after it; empty for kExpired and kFailed
  std::string message;           // of kExpired and kFailed
};

class WatchDecoder {
 public:
  // An object has 1.5 MiB at most in etcd, and JSON is larger than what etcd keeps.
  static constexpr size_t kLineBytesMax = 16 << 20;

  // The events that are whole now. After a kExpired or a kFailed the watch is over: nothing more is decoded.
  std::vector<WatchEvent> add(std::string_view bytes);

  // The connection ended: a document that is no line of a watch (a refusal) may wait for its end.
  std::vector<WatchEvent> finish();

 private:
  void decode_line(std::string_view line, std::vector<WatchEvent>& out);
  void fail(std::string message, std::vector<WatchEvent>& out);

  LineBuffer lines_;
  bool over_ = false;
};

}  // namespace rubato::kubernetes
