// HostList: machines are hosts of one's own, named in the cluster file. Which node has which host is kept in a file, so
// that a head that starts again finds its nodes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "provider/instances.h"
#include "world/world.h"

namespace rubato::provider {

struct HostListSettings {
  std::optional<HostAddress> head;   // the machine that the head runs on, and its own node
  std::vector<HostAddress> workers;  // taken in this order
  std::string file;                  // hosts.json in the cluster's folder
  Duration failure_memory = 600s;    // a host that failed is taken last for so long
};

class HostList final : public Instances {
 public:
  // The first call reads the file; it throws kFailed when that is damaged.
  HostList(World& world, HostListSettings settings);

  void configure(const std::string& provider_config) override;
  Task<Machine> create(NodeOrder order) override;
  Task<std::optional<Machine>> find(NodeId node) override;
  Task<void> remove(NodeRemoval removal, bool cleaned) override;
  Task<std::vector<NodeId>> list() override;
  bool is_leftover(const NodeId& node) override;
  void note_cleaned(const NodeId& node) override;
  bool machines_stay() const override { return true; }
  void note_failure(const NodeId& node, const std::string& why) override;

 private:
  struct Host {
    std::optional<NodeId> node;
    std::vector<NodeRemoval> leftovers;
    std::optional<WallTime> failed;
    std::string why;
  };
  using Entry = std::pair<const std::string, Host>;

  void load_once();
  void load();
  void save();
  Entry* host_of(const NodeId& node);
  Machine machine_at(const Entry& entry) const;
  std::string choose();  // a free worker host

  World& world_;
  HostListSettings settings_;
  bool loaded_ = false;
  std::map<std::string, Host> hosts_;  // by "user@host:port"; those that were never used are absent
};

// The hosts of `provider: {type: local, head_ip, worker_ips}`.
std::unique_ptr<Instances> make_host_list(World& world, const InstancesSettings& settings, const Log& log);

}  // namespace rubato::provider
