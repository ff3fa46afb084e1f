// RS256 (RFC 7518, 3.3): RSA signatures over SHA-256, as tokens of service accounts carry them.
#pragma once

#include <string>
#include <string_view>

namespace rubato::rest {

// The signature's bytes. The key is PEM, PKCS#8 or PKCS#1, without a password. Throws kAuth when it is no RSA key.
std::string sign_rs256(const std::string& private_key_pem, std::string_view text);

// Base64 for URLs, without padding (RFC 4648, section 5).
std::string base64_url(std::string_view bytes);

}  // namespace rubato::rest
