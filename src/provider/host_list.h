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
  // Throws kFailed when the file is damaged.
  HostList(World& world, HostListSettings settings);

  Task<Machine> create(NodeOrder order) override;
  Task<std::optional<Machine>> find(NodeId node) override;
  Task<void> remove(NodeId node, bool cleaned) override;
  Task<std::vector<NodeId>> list() override;
  void note_cleaned(const NodeId& node) override;
  bool machines_stay() const override { return true; }
  void note_failure(const NodeId& node, const std::string& why) override;

 private:
  struct Host {
    std::optional<NodeId> node;
    std::vector<NodeId> leftovers;
    std::optional<WallTime> failed;
    std::string why;
  };
  using Entry = std::pair<const std::string, Host>;

  void load();
  void save();
  Entry* host_of(const NodeId& node);
  Machine machine_at(const Entry& entry) const;
  std::string choose();  // a free worker host

  World& world_;
  HostListSettings settings_;
  std::map<std::string, Host> hosts_;  // by "user@host:port"; those that were never used are absent
};

}  // namespace rubato::provider
