// CredentialChain: who we are to Google, found where Google's own tools look, in their order:
//
//   1. provider.gcp_credentials of the cluster file     a token, or a service account's key
//   2. GOOGLE_APPLICATION_CREDENTIALS                   a file
//   3. application_default_credentials.json             of `gcloud auth application-default login`
//   4. the machine's service account                    the metadata server
//
// A file is a service account's key (a JWT signed with RS256 buys a token), a person's refresh token, somebody else's
// token that Google takes for its own (federation.h), or the impersonation of an account with one of these. Tokens are
// kept until some minutes before they end; where no new one can be had, the old one serves until then.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/time.h"
#include "gcp/metadata.h"
#include "gcp/settings.h"
#include "rest/caller.h"

namespace rubato::gcp {

struct AccessToken {
  std::string text;
  std::optional<WallTime> expires;  // nullopt: not known
  std::string origin;               // for people: "GOOGLE_APPLICATION_CREDENTIALS (/home/ann/key.json)"
  std::string account;              // e-mail; empty: a person's, which Google does not tell here
  std::string quota_project;        // whom a person's calls are counted for; empty: nobody is named
};

class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  // Good for some minutes at least. Throws kAuth, with what was tried and the fix, when there are none.
  virtual Task<AccessToken> get(WallTime now) = 0;
  // Google no longer takes it: the next get() buys another.
  virtual void forget() = 0;
  // Whether somebody has named credentials: else only the machine itself could have some.
  virtual bool are_named() const { return true; }
};

class CredentialChain final : public CredentialSource {
 public:
  CredentialChain(World& world, Settings settings);

  Task<AccessToken> get(WallTime now) override;
  void forget() override { found_.reset(); }
  bool are_named() const override;

 private:
  Task<AccessToken> find();
  AccessToken given_token() const;
  std::string usual_file() const;
  Task<AccessToken> from_document(nlohmann::json document, std::string origin);
  Task<AccessToken> from_service_account(const nlohmann::json& document, std::string origin);
  Task<AccessToken> from_refresh_token(const nlohmann::json& document, std::string origin);
  Task<AccessToken> from_impersonation(const nlohmann::json& document, std::string origin);
  Task<AccessToken> from_federation(const nlohmann::json& document, std::string origin);
  Task<AccessToken> from_workforce_login(const nlohmann::json& document, std::string origin);
  Task<AccessToken> impersonate(std::string url, AccessToken caller, nlohmann::json delegates,
                                std::chrono::seconds life);
  Task<std::optional<AccessToken>> from_machine();
  nlohmann::json read_file(const std::string& path, const std::string& origin);

  World& world_;
  const Settings settings_;
  rest::Caller caller_;  // of token servers
  Metadata metadata_;
  std::optional<AccessToken> found_;
  WallTime renew_after_{};  // a renewal has failed: the next one not before
};

// The assertion by which a service account asks for a token (RFC 7523). Pure. Throws kAuth for what is no key.
struct Assertion {
  std::string account, key_id, private_key, audience;
};
std::string sign_assertion(const Assertion& assertion, WallTime now);

}  // namespace rubato::gcp
