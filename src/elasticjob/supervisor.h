// Supervisor: AdaptDL's supervisor protocol (model/supervisor_request.h) for the workers of adaptive jobs.
//
//   /KIND/NAMESPACE/NAME/UID/SIGNATURE/hints/...      kept as an annotation of the job, from which sizing.h sizes it
//   /KIND/NAMESPACE/NAME/UID/SIGNATURE/discover/...   the addresses of the pods of a group, by rank
//
// Its client sends no credentials, so that each job's workers are told a path of their own, signed (HMAC) with a key
// that only operators have. The path says all that is needed to serve it: every operator can, whether it leads or not,
// and it keeps no state but the API's objects. Bounded: a job costs one write in 20 s at most, and none while its hints
// stay as they are; pods of a group that is being waited for are listed once a second, whoever asks.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/log.h"
#include "core/scope.h"
#include "elasticjob/job.h"
#include "kubernetes/client.h"
#include "world/http_server.h"

namespace rubato::elasticjob {

inline constexpr const char* kSupervisorSecret = "rubato-supervisor";  // its key
inline constexpr int kSupervisorPort = 8470;

struct SupervisorAddress {
  std::string url;  // as pods reach it; empty: there is none
  std::string key;
};

// ADAPTDL_SUPERVISOR_URL of the job's workers; empty: it gets none.
std::string supervisor_url(const SupervisorAddress& address, const Job& job);

// The key of all operators of this namespace: made by the first of them. Throws kAuth.
Task<std::string> fetch_supervisor_key(kubernetes::Client& client, std::string namespace_name);

class Supervisor {
 public:
  // `client` outlives it; best one of its own, for its calls wait for each other.
  Supervisor(kubernetes::Client& client, std::string key, Log log);

  Task<ServerReply> handle(ServerRequest request);
  HttpAdmission admit(const ServerRequest& head) const;

 private:
  struct Asker {
    Kind kind = Kind::kElasticJob;
    ObjectName name;
    std::string uid;
  };
  struct Told {  // of a job, by this operator
    Instant written{};
    JobProfile profile;
  };
  struct Group {
    Instant read{};
    bool reading = false;
    int number = -1;
    std::vector<std::string> addresses;  // by rank; empty: not all are there
  };
  std::optional<Asker> asker_of(const std::vector<std::string_view>& parts) const;
  Task<ServerReply> take_hints(Asker asker, std::string body);
  Task<ServerReply> discover(Asker asker, uint64_t group, Duration patience);
  Task<void> read_group(Asker asker);

  kubernetes::Client& client_;
  World& world_;
  const std::string key_;
  Log log_;
  std::map<std::string, Told> told_;     // by uid
  std::map<std::string, Group> groups_;  // by uid
  Event changed_;
};

}  // namespace rubato::elasticjob
