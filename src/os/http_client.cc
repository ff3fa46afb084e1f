#include "os/http_client.h"

#include <fmt/format.h>
#include <netdb.h>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/text.h"
#include "os/http_wire.h"
#include "os/unix_address.h"
#include "world/server_name.h"

namespace rubato::os {

namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using http_wire::Kept;
using http_wire::TlsContext;
using http_wire::Wire;
using Addresses = std::vector<http_wire::Stream::endpoint>;

constexpr size_t kHeaderBytesMax = 64 << 10;
constexpr size_t kBodyBytesMax = 64 << 20;
constexpr int kSwitchingProtocols = 101;
constexpr int kInterimsMax = 100;  // before one answer
// A longer body is not copied behind the head of its request.
constexpr size_t kOnePieceMax = 64 << 10;
// A stream's reader may lag behind by so many reads (16 MiB); then TCP makes the server wait.
constexpr size_t kChunksWaitingMax = 256;
constexpr Duration kLagPause = 5ms;
// Certificates are replaced on disk now and then; reading the system's roots for each call costs milliseconds.
constexpr Duration kTlsFilesReadAgainAfter = 60s;

// A kubeconfig carries certificates as text; no error may show a key.
bool is_pem(const std::string& text) { return text.starts_with("-----BEGIN"); }
std::string shown(const std::string& file) { return is_pem(file) ? "given as text" : file; }

// Both kinds of PEM say so: "BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED".
bool has_passphrase(const std::string& key) {
  std::ostringstream text;
  if (!is_pem(key)) text << std::ifstream(key).rdbuf();
  return (is_pem(key) ? key : text.str()).find("ENCRYPTED") != std::string::npos;
}

[[noreturn]] void bad_file(const std::string& what, const std::string& path, const error_code& error) {
  throw Error(ErrorCode::kFailed, "cannot use the " + what + " " + shown(path) + ": " + to_lower(error.message()),
              shown(path),
              has_passphrase(path) ? "it has a passphrase; write it without: openssl pkey -in KEY -out KEY.plain"
                                   : "give a readable PEM file");
}

void trust_system_roots(ssl::context& context) {
  error_code ignored;
  context.set_default_verify_paths(ignored);  // SSL_CERT_FILE and where this OpenSSL was built to look
  // A static binary also runs on other distributions, which keep their roots elsewhere (the list is Go's).
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (std::filesystem::exists(path)) return static_cast<void>(context.load_verify_file(path, ignored));
  }
}

void trust(ssl::context& context, const std::string& ca, error_code& error) {
  if (is_pem(ca)) {
    context.add_certificate_authority(asio::buffer(ca), error);
  } else {
    context.load_verify_file(ca, error);
  }
}

void use_certificate(ssl::context& context, const std::string& certificate, error_code& error) {
  if (is_pem(certificate)) {
    context.use_certificate_chain(asio::buffer(certificate), error);
  } else {
    context.use_certificate_chain_file(certificate, error);
  }
}

void use_key(ssl::context& context, const std::string& key, error_code& error) {
  if (is_pem(key)) {
    context.use_private_key(asio::buffer(key), ssl::context::pem, error);
  } else {
    context.use_private_key_file(key, ssl::context::pem, error);
  }
}

// Nobody is there to ask; OpenSSL would, on whatever terminal there is.
std::string no_passphrase(size_t, ssl::context::password_purpose) { return ""; }

TlsContext make_context(const TlsFiles& files) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  context->set_password_callback(no_passphrase);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  context->set_verify_mode(ssl::verify_peer);
  error_code error;
  if (files.ca.empty()) {
    trust_system_roots(*context);
  } else if (trust(*context, files.ca, error); error) {
    bad_file("CA file", files.ca, error);
  }
  if (!files.certificate.empty()) use_certificate(*context, files.certificate, error);
  if (error) bad_file("certificate", files.certificate, error);
  if (!files.key.empty()) use_key(*context, files.key, error);
  if (error) bad_file("private key", files.key, error);
  return context;
}

