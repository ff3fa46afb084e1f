// URLs and percent-encoding (RFC 3986), as signatures need them: everything but the unreserved characters is encoded,
// with capital digits.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "world/network.h"

namespace rubato::rest {

enum class Slash { kEncoded, kKept };
std::string percent_encode(std::string_view text, Slash slash = Slash::kEncoded);
std::string percent_decode(std::string_view text);  // a % that begins no code stays

// Names and values as they are meant; the order is that of the request.
using Query = std::vector<std::pair<std::string, std::string>>;
std::string encode_query(const Query& query);  // "a=b&c=d%20e", in the given order

struct Url {
  bool https = true;
  Endpoint endpoint;
  std::string path;  // as written, without the query; "" or begins with /
  std::string user;  // "name:password", decoded
  std::string query;
  // For the Host header: without the scheme's own port.
  std::string host() const;
};
// Throws a usage Error that names `origin`, the setting that the text comes from.
Url parse_url(std::string_view text, std::string_view origin);

}  // namespace rubato::rest
