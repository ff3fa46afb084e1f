// Client: signed calls to AWS's services in one region, with retries, as documents. The typed calls (ec2.h, s3.h, …)
// are built on it. Holds the World and the credentials by reference or shared; not copyable; one loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "aws/credential_source.h"
#include "aws/fault.h"
#include "aws/settings.h"
#include "rest/caller.h"
#include "rest/json.h"
#include "rest/xml.h"

namespace rubato::aws {

struct Service {
  std::string_view name;      // in variables and files: AWS_ENDPOINT_URL_AUTO_SCALING
  std::string_view prefix;    // of its host name, of signatures and permissions
  std::string_view version;   // of its query API
  std::string_view target;    // of its JSON API: the X-Amz-Target before the operation
  bool global = false;        // one endpoint for all regions: IAM
};
inline constexpr Service kEc2{"ec2", "ec2", "2016-11-15", ""};
inline constexpr Service kIam{"iam", "iam", "2010-05-08", "", true};
inline constexpr Service kSts{"sts", "sts", "2011-06-15", ""};
inline constexpr Service kAutoScaling{"auto_scaling", "autoscaling", "2011-01-01", ""};
inline constexpr Service kSsm{"ssm", "ssm", "", "AmazonSSM"};
inline constexpr Service kServiceQuotas{"service_quotas", "servicequotas", "", "ServiceQuotasV20190624"};
inline constexpr Service kEfs{"efs", "elasticfilesystem", "", ""};
inline constexpr Service kS3{"s3", "s3", "", ""};
inline constexpr Service kSso{"sso", "portal.sso", "", ""};

// Names and values of a query request, flattened: {"InstanceId.1", "i-1"}.
using Params = rest::Query;

// A request as REST services take it.
struct RestCall {
  std::string operation;  // for errors: "PutObject"
  std::string method = "GET";
  std::string path = "/";  // as meant, not encoded
  rest::Query query;
  std::map<std::string, std::string> headers;
  std::string body;
  std::function<std::string()> read_body;  // instead of `body`: called for each try, so that it waits in no memory
  std::string payload_hash;                // of the body, where the caller has it already
  bool fails_with_200 = false;  // S3's slow calls begin to answer before they know how they end
  std::optional<Duration> timeout;
  std::string host_prefix;  // "bucket": of a host that is the bucket's own
  std::string bucket;       // of S3: it may be in another region than the client
};

struct ClientConfig {
  Sourced region;
  std::string ca_bundle;
  Environment env;  // may name a proxy
  rest::CallRules rules;
  std::map<std::string, Sourced> endpoints;    // by Service::name, where they are not AWS's own
};

// What lets another machine ask the same servers: AWS_ENDPOINT_URL_EC2 and its kin, of services that are not asked at
// AWS itself.
std::map<std::string, std::string> endpoint_variables(const ClientConfig& config);

// The host of a service of AWS itself: "ec2.eu-west-1.amazonaws.com", in China ".amazonaws.com.cn".
std::string default_host(const Service& service, std::string_view region);
std::string partition_of(std::string_view region);  // "aws", "aws-cn", "aws-us-gov", …: the second word of ARNs

using rest::read_json;

class Client {
 public:
  Client(World& world, ClientConfig config, std::shared_ptr<CredentialSource> credentials);
  Client(const Client&) = delete;
  ~Client();

  // The answer's root element. Throws CloudError for a refusal.
  Task<rest::XmlNode> query(Service service, std::string action, Params params);
  // SSM's protocol: a JSON document each way.
  Task<nlohmann::json> json(Service service, std::string operation, std::string body);
  // Any answer below 300 is returned; others throw CloudError, unless `foreseen` is their status. A bucket that S3 says
  // is in another region is asked there, once, and from then on.
  Task<HttpResponse> rest(Service service, RestCall call, int foreseen = 0);
  // A URL that does the call without further credentials, for `valid_for`.
  Task<std::string> presign(Service service, RestCall call, Duration valid_for);

  World& world() { return world_; }
  const std::string& region() const { return config_.region.text; }
  const ClientConfig& config() const { return config_; }
  CredentialSource& credentials() { return *credentials_; }
  bool has_own_endpoint(const Service& service) const;
  rest::Caller& caller(const Service& service);

 private:
  friend class SignedExchange;
  struct Sent {
    HttpResponse response;
    bool refused = false;
    std::string host;
  };
  Task<Sent> send(Service service, const RestCall& call);
  std::string region_for(const RestCall& call) const;
  rest::Url url_of(const Service& service, const RestCall& call) const;
  SigningScope scope_of(const Service& service, const RestCall& call) const;

  World& world_;
  const ClientConfig config_;
  std::shared_ptr<CredentialSource> credentials_;
  std::map<std::string, std::unique_ptr<rest::Caller>, std::less<>> callers_;
  std::map<std::string, Signer, std::less<>> signers_;
  std::map<std::string, std::string, std::less<>> bucket_regions_;  // of buckets that are not in ours
};

}  // namespace rubato::aws