Addresses look_up(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int rc = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (rc != 0) {
    const std::string sentence = rc == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(rc);
    throw Error(ErrorCode::kUnavailable, "cannot find the address of " + endpoint.host + ": " + to_lower(sentence));
  }
  Addresses found;
  for (const addrinfo* one = list; one; one = one->ai_next) {
    tcp::endpoint address;
    if (one->ai_addrlen > address.capacity()) continue;
    std::memcpy(address.data(), one->ai_addr, one->ai_addrlen);
    address.resize(one->ai_addrlen);
    found.emplace_back(address);
  }
  ::freeaddrinfo(list);
  return found;
}

// One exchange: who is asked for what, and how its failures are told.
class Exchange {
 public:
  Exchange(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline)
      : runtime_(runtime),
        kept_(asio::use_service<Kept>(runtime.io())),
        endpoint_(std::move(endpoint)),
        tls_(std::move(tls)),
        request_(std::move(request)),
        deadline_(deadline),
        dialled_(request_.proxy ? request_.proxy->endpoint : endpoint_),
        where_(is_unix(endpoint_) ? endpoint_.host : to_string(endpoint_)),
        files_(tls_.ca + '\n' + tls_.certificate + '\n' + tls_.key),
        certified_(certified_name(request_, endpoint_)),
        peer_(where_ + (tls_.use_tls ? "\n" + files_ + "\n" + certified_ : "") +
              (request_.proxy ? "\nvia " + to_string(dialled_) + request_.proxy->authorization : "")) {}
  Exchange(const Exchange&) = delete;
  ~Exchange() {
    if (wire_) wire_->close();
  }

  // After an answer of 101.
  std::unique_ptr<ByteStream> take_stream() {
    return std::make_unique<http_wire::WireStream>(std::exchange(wire_, nullptr));
  }

  Task<HttpResponse> run(Channel<std::string>* chunks) {
    std::string text = request_head();
    std::string body = std::exchange(request_.body, {});
    if (body.size() <= kOnePieceMax) text += std::exchange(body, {});
    wire_ = kept_.take(peer_, runtime_.now());
    if (!wire_) co_await connect_any();
    error_code unsent = co_await wire_->write(std::move(text), deadline_);
    if (!unsent && !body.empty()) unsent = co_await wire_->write(std::move(body), deadline_);
    if (unsent == asio::error::timed_out) fail(unsent, "sending the request");
    HttpResponse response;
    bool reusable = false, answered = true;
    try {
      reusable = co_await receive(response, chunks);
    } catch (const Error&) {
      if (!unsent) throw;
      answered = false;
    }
    // A server that refuses a long body answers and closes before it has read it: its answer says more than our
    // broken write.
    if (!answered) fail(unsent, "sending the request");
    if (response.status == kSwitchingProtocols) co_return response;
    if (reusable && !unsent) kept_.put(peer_, std::exchange(wire_, nullptr), runtime_.now());
    co_return response;
  }

 private:
  using Parser = http::response_parser<http::string_body>;

  static std::string certified_name(HttpRequest& request, const Endpoint& endpoint) {
    const auto term = request.headers.find(kServerNameTerm);
    if (term == request.headers.end()) return is_unix(endpoint) ? "localhost" : endpoint.host;
    std::string name = term->second;
    request.headers.erase(term);
    return name;
  }

  static ErrorCause cause_of(const error_code& error) {
    if (error == asio::error::connection_refused) return ErrorCause::kRefused;
    const bool is_cut = error == asio::error::eof || error == ssl::error::stream_truncated ||
                        error == asio::error::connection_reset || error == asio::error::broken_pipe ||
                        error == boost::system::errc::no_such_file_or_directory;
    return is_cut ? ErrorCause::kCut : ErrorCause::kOther;
  }

