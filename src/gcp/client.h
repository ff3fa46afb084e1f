// Client: calls to Google's services for one project, with retries, as JSON documents. The typed calls (compute.h,
// identity.h) are built on it. Holds the World and the credentials; not copyable; one loop.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gcp/credentials.h"
#include "gcp/fault.h"
#include "gcp/settings.h"
#include "rest/caller.h"

namespace rubato::gcp {

struct Call {
  Service service = kCompute;
  std::string operation;  // for errors: "instances.insert"
  std::string method = "GET";
  std::string path;  // encoded where it needs to be
  rest::Query query;
  nlohmann::json body;  // null: none
  std::optional<Duration> timeout;
};

class Client {
 public:
  Client(World& world, std::string project, Settings settings, std::shared_ptr<CredentialSource> credentials);
  Client(const Client&) = delete;
  ~Client();

  // The answer's document. Throws CloudError for a refusal.
  Task<nlohmann::json> call(Call call);
  // The whole answer, whatever its body is; those of 400 and more throw.
  Task<HttpResponse> send(Call call, std::map<std::string, std::string> headers, std::string body);

  // "/compute/v1/projects/PROJECT"
  std::string compute_path() const { return "/compute/v1/projects/" + project_; }
  const std::string& project() const { return project_; }
  World& world() { return world_; }
  CredentialSource& credentials() { return *credentials_; }
  rest::Url url_of(const Service& service) const;
  bool is_elsewhere(const Service& service) const;  // another server is asked, not Google's

 private:
  friend class BearerExchange;
  rest::Caller& caller(const Service& service);

  World& world_;
  const std::string project_;
  const Settings settings_;
  const rest::IniFile configuration_;
  std::shared_ptr<CredentialSource> credentials_;
  std::map<std::string, std::unique_ptr<rest::Caller>, std::less<>> callers_;
};

// With the credentials of the chain, which are looked for at the first call.
std::unique_ptr<Client> open_client(World& world, std::string project, Settings settings);

}  // namespace rubato::gcp
