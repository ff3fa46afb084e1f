// For tests: a simulated machine whose HTTP calls a test answers. Time is virtual: waits and time-outs cost nothing.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/simulation.h"
#include "world/world.h"

namespace rubato::rest {

struct SentRequest {
  Endpoint endpoint;
  bool tls = false;
  HttpRequest request;
};

// Answers calls by a function, which may throw what a network throws.
class ScriptedNetwork final : public Network {
 public:
  using Answer = std::function<HttpResponse(const SentRequest&)>;

  std::unique_ptr<Listener> listen(const Endpoint&, const ChannelKey&, Duration) override { throw none(); }
  Task<ConnectResult> connect(Endpoint, ChannelKey, Instant, Duration) override { throw none(); }
  Task<bool> is_local(std::string) override { co_return false; }
  Task<std::vector<std::string>> resolve(std::string name) override { co_return names[name]; }
  std::unique_ptr<PortLease> lease_port(uint16_t) override { throw none(); }
  std::vector<std::string> addresses() override { return own; }
  Task<HttpResponse> call(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant) override {
    SentRequest one;
    one.endpoint = std::move(endpoint);
    one.tls = tls.use_tls;
    one.request = std::move(request);
    sent.push_back(one);
    co_return answer(one);
  }
  Task<HttpResponse> stream(Endpoint, TlsFiles, HttpRequest, Instant, Channel<std::string>&) override { throw none(); }

  Answer answer;
  std::map<std::string, std::vector<std::string>> names;  // and their addresses
  std::vector<std::string> own;
  std::vector<SentRequest> sent;

 private:
  static Error none() { return Error(ErrorCode::kFailed, "this network only answers calls"); }
};

inline HttpResponse http_answer(int status, std::string body, std::map<std::string, std::string> headers = {}) {
  HttpResponse out;
  out.status = status;
  out.body = std::move(body);
  out.headers = std::move(headers);
  return out;
}

class ScriptedWorld {
 public:
  explicit ScriptedWorld(uint64_t seed = 1) : simulation(seed, 1) {}

  // Runs the coroutine to its end in virtual time; an Error of it is thrown here.
  void run(std::function<Task<void>(World&)> body) {
    std::exception_ptr failed;
    simulation.machine(1).start("client", [&](sim::SimProgram& self) { return run_in(self, body, failed); });
    const auto& program = *simulation.machine(1).programs().back();
    const Instant until = simulation.simulator.now() + 24h;
    ASSERT_TRUE(simulation.simulator.run_until([&] { return program.exit_code().has_value(); }, until));
    if (failed) std::rethrow_exception(failed);
  }

  void write_file(const std::string& path, std::string_view bytes) {
    simulation.machine(1).disk().make_folders(path.substr(0, path.rfind('/')));
    simulation.machine(1).disk().write(path, bytes);
  }

  sim::Simulation simulation;
  ScriptedNetwork network;

 private:
  Task<int> run_in(sim::SimProgram& self, std::function<Task<void>(World&)> body, std::exception_ptr& failed) {
    World& given = self.world();
    World world{given.clock, network, given.processes, given.files, given.console, given.random, given.machine};
    try {
      Task<void> main = body(world);
      co_await std::move(main);
    } catch (const std::exception&) {
      failed = std::current_exception();
    }
    co_return 0;
  }
};

}  // namespace rubato::rest
