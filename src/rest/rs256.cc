#include "rest/rs256.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <memory>

#include "core/error.h"
#include "rest/base64.h"

namespace rubato::rest {

std::string sign_rs256(const std::string& private_key_pem, std::string_view text) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> pem(
      BIO_new_mem_buf(private_key_pem.data(), static_cast<int>(private_key_pem.size())), &BIO_free);
  // Without a callback OpenSSL would ask for a password at the terminal.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      pem ? PEM_read_bio_PrivateKey(pem.get(), nullptr, no_password, nullptr) : nullptr, &EVP_PKEY_free);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t size = 0;
  std::string out;
  bool done = key && context && EVP_PKEY_base_id(key.get()) == EVP_PKEY_RSA &&
              EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
              EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) == 1;
  if (done) {
    out.resize(size);
    done = EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size, bytes, text.size()) == 1;
    out.resize(size);
  }
  if (!done) throw Error(ErrorCode::kAuth, "the private key is no RSA key in PEM form");
  return out;
}

std::string base64_url(std::string_view bytes) {
  std::string out = base64(bytes);
  for (char& c : out) {
    if (c == '+') c = '-';
    if (c == '/') c = '_';
  }
  while (out.ends_with('=')) out.pop_back();
  return out;
}

}  // namespace rubato::rest
