// WebSocket (RFC 6455), the client's side, as bytes. Pure: what comes in may be cut wherever the network cuts it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::kubernetes {

enum class WebSocketKind { kText, kBinary, kClose, kPing, kPong };

struct WebSocketMessage {
  WebSocketKind kind = WebSocketKind::kBinary;
  std::string payload;
  bool operator==(const WebSocketMessage&) const = default;
};

// The value of Sec-WebSocket-Accept that answers this Sec-WebSocket-Key.
std::string websocket_accept(std::string_view key);

// One whole message. A client masks what it sends; `mask` is random, so that no proxy can be made to read it.
std::string encode_websocket(WebSocketKind kind, std::string_view payload, uint32_t mask);

class WebSocketDecoder {
 public:
  static constexpr size_t kMessageBytesMax = 16 << 20;

  // The messages that are whole now. After a kClose nothing more is decoded. Throws kUnavailable for what no server may
  // send: a masked frame, an unknown one, a message over the bound.
  std::vector<WebSocketMessage> add(std::string_view bytes);

 private:
  bool take_frame(std::string_view& bytes, std::vector<WebSocketMessage>& out);

  std::string rest_;      // the beginning of a frame
  std::string fragments_;  // of a message whose last frame has not come
  bool in_message_ = false, over_ = false;
  WebSocketKind kind_ = WebSocketKind::kBinary;
};

}  // namespace rubato::kubernetes
