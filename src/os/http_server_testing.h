// A server on a thread of its own, and raw sockets that talk to it. For http_server tests.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "os/fd.h"
#include "os/http_server.h"

namespace rubato::os {

// What the handlers of the test server saw and did.
struct HandledForTest {
  std::atomic<int> begun{0}, cancelled{0}, client_gone{0};
  std::atomic<size_t> streamed{0};
};

Task<ServerReply> route_for_test(Runtime& runtime, HandledForTest& handled, ServerRequest request);

// Serves route_for_test until it goes.
class HttpServerForTest {
 public:
  // `file`: at a socket's file instead of a port.
  explicit HttpServerForTest(HttpLimits limits = {}, TlsFiles tls = {}, std::string file = "")
      : file_(std::move(file)) {
    std::atomic<bool> up{false};
    thread_ = std::thread([this, limits, tls, &up] {
      Runtime runtime;
      runtime.run(serve(runtime, limits, tls, up));
    });
    while (!up) std::this_thread::yield();
  }
  ~HttpServerForTest() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  Endpoint endpoint() const { return file_.empty() ? Endpoint{"127.0.0.1", port_} : Endpoint{file_, 0}; }
  std::string log() {
    const std::lock_guard<std::mutex> hold(log_mutex_);
    return log_;
  }
  HandledForTest handled;

  // Who says "X-Stranger" has shown nothing; others have.
  static HttpAdmission admission(const ServerRequest& head) {
    HttpAdmission admission;
    admission.authenticated = !head.headers.contains("x-stranger");
    if (head.path == "/small") admission.body_bytes_max = 100;
    return admission;
  }

 private:
  Task<int> serve(Runtime& runtime, HttpLimits limits, TlsFiles tls, std::atomic<bool>& up) {
    Log::Sink sink = [this](LogLevel, std::string_view line) {
      const std::lock_guard<std::mutex> hold(log_mutex_);
      log_ += std::string(line) + "\n";
    };
    Log::Now now = [&runtime] { return runtime.wall(); };
    Log log(std::move(sink), std::move(now));
    const Endpoint anywhere{file_.empty() ? "127.0.0.1" : file_, 0};
    const std::unique_ptr<HttpServer> server = make_http_server(runtime, anywhere, tls, limits, log);
    port_ = server->port();
    HttpHandler handler = [this, &runtime](ServerRequest request) {
      return route_for_test(runtime, handled, std::move(request));
    };
    Scope scope(runtime);
    HttpAdmit admit = &HttpServerForTest::admission;
    scope.spawn(server->serve(std::move(handler), std::move(admit)));
    up = true;
    while (!stop_) co_await Sleep(runtime, runtime.now() + 2ms);
    co_return 0;
  }

  const std::string file_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<uint16_t> port_{0};
  std::mutex log_mutex_;
  std::string log_;
};

// A client that may say anything.
class RawForTest {
 public:
  explicit RawForTest(const HttpServerForTest& server, int receive_buffer = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{60, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (receive_buffer) ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server.endpoint().port);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  // False once the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Until the text is there, or the end.
  std::string read_until(std::string_view text) {
    std::string all;
    size_t from = 0;
    while (all.find(text, from) == std::string::npos) {
      from = all.size() - std::min(all.size(), text.size());
      char block[16 << 10];
      const ssize_t got = ::recv(fd_.get(), block, sizeof block, 0);
      if (got <= 0) return all + (got == 0 ? "(end)" : errno == EAGAIN ? "(silence)" : "(reset)");
      all.append(block, static_cast<size_t>(got));
    }
    return all;
  }
  std::string read_all() { return read_until("(no such text)"); }
  void close() { fd_.reset(); }

 private:
  Fd fd_;
};

// Waits for what must come; the test's time-out ends it otherwise.
template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 60'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace rubato::os
