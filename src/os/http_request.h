// HttpRequestParser: bytes of an HTTP/1.1 connection to a ServerRequest, or to the status that refuses it.
//
// Strict: whatever two readers of the same bytes could understand differently is refused, for that is how a request is
// smuggled past a proxy (RFC 9112, section 11.2): both Content-Length and Transfer-Encoding, a repeated
// Content-Length, codings other than "chunked", line ends other than CR LF, folded lines, spaces before a colon,
// signs, blanks and extensions in sizes, trailers. Pure: no socket, no clock; its memory is bounded by the limits,
// whatever is fed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "world/http_server.h"

namespace rubato::os {

// Why a request is not given to the handler. The connection cannot go on after it: where the next request begins is
// not known.
struct HttpRefusal {
  int status = 400;
  std::string message;  // nothing of the request's headers is in it
};

class HttpRequestParser {
 public:
  // `on_head` is asked once the header is whole and before anything of the body is taken: how many bytes it may have,
  // or why the request is refused.
  struct HeadAnswer {
    size_t body_bytes_max = size_t{0} - 1;
    std::optional<HttpRefusal> refusal;
  };
  using OnHead = std::function<HeadAnswer(const ServerRequest& head)>;
  explicit HttpRequestParser(const HttpLimits& limits, OnHead on_head = {})
      : limits_(limits), body_bytes_max_(limits.body_bytes_max), on_head_(std::move(on_head)) {}

  // Takes bytes in whatever pieces they come, and says how many. It stops after the request, and at its refusal.
  size_t feed(std::string_view bytes);

  bool begun() const { return step_ != Step::kHead || !head_.empty(); }
  bool head_done() const { return step_ != Step::kHead; }
  bool done() const { return step_ == Step::kDone; }
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }

  // What has arrived of it: an announced size is only words.
  size_t body_bytes() const { return request_.body.size(); }
  // Whether the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return expects_continue_ && !done(); }

  bool keep_alive() const { return keep_alive_; }
  bool is_http_1_0() const { return http_1_0_; }

  // After done(). The peer is the caller's to fill in.
  ServerRequest take() { return std::move(request_); }

 private:
  enum class Step { kHead, kSizedBody, kChunkSize, kChunkBody, kChunkEnd, kLastEnd, kDone };

  size_t refuse(int status, std::string message);
  bool add_line_byte(std::string& line, char byte, size_t most);
  size_t feed_head(std::string_view bytes);
  size_t feed_sized(std::string_view bytes);
  size_t feed_chunk_line(std::string_view bytes);
  size_t feed_chunk_body(std::string_view bytes);
  void end_head();
  bool read_request_line(std::string_view line);
  bool read_version(std::string_view version);
  bool read_target(std::string_view target);
  bool read_query(std::string_view query);
  bool read_field(std::string_view line);
  bool plan_connection();
  bool ask_about_head();
  bool plan_body();
  bool plan_length(const std::string& length);
  void end_chunk_line();
  void begin_chunk(std::string_view digits);

  const HttpLimits limits_;
  size_t body_bytes_max_;
  const OnHead on_head_;
  Step step_ = Step::kHead;
  std::string head_;
  std::string line_;  // between chunks
  size_t left_ = 0;   // bytes of the sized body or of this chunk
  bool http_1_0_ = false;
  bool keep_alive_ = true;
  bool expects_continue_ = false;
  std::optional<HttpRefusal> refusal_;
  ServerRequest request_;
};

}  // namespace rubato::os
