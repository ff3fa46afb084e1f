// Workload and workforce identity federation (`external_account`): somebody else's token for a person or a program,
// which Google's token server takes and gives one of its own for.
//
//   credential_source   a file, or a URL (GitHub Actions, Azure): the subject's token, as text or under a key of JSON
//   token_url           Google's Security Token Service (RFC 8693)
//   impersonation       of a service account, where the file names one
//
// Refused with a reason: a program that prints the token (`executable`), AWS's signatures, certificates.
#pragma once

#include <chrono>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gcp/token_server.h"
#include "world/world.h"

namespace rubato::gcp {

struct SubjectSource {
  std::string file, url;  // one of them
  std::map<std::string, std::string> headers;
  std::string key;  // of the token in a document of JSON; empty: the text is the token
};

struct Federation {
  SubjectSource source;
  std::string audience, subject_type, token_url;
  std::string client_id, client_secret;  // empty: none
  std::string user_project;              // of a workforce pool
  std::string impersonation_url;         // empty: the federated one is used itself
  std::chrono::seconds impersonation_life{3600};
  std::string quota_project;
};
// Pure. Throws kAuth, with the fix, for what lacks a part or is not supported.
Federation read_federation(const nlohmann::json& document, const std::string& origin);

// The subject's token of now: read anew each time, since whoever writes it does so while it is good.
Task<std::string> read_subject_token(World& world, rest::Caller& caller, SubjectSource source, std::string origin,
                                     const rest::Environment& env);

// What is asked of the token server. Pure.
TokenOrder exchange_order(const Federation& federation, const std::string& subject_token, const std::string& origin);

}  // namespace rubato::gcp
