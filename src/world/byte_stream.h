// ByteStream: a connection of plain bytes in both directions: what is left after an HTTP upgrade, or a socket.
//
// Reading and writing may be under way at the same time, one of each. Cancel = destroy: the stream closes when it goes.
#pragma once

#include <memory>
#include <string>

#include "core/task.h"
#include "world/network.h"

namespace rubato {

class ByteStream {
 public:
  virtual ~ByteStream() = default;  // closes

  // What came next, at most some 64 KiB. Empty: the other side has ended it, or it is broken.
  virtual Task<std::string> read() = 0;
  // Returns when the kernel has taken all of it. False: the stream is broken.
  virtual Task<bool> write(std::string bytes) = 0;
  // Nothing more will be written; reading goes on.
  virtual void end_write() = 0;
};

struct UpgradeResult {
  HttpResponse response;               // status, headers; the body of a refusal
  std::unique_ptr<ByteStream> stream;  // null unless the status is 101
};

class HttpUpgrades {
 public:
  virtual ~HttpUpgrades() = default;

  // The request asks for another protocol (Connection: Upgrade). Throws kUnavailable when there is no answer by the
  // deadline; any answered status is a value.
  virtual Task<UpgradeResult> upgrade(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) = 0;
};

}  // namespace rubato
