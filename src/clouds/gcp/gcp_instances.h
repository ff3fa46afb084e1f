// GcpMachines: Compute Engine as a MachineCloud: a cluster's machines by their labels, each a request of its own.
//
// A machine's id is its name and Google's number of it ("ray-lab-worker-0123456789.42"): a name may come again.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clouds/common/cloud_instances.h"
#include "clouds/gcp/gcp_launch.h"

namespace rubato::clouds {

struct GcpMachinesSettings {
  gcp::Environment env;
  std::optional<gcp::GivenCredentials> given;
  std::string surroundings_file;          // read again before each launch: `up` writes it
  std::optional<GcpSurroundings> around;  // instead of the file
  std::string own_key;  // public: of who asks here, for machines with OS Login; empty: nobody logs in from here
  bool new_account = false;               // Compute may not have heard of the head's service account yet
  Duration account_timeout = 90s;         // until it has
  Duration account_pause = 3s;
  Duration launch_timeout = 10min;  // of an operation that makes or starts a machine
};

class GcpMachines final : public MachineCloud {
 public:
  GcpMachines(World& world, GcpMachinesSettings settings);

  std::string_view name() const override { return "Compute Engine"; }
  CloudRules configure(const nlohmann::json& told) override;
  Task<void> open() override;
  Task<std::vector<CloudMachine>> list() override;
  bool fit_together(const std::vector<NodeId>& nodes) const override;
  size_t count_places(const LaunchOrder& order) override;
  Task<Launched> launch_at(LaunchOrder order, size_t place) override;
  Task<void> start(std::string id, NodeId node) override;
  Task<void> stop(std::vector<std::string> ids) override;
  Task<void> end(std::vector<std::string> ids) override;
  Task<void> write_status(std::vector<std::string> ids, std::string status) override;

  gcp::Client& client();  // once it is open
  bool has_used_login() const { return has_used_login_; }  // a machine of those that were listed

 private:
  struct Outcome {
    std::string id;
    std::optional<Error> error;
  };
  enum class Change { kStop, kEnd, kStatus };

  GcpSurroundings around();
  Task<void> ensure_login();
  std::string zone_of(const std::string& id) const;  // throws kNotFound
  Task<void> launch_one(const LaunchOrder& order, NodeId node, std::string zone, Outcome& outcome);
  Task<std::string> insert(const LaunchOrder& order, NodeId node, std::string zone);
  Task<std::optional<std::string>> try_insert(InstanceRequest request, NodeId node, int tries);
  Task<void> change_all(std::vector<std::string> ids, Change change, std::string status);
  Task<void> change_one(std::string id, Change change, std::string status, std::optional<Error>& error);

  World& world_;
  const GcpMachinesSettings settings_;
  std::optional<GcpConfig> config_;
  std::unique_ptr<gcp::Client> client_;
  bool has_used_login_ = false;
  std::string login_user_;                       // ours, of machines with OS Login; empty: not asked for yet
  std::map<std::string, gcp::Instance> listed_;  // by our id, as last listed
  std::map<std::string, std::string> zones_;     // of machines that we made, by id
  std::map<std::string, int> rounds_;            // by request_key: the next one to try
};

// What Compute says of an instance, as all clouds' machines are described.
CloudMachine machine_of(const gcp::Instance& from);

std::unique_ptr<provider::Instances> make_gcp_instances(World& world, const provider::InstancesSettings& settings,
                                                        const Log& log);

}  // namespace rubato::clouds
