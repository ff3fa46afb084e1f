#include "os/http_request.h"

#include <gtest/gtest.h>

#include "os/http_rate.h"

namespace rubato::os {
namespace {

struct Parsed {
  ServerRequest request;
  int refused = 0;  // status
  std::string text;
  bool done = false, keep_alive = false;
  std::string rest;
};

Parsed parse(const std::string& bytes, const HttpLimits& limits = {}, size_t piece = SIZE_MAX) {
  HttpRequestParser parser(limits);
  size_t at = 0;
  while (at < bytes.size() && !parser.done() && !parser.refusal()) {
    at += parser.feed(std::string_view(bytes).substr(at, piece));
  }
  Parsed parsed;
  parsed.done = parser.done();
  parsed.keep_alive = parser.keep_alive();
  parsed.rest = bytes.substr(at);
  if (parser.refusal()) {
    parsed.refused = parser.refusal()->status;
    parsed.text = parser.refusal()->message;
  }
  if (parser.done()) parsed.request = parser.take();
  return parsed;
}

std::string get(const std::string& target, const std::string& fields = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n";
}
std::string put(const std::string& fields, const std::string& body) {
  return "PUT /x HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n" + body;
}

TEST(HttpRequestParser, ReadsTheSameInWhateverPieces) {
  const std::string sized = put("X-One: a\r\nX-One: b \r\nContent-Length: 5\r\n", "hello") + "NEXT";
  const std::string chunked =
      "\r\n" + put("X-One:a, b\r\nTransfer-Encoding: Chunked\r\n", "2\r\nhe\r\n003\r\nllo\r\n0\r\n\r\n") + "NEXT";
  for (const std::string& bytes : {sized, chunked}) {
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, SIZE_MAX}) {
      const Parsed parsed = parse(bytes, {}, piece);
      ASSERT_TRUE(parsed.done) << parsed.text;
      EXPECT_EQ(parsed.request.method, "PUT");
      EXPECT_EQ(parsed.request.path, "/x");
      EXPECT_EQ(parsed.request.body, "hello");
      EXPECT_EQ(parsed.request.headers.at("x-one"), "a, b");
      EXPECT_EQ(parsed.rest, "NEXT");
      EXPECT_TRUE(parsed.keep_alive);
    }
  }
}

TEST(HttpRequestParser, DecodesThePathAndTheQueryOnce) {
  const Parsed parsed = parse(get("/a%20b/%C3%A4?since=1%3A2&all&x=a+b%2B"));
  ASSERT_TRUE(parsed.done) << parsed.text;
  EXPECT_EQ(parsed.request.path, "/a b/\xC3\xA4");
  const std::map<std::string, std::string> query{{"since", "1:2"}, {"all", ""}, {"x", "a b+"}};
  EXPECT_EQ(parsed.request.query, query);
  EXPECT_EQ(parse(get("/%2541")).request.path, "/%41");
}

TEST(HttpRequestParser, RefusesPathsThatLeadElsewhere) {
  for (const char* target :
       {"/../x",      "/a/..", "/%2e%2e/x", "/a%2F%2Fb", "//x",     "/a//b",     "/%00",       "/a%0Ab",
        "/%7f",       "/%",    "/%4",       "/%zz",      "/%ff",    "/%C0%AF",   "/%ED%A0%80", "x",
        "http://h/x", "*",     "/a#b",      "/?x=%00",   "/?x=%zz", "/?a=1&a=2", "/\xC3\xA4"}) {
    EXPECT_EQ(parse(get(target)).refused, 400) << target;
  }
}

