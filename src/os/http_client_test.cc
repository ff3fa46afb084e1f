#include "os/http_client.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/un.h>

#include <atomic>
#include <functional>
#include <thread>

#include "os/etcd_for_test.h"
#include "world/server_name.h"

namespace rubato::os {
namespace {

// One accepted connection, seen from the server.
class Peer {
 public:
  Peer(int fd, SSL_CTX* context) : fd_(fd), ssl_(context ? SSL_new(context) : nullptr) {
    if (!ssl_) return;
    SSL_set_fd(ssl_, fd_);
    open_ = SSL_accept(ssl_) == 1;
  }
  ~Peer() {
    SSL_free(ssl_);
    ::close(fd_);
  }

  // The request's head, with its body; empty at the end of the connection.
  std::string read_request() {
    std::string text;
    while (open_) {
      const size_t head = text.find("\r\n\r\n");
      const size_t length = text.find("content-length: ");
      const size_t body = length < head ? std::stoul(text.substr(length + 16)) : 0;
      if (head != std::string::npos && text.size() >= head + 4 + body) return text;
      char buffer[4096];
      const auto got = ssl_ ? SSL_read(ssl_, buffer, sizeof buffer) : ::recv(fd_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    return "";
  }
  bool send(const std::string& text) {
    if (ssl_) return open_ && SSL_write(ssl_, text.data(), static_cast<int>(text.size())) > 0;
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  int descriptor() const { return fd_; }
  void answer(const std::string& body) {
    send("HTTP/1.1 200 OK\r\nX-Case: Kept\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }

 private:
  int fd_;
  SSL* ssl_;
  bool open_ = true;
};

// A server with a thread for each connection. Outlives the Runtime that talks to it, whose end ends the connections.
class Server {
 public:
  explicit Server(std::function<void(Peer&)> serve, const CertificatesForTest* certificates = nullptr,
                  bool ask_client = false)
      : serve_(std::move(serve)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(listener_, 16) == 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint = Endpoint{"127.0.0.1", ntohs(address.sin_port)};
    if (certificates) use_tls(*certificates, ask_client);
    thread_ = std::thread([this] { run(); });
  }
  ~Server() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    SSL_CTX_free(context_);
  }

  Endpoint endpoint;
  std::atomic<int> connections{0}, closed{0};

 private:
  void use_tls(const CertificatesForTest& certificates, bool ask_client) {
    context_ = SSL_CTX_new(TLS_server_method());
    CHECK(SSL_CTX_use_certificate_chain_file(context_, certificates.file("server.pem").c_str()) == 1);
    CHECK(SSL_CTX_use_PrivateKey_file(context_, certificates.file("server.key").c_str(), SSL_FILETYPE_PEM) == 1);
    CHECK(SSL_CTX_load_verify_locations(context_, certificates.file("ca.pem").c_str(), nullptr) == 1);
    if (ask_client) SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  void run() {
    sigset_t pipe;  // OpenSSL writes without MSG_NOSIGNAL
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    std::vector<std::thread> threads;
    for (int fd; (fd = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      ++connections;
      threads.emplace_back([this, fd] {
        {
          Peer peer(fd, context_);
          serve_(peer);
        }
        ++closed;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::function<void(Peer&)> serve_;
  int listener_;
  SSL_CTX* context_ = nullptr;
  std::thread thread_;
};

void echo(Peer& peer) {
  for (std::string request; !(request = peer.read_request()).empty();) peer.answer(request);
}

HttpRequest request_for(const std::string& method, const std::string& body = "") {
  HttpRequest request;
  request.method = method;
  request.target = "/path?q=1";
  request.body = body;
  return request;
}

constexpr Duration kLong = 60s;  // a deadline that is not meant to come

struct Outcome {
  HttpResponse response;
  std::optional<Error> error;
};

Task<int> call_into(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request, Duration patience,
                    Outcome& outcome) {
  try {
    const Instant deadline = runtime.now() + patience;
    outcome.response = co_await http_call(runtime, endpoint, tls, std::move(request), deadline);
  } catch (const Error& error) {
    outcome.error = error;
  }
  co_return 0;
}

Outcome call(Runtime& runtime, const Endpoint& endpoint, HttpRequest request, Duration patience = kLong,
             const TlsFiles& tls = {}) {
  Outcome outcome;
  runtime.run(call_into(runtime, endpoint, tls, std::move(request), patience, outcome));
  return outcome;
}

TEST(HttpClient, TalksOverAUnixSocket) {
  const std::string path = "/tmp/rubato-http-test." + std::to_string(::getpid());
  ::unlink(path.c_str());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  CHECK(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && ::listen(listener, 4) == 0);
  std::thread server([listener] {
    Peer peer(::accept(listener, nullptr, nullptr), nullptr);
    peer.answer(peer.read_request());
  });
  Outcome outcome;
  {
    Runtime runtime;
    runtime.run(call_into(runtime, Endpoint{path, 0}, {}, request_for("GET"), kLong, outcome));
  }
  server.join();
  ::close(listener);
  ::unlink(path.c_str());
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_NE(outcome.response.body.find("GET /path?q=1 HTTP/1.1"), std::string::npos);
  EXPECT_NE(outcome.response.body.find("host: localhost"), std::string::npos);
  Outcome refused;
  Runtime runtime;
  runtime.run(call_into(runtime, Endpoint{path, 0}, {}, request_for("GET"), kLong, refused));
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error->message.find(path), std::string::npos);
}

TEST(HttpClient, SendsTheRequestAndReadsTheAnswer) {
  Server server(echo);
  Runtime runtime;
  HttpRequest request = request_for("POST", "hello");
  request.headers["X-Mine"] = "yes";
  const Outcome outcome = call(runtime, server.endpoint, request);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.response.status, 200);
  EXPECT_EQ(outcome.response.headers.at("x-case"), "Kept");
  EXPECT_TRUE(outcome.response.body.starts_with("POST /path?q=1 HTTP/1.1\r\n")) << outcome.response.body;
  EXPECT_NE(outcome.response.body.find("\r\nx-mine: yes\r\n"), std::string::npos);
  EXPECT_NE(outcome.response.body.find("\r\nhost: " + to_string(server.endpoint) + "\r\n"), std::string::npos);
  EXPECT_TRUE(outcome.response.body.ends_with("\r\n\r\nhello"));
}

HttpRequest through(const Endpoint& proxy, const std::string& authorization = "") {
  HttpRequest request = request_for("GET");
  request.proxy = HttpProxy{proxy, authorization};
  return request;
}

// A proxy that connects whom it is asked for with `server`, once.
void relay(Peer& peer, const Endpoint& server, std::string& asked) {
  asked = peer.read_request();
  const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(server.port);
  CHECK(::connect(other, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  peer.send("HTTP/1.1 200 Connection established\r\n\r\n");
  const auto pump = [](int from, int to) {
    char buffer[4096];
    for (ssize_t got; (got = ::recv(from, buffer, sizeof buffer, 0)) > 0;) {
      if (::send(to, buffer, static_cast<size_t>(got), MSG_NOSIGNAL) != got) break;
    }
    ::shutdown(to, SHUT_WR);
  };
  std::thread back([&] { pump(other, peer.descriptor()); });
  pump(peer.descriptor(), other);
  back.join();
  ::close(other);
}

TEST(HttpClient, AProxyPassesPlainRequestsOn) {
  Server proxy(echo);
  Runtime runtime;
  const Outcome outcome = call(runtime, Endpoint{"store.example", 9000}, through(proxy.endpoint, "Basic abc"));
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_TRUE(outcome.response.body.starts_with("GET http://store.example:9000/path?q=1 HTTP/1.1\r\n"));
  EXPECT_NE(outcome.response.body.find("\r\nproxy-authorization: Basic abc\r\n"), std::string::npos);
  EXPECT_NE(outcome.response.body.find("\r\nhost: store.example:9000\r\n"), std::string::npos);
}

TEST(HttpClient, TlsGoesThroughAProxyUnread) {
  const CertificatesForTest certificates;
  Server server(echo, &certificates);
  std::string asked;
  Server proxy([&](Peer& peer) { relay(peer, server.endpoint, asked); });
  TlsFiles tls;
  tls.use_tls = true;
  tls.ca = certificates.file("ca.pem");
  {
    Runtime runtime;
    const Outcome outcome = call(runtime, server.endpoint, through(proxy.endpoint, "Basic abc"), kLong, tls);
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_TRUE(outcome.response.body.starts_with("GET /path?q=1 HTTP/1.1\r\n")) << outcome.response.body;
    EXPECT_EQ(outcome.response.body.find("proxy-authorization"), std::string::npos) << "it is the proxy's alone";
  }
  EXPECT_TRUE(asked.starts_with("CONNECT " + to_string(server.endpoint) + " HTTP/1.1\r\n")) << asked;
  EXPECT_NE(asked.find("proxy-authorization: Basic abc"), std::string::npos);
}

TEST(HttpClient, AProxyThatRefusesIsNamed) {
  Server proxy([](Peer& peer) {
    peer.read_request();
    peer.send("HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n");
  });
  TlsFiles tls;
  tls.use_tls = true;
  Runtime runtime;
  const Outcome refused = call(runtime, Endpoint{"ec2.example", 443}, through(proxy.endpoint), kLong, tls);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, ErrorCode::kFailed) << "trying again does not help";
  EXPECT_NE(refused.error->message.find(to_string(proxy.endpoint)), std::string::npos) << refused.error->message;
  EXPECT_NE(refused.error->message.find("407"), std::string::npos) << refused.error->message;
}

TEST(HttpClient, KeepsTheConnectionForTheNextCall) {
  Server server(echo);
  Runtime runtime;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(call(runtime, server.endpoint, request_for("GET")).error);
  EXPECT_EQ(server.connections, 1);
}

TEST(HttpClient, ConnectsAnewAfterTheServerClosedAKeptConnection) {
  Server server([](Peer& peer) {
    peer.read_request();
    peer.answer("once");
  });
  Runtime runtime;
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = call(runtime, server.endpoint, request_for("GET"));
    EXPECT_FALSE(outcome.error) << outcome.error->message;
    while (server.closed <= i) std::this_thread::yield();
  }
  EXPECT_EQ(server.connections, 3);
}

TEST(HttpClient, TriesEveryAddressOfAName) {
  Server server(echo);
  Runtime runtime;
  // localhost may be ::1 first, where nobody listens.
  Endpoint by_name = server.endpoint;
  by_name.host = "localhost";
  const Outcome outcome = call(runtime, by_name, request_for("GET"));
  EXPECT_FALSE(outcome.error) << outcome.error->message;
}

TEST(HttpClient, NamesTheCallAndTheReasonWhenRefused) {
  Runtime runtime;
  Endpoint nobody;
  nobody.host = "127.0.0.1";
  nobody.port = free_ports_for_test(1)[0];
  const Outcome outcome = call(runtime, nobody, request_for("POST"));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUnavailable);
  EXPECT_EQ(outcome.error->message, "POST http://" + to_string(nobody) + "/path?q=1: connection refused");
  EXPECT_EQ(outcome.error->where, to_string(nobody));
  EXPECT_NE(outcome.error->hint, "");
}

TEST(HttpClient, NamesTheHostThatIsNotFound) {
  Runtime runtime;
  Endpoint nowhere;
  nowhere.host = "no-such-host.invalid";
  nowhere.port = 80;
  const Outcome outcome = call(runtime, nowhere, request_for("GET"));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUnavailable);
  EXPECT_NE(outcome.error->message.find("no-such-host.invalid"), std::string::npos);
}

TEST(HttpClient, EndsAtTheDeadlineWhenTheServerIsSilent) {
  Server server([](Peer& peer) {
    while (!peer.read_request().empty()) {
    }
  });
  Runtime runtime;
  const Outcome outcome = call(runtime, server.endpoint, request_for("GET"), 2s);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUnavailable);
  EXPECT_NE(outcome.error->message.find("timed out while we waited for the answer"), std::string::npos)
      << outcome.error->message;
}

TEST(HttpClient, RefusesOversizedHeaders) {
  Server server([](Peer& peer) {
    peer.read_request();
    peer.send("HTTP/1.1 200 OK\r\nX-Long: " + std::string(80 << 10, 'x') + "\r\n\r\n");
    peer.read_request();
  });
  Runtime runtime;
  const Outcome outcome = call(runtime, server.endpoint, request_for("GET"));
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("longer than 64 KiB"), std::string::npos) << outcome.error->message;
}

TEST(HttpClient, RefusesOversizedBodies) {
  Server server([](Peer& peer) {
    peer.read_request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 67108865\r\n\r\n");
    peer.read_request();
  });
  Runtime runtime;
  const Outcome outcome = call(runtime, server.endpoint, request_for("GET"));
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("longer than 64 MiB"), std::string::npos) << outcome.error->message;
}

TEST(HttpClient, TellsACutAnswerFromAWholeOne) {
  Server cut([](Peer& peer) {
    peer.read_request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
  });
  Server until_close([](Peer& peer) {
    peer.read_request();
    peer.send("HTTP/1.0 200 OK\r\n\r\nwhole");
  });
  Server other([](Peer& peer) {
    peer.read_request();
    peer.send("220 mail.example ESMTP\r\n");
  });
  Runtime runtime;
  EXPECT_TRUE(call(runtime, cut.endpoint, request_for("GET")).error);
  EXPECT_EQ(call(runtime, until_close.endpoint, request_for("GET")).response.body, "whole");
  const Outcome outcome = call(runtime, other.endpoint, request_for("GET"));
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("not an HTTP answer"), std::string::npos) << outcome.error->message;
}

// 100 and 103 may come unasked, several of them, alone or together with what follows.
TEST(HttpClient, WaitsForTheAnswerBehindInterimOnes) {
  Server server([](Peer& peer) {
    while (!peer.read_request().empty()) {
      peer.send("HTTP/1.1 100 Continue\r\n\r\n");
      peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n"
                "Content-Length: 4\r\n\r\nreal");
    }
  });
  Server endless([](Peer& peer) {
    peer.read_request();
    while (peer.send("HTTP/1.1 100 Continue\r\n\r\n")) {
    }
  });
  Runtime runtime;
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = call(runtime, server.endpoint, request_for("PUT", "x"));
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_EQ(outcome.response.status, 200);
    EXPECT_EQ(outcome.response.body, "real");
    EXPECT_FALSE(outcome.response.headers.contains("link"));
  }
  EXPECT_EQ(server.connections, 1) << "the connection is still good";
  EXPECT_TRUE(call(runtime, endless.endpoint, request_for("GET")).error);
}

TEST(HttpClient, SendsNoHeaderThatEndsTheHead) {
  Runtime runtime;
  HttpRequest request = request_for("GET");
  request.headers["x"] = "a\r\nInjected: yes";
  Endpoint nobody;
  nobody.host = "127.0.0.1";
  nobody.port = 1;
  const Outcome outcome = call(runtime, nobody, request);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUsage);
}

TEST(HttpClient, AHeaderOfSeveralLinesIsSentOnceForEach) {
  Server server(echo);
  Runtime runtime;
  HttpRequest request = request_for("GET");
  request.headers["impersonate-group"] = "a\nb";
  const Outcome outcome = call(runtime, server.endpoint, request);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_NE(outcome.response.body.find("impersonate-group: a\r\nimpersonate-group: b\r\n"), std::string::npos)
      << outcome.response.body;
}

TEST(HttpClient, HearsTheServerThatRefusesABodyWithoutReadingIt) {
  Server server([](Peer& peer) { peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno\n"); });
  Runtime runtime;
  const Outcome outcome = call(runtime, server.endpoint, request_for("PUT", std::string(20 << 20, 'b')));
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.response.status, 413);
  EXPECT_EQ(outcome.response.body, "no\n");
}

TEST(HttpClient, KeepsTheAuthorizationOutOfEveryError) {
  CertificatesForTest certificates, others;
  Server silent([](Peer& peer) { peer.read_request(); });
  Server strange([](Peer& peer) {
    peer.read_request();
    peer.send("220 mail.example ESMTP\r\n");
  });
  Server secure(echo, &certificates);
  Runtime runtime;
  Endpoint nobody;
  nobody.host = "127.0.0.1";
  nobody.port = free_ports_for_test(1)[0];
  HttpRequest request = request_for("PUT", "body");
  request.headers["Authorization"] = "Bearer hunter2";
  HttpRequest broken = request;
  broken.headers["Authorization"] = "Bearer hunter2\r\n";
  for (const Outcome& outcome : {
           call(runtime, nobody, request),
           call(runtime, silent.endpoint, request),
           call(runtime, strange.endpoint, request),
           call(runtime, secure.endpoint, request, kLong, others.client()),
           call(runtime, nobody, broken),
       }) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(render(*outcome.error).find("hunter2"), std::string::npos) << render(*outcome.error);
  }
}

Task<int> cancel_when_seen(Runtime& runtime, Endpoint endpoint, TlsFiles tls, std::atomic<bool>& seen,
                           std::atomic<bool>& closed) {
  Outcome outcome;
  {
    Task<int> one = call_into(runtime, endpoint, tls, request_for("GET"), kLong, outcome);
    Task<std::optional<int>> bounded = with_deadline(runtime, runtime.now() + kLong, std::move(one));
    Scope scope(runtime);
    scope.spawn([](Task<std::optional<int>> task) -> Task<void> { co_await std::move(task); }(std::move(bounded)));
    while (!seen) co_await Sleep(runtime, runtime.now() + 1ms);
  }
  while (!closed) co_await Sleep(runtime, runtime.now() + 1ms);
  EXPECT_EQ(outcome.response.status, 0);
  EXPECT_FALSE(outcome.error);
  co_return 0;
}

TEST(HttpClient, ClosesTheSocketWhenTheCallIsCancelled) {
  std::atomic<bool> seen{false}, closed{false};
  Server server([&](Peer& peer) {
    seen = !peer.read_request().empty();
    closed = peer.read_request().empty();
  });
  Runtime runtime;
  runtime.run(cancel_when_seen(runtime, server.endpoint, {}, seen, closed));
}

// Cancels after ever more turns of the loop, so that each step is hit: lookup, connect, handshake, write, read.
Task<int> cancel_after(Runtime& runtime, Endpoint endpoint, TlsFiles tls, int turns) {
  Outcome outcome;
  Scope scope(runtime);
  scope.spawn([](Task<int> task) -> Task<void> {
    co_await std::move(task);
  }(call_into(runtime, endpoint, tls, request_for("GET"), kLong, outcome)));
  for (int i = 0; i < turns; ++i) co_await Sleep(runtime, runtime.now() + 50us);
  scope.cancel();
  for (int i = 0; i < 3; ++i) co_await Sleep(runtime, runtime.now() + 50us);
  co_return 0;
}

TEST(HttpClient, CanBeCancelledAtAnyStep) {
  CertificatesForTest certificates;
  Server plain(echo);
  Server secure(echo, &certificates);
  Runtime runtime;
  Endpoint by_name = plain.endpoint;
  by_name.host = "localhost";
  for (int turns = 0; turns < 40; ++turns) {
    runtime.run(cancel_after(runtime, by_name, {}, turns % 10));
    runtime.run(cancel_after(runtime, secure.endpoint, certificates.client(), turns));
  }
  EXPECT_FALSE(call(runtime, by_name, request_for("GET")).error);
}

TEST(HttpClientTls, AcceptsOnlyACertificateOfTheCaForTheName) {
  CertificatesForTest certificates, others;
  Server server(echo, &certificates);
  Runtime runtime;
  const Outcome good = call(runtime, server.endpoint, request_for("POST", "secret"), kLong, certificates.client());
  ASSERT_FALSE(good.error) << good.error->message;
  EXPECT_TRUE(good.response.body.ends_with("secret"));

  const Outcome foreign = call(runtime, server.endpoint, request_for("GET"), kLong, others.client());
  ASSERT_TRUE(foreign.error);
  EXPECT_EQ(foreign.error->code, ErrorCode::kUnavailable);
  EXPECT_NE(foreign.error->message.find("certificate is not accepted"), std::string::npos) << foreign.error->message;

  TlsFiles system_roots;
  system_roots.use_tls = true;
  EXPECT_TRUE(call(runtime, server.endpoint, request_for("GET"), kLong, system_roots).error);
}

TEST(HttpClientTls, ChecksTheNameInTheCertificate) {
  CertificatesForTest certificates;
  Server server(echo, &certificates);
  Runtime runtime;
  Endpoint by_name = server.endpoint;
  by_name.host = "127.0.0.2";  // reaches the same server, whose certificate has no such name
  const Outcome outcome = call(runtime, by_name, request_for("GET"), kLong, certificates.client());
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("mismatch"), std::string::npos) << outcome.error->message;
  by_name.host = "localhost";
  EXPECT_FALSE(call(runtime, by_name, request_for("GET"), kLong, certificates.client()).error);
}

