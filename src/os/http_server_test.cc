#include "os/http_server.h"

#include <sys/stat.h>

#include <filesystem>

#include "os/certificates.h"
#include "os/etcd_for_test.h"
#include "os/http_client.h"
#include "os/http_server_testing.h"
#include "os/neighbour_for_test.h"

namespace rubato::os {

namespace {

constexpr Duration kLong = 60s;  // a deadline that is not meant to come
constexpr size_t kBlock = 64 << 10;

struct Cancelled {
  HandledForTest& handled;
  bool armed = true;
  ~Cancelled() {
    if (armed) ++handled.cancelled;
  }
};

Task<void> stream_blocks(HandledForTest& handled, HttpStreamWriter& writer, size_t blocks) {
  Cancelled cancelled{handled};
  try {
    for (size_t i = 0; i < blocks; ++i) {
      std::string block(kBlock, static_cast<char>('a' + i % 26));
      co_await writer.write(std::move(block));
      handled.streamed += kBlock;
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    ++handled.client_gone;
    throw;
  }
  cancelled.armed = false;
}

Task<void> stream_one_and_wait(Runtime& runtime, HandledForTest& handled, HttpStreamWriter& writer) {
  Cancelled cancelled{handled};
  std::string line = "first\n";
  co_await writer.write(std::move(line));
  co_await Sleep(runtime, runtime.now() + kLong);
  cancelled.armed = false;
}

Task<void> stream_and_fail(HttpStreamWriter& writer) {
  std::string line = "half";
  co_await writer.write(std::move(line));
  throw Error(ErrorCode::kFailed, "the disk is gone");
}

ServerReply echo(const ServerRequest& request) {
  ServerReply reply;
  reply.headers["content-type"] = "text/plain";
  reply.body = request.method + " " + request.path + " from " + request.peer;
  for (const auto& [name, value] : request.query) reply.body += " " + name + "=" + value;
  if (request.headers.contains("x-mine")) reply.body += " x-mine:" + request.headers.at("x-mine");
  reply.body += " body:" + request.body;
  return reply;
}

ServerReply streamed(Runtime& runtime, HandledForTest& handled, const ServerRequest& request) {
  ServerReply reply;
  const size_t blocks = request.query.contains("blocks") ? std::stoul(request.query.at("blocks")) : 0;
  if (request.path == "/stream/blocks") {
    reply.stream = [&handled, blocks](HttpStreamWriter& writer) { return stream_blocks(handled, writer, blocks); };
  } else if (request.path == "/stream/wait") {
    reply.stream = [&](HttpStreamWriter& writer) { return stream_one_and_wait(runtime, handled, writer); };
  } else {
    reply.stream = [](HttpStreamWriter& writer) { return stream_and_fail(writer); };
  }
  return reply;
}

}  // namespace

Task<ServerReply> route_for_test(Runtime& runtime, HandledForTest& handled, ServerRequest request) {
  ++handled.begun;
  if (request.path.starts_with("/stream")) co_return streamed(runtime, handled, request);
  if (request.path == "/usage") throw Error(ErrorCode::kUsage, "no such flag", "cluster.yaml:3:1", "spell it so");
  if (request.path == "/not-found") throw Error(ErrorCode::kNotFound, "no such \xff job");
  if (request.path == "/conflict") throw Error(ErrorCode::kConflict, "taken");
  if (request.path == "/unavailable") throw Error(ErrorCode::kUnavailable, "later");
  if (request.path == "/failed") throw Error(ErrorCode::kFailed, "did not work");
  if (request.path == "/bug") throw std::runtime_error("inner details");
  ServerReply reply = echo(request);
  if (request.path == "/inject") reply.headers["x-name"] = "a\r\nset-cookie: b";
  if (request.path == "/empty") reply.status = 204;
  if (request.path == "/big") reply.body = std::string(std::stoul(request.query.at("bytes")), 'x');
  if (request.path != "/wait") co_return reply;
  Cancelled cancelled{handled};
  co_await Sleep(runtime, runtime.now() + kLong);
  cancelled.armed = false;
  co_return reply;
}

namespace {

std::string get(const std::string& target, const std::string& fields = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n";
}

struct Answered {
  HttpResponse response;
  std::optional<Error> error;
};

Task<int> call_into(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request, Answered& out) {
  try {
    const Instant deadline = runtime.now() + kLong;
    out.response = co_await http_call(runtime, endpoint, tls, std::move(request), deadline);
  } catch (const Error& error) {
    out.error = error;
  }
  co_return 0;
}

Answered call(const HttpServerForTest& server, HttpRequest request, const TlsFiles& tls = {}) {
  Runtime runtime;
  Answered out;
  runtime.run(call_into(runtime, server.endpoint(), tls, std::move(request), out));
  return out;
}

HttpRequest ask(const std::string& method, const std::string& target, const std::string& body = "") {
  HttpRequest request;
  request.method = method;
  request.target = target;
  request.body = body;
  return request;
}

TEST(HttpServer, GivesTheHandlerWhatTheClientAsked) {
  HttpServerForTest server;
  HttpRequest request = ask("PUT", "/api/v1/a%20b?tail=5&all=1", "bytes");
  request.headers["X-Mine"] = "yes";
  const Answered out = call(server, request);
  ASSERT_FALSE(out.error) << out.error->message;
  EXPECT_EQ(out.response.status, 200);
  EXPECT_EQ(out.response.headers.at("content-type"), "text/plain");
  EXPECT_EQ(out.response.body, "PUT /api/v1/a b from 127.0.0.1 all=1 tail=5 x-mine:yes body:bytes");
  EXPECT_EQ(call(server, ask("GET", "/empty")).response.status, 204);
}

TEST(HttpServer, TakesAndGivesSeveralMebibytes) {
  HttpServerForTest server;
  const std::string body(8 << 20, 'b');
  const Answered up = call(server, ask("POST", "/echo", body));
  ASSERT_FALSE(up.error) << up.error->message;
  EXPECT_EQ(up.response.body, "POST /echo from 127.0.0.1 body:" + body);
  EXPECT_EQ(call(server, ask("GET", "/big?bytes=30000000")).response.body.size(), 30'000'000u);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrderOnOneConnection) {
  HttpServerForTest server;
  RawForTest raw(server);
  raw.send(get("/1") + "POST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc" + get("/3") +
           get("/4", "Connection: close\r\n"));
  const std::string all = raw.read_all();
  EXPECT_TRUE(all.ends_with("(end)")) << all;
  size_t at = 0;
  for (const char* body : {"GET /1 ", "POST /2 from 127.0.0.1 body:abc", "GET /3 ", "GET /4 "}) {
    at = all.find(body, at);
    EXPECT_NE(at, std::string::npos) << body << " in " << all;
  }
}

TEST(HttpServer, ClosesAfterTheReplyToHttp10) {
  HttpServerForTest server;
  RawForTest plain(server), stream(server);
  plain.send("GET /x HTTP/1.0\r\n\r\n");
  const std::string all = plain.read_all();
  EXPECT_NE(all.find("connection: close"), std::string::npos) << all;
  EXPECT_TRUE(all.ends_with("body:(end)")) << all;
  stream.send("GET /stream/blocks?blocks=2 HTTP/1.0\r\n\r\n");
  const std::string streamed = stream.read_all();
  EXPECT_EQ(streamed.find("chunked"), std::string::npos);
  EXPECT_TRUE(streamed.ends_with("\r\n\r\n" + std::string(kBlock, 'a') + std::string(kBlock, 'b') + "(end)"));
}

TEST(HttpServer, TellsAClientThatWaitsForItToGoOn) {
  HttpServerForTest server;
  RawForTest raw(server);
  raw.send("PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(raw.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  raw.send("hello");
  EXPECT_NE(raw.read_until("body:hello").find("200 OK"), std::string::npos);
}

TEST(HttpServer, SaysErrorsOfTheHandlerInJson) {
  HttpServerForTest server;
  const Answered usage = call(server, ask("GET", "/usage"));
  EXPECT_EQ(usage.response.status, 400);
  EXPECT_EQ(usage.response.headers.at("content-type"), "application/json");
  EXPECT_EQ(usage.response.body,
            R"({"error":{"code":"usage","message":"no such flag","where":"cluster.yaml:3:1","hint":"spell it so"}})"
            "\n");
  const Answered missing = call(server, ask("GET", "/not-found"));
  EXPECT_EQ(missing.response.status, 404);
  EXPECT_NE(missing.response.body.find("\"not_found\""), std::string::npos);
  EXPECT_EQ(call(server, ask("GET", "/conflict")).response.status, 409);
  EXPECT_EQ(call(server, ask("GET", "/unavailable")).response.status, 503);
  EXPECT_EQ(call(server, ask("GET", "/failed")).response.status, 500);
}

TEST(HttpServer, KeepsABugsWordsForItsLog) {
  HttpServerForTest server;
  const Answered bug = call(server, ask("GET", "/bug?token=hunter2"));
  EXPECT_EQ(bug.response.status, 500);
  EXPECT_EQ(bug.response.body.find("inner details"), std::string::npos);
  EXPECT_NE(server.log().find("inner details"), std::string::npos);
  EXPECT_EQ(server.log().find("hunter2"), std::string::npos);
}

TEST(HttpServer, SendsNoHeaderThatEndsItsLine) {
  HttpServerForTest server;
  const Answered out = call(server, ask("GET", "/inject"));
  EXPECT_EQ(out.response.status, 500);
  EXPECT_FALSE(out.response.headers.contains("set-cookie"));
}

TEST(HttpServer, RefusesAndClosesWhatItCannotTrust) {
  HttpServerForTest server;
  const auto status = [&server](const std::string& bytes) {
    RawForTest raw(server);
    raw.send(bytes);
    const std::string all = raw.read_all();
    EXPECT_TRUE(all.ends_with("(end)")) << all;
    return all.size() > 12 ? std::stoi(all.substr(9, 3)) : 0;
  };
  EXPECT_EQ(status("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n"), 405);
  EXPECT_EQ(status(get("/../etc/passwd")), 400);
  EXPECT_EQ(status(get("/x", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + get("/smuggled")),
            400);
  EXPECT_EQ(status(get("/x", "Transfer-Encoding: chunked\r\n") + "zz\r\n"), 400);
  EXPECT_EQ(status(get("/x", "A: b\r\n c\r\n")), 400);
  EXPECT_EQ(status("GET /x HTTP/3.0\r\nHost: h\r\n\r\n"), 505);
  EXPECT_EQ(status("\x16\x03\x01\x02\x01"), 400);
  EXPECT_EQ(server.handled.begun, 0);
  RawForTest raw(server);
  raw.send("PATCH /x HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(raw.read_all().find("allow: GET, PUT, POST, DELETE\r\n"), std::string::npos);
}

TEST(HttpServerLimits, HeaderAndBodyAreBounded) {
  HttpLimits limits;
  limits.header_bytes_max = 1000;
  limits.body_bytes_max = 1000;
  HttpServerForTest server(limits);
  RawForTest header(server), body(server);
  header.send(get("/x", "X: " + std::string(1000, 'x') + "\r\n"));
  EXPECT_NE(header.read_all().find(" 431 "), std::string::npos);
  // The reply arrives though much of the body was sent after it.
  body.send("PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n" + std::string(500'000, 'b'));
  const std::string refused = body.read_all();
  EXPECT_NE(refused.find(" 413 "), std::string::npos) << refused;
  EXPECT_NE(refused.find("\"too_large\""), std::string::npos) << refused;
}

TEST(HttpServerLimits, OurClientHearsWhyALargeUploadIsRefused) {
  HttpLimits limits;
  limits.requests_per_second = 0.001;
  limits.requests_burst = 1;
  HttpServerForTest server(limits);
  EXPECT_EQ(call(server, ask("GET", "/x")).response.status, 200);
  const Answered early = call(server, ask("PUT", "/x", std::string(8 << 20, 'b')));
  ASSERT_FALSE(early.error) << early.error->message;
  EXPECT_EQ(early.response.status, 429);
}

TEST(HttpServerLimits, ARequestThatTakesTooLongIsRefused) {
  HttpLimits limits;
  limits.request_max = 50ms;
  HttpServerForTest server(limits);
  RawForTest head(server), body(server);
  head.send("GET /x HT");
  body.send("PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel");
  EXPECT_NE(head.read_all().find(" 408 "), std::string::npos);
  EXPECT_NE(body.read_all().find(" 408 "), std::string::npos);
}

TEST(HttpServerLimits, AnIdleConnectionIsClosed) {
  HttpLimits limits;
  limits.idle_max = 50ms;
  HttpServerForTest server(limits);
  RawForTest silent(server);
  EXPECT_EQ(silent.read_all(), "(end)");
  // On a busy machine the time may be over before we have asked: then once more.
  std::string answer = "(end)";
  while (answer == "(end)") {
    RawForTest used(server);
    used.send(get("/x"));
    answer = used.read_all();
  }
  EXPECT_TRUE(answer.ends_with("body:(end)")) << answer;
}

TEST(HttpServerLimits, TheConnectionOverTheLimitIsTurnedAway) {
  HttpLimits limits;
  limits.connections_max = 2;
  HttpServerForTest server(limits);
  RawForTest one(server), two(server);
  for (RawForTest* raw : {&one, &two}) {
    raw->send(get("/x"));
    raw->read_until("body:");
  }
  RawForTest three(server);
  three.send(get("/x"));
  const std::string refused = three.read_all();
  EXPECT_NE(refused.find(" 503 "), std::string::npos);
  EXPECT_NE(refused.find("retry-after: 1\r\n"), std::string::npos);
  one.send(get("/y"));
  EXPECT_NE(one.read_until("body:").find("200 OK"), std::string::npos);
  two.close();
  EXPECT_TRUE(eventually([&] { return call(server, ask("GET", "/x")).response.status == 200; }));
}

TEST(HttpServerLimits, UploadsTogetherAreBounded) {
  HttpLimits limits;
  limits.bodies_bytes_max = 3000;
  HttpServerForTest server(limits);
  const std::string head = "PUT /wait HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n";
  RawForTest one(server), two(server);
  one.send(head + std::string(2000, 'b'));
  ASSERT_TRUE(eventually([&] { return server.handled.begun == 1; }));
  two.send(head + std::string(2000, 'b'));
  EXPECT_NE(two.read_all().find(" 503 "), std::string::npos);
  one.close();
  EXPECT_TRUE(eventually([&] { return server.handled.cancelled == 1; }));
  EXPECT_EQ(call(server, ask("PUT", "/x", std::string(2000, 'b'))).response.status, 200);
}

TEST(HttpServerLimits, OnePeersRequestsAreBounded) {
  HttpLimits limits;
  limits.requests_per_second = 0.001;
  limits.requests_burst = 3;
  HttpServerForTest server(limits);
  RawForTest raw(server);
  raw.send(get("/1") + get("/2") + get("/3") + get("/4"));
  const std::string all = raw.read_all();
  EXPECT_NE(all.find("GET /3 "), std::string::npos);
  EXPECT_NE(all.find(" 429 "), std::string::npos);
  EXPECT_NE(all.find("retry-after: 1\r\n"), std::string::npos);
  EXPECT_EQ(server.handled.begun, 3);
}

TEST(HttpServerLimits, ARouteMayTakeLess) {
  HttpServerForTest server;
  EXPECT_EQ(call(server, ask("PUT", "/small", std::string(100, 'b'))).response.status, 200);
  const Answered large = call(server, ask("PUT", "/small", std::string(101, 'b')));
  EXPECT_EQ(large.response.status, 413);
  EXPECT_NE(large.response.body.find("longer than 100 bytes"), std::string::npos) << large.response.body;
}

TEST(HttpServerStrangers, MaySendNoBody) {
  HttpServerForTest server;
  RawForTest sized(server), chunked(server), bare(server);
  sized.send("PUT /x HTTP/1.1\r\nHost: h\r\nX-Stranger: y\r\nContent-Length: 10\r\n\r\n");
  EXPECT_NE(sized.read_all().find(" 401 "), std::string::npos);
  chunked.send("PUT /x HTTP/1.1\r\nHost: h\r\nX-Stranger: y\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_NE(chunked.read_all().find("www-authenticate: Bearer"), std::string::npos);
  bare.send(get("/x", "X-Stranger: y\r\n"));
  EXPECT_NE(bare.read_until("body:").find("200 OK"), std::string::npos);
  EXPECT_EQ(server.handled.begun, 1);
}

TEST(HttpServerStrangers, SpendOnlyWhatIsTheirs) {
  HttpLimits limits;
  limits.requests_per_second = 0.001;
  limits.requests_burst = 3;
  HttpServerForTest server(limits);
  RawForTest stranger(server), owner(server);
  for (int i = 0; i < 4; ++i) stranger.send(get("/healthz", "X-Stranger: y\r\n"));
  EXPECT_NE(stranger.read_all().find(" 429 "), std::string::npos);
  owner.send(get("/x"));
  EXPECT_NE(owner.read_until("body:").find("200 OK"), std::string::npos);
}

TEST(HttpServerStrangers, AreGivenLittleTime) {
  HttpLimits limits;
  limits.stranger_idle_max = 50ms;
  HttpServerForTest server(limits);
  RawForTest silent(server);
  EXPECT_EQ(silent.read_all(), "(end)");
  RawForTest asked(server);
  asked.send(get("/x", "X-Stranger: y\r\n"));
  EXPECT_TRUE(asked.read_all().ends_with("body:(end)"));
}

// Another user's half-open connections fill his own places.
TEST(HttpServerStrangers, AnotherUsersCrowdKeepsNobodyOut) {
  if (!NeighbourForTest::possible()) GTEST_SKIP() << "needs root";
  HttpServerForTest server;
  const NeighbourForTest idle(server.endpoint().port, 300, "");
  const NeighbourForTest half(server.endpoint().port, 300, "GET /heal");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(call(server, ask("GET", "/x")).response.status, 200);
}

// One who may come in holds all the seats that there are, and is in no hurry.
TEST(HttpServerStrangers, NobodyWhoMayComeInTakesAllTheSeats) {
  if (!NeighbourForTest::possible()) GTEST_SKIP() << "needs root";
  HttpLimits limits;
  limits.connections_max = 4;
  HttpServerForTest server(limits);
  const NeighbourForTest greedy(server.endpoint().port, 12, get("/x"));
  while (server.handled.begun < 4) std::this_thread::yield();
  RawForTest first(server), second(server), third(server);
  for (RawForTest* one : {&first, &second}) {
    one->send(get("/x"));
    EXPECT_NE(one->read_until("body:").find("200 OK"), std::string::npos);
  }
  third.send(get("/x"));
  EXPECT_NE(third.read_until("}}").find(" 503 "), std::string::npos) << "half of them are the neighbour's";
  for (RawForTest* one : {&first, &second}) {
    one->send(get("/x"));
    EXPECT_NE(one->read_until("body:").find("200 OK"), std::string::npos) << "a seat that was taken is kept";
  }
}

TEST(HttpServerFile, ServesAtASocketsFileHoweverLongItsPath) {
  FolderForTest folder;
  for (const std::string& part : {std::string("s"), std::string(150, 'l')}) {
    std::filesystem::create_directory(folder.path + "/" + part);
    const std::string file = folder.path + "/" + part + "/api.sock";
    for (int start = 0; start < 2; ++start) {  // the second one finds the file of the first
      HttpServerForTest server({}, {}, file);
      const Answered out = call(server, ask("PUT", "/x", "bytes"));
      ASSERT_FALSE(out.error) << out.error->message;
      EXPECT_EQ(out.response.body, "PUT /x from 127.0.0.1 body:bytes");
      struct stat info {};
      ASSERT_EQ(::stat(file.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, 0600u);
    }
    const Endpoint nobody{file, 0};
    Runtime runtime;
    Answered out;
    runtime.run(call_into(runtime, nobody, {}, ask("GET", "/x"), out));
    ASSERT_TRUE(out.error);
    EXPECT_NE(out.error->message.find("refused"), std::string::npos) << out.error->message;
  }
}

TEST(HttpServerFile, TakesNoOtherUser) {
  if (!NeighbourForTest::possible()) GTEST_SKIP() << "needs root";
  FolderForTest folder;
  const std::string file = folder.path + "/api.sock";
  HttpServerForTest server({}, {}, file);
  // As if the folder were open to all.
  ASSERT_EQ(::chmod(folder.path.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(NeighbourForTest::kUser, NeighbourForTest::kUser, NeighbourForTest::kUser) != 0) ::_exit(1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, file.c_str());
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(2);
    const char arguments[] = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
    (void)::send(fd, arguments, sizeof arguments - 1, MSG_NOSIGNAL);
    char byte = 0;
    ::_exit(::recv(fd, &byte, 1, 0) > 0 ? 3 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(server.handled.begun, 0);
  EXPECT_EQ(call(server, ask("GET", "/x")).response.status, 200);
}

TEST(HttpServerStream, WaitsForASlowReaderAndLosesNothing) {
  constexpr size_t kBlocks = 400;
  HttpServerForTest server;
  RawForTest raw(server, 32 << 10);
  raw.send(get("/stream/blocks?blocks=" + std::to_string(kBlocks), "Connection: close\r\n"));
  raw.read_until("\r\n\r\n");
  size_t before = SIZE_MAX;  // until the stream waits for us
  while (server.handled.streamed != before) {
    before = server.handled.streamed;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_LT(before, kBlocks * kBlock / 2);
  EXPECT_TRUE(raw.read_all().ends_with("\r\n0\r\n\r\n(end)"));
  EXPECT_EQ(server.handled.streamed, kBlocks * kBlock);
  EXPECT_EQ(server.handled.cancelled, 0);
}

Task<void> stream_into(Runtime& runtime, Endpoint endpoint, std::string target, Channel<std::string>& chunks,
                       Answered& out) {
  try {
    const Instant deadline = runtime.now() + kLong;
    HttpRequest request = ask("GET", target);
    const TlsFiles plain;
    out.response = co_await http_stream(runtime, endpoint, plain, std::move(request), deadline, chunks);
  } catch (const Error& error) {
    out.error = error;
  }
  chunks.close();
}

Task<int> read_stream(Runtime& runtime, Endpoint endpoint, std::string target, std::string& body, Answered& out) {
  Channel<std::string> chunks(runtime);
  Scope scope(runtime);
  scope.spawn(stream_into(runtime, endpoint, target, chunks, out));
  for (;;) {
    const std::optional<std::string> chunk = co_await chunks.pop();
    if (!chunk) co_return 0;
    body += *chunk;
  }
}

TEST(HttpServerStream, IsReadByOurClientAndTheConnectionIsUsedAgain) {
  HttpServerForTest server;
  Runtime runtime;
  for (int i = 0; i < 2; ++i) {
    std::string body;
    Answered out;
    runtime.run(read_stream(runtime, server.endpoint(), "/stream/blocks?blocks=3", body, out));
    ASSERT_FALSE(out.error) << out.error->message;
    EXPECT_EQ(body, std::string(kBlock, 'a') + std::string(kBlock, 'b') + std::string(kBlock, 'c'));
  }
}

TEST(HttpServerStream, OneThatFailsIsSeenToBreakOff) {
  HttpServerForTest server;
  Runtime runtime;
  std::string body;
  Answered out;
  runtime.run(read_stream(runtime, server.endpoint(), "/stream/fail", body, out));
  EXPECT_EQ(body, "half");
  EXPECT_TRUE(out.error);
  EXPECT_TRUE(eventually([&] { return server.log().find("the disk is gone") != std::string::npos; }));
}

TEST(HttpServerStream, AReaderThatTakesNothingIsDropped) {
  HttpLimits limits;
  limits.write_stall_max = 100ms;
  HttpServerForTest server(limits);
  RawForTest raw(server, 32 << 10);
  raw.send(get("/stream/blocks?blocks=100000"));
  EXPECT_TRUE(eventually([&] { return server.handled.client_gone == 1; }));
}

TEST(HttpServerStream, AClientThatGoesCancelsTheHandlerAndTheStream) {
  HttpServerForTest server;
  RawForTest waiting(server), streaming(server);
  waiting.send(get("/wait"));
  ASSERT_TRUE(eventually([&] { return server.handled.begun == 1; }));
  waiting.close();
  EXPECT_TRUE(eventually([&] { return server.handled.cancelled == 1; }));
  streaming.send(get("/stream/wait"));
  EXPECT_NE(streaming.read_until("first").find("chunked"), std::string::npos);
  streaming.close();
  EXPECT_TRUE(eventually([&] { return server.handled.cancelled == 2; }));
}

TEST(HttpServerStream, TheEndOfTheServerCancelsWhatItHandles) {
  HandledForTest* handled = nullptr;
  {
    HttpServerForTest server;
    handled = &server.handled;
    RawForTest waiting(server), streaming(server);
    waiting.send(get("/wait"));
    streaming.send(get("/stream/wait"));
    streaming.read_until("first");
    ASSERT_TRUE(eventually([&] { return handled->begun == 2; }));
    server.stop();
    EXPECT_EQ(handled->cancelled, 2);
    EXPECT_NE(waiting.read_all().find("(end)"), std::string::npos);
  }
}

// The files of a cluster with a server's certificate in it.
struct TlsForTest {
  FolderForTest folder;
  TlsFiles server, client;
  TlsForTest() {
    make_cluster_ca(folder.path);
    server.use_tls = client.use_tls = true;
    client.ca = folder.path + "/ca.pem";
    server.certificate = folder.path + "/head.pem";
    server.key = folder.path + "/head.key";
    issue_certificate(folder.path, "head", {"127.0.0.1", "localhost"}, server.certificate, server.key);
  }
};

TEST(HttpServerTls, IsVerifiedByTheCasOfTheCluster) {
  TlsForTest ours, others;
  HttpServerForTest server({}, ours.server);
  const std::string body(5 << 20, 'b');
  const Answered good = call(server, ask("PUT", "/x", body), ours.client);
  ASSERT_FALSE(good.error) << good.error->message;
  EXPECT_EQ(good.response.body, "PUT /x from 127.0.0.1 body:" + body);
  HttpRequest secret = ask("GET", "/x");
  secret.headers["Authorization"] = "Bearer hunter2";
  const Answered foreign = call(server, secret, others.client);
  ASSERT_TRUE(foreign.error);
  EXPECT_NE(foreign.error->message.find("certificate is not accepted"), std::string::npos) << foreign.error->message;
  EXPECT_EQ(render(*foreign.error).find("hunter2"), std::string::npos);
  EXPECT_EQ(server.handled.begun, 1);
}

TEST(HttpServerTls, AHandshakeThatNeverEndsBlocksNobody) {
  TlsForTest tls;
  HttpServerForTest server({}, tls.server);
  std::vector<std::unique_ptr<RawForTest>> stuck;
  for (int i = 0; i < 50; ++i) {
    stuck.push_back(std::make_unique<RawForTest>(server));
    if (i % 2) stuck.back()->send("\x16\x03\x01\x02");
  }
  EXPECT_EQ(call(server, ask("GET", "/x"), tls.client).response.status, 200);
}

TEST(HttpServerTls, PlainWordsAreNotAnswered) {
  TlsForTest tls;
  HttpServerForTest server({}, tls.server);
  RawForTest raw(server);
  raw.send(get("/x"));
  EXPECT_EQ(raw.read_all().find("HTTP/1.1"), std::string::npos);
  EXPECT_EQ(server.handled.begun, 0);
}

TEST(HttpServerTls, NamesTheFileThatCannotBeUsed) {
  TlsForTest tls;
  tls.server.key = "/no/such/head.key";
  Runtime runtime;
  try {
    make_http_server(runtime, Endpoint{"127.0.0.1", 0}, tls.server, HttpLimits());
    FAIL() << "serves without a key";
  } catch (const Error& error) {
    EXPECT_EQ(error.where, "/no/such/head.key");
  }
}

Task<void> call_once(Runtime& runtime, Endpoint endpoint, TlsFiles tls, int number, int& good) {
  Answered out;
  HttpRequest request = ask("POST", "/x", std::to_string(number));
  co_await call_into(runtime, endpoint, tls, std::move(request), out);
  good += out.response.body.ends_with("body:" + std::to_string(number));
}

Task<int> call_many(Runtime& runtime, Endpoint endpoint, TlsFiles tls, int& good) {
  Scope scope(runtime);
  for (int i = 0; i < 100; ++i) scope.spawn(call_once(runtime, endpoint, tls, i, good));
  co_await scope.join();
  co_return 0;
}

TEST(HttpServer, ServesAHundredConnectionsAtOnce) {
  TlsForTest tls;
  HttpServerForTest plain, secure({}, tls.server);
  Runtime runtime;
  int good = 0;
  runtime.run(call_many(runtime, plain.endpoint(), {}, good));
  runtime.run(call_many(runtime, secure.endpoint(), tls.client, good));
  EXPECT_EQ(good, 200);
}

TEST(HttpServer, SaysWhenThePortIsTaken) {
  HttpServerForTest server;
  Runtime runtime;
  try {
    make_http_server(runtime, server.endpoint(), TlsFiles(), HttpLimits());
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kConflict);
  }
}

}  // namespace
}  // namespace rubato::os
