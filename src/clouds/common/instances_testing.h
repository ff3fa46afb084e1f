// For tests: a cloud's CloudInstances against its stand-in. Fake: the fixture of that (FakeAwsFixture, FakeGcpFixture).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clouds/common/cloud_instances.h"

namespace rubato::clouds {

template <class Fake>
class InstancesFixture : public Fake {
 protected:
  template <class Result>
  Result get(Task<Result> task) {
    std::optional<Result> out;
    this->runtime.run(get_in(std::move(task), out));
    return std::move(*out);
  }
  template <class Result>
  static Task<int> get_in(Task<Result> task, std::optional<Result>& out) {
    out.emplace(co_await std::move(task));
    co_return 0;
  }
  void remove(const std::string& node) { this->runtime.run(remove_in(*instances, NodeId{node})); }
  static Task<int> remove_in(CloudInstances& all, NodeId node) {
    provider::NodeRemoval removal(std::move(node));
    co_await all.remove(std::move(removal), true);
    co_return 0;
  }
  std::vector<std::string> listed() {
    std::vector<std::string> out;
    for (const NodeId& node : get(instances->list())) out.push_back(node.value);
    return out;
  }
  ErrorCode failure_of_create(provider::NodeOrder order) {
    return this->code_of([&] { get(instances->create(order)); });
  }

  // As a head that has just started.
  void make_instances(std::unique_ptr<MachineCloud> cloud, bool on_head, const std::string& told) {
    CloudInstancesSettings of;
    of.head_key = "ssh-ed25519 AAAA rubato-lab";
    if (on_head) of.own = provider::Machine();
    of.poll_min = of.poll_max = 50ms;
    of.known_timeout = 5s;
    instances = std::make_unique<CloudInstances>(this->world, std::move(cloud), std::move(of), Log());
    instances->configure(told);
  }

  std::unique_ptr<CloudInstances> instances;
};

}  // namespace rubato::clouds
