// The metadata service of an EC2 instance (IMDSv2): 169.254.169.254, or AWS_EC2_METADATA_SERVICE_ENDPOINT.
#pragma once

#include <optional>
#include <string>

#include "aws/settings.h"
#include "world/world.h"

namespace rubato::aws {

// One client for each user of it; keeps the session's token. Calls that get no answer within a second say that there
// is no such service here.
class Metadata {
 public:
  Metadata(World& world, const Environment& env);

  // The text at "/latest/meta-data/…"; nullopt when there is none (404), no service, or it is switched off by
  // AWS_EC2_METADATA_DISABLED=true. A token that is refused (401) is replaced once.
  Task<std::optional<std::string>> get(std::string path);
  // There was no such service when it was asked: it is not asked again for half a minute, unless told so. A service
  // that has answered once is never taken for absent.
  bool absent() const { return absent_; }
  void try_again() { absent_ = false; }

 private:
  Task<HttpResponse> ask(std::string method, std::string path, std::map<std::string, std::string> headers);
  Task<bool> renew_token();

  World& world_;
  const bool disabled_;
  const rest::Url url_;
  std::string token_;
  bool absent_ = false, has_answered_ = false;
  Instant ask_again_at_{};  // when absent
};

}  // namespace rubato::aws
