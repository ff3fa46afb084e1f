#include "kubernetes/websocket.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace rubato::kubernetes {
namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

TEST(WebSocket, AcceptsTheKeyAsTheStandardsExample) {
  EXPECT_EQ(websocket_accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

TEST(WebSocket, MasksWhatAClientSends) {
  // RFC 6455, section 5.7: a masked "Hello".
  const std::string frame = encode_websocket(WebSocketKind::kText, "Hello", 0x3d21fa37);
  EXPECT_EQ(frame, bytes({0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58}));
}

TEST(WebSocket, WritesLengthsOfAllThreeSizes) {
  EXPECT_EQ(encode_websocket(WebSocketKind::kBinary, std::string(125, 'x'), 0).size(), 125u + 6);
  EXPECT_EQ(encode_websocket(WebSocketKind::kBinary, std::string(126, 'x'), 0).size(), 126u + 8);
  EXPECT_EQ(encode_websocket(WebSocketKind::kBinary, std::string(65536, 'x'), 0).size(), 65536u + 14);
}

TEST(WebSocket, ReadsMessagesThatAreCutAnywhere) {
  const std::string text = bytes({0x82, 3}) + "abc" + bytes({0x89, 1}) + "p" + bytes({0x82, 126, 1, 0}) +
                           std::string(256, 'y') + bytes({0x88, 2, 3, 232});
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    WebSocketDecoder decoder;
    auto all = decoder.add(std::string_view(text).substr(0, cut));
    for (auto& one : decoder.add(std::string_view(text).substr(cut))) all.push_back(std::move(one));
    ASSERT_EQ(all.size(), 4u) << cut;
    EXPECT_EQ(all[0], (WebSocketMessage{WebSocketKind::kBinary, "abc"}));
    EXPECT_EQ(all[1], (WebSocketMessage{WebSocketKind::kPing, "p"}));
    EXPECT_EQ(all[2].payload, std::string(256, 'y'));
    EXPECT_EQ(all[3].kind, WebSocketKind::kClose);
  }
}

TEST(WebSocket, JoinsFragmentsAroundAPing) {
  WebSocketDecoder decoder;
  const auto all = decoder.add(bytes({0x02, 2}) + "ab" + bytes({0x89, 0}) + bytes({0x80, 2}) + "cd");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kind, WebSocketKind::kPing);
  EXPECT_EQ(all[1], (WebSocketMessage{WebSocketKind::kBinary, "abcd"}));
}

TEST(WebSocket, RefusesWhatNoServerMaySend) {
  for (const std::string& bad :
       {bytes({0x82, 0x81, 1, 2, 3, 4, 5}), bytes({0x83, 0}), bytes({0xc2, 0}), bytes({0x80, 1, 'x'}),
        bytes({0x09, 0}), bytes({0x89, 126, 0, 200}), bytes({0x82, 127, 0, 0, 0, 0, 0x40, 0, 0, 0}),
        bytes({0x02, 1, 'a', 0x82, 1, 'b'})}) {
    WebSocketDecoder decoder;
    EXPECT_THROW(decoder.add(bad), Error);
  }
}

TEST(WebSocket, ReadsNothingAfterTheEnd) {
  WebSocketDecoder decoder;
  EXPECT_EQ(decoder.add(bytes({0x88, 0}) + bytes({0x82, 1}) + "x").size(), 1u);
  EXPECT_TRUE(decoder.add(bytes({0x82, 1}) + "x").empty());
}

}  // namespace
}  // namespace rubato::kubernetes
