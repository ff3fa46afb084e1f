// The metadata server of a machine of Compute Engine: 169.254.169.254, or GCE_METADATA_HOST.
#pragma once

#include <optional>
#include <string>

#include "gcp/settings.h"
#include "world/world.h"

namespace rubato::gcp {

// Calls that get no answer within a second say that there is no such server here, for half a minute; one that has
// answered once is asked always. NO_GCE_CHECK=true: there is none.
class Metadata {
 public:
  Metadata(World& world, const Environment& env);

  // The text at "/computeMetadata/v1/PATH"; nullopt when there is none (404), or no such server.
  Task<std::optional<std::string>> get(std::string path);

 private:
  World& world_;
  const rest::Url url_;
  const bool switched_off_;
  bool has_answered_ = false;
  Instant ask_again_at_{};
};

}  // namespace rubato::gcp
