// CredentialChain: who we are to AWS, found where AWS's own tools look, in their order:
//
//   1. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY      not when a profile was given by name
//   2. the profile's role_arn                           AssumeRole, with source_profile's or credential_source's
//   3. web identity: AWS_WEB_IDENTITY_TOKEN_FILE        or the profile's web_identity_token_file
//   4. the profile's SSO                                the token that `aws sso login` left; read, never renewed
//   5. the profile's own keys                           ~/.aws/credentials, then ~/.aws/config
//   6. the profile's program                            credential_process
//   7. the container's                                  AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, _FULL_URI
//   8. the instance's role                              IMDSv2
//
// Temporary ones are fetched again some minutes before they end; where that fails, the old ones serve until then.
#pragma once

#include <memory>
#include <set>

#include "aws/client.h"
#include "aws/credential_source.h"
#include "aws/metadata.h"
#include "aws/settings.h"

namespace rubato::aws {

class CredentialChain final : public CredentialSource {
 public:
  // `config` is for the calls that some steps make (STS, SSO); its region may be empty when none is known yet.
  CredentialChain(World& world, Settings settings, std::shared_ptr<const Profiles> profiles, ClientConfig config);

  Task<FoundCredentials> get(WallTime now) override;
  void forget() override { found_.reset(); }

 private:
  using Maybe = std::optional<FoundCredentials>;

  Task<FoundCredentials> find();
  Maybe from_environment() const;
  // `with_variables`: those of a web identity count too; not for a profile that was named, nor for another's source.
  Task<Maybe> from_profile(std::string profile, std::set<std::string> seen, bool with_variables);
  Task<Maybe> from_role(std::string profile, std::string role, std::set<std::string> seen);
  Task<FoundCredentials> source_of(std::string profile, std::set<std::string> seen);
  Task<Maybe> from_web_identity(Sourced token_file, std::string role, std::string session);
  Task<Maybe> from_sso(std::string profile);
  Maybe from_keys(const std::string& profile) const;
  Task<Maybe> from_process(std::string profile);
  Task<Maybe> from_container();
  Task<Maybe> from_instance();

  World& world_;
  const Settings settings_;
  const std::shared_ptr<const Profiles> profiles_;
  const ClientConfig config_;
  Metadata metadata_;
  std::optional<FoundCredentials> found_;
  WallTime renew_after_{};  // a renewal has failed: the next one not before
};

// A client by the settings: profile, region, endpoints, credentials. Reads files and, where nothing else tells the
// region, the instance's metadata. Credentials are looked for at the first call.
// Throws kUsage for a profile that is not there, a region that nobody tells, files that are no INI files.
Task<std::unique_ptr<Client>> open_client(World& world, Settings settings);

}  // namespace rubato::aws
