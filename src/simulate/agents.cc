#include "simulate/agents.h"

#include <csignal>

#include "cluster/observed.h"
#include "node/node_agent.h"

namespace rubato::simulate {

namespace {

// Takes an entry away with the frame that it points into.
template <class T, class Key = rubato::NodeId>
class Listed {
 public:
  Listed(std::map<Key, T*>& all, Key key, T& what) : all_(all), key_(std::move(key)) { all_[key_] = what_ = &what; }
  ~Listed() {
    const auto it = all_.find(key_);
    if (it != all_.end() && it->second == what_) all_.erase(it);
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  std::map<Key, T*>& all_;
  const Key key_;
  T* what_ = nullptr;
};

constexpr uint16_t kSupervisorPorts = 20'000;  // the first of them

class UnreadBoard final : public PlanBoard {
 public:
  const std::string& path() const override { return path_; }
  void publish(uint64_t, const std::string&) override {}
  std::optional<std::string> report(const std::string&) override { return std::nullopt; }

 private:
  const std::string path_ = "/plans";
};

class UnusedStore final : public MeetingStore {
 public:
  uint16_t port() const override { return 4711; }
};

}  // namespace

std::unique_ptr<PlanBoard> NoLibrary::make_board(std::function<void()>) { return std::make_unique<UnreadBoard>(); }

std::unique_ptr<MeetingStore> NoLibrary::open_store(const std::string&, bool) {
  return std::make_unique<UnusedStore>();
}

ChannelKey cluster_key(const std::string& name) {
  ChannelKey key;
  key.identity.use_tls = true;
  key.identity.ca = "cluster";
  key.identity.certificate = name;
  return key;
}

Resources Agents::resources_of(const provider::NodeOrder& order) const {
  if (!order.type.resources.empty()) return order.type.resources;
  const auto have = scenario_.cloud.have.find(order.type.name);
  return have == scenario_.cloud.have.end() ? Resources{} : have->second;
}

sim::SimProgram& Agents::start(sim::SimMachine& machine, const provider::NodeOrder& order, Instance&) {
  const std::string address = machine.address();
  if (scenario_.fidelity == Fidelity::kLight)
    return machine.start("agent", [this, order](sim::SimProgram& self) { return light_main(self, *this, order); });
  return machine.start(
      "agent", [this, order, address](sim::SimProgram& self) { return real_main(self, *this, order, address); });
}

Task<int> Agents::real_main(sim::SimProgram& self, Agents& agents, provider::NodeOrder order, std::string address) {
  node::NodeSettings settings;
  settings.node = order.node;
  settings.head = order.head;
  settings.address = std::move(address);
  settings.folder = "/node/" + order.node.value;
  settings.resources = agents.resources_of(order);
  settings.key = cluster_key("node/" + order.node.value);
  settings.python = "python3";
  settings.version = "simulated";
  settings.in_place = &agents.no_library_;
  Inbox inbox(self);
  const Listed<Inbox> listed(agents.inboxes_, order.node, inbox);
  SupervisorPort supervisor(static_cast<uint16_t>(kSupervisorPorts + agents.supervisors_started_++), self.loop());
  const Listed<SupervisorPort, uint16_t> served(agents.supervisors_, supervisor.port(), supervisor);
  if (agents.scenario_.adaptive) settings.supervisor = &supervisor;
  node::NodeAgent agent(self.world(), std::move(settings), &inbox.signals, &inbox.notices);
  co_return co_await agent.run();
}

Task<int> Agents::light_main(sim::SimProgram& self, Agents& agents, provider::NodeOrder order) {
  LightSettings settings;
  settings.node = order.node;
  settings.head = order.head;
  settings.resources = agents.resources_of(order);
  settings.key = cluster_key("node/" + order.node.value);
  LightAgent agent(self, std::move(settings), agents.groups_);
  const Listed<LightAgent> listed(agents.light_, order.node, agent);
  co_return co_await agent.run();
}

Task<void> SupervisorPort::serve(HttpHandler handler, HttpAdmit admit) {
  while (true) {
    std::optional<ServerRequest> request = co_await requests_.pop();
    if (!request) co_return;
    if (!admit(*request).authenticated) continue;
    co_await handler(std::move(*request));
  }
}

void Agents::request(const std::string& supervisor_url, const std::string& method, const std::string& path,
                  std::string body) {
  // "http://127.0.0.1:PORT/SECRET"
  const size_t colon = supervisor_url.rfind(':'), slash = supervisor_url.rfind('/');
  if (colon == std::string::npos || slash < colon) return;
  const auto found = supervisors_.find(static_cast<uint16_t>(std::stoi(supervisor_url.substr(colon + 1))));
  if (found == supervisors_.end()) return;
  ServerRequest request;
  request.method = method;
  request.path = supervisor_url.substr(slash) + path;
  request.body = std::move(body);
  found->second->give(std::move(request));
}

void Agents::notice(const Instance& instance, Duration in, bool by_signal) {
  if (const auto it = inboxes_.find(instance.node); it != inboxes_.end()) {
    if (by_signal) {
      it->second->signals.push(SIGTERM);
    } else {
      node::MachineNotice notice;
      notice.what = "spot notice";
      notice.notice.deadline = cluster::later(it->second->program.world().clock.wall(), in);
      it->second->notices.push(std::move(notice));
    }
  }
  if (const auto it = light_.find(instance.node); it != light_.end()) it->second->notice(in);
}

}  // namespace rubato::simulate