TEST(HttpRequestParser, RefusesWhatTwoReadersCouldReadDifferently) {
  const std::vector<std::string> bad{
      put("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
      put("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
      put("Content-Length: 5, 5\r\n", "hello"),
      put("Content-Length: +5\r\n", "hello"),
      put("Content-Length: -1\r\n", "hello"),
      put("Content-Length: 0x5\r\n", "hello"),
      put("Content-Length: \r\n", "hello"),
      put("Content-Length : 5\r\n", "hello"),
      put(" Content-Length: 5\r\n", "hello"),
      put("X-A: b\r\n folded\r\n", ""),
      put("X-A: b\r\n\tfolded\r\n", ""),
      put("X-A\r\n", ""),
      put(": b\r\n", ""),
      put("X(A): b\r\n", ""),
      put("X-A: b\n", ""),
      put("X-A: b\rX-B: c\r\n", ""),
      put(std::string("X-A: b\0c\r\n", 10), ""),
      put("Host: other\r\n", ""),
      put("Connection: cl(se\r\n", ""),
      put("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "5 \r\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", " 5\r\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "-5\r\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "\r\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "5\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "5\r\nhelloo\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "000000005\r\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "5;x=y\r\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "5;" + std::string(300, 'x') + "\r\nhello\r\n0\r\n\r\n"),
      put("Transfer-Encoding: chunked\r\n", "0\r\nT: 1\r\n\r\n"),
      "PUT /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "GET /x HTTP/1.1\r\n\r\n",
      "GET  /x HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /x  HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /x HTTP/1.1 \r\nHost: h\r\n\r\n",
      "GET /x\r\nHost: h\r\n\r\n",
      "GET /x http/1.1\r\nHost: h\r\n\r\n",
      "GET\t/x HTTP/1.1\r\nHost: h\r\n\r\n",
      "G(T /x HTTP/1.1\r\nHost: h\r\n\r\n",
  };
  for (const std::string& bytes : bad) {
    EXPECT_EQ(parse(bytes).refused, 400) << bytes;
    EXPECT_EQ(parse(bytes, {}, 1).refused, 400) << bytes;
  }
  EXPECT_EQ(parse(put("Transfer-Encoding: gzip, chunked\r\n", "")).refused, 501);
  EXPECT_EQ(parse(put("Transfer-Encoding: identity\r\n", "")).refused, 501);
}

TEST(HttpRequestParser, SeesAtTheFirstByteThatItIsNoHttp) { EXPECT_EQ(parse("\x16\x03\x01").refused, 400); }

TEST(HttpRequestParser, KnowsFourMethodsAndTwoVersions) {
  for (const char* method : {"HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get"}) {
    EXPECT_EQ(parse(std::string(method) + " /x HTTP/1.1\r\nHost: h\r\n\r\n").refused, 405) << method;
  }
  EXPECT_EQ(parse("GET /x HTTP/2.0\r\nHost: h\r\n\r\n").refused, 505);
  const Parsed old = parse("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(old.done);
  EXPECT_FALSE(old.keep_alive);
  EXPECT_FALSE(parse(get("/x", "Connection: te, Close\r\n")).keep_alive);
}

TEST(HttpRequestParser, EnforcesItsLimits) {
  HttpLimits limits;
  limits.header_bytes_max = 200;
  limits.body_bytes_max = 10;
  EXPECT_EQ(parse(get("/x", "X: " + std::string(200, 'x') + "\r\n"), limits).refused, 431);
  EXPECT_EQ(parse(std::string(300, 'G'), limits).refused, 431);
  EXPECT_TRUE(parse(put("Content-Length: 10\r\n", "0123456789"), limits).done);
  EXPECT_EQ(parse(put("Content-Length: 11\r\n", ""), limits).refused, 413);
  EXPECT_EQ(parse(put("Content-Length: 99999999999999999999999\r\n", ""), limits).refused, 413);
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_TRUE(parse(put(chunked, "a\r\n0123456789\r\n0\r\n\r\n"), limits).done);
  EXPECT_EQ(parse(put(chunked, "6\r\n012345\r\n5\r\n"), limits).refused, 413);
  EXPECT_EQ(parse(put(chunked, "ffffffff\r\n"), limits).refused, 413);
  std::string many;
  for (int i = 0; i < 101; ++i) many += "X: y\r\n";
  EXPECT_EQ(parse(get("/x", many)).refused, 431);
}

TEST(HttpRequestParser, SaysWhenTheClientWaitsToBeToldToGoOn) {
  HttpRequestParser parser{HttpLimits()};
  parser.feed(put("Expect: 100-continue\r\nContent-Length: 5\r\n", ""));
  EXPECT_TRUE(parser.expects_continue());
  parser.feed("hello");
  EXPECT_TRUE(parser.done());
  EXPECT_FALSE(parser.expects_continue());
  EXPECT_EQ(parse(put("Expect: miracles\r\n", "")).refused, 417);
}

TEST(HttpRequestParser, RepeatsNothingOfTheHeaderInItsRefusal) {
  const Parsed parsed = parse(get("/x", "Authorization: Bearer hunter2\r\nAuthorization: Bearer hunter2\r\n"));
  EXPECT_EQ(parsed.refused, 400);
  EXPECT_EQ(parsed.text.find("hunter2"), std::string::npos);
}

constexpr Instant kStart = Instant{} + 1000s;

TEST(HttpRates, GrantABurstThenTheRate) {
  HttpRates rates(10, 20);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(rates.take("a", kStart));
  EXPECT_FALSE(rates.take("a", kStart));
  EXPECT_TRUE(rates.take("b", kStart));
  EXPECT_TRUE(rates.take("a", kStart + 101ms));
  EXPECT_FALSE(rates.take("a", kStart + 101ms));
  int granted = 0;
  for (int i = 0; i < 100; ++i) granted += rates.take("a", kStart + 1h);
  EXPECT_EQ(granted, 20);
}

TEST(HttpRates, StayBoundedWhenAddressesAreInvented) {
  HttpRates rates(10, 20);
  int granted = 0;
  for (int i = 0; i < 100'000; ++i) granted += rates.take("peer " + std::to_string(i), kStart);
  EXPECT_LE(rates.peers(), HttpRates::kPeersMax + 1);
  EXPECT_LE(granted, static_cast<int>(HttpRates::kPeersMax) + 20);
  EXPECT_TRUE(rates.take("somebody else", kStart + 1h));
  EXPECT_LE(rates.peers(), 1u);
}

}  // namespace
}  // namespace rubato::os
