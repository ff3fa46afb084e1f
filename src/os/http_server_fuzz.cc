// libFuzzer on the HTTP server's request parser. Whatever comes, in whatever pieces: no crash, memory within the
// limits, and the same result in one piece. What it accepts, Beast's independent parser reads the same way: a
// difference is how requests are smuggled. Build with clang++-19 -fsanitize=fuzzer,address,undefined.
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "os/http_request.h"

namespace rubato::os {
namespace {

HttpLimits small_limits() {
  HttpLimits limits;
  limits.header_bytes_max = 600;
  limits.body_bytes_max = 300;
  return limits;
}

struct Outcome {
  std::vector<ServerRequest> requests;
  int refused = 0;
  size_t taken = 0;  // by whole requests
};

bool same(const Outcome& a, const Outcome& b) {
  if (a.refused != b.refused || a.taken != b.taken || a.requests.size() != b.requests.size()) return false;
  for (size_t i = 0; i < a.requests.size(); ++i) {
    const ServerRequest &x = a.requests[i], &y = b.requests[i];
    if (x.method != y.method || x.path != y.path || x.query != y.query) return false;
    if (x.headers != y.headers || x.body != y.body) return false;
  }
  return true;
}

void check_request(const ServerRequest& request, const HttpLimits& limits) {
  CHECK(request.path.starts_with('/') && request.path.find("..") == std::string::npos);
  CHECK(request.path.find("//") == std::string::npos && request.path.find('\0') == std::string::npos);
  CHECK(request.body.size() <= limits.body_bytes_max);
  size_t header_bytes = 0;
  for (const auto& [name, value] : request.headers) {
    CHECK(!name.empty() && value.find_first_of("\r\n") == std::string::npos);
    header_bytes += name.size() + value.size();
  }
  CHECK(header_bytes <= limits.header_bytes_max);
}

// Requests one after the other, fed in pieces that `sizes` draws.
Outcome read(std::string_view bytes, std::string_view sizes) {
  const HttpLimits limits = small_limits();
  Outcome outcome;
  size_t at = 0, draw = 0;
  while (at < bytes.size() && !outcome.refused) {
    HttpRequestParser parser(limits);
    while (at < bytes.size() && !parser.done() && !parser.refusal()) {
      const size_t piece = sizes.empty() ? bytes.size() : 1 + static_cast<uint8_t>(sizes[draw++ % sizes.size()]) % 64;
      const std::string_view given = bytes.substr(at, piece);
      const size_t taken = parser.feed(given);
      CHECK(taken <= given.size() && (taken == given.size() || parser.done() || parser.refusal()));
      at += taken;
      CHECK(parser.body_bytes() <= limits.body_bytes_max);
    }
    if (parser.refusal()) outcome.refused = parser.refusal()->status;
    if (!parser.done()) break;
    outcome.taken = at;
    outcome.requests.push_back(parser.take());
    check_request(outcome.requests.back(), limits);
  }
  return outcome;
}

// Another's reading of the bytes that we took for whole requests.
void compare_with_beast(std::string_view bytes, const Outcome& ours) {
  namespace http = boost::beast::http;
  for (const ServerRequest& request : ours.requests) {
    while (bytes.starts_with("\r\n")) bytes.remove_prefix(2);  // Beast does not skip them
    http::request_parser<http::string_body> parser;
    parser.eager(true);
    while (!parser.is_done()) {
      boost::system::error_code error;
      const size_t taken = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
      CHECK(!error && taken > 0);
      bytes.remove_prefix(taken);
    }
    CHECK(parser.get().method_string() == request.method);
    CHECK(parser.get().body() == request.body);
  }
  CHECK(bytes.find_first_not_of("\r\n") == std::string_view::npos);
}

// libFuzzer would be long in finding these words.
const std::string& beginning(size_t which) {
  static const std::string kHead = "PUT /x HTTP/1.1\r\nHost: h\r\n", kCoding = "Transfer-Encoding: chunked\r\n";
  static const std::vector<std::string> kAll{"",
                                             kHead,
                                             kHead + "Content-Length: 5\r\n",
                                             kHead + kCoding,
                                             kHead + kCoding + "\r\n5\r\nhello\r\n",
                                             kHead + "\r\n" + kHead};
  return kAll[which % kAll.size()];
}

}  // namespace
}  // namespace rubato::os

// {a beginning and how many bytes say the sizes of the pieces, those, the bytes of the connection...}
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato::os;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t split = std::min<size_t>(data[0] % 16, input.size());
  const std::string bytes = beginning(data[0] / 16) + std::string(input.substr(split));
  const Outcome pieces = read(bytes, input.substr(0, split));
  const Outcome whole = read(bytes, {});
  CHECK(same(pieces, whole));
  compare_with_beast(std::string_view(bytes).substr(0, whole.taken), whole);
  return 0;
}