  [[noreturn]] void fail(const error_code& error, const std::string& phase) const {
    fail(sentence(error, phase), hint(error), cause_of(error));
  }
  [[noreturn]] void fail(const std::string& why, std::string hint, ErrorCause cause = ErrorCause::kOther) const {
    const std::string scheme = is_unix(endpoint_) ? "unix:" : tls_.use_tls ? "https://" : "http://";
    const std::string message = request_.method + " " + scheme + where_ + request_.target + ": " + why;
    throw because(cause, Error(ErrorCode::kUnavailable, message, where_, std::move(hint)));
  }

  std::string sentence(const error_code& error, const std::string& phase) const {
    if (error == asio::error::timed_out) return "timed out while " + phase;
    if (error == asio::error::eof || error == ssl::error::stream_truncated) {
      return "the server closed the connection while " + phase;
    }
    const std::string refused = wire_ ? wire_->verify_error() : "";
    if (!refused.empty()) return "the server's certificate is not accepted: " + refused;
    return to_lower(error.message());
  }

  std::string hint(const error_code& error) const {
    if (error == asio::error::connection_refused) return "is the server running at " + where_ + "?";
    if (wire_ && !wire_->verify_error().empty()) {
      const std::string signers = tls_.ca.empty() ? "the system's roots" : shown(tls_.ca);
      return "the certificate must be signed by one of " + signers + " and name " + certified_;
    }
    if (error.category() == asio::error::get_ssl_category()) {
      return "does " + where_ + " speak TLS, and does it accept our client certificate?";
    }
    return "can " + where_ + " be reached from here (route, firewall)?";
  }

  Task<void> connect_any() {
    const TlsContext context = co_await tls_context();
    const Addresses addresses = co_await resolve();
    std::string tried, advice;
    ErrorCause cause = ErrorCause::kOther;
    for (size_t i = 0; i < addresses.size(); ++i) {
      const Instant now = runtime_.now();
      const Instant until = now + (deadline_ - now) / static_cast<int64_t>(addresses.size() - i);
      if (wire_) wire_->close();
      wire_ = std::make_shared<Wire>(runtime_, context);
      error_code error = co_await wire_->connect(addresses[i], until);
      std::string phase = request_.proxy ? "connecting to the proxy " + to_string(dialled_) : "connecting";
      if (!error && context && request_.proxy) {
        error = co_await tunnel(until);
        phase = "asking the proxy " + to_string(dialled_);
      }
      if (!error && context) {
        error = co_await wire_->handshake(certified_, until);
        phase = "agreeing on TLS";
      }
      if (!error) co_return;
      if (!tried.empty()) tried += "; ";
      if (addresses.size() > 1) tried += address_words(addresses[i]) + ": ";
      tried += sentence(error, phase);
      advice = hint(error);
      cause = cause_of(error);
    }
    fail(tried.empty() ? "the name has no address" : tried, advice, cause);
  }

  // Has the proxy connect us with the server; what is sent then it cannot read.
  Task<error_code> tunnel(Instant until) {
    std::string text = "CONNECT " + where_ + " HTTP/1.1\r\nhost: " + where_ + "\r\n";
    if (!request_.proxy->authorization.empty()) {
      text += "proxy-authorization: " + request_.proxy->authorization + "\r\n";
    }
    text += "\r\n";
    error_code error = co_await wire_->write(std::move(text), until);
    http::response_parser<http::empty_body> parser;
    parser.header_limit(kHeaderBytesMax);
    parser.skip(true);
    while (!error && !parser.is_header_done()) {
      error = co_await wire_->read(until);
      if (error) co_return error;
      wire_->in.consume(parser.put(wire_->in.data(), error));
      if (error == http::error::need_more) error = {};
    }
    if (!error && parser.get().result_int() / 100 != 2) refuse_tunnel(parser.get().result_int());
    co_return error;
  }

  // Trying again does not help: it is not told as kUnavailable.
  [[noreturn]] void refuse_tunnel(unsigned status) const {
    const std::string proxy = to_string(dialled_);
    throw Error(ErrorCode::kFailed, "the proxy " + proxy + " does not connect us with " + where_ + ": status " +
                    std::to_string(status), proxy,
                status == 407 ? "give it a name and a password: HTTPS_PROXY=http://USER:PASSWORD@" + proxy
                              : "does it allow " + where_ + "? NO_PROXY names whom to ask directly");
  }