TEST(HttpClientTls, TheCertificateMayHaveAnotherNameThatTheRequestTells) {
  CertificatesForTest certificates;
  Server server(echo, &certificates);
  Runtime runtime;
  Endpoint tunnel = server.endpoint;
  tunnel.host = "127.0.0.2";  // not in the certificate
  HttpRequest named = request_for("GET");
  named.headers[kServerNameTerm] = "localhost";
  const Outcome outcome = call(runtime, tunnel, named, kLong, certificates.client());
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.response.body.find("server-name"), std::string::npos);
  // The connection that is kept now is none for a request that expects another name.
  EXPECT_TRUE(call(runtime, tunnel, request_for("GET"), kLong, certificates.client()).error);
}

TEST(HttpClientTls, AKeyWithAPassphraseIsRefusedAndNobodyIsAsked) {
  CertificatesForTest certificates;
  Server server(echo, &certificates);
  for (const char* form : {"pkcs8 -topk8", "ec"}) {
    const std::string locked = certificates.file("locked.key");
    const std::string command = std::string("openssl ") + form + " -in " + certificates.file("client.key") +
                                (form[0] == 'e' ? " -aes128" : "") + " -passout pass:x -out " + locked;
    ASSERT_EQ(std::system((command + " >/dev/null 2>&1").c_str()), 0);
    Runtime runtime;
    TlsFiles tls = certificates.client();
    tls.key = locked;
    const Outcome outcome = call(runtime, server.endpoint, request_for("GET"), kLong, tls);
    ASSERT_TRUE(outcome.error) << form;
    EXPECT_NE(outcome.error->hint.find("passphrase"), std::string::npos) << outcome.error->hint;
  }
}

