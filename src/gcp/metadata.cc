#include "gcp/metadata.h"

#include "core/text.h"
#include "rest/caller.h"

namespace rubato::gcp {
namespace {

constexpr Duration kMetadataTimeout = 1s;  // on a machine of Google's it answers within milliseconds
constexpr int kMetadataTries = 3;          // google-auth's
constexpr Duration kAbsentFor = 30s;

rest::Url metadata_url(const Environment& env) {
  const std::string named = variable(env, "GCE_METADATA_HOST");
  return rest::parse_url("http://" + (named.empty() ? "169.254.169.254" : named), "GCE_METADATA_HOST");
}

}  // namespace

Metadata::Metadata(World& world, const Environment& env)
    : world_(world), url_(metadata_url(env)), switched_off_(to_lower(variable(env, "NO_GCE_CHECK")) == "true") {}

Task<std::optional<std::string>> Metadata::get(std::string path) {
  if (switched_off_ || world_.clock.now() < ask_again_at_) co_return std::nullopt;
  for (int tries = 0; tries < kMetadataTries; ++tries) {
    HttpRequest request;
    request.target = "/computeMetadata/v1/" + path;
    request.headers["metadata-flavor"] = "Google";
    request.headers["host"] = url_.host();
    HttpResponse response;
    try {
      const Instant deadline = world_.clock.now() + kMetadataTimeout;
      response = co_await world_.network.call(url_.endpoint, TlsFiles(), std::move(request), deadline);
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable) throw;
      continue;
    }
    // Another cloud's server answers at the same address.
    if (rest::header_of(response, "metadata-flavor") != "Google") co_return std::nullopt;
    has_answered_ = true;
    if (response.status == 404) co_return std::nullopt;
    if (response.status == 200) co_return std::move(response.body);
  }
  if (!has_answered_) ask_again_at_ = world_.clock.now() + kAbsentFor;
  co_return std::nullopt;
}

}  // namespace rubato::gcp