  Task<TlsContext> tls_context() {
    if (!tls_.use_tls) co_return nullptr;
    Kept::Context& cached = kept_.contexts[files_];
    if (cached.context && runtime_.now() - cached.made < kTlsFilesReadAgainAfter) co_return cached.context;
    std::function<TlsContext()> work = [files = tls_] { return make_context(files); };
    Task<TlsContext> load = runtime_.offload(std::move(work));
    std::optional<TlsContext> made = co_await with_deadline(runtime_, deadline_, std::move(load));
    if (!made) fail("timed out while reading the certificate files", "is their disk slow?");
    Kept::Context& now_cached = kept_.contexts[files_];
    now_cached.context = *made;
    now_cached.made = runtime_.now();
    co_return *made;
  }

  static std::string address_words(const http_wire::Stream::endpoint& address) {
    tcp::endpoint plain;
    std::memcpy(plain.data(), address.data(), address.size());
    plain.resize(address.size());
    return plain.address().to_string();
  }

  http_wire::Stream::endpoint file_address() {
    try {
      file_.emplace(endpoint_.host);
    } catch (const Error& error) {
      fail(error.message, error.hint);
    }
    return {file_->data(), file_->size()};
  }

  Task<Addresses> resolve() {
    if (is_unix(dialled_)) {
      Addresses only;
      only.push_back(file_address());
      co_return only;
    }
    error_code error;
    const asio::ip::address literal = asio::ip::make_address(dialled_.host, error);
    if (!error) {
      Addresses only;
      only.emplace_back(tcp::endpoint(literal, dialled_.port));
      co_return only;
    }
    std::function<Addresses()> work = [endpoint = dialled_] { return look_up(endpoint); };
    Task<Addresses> lookup = runtime_.offload(std::move(work));
    std::string why;
    try {
      std::optional<Addresses> found = co_await with_deadline(runtime_, deadline_, std::move(lookup));
      if (found) co_return std::move(*found);
      why = "timed out while looking up " + dialled_.host;
    } catch (const Error& failed) {
      why = failed.message;
    }
    fail(why, "check the name, /etc/hosts and the name server: getent hosts " + dialled_.host);
  }

  std::string request_head() const {
    const auto clean = [](const std::string& text, bool spaces) {
      return text.find_first_of(std::string_view("\r\0", 2)) == std::string::npos &&
             (spaces || text.find_first_of(" \n") == std::string::npos);
    };
    bool well_formed =
        clean(request_.method, false) && clean(request_.target, false) && request_.target.starts_with('/');
    // A proxy that reads the request itself must be told whose it is.
    const bool is_passed_on = request_.proxy && !tls_.use_tls;
    std::string text = request_.method + (is_passed_on ? " http://" + where_ : " ") + request_.target + " HTTP/1.1\r\n";
    std::map<std::string, std::string> headers{{"host", is_unix(endpoint_) ? "localhost" : where_},
                                               {"user-agent", "rubato"}};
    for (const auto& [name, value] : request_.headers) {
      well_formed = well_formed && clean(name, false) && clean(value, true);
      headers[to_lower(name)] = value;
    }
    if (is_passed_on && !request_.proxy->authorization.empty()) {
      headers["proxy-authorization"] = request_.proxy->authorization;
    }
    if (!well_formed) throw Error(ErrorCode::kUsage, "not a well-formed HTTP request: " + request_.target, where_);
    if (!request_.body.empty() || (request_.method != "GET" && request_.method != "HEAD")) {
      headers["content-length"] = std::to_string(request_.body.size());
    }
    for (const auto& [name, value] : headers) {
      for (const std::string_view line : split(value, '\n')) text += fmt::format("{}: {}\r\n", name, line);
    }
    return text + "\r\n";
  }