TEST(HttpClientTls, ShowsTheClientCertificateThatTheServerAsksFor) {
  CertificatesForTest certificates;
  Server server(echo, &certificates, true);
  Runtime runtime;
  EXPECT_FALSE(call(runtime, server.endpoint, request_for("GET"), kLong, certificates.client()).error);
  TlsFiles nameless = certificates.client();
  nameless.certificate = nameless.key = "";
  const Outcome outcome = call(runtime, server.endpoint, request_for("GET"), kLong, nameless);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUnavailable);
}

TEST(HttpClientTls, NamesTheFileThatCannotBeUsed) {
  Server server(echo);
  Runtime runtime;
  TlsFiles tls;
  tls.use_tls = true;
  tls.ca = "/no/such/ca.pem";
  const Outcome outcome = call(runtime, server.endpoint, request_for("GET"), kLong, tls);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kFailed);
  EXPECT_EQ(outcome.error->where, "/no/such/ca.pem");
}

TEST(HttpClientTls, SaysWhenTheServerSpeaksNoTls) {
  Server server([](Peer& peer) {
    peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    peer.read_request();
  });
  Runtime runtime;
  TlsFiles tls;
  tls.use_tls = true;
  const Outcome outcome = call(runtime, server.endpoint, request_for("GET"), kLong, tls);
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->hint.find("speak TLS"), std::string::npos) << outcome.error->message;
}

