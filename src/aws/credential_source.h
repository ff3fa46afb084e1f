// CredentialSource: whoever can give credentials now. Client asks it before each try.
#pragma once

#include <string>

#include "aws/sigv4.h"
#include "core/task.h"

namespace rubato::aws {

struct FoundCredentials {
  Credentials credentials;  // an empty access_key: requests go unsigned
  std::string origin;       // for people: "AWS_ACCESS_KEY_ID", "role trainer of the instance"
};

class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  // Good for some minutes at least. Throws kAuth, with what was tried, when there are none.
  virtual Task<FoundCredentials> get(WallTime now) = 0;
  // The cloud no longer takes them: the next get() looks again.
  virtual void forget() = 0;
};

class FixedCredentials final : public CredentialSource {
 public:
  explicit FixedCredentials(FoundCredentials given) : given_(std::move(given)) {}
  Task<FoundCredentials> get(WallTime) override { co_return given_; }
  void forget() override {}

 private:
  const FoundCredentials given_;
};

}  // namespace rubato::aws