  // Reads the whole answer. True if the connection can be used again.
  Task<bool> receive(HttpResponse& response, Channel<std::string>* chunks) {
    std::optional<Parser> parser;
    begin(parser, chunks != nullptr);
    int interims = 0;
    while (!parser->is_done()) {
      const std::optional<Instant> deadline =
          chunks && parser->is_header_done() ? std::nullopt : std::optional<Instant>(deadline_);
      const error_code error = co_await wire_->read(deadline);
      if (error == asio::error::eof && parser->is_header_done() && parser->need_eof()) {
        error_code ended;
        parser->put_eof(ended);
      } else if (error) {
        fail(error, "we waited for the answer");
      }
      parse(*parser);
      while (parser->is_done() && is_interim(parser->get().result_int())) {
        if (++interims > kInterimsMax) fail("it goes on without an answer", "is " + where_ + " the right server?");
        begin(parser, chunks != nullptr);
        parse(*parser);
      }
      std::string& body = parser->get().body();
      if (chunks && !body.empty()) chunks->push(std::exchange(body, {}));
      while (chunks && chunks->size() >= kChunksWaitingMax) co_await Sleep(runtime_, runtime_.now() + kLagPause);
    }
    response.status = parser->get().result_int();
    for (const auto& field : parser->get()) {
      std::string& value = response.headers[to_lower(std::string(field.name_string()))];
      value += (value.empty() ? "" : ", ") + std::string(field.value());
    }
    response.body = std::move(parser->get().body());
    co_return parser->keep_alive() && wire_->in.size() == 0;
  }

  void begin(std::optional<Parser>& parser, bool in_chunks) const {
    parser.emplace();
    parser->header_limit(kHeaderBytesMax);
    parser->body_limit(in_chunks ? UINT64_MAX : kBodyBytesMax);
    parser->eager(true);
    parser->skip(request_.method == "HEAD");
  }

  // What may come before an answer, asked for or not (RFC 9110, 15.2): 100, 102, 103.
  static bool is_interim(unsigned status) { return status / 100 == 1 && status != kSwitchingProtocols; }

  void parse(Parser& parser) {
    error_code error;
    while (wire_->in.size() > 0 && !parser.is_done() && !error) {
      wire_->in.consume(parser.put(wire_->in.data(), error));
    }
    if (error == http::error::need_more && wire_->in.size() <= kHeaderBytesMax) return;
    if (error == http::error::header_limit || error == http::error::need_more) {
      fail("the answer's header is longer than 64 KiB", "is " + where_ + " the right server?");
    }
    if (error == http::error::body_limit) fail("the answer is longer than 64 MiB", "ask for less");
    if (error) fail("not an HTTP answer: " + to_lower(error.message()), "is " + where_ + " the right server and port?");
  }

  Runtime& runtime_;
  Kept& kept_;
  const Endpoint endpoint_;
  const TlsFiles tls_;
  HttpRequest request_;
  const Instant deadline_;
  const Endpoint dialled_;  // the proxy, or the server itself
  const std::string where_, files_, certified_, peer_;
  std::optional<UnixAddress> file_;
  std::shared_ptr<Wire> wire_;
};

}  // namespace

Task<HttpResponse> http_call(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) {
  Exchange exchange(runtime, std::move(endpoint), std::move(tls), std::move(request), deadline);
  co_return co_await exchange.run(nullptr);
}

Task<HttpResponse> http_stream(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request,
                               Instant header_deadline, Channel<std::string>& chunks) {
  Exchange exchange(runtime, std::move(endpoint), std::move(tls), std::move(request), header_deadline);
  co_return co_await exchange.run(&chunks);
}

Task<UpgradeResult> http_upgrade(Runtime& runtime, Endpoint endpoint, TlsFiles tls, HttpRequest request,
                                 Instant deadline) {
  Exchange exchange(runtime, std::move(endpoint), std::move(tls), std::move(request), deadline);
  UpgradeResult out;
  out.response = co_await exchange.run(nullptr);
  if (out.response.status == kSwitchingProtocols) out.stream = exchange.take_stream();
  co_return out;
}

}  // namespace rubato::os
