#include "os/channel_tls.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <array>
#include <cstring>

#include "core/error.h"

namespace rubato::os {

namespace {

namespace ssl = boost::asio::ssl;
using KeyBytes = std::array<unsigned char, 32>;

constexpr const char* kIdentity = "rubato-agent";

// The key is not the secret itself: should a key ever leak from memory or a trace, the secret does not.
KeyBytes derive(const ChannelKey& key) {
  KeyBytes out{};
  unsigned size = out.size();
  static constexpr char kLabel[] = "rubato agent channel v1";
  const unsigned char* ok = HMAC(EVP_sha256(), key.secret.data(), static_cast<int>(key.secret.size()),
                                 reinterpret_cast<const unsigned char*>(kLabel), sizeof kLabel - 1, out.data(), &size);
  CHECK(ok && size == out.size());
  return out;
}

int key_slot() {
  static const int slot = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return slot;
}

unsigned give_key(SSL* connection, unsigned char* psk, unsigned most) {
  const auto* bytes = static_cast<const KeyBytes*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), key_slot()));
  if (!bytes || most < bytes->size()) return 0;
  std::memcpy(psk, bytes->data(), bytes->size());
  return static_cast<unsigned>(bytes->size());
}

unsigned client_key(SSL* connection, const char*, char* identity, unsigned identity_max, unsigned char* psk,
                    unsigned psk_max) {
  if (identity_max <= std::strlen(kIdentity)) return 0;
  std::strcpy(identity, kIdentity);
  return give_key(connection, psk, psk_max);
}

unsigned server_key(SSL* connection, const char* identity, unsigned char* psk, unsigned psk_max) {
  if (!identity || std::strcmp(identity, kIdentity) != 0) return 0;
  return give_key(connection, psk, psk_max);
}

void set_common_options(SSL_CTX* native) {
  SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
}

[[noreturn]] void bad_identity_file(const char* what, const std::string& path, const boost::system::error_code& error) {
  throw Error(ErrorCode::kFailed, std::string("cannot use the ") + what + " '" + path + "': " + error.message(), path,
              "is it there, in PEM, and may this user read it?");
}

std::shared_ptr<ssl::context> identity_context(const TlsFiles& files, bool server) {
  auto context = std::make_shared<ssl::context>(server ? ssl::context::tls_server : ssl::context::tls_client);
  set_common_options(context->native_handle());
  context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  boost::system::error_code error;
  if (context->load_verify_file(files.ca, error)) bad_identity_file("CA", files.ca, error);
  // A client may come without a certificate, to be turned away; a server without one could not speak at all.
  if (files.certificate.empty() && files.key.empty() && !server) return context;
  if (context->use_certificate_chain_file(files.certificate, error)) {
    bad_identity_file("certificate", files.certificate, error);
  }
  if (context->use_private_key_file(files.key, ssl::context::pem, error)) bad_identity_file("key", files.key, error);
  return context;
}

std::string common_name(const X509* certificate) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  // A second name would leave open which one counts.
  if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0) return {};
  unsigned char* utf8 = nullptr;
  const int size = ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (size < 0) return {};
  std::string name(reinterpret_cast<const char*>(utf8), static_cast<size_t>(size));
  OPENSSL_free(utf8);
  return name.find('\0') == std::string::npos ? name : std::string();
}

}  // namespace

std::optional<std::string> proven_name(SSL* connection, bool by_identity) {
  if (!by_identity) return SSL_session_reused(connection) ? std::optional<std::string>("") : std::nullopt;
  const X509* certificate = SSL_get0_peer_certificate(connection);
  if (!certificate || SSL_get_verify_result(connection) != X509_V_OK) return std::nullopt;
  std::string name = common_name(certificate);
  if (name.empty()) return std::nullopt;
  return name;
}

std::shared_ptr<ssl::context> channel_context(const ChannelKey& key, bool server) {
  if (key.identity.use_tls) return identity_context(key.identity, server);
  auto bytes = std::make_unique<KeyBytes>(derive(key));
  // The context and the key bytes it points to live and die together.
  struct Keyed {
    std::unique_ptr<KeyBytes> bytes;
    ssl::context context;
  };
  const auto method = server ? ssl::context::tls_server : ssl::context::tls_client;
  auto keyed = std::make_shared<Keyed>(Keyed{std::move(bytes), ssl::context(method)});
  SSL_CTX* native = keyed->context.native_handle();
  SSL_CTX_set_ex_data(native, key_slot(), keyed->bytes.get());
  set_common_options(native);
  // A key given through these callbacks goes with SHA-256 suites only.
  CHECK(SSL_CTX_set_ciphersuites(native, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") == 1);
  if (server) {
    SSL_CTX_set_psk_server_callback(native, server_key);
  } else {
    SSL_CTX_set_psk_client_callback(native, client_key);
    // A server that offers a certificate instead of proving the key is refused: we trust no certificate at all.
    keyed->context.set_verify_mode(ssl::verify_peer);
  }
  return std::shared_ptr<ssl::context>(keyed, &keyed->context);
}

}  // namespace rubato::os
