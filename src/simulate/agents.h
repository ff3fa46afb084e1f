// Agents: the agents of a simulated cluster's nodes, real or light, and the notices that their machines get.
#pragma once

#include <map>
#include <string>

#include "core/channel.h"
#include "node/machine_notice.h"
#include "provider/node_provider.h"
#include "sim/simulation.h"
#include "simulate/cloud.h"
#include "simulate/light_agent.h"
#include "world/http_server.h"
#include "world/in_place.h"

namespace rubato::simulate {

// In simulation the name of a certificate's file is who one is.
ChannelKey cluster_key(const std::string& name);

// As agents of a real cluster offer it; the jobs of a scenario are scripts without the training library, which take no
// notice.
class NoLibrary final : public InPlaceHost {
 public:
  std::unique_ptr<PlanBoard> make_board(std::function<void()> on_report) override;
  std::unique_ptr<MeetingStore> open_store(const std::string& token, bool loopback) override;
};

// The supervisor's port of one agent. Requests are handed to it as a worker's would be.
class SupervisorPort final : public HttpServer {
 public:
  SupervisorPort(uint16_t port, Loop& loop) : port_(port), requests_(loop) {}
  uint16_t port() const override { return port_; }
  Task<void> serve(HttpHandler handler, HttpAdmit admit) override;
  void give(ServerRequest request) { requests_.push(std::move(request)); }

 private:
  const uint16_t port_;
  Channel<ServerRequest> requests_;
};

class Agents {
 public:
  Agents(const Scenario& scenario, LightGroups& groups) : scenario_(scenario), groups_(groups) {}

  sim::SimProgram& start(sim::SimMachine& machine, const provider::NodeOrder& order, Instance& instance);
  // Its machine goes away in a while: the cloud tells it when, or only SIGTERM comes, as init sends it.
  void notice(const Instance& instance, Duration in, bool by_signal);
  // A worker's request to the supervisor that it was told of. Nobody may be there any more.
  void request(const std::string& supervisor_url, const std::string& method, const std::string& path, std::string body);

 private:
  static Task<int> real_main(sim::SimProgram& self, Agents& agents, provider::NodeOrder order, std::string address);
  static Task<int> light_main(sim::SimProgram& self, Agents& agents, provider::NodeOrder order);
  Resources resources_of(const provider::NodeOrder& order) const;

  const Scenario& scenario_;
  LightGroups& groups_;
  struct Inbox {
    Inbox(sim::SimProgram& program_in) : program(program_in), signals(program_in.loop()), notices(program_in.loop()) {}
    sim::SimProgram& program;
    Channel<int> signals;
    Channel<node::MachineNotice> notices;
  };
  NoLibrary no_library_;
  std::map<rubato::NodeId, Inbox*> inboxes_;  // of agents that run
  std::map<rubato::NodeId, LightAgent*> light_;
  std::map<uint16_t, SupervisorPort*> supervisors_;
  uint16_t supervisors_started_ = 0;
};

}  // namespace rubato::simulate
