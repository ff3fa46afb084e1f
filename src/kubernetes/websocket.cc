#include "kubernetes/websocket.h"

#include <openssl/evp.h>

#include <optional>

#include "core/error.h"
#include "rest/base64.h"

namespace rubato::kubernetes {
namespace {

constexpr std::string_view kAcceptGuid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";  // RFC 6455, section 1.3
constexpr uint8_t kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10;
constexpr uint8_t kFinal = 0x80, kReserved = 0x70, kMasked = 0x80;
constexpr size_t kControlBytesMax = 125;

uint8_t opcode_of(WebSocketKind kind) {
  switch (kind) {
    case WebSocketKind::kText:
      return kText;
    case WebSocketKind::kBinary:
      return kBinary;
    case WebSocketKind::kClose:
      return kClose;
    case WebSocketKind::kPing:
      return kPing;
    case WebSocketKind::kPong:
      return kPong;
  }
  return kBinary;
}

std::optional<WebSocketKind> kind_of(uint8_t opcode) {
  switch (opcode) {
    case kText:
      return WebSocketKind::kText;
    case kBinary:
      return WebSocketKind::kBinary;
    case kClose:
      return WebSocketKind::kClose;
    case kPing:
      return WebSocketKind::kPing;
    case kPong:
      return WebSocketKind::kPong;
    default:
      return std::nullopt;
  }
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kUnavailable, "the server does not keep to the WebSocket protocol: " + why, "",
              "is a proxy in between?");
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t out = 0;
  for (const char c : bytes) out = out << 8 | static_cast<uint8_t>(c);
  return out;
}

}  // namespace

std::string websocket_accept(std::string_view key) {
  const std::string text = std::string(key) + std::string(kAcceptGuid);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK(EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha1(), nullptr) == 1);
  return rest::base64(std::string_view(reinterpret_cast<const char*>(digest), size));
}

std::string encode_websocket(WebSocketKind kind, std::string_view payload, uint32_t mask) {
  std::string out;
  out.reserve(payload.size() + 14);
  out += static_cast<char>(kFinal | opcode_of(kind));
  const uint64_t size = payload.size();
  if (size <= kControlBytesMax) {
    out += static_cast<char>(kMasked | size);
  } else {
    const int bytes = size <= 0xffff ? 2 : 8;
    out += static_cast<char>(kMasked | (bytes == 2 ? 126 : 127));
    for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(size >> (8 * i) & 0xff);
  }
  char key[4];
  for (int i = 0; i < 4; ++i) key[i] = static_cast<char>(mask >> (8 * i) & 0xff);
  out.append(key, sizeof key);
  const size_t begin = out.size();
  out += payload;
  for (size_t i = begin; i < out.size(); ++i) out[i] = static_cast<char>(out[i] ^ key[(i - begin) % 4]);
  return out;
}

// Takes one frame from the front of `bytes`; false: it is not whole yet.
bool WebSocketDecoder::take_frame(std::string_view& bytes, std::vector<WebSocketMessage>& out) {
  if (bytes.size() < 2) return false;
  const auto first = static_cast<uint8_t>(bytes[0]), second = static_cast<uint8_t>(bytes[1]);
  if (first & kReserved) refuse("a reserved bit is set");
  if (second & kMasked) refuse("its frames are masked");
  const uint8_t opcode = first & 0x0f;
  const bool final = first & kFinal;
  const bool control = opcode & 0x08;
  const std::optional<WebSocketKind> kind = kind_of(opcode);
  if (!kind && opcode != kContinuation) refuse("a frame of an unknown kind");
  size_t head = 2;
  uint64_t size = second & 0x7f;
  if (size >= 126) {
    const size_t more = size == 126 ? 2 : 8;
    if (bytes.size() < head + more) return false;
    size = big_endian(bytes.substr(head, more));
    head += more;
  }
  if (control && (size > kControlBytesMax || !final)) refuse("a control frame that is too long");
  if (size > kMessageBytesMax || fragments_.size() + size > kMessageBytesMax) refuse("a message over 16 MiB");
  if (!control && (opcode == kContinuation) != in_message_) refuse("a fragment out of order");
  if (bytes.size() < head + size) return false;
  const std::string_view payload = bytes.substr(head, size);
  bytes.remove_prefix(head + size);
  if (control) {
    out.push_back({*kind, std::string(payload)});
    over_ = *kind == WebSocketKind::kClose;
    return true;
  }
  if (!in_message_) kind_ = *kind;
  fragments_ += payload;
  in_message_ = !final;
  if (final) out.push_back({kind_, std::exchange(fragments_, {})});
  return true;
}

std::vector<WebSocketMessage> WebSocketDecoder::add(std::string_view bytes) {
  std::vector<WebSocketMessage> out;
  if (over_) return out;
  rest_ += bytes;
  std::string_view left = rest_;
  while (!over_ && take_frame(left, out)) {
  }
  rest_.erase(0, rest_.size() - left.size());
  return out;
}

}  // namespace rubato::kubernetes