Task<void> stream_into(Runtime& runtime, Endpoint endpoint, TlsFiles tls, Channel<std::string>& chunks,
                       Outcome& outcome) {
  try {
    const Instant deadline = runtime.now() + kLong;
    HttpRequest request = request_for("GET");
    outcome.response = co_await http_stream(runtime, endpoint, tls, std::move(request), deadline, chunks);
  } catch (const Error& error) {
    outcome.error = error;
  }
  chunks.close();
}

// Lets the server go on only after each part has been seen.
Task<int> read_parts(Runtime& runtime, Endpoint endpoint, TlsFiles tls, std::atomic<int>& parts_seen,
                     Outcome& outcome) {
  Channel<std::string> chunks(runtime);
  Scope scope(runtime);
  scope.spawn(stream_into(runtime, endpoint, tls, chunks, outcome));
  std::string all;
  for (;;) {
    const std::optional<std::string> chunk = co_await chunks.pop();
    if (!chunk) break;
    all += *chunk;
    parts_seen = static_cast<int>(std::count(all.begin(), all.end(), '\n'));
  }
  EXPECT_EQ(all, "part 1\npart 2\npart 3\n");
  co_return 0;
}

void serve_parts(Peer& peer, std::atomic<int>& parts_seen, bool whole) {
  peer.read_request();
  peer.send("HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 1; i <= 3; ++i) {
    peer.send("7\r\npart " + std::to_string(i) + "\n\r\n");
    while (parts_seen < i) std::this_thread::yield();
  }
  if (whole) peer.send("0\r\n\r\n");
}

TEST(HttpStream, DeliversEachPartAsItComes) {
  std::atomic<int> parts_seen{0};
  CertificatesForTest certificates;
  Server plain([&](Peer& peer) { serve_parts(peer, parts_seen, true); });
  Server secure([&](Peer& peer) { serve_parts(peer, parts_seen, true); }, &certificates);
  Runtime runtime;
  for (const Server* server : {&plain, &secure}) {
    parts_seen = 0;
    Outcome outcome;
    const TlsFiles tls = server == &secure ? certificates.client() : TlsFiles{};
    runtime.run(read_parts(runtime, server->endpoint, tls, parts_seen, outcome));
    EXPECT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_EQ(outcome.response.status, 202);
    EXPECT_EQ(outcome.response.body, "");
  }
}

TEST(HttpStream, TellsAStreamThatBreaksOff) {
  std::atomic<int> parts_seen{0};
  Server server([&](Peer& peer) { serve_parts(peer, parts_seen, false); });
  Runtime runtime;
  Outcome outcome;
  runtime.run(read_parts(runtime, server.endpoint, {}, parts_seen, outcome));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUnavailable);
}

Task<int> read_late(Runtime& runtime, Endpoint endpoint, size_t size) {
  Channel<std::string> chunks(runtime);
  Outcome outcome;
  Scope scope(runtime);
  const TlsFiles plain;
  scope.spawn(stream_into(runtime, endpoint, plain, chunks, outcome));
  size_t seen = 0, before = SIZE_MAX;
  while (chunks.size() != before || before == 0) {  // until the stream waits for us
    before = chunks.size();
    co_await Sleep(runtime, runtime.now() + 200ms);
  }
  EXPECT_LE(before, 300u);
  for (;;) {
    const std::optional<std::string> chunk = co_await chunks.pop();
    if (!chunk) break;
    seen += chunk->size();
  }
  EXPECT_EQ(seen, size);
  co_return 0;
}

TEST(HttpStream, WaitsForASlowReaderAndLosesNothing) {
  constexpr size_t kSize = 100 << 20;  // more than a call may have
  Server server([](Peer& peer) {
    peer.read_request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kSize) + "\r\n\r\n");
    const std::string block(1 << 20, 'x');
    for (size_t sent = 0; sent < kSize && peer.send(block); sent += block.size()) {
    }
  });
  Runtime runtime;
  runtime.run(read_late(runtime, server.endpoint, kSize));
}

}  // namespace
}  // namespace rubato::os
