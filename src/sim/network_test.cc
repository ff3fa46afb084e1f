#include "sim/network.h"

#include <gtest/gtest.h>

#include "sim/simulation.h"

namespace rubato::sim {
namespace {

constexpr uint16_t kPort = 29400;
constexpr Duration kSilence = 10s;

struct Seen {
  std::vector<std::string> messages;
  std::optional<Connection::End> end;
  std::optional<Instant> ended_at, first_at;
  std::optional<ConnectFailure> failure;
  Connection* connection = nullptr;
};

Task<void> listen_to(Connection& connection, SimProgram& program, Seen& seen, Simulator& simulator) {
  while (std::optional<std::string> message = co_await connection.receive()) {
    if (!seen.first_at) seen.first_at = simulator.now();
    seen.messages.push_back(*message);
    if (*message == "bye") program.world().console.out("bye heard\n");
  }
  seen.end = connection.ended();
  seen.ended_at = simulator.now();
}

Task<int> serve(SimProgram& program, Simulator& simulator, Seen& seen, uint16_t port, std::string host) {
  const Endpoint endpoint{host, port};
  const ChannelKey key{"secret"};
  std::unique_ptr<Listener> listener = program.world().network.listen(endpoint, key, kSilence);
  std::unique_ptr<Connection> connection = co_await listener->accept();
  seen.connection = connection.get();
  connection->send("welcome " + connection->peer_address());
  co_await listen_to(*connection, program, seen, simulator);
  seen.connection = nullptr;
  Event never(program.loop());
  co_await never.wait();
  co_return 0;
}

SimProgram::Main server(Simulation& sim, Seen& seen, uint16_t port = kPort, std::string host = {}) {
  return [=, &sim, &seen](SimProgram& program) { return serve(program, sim.simulator, seen, port, host); };
}

Task<int> call_server(SimProgram& program, Simulator& simulator, Seen& seen, std::string host, Duration patience,
                      std::string secret, Duration silence_max) {
  Endpoint endpoint{host, kPort};
  ChannelKey key{secret};
  ConnectResult result =
      co_await program.world().network.connect(endpoint, key, program.loop().now() + patience, silence_max);
  seen.failure = result.failure;
  if (!result.connection) {
    seen.ended_at = simulator.now();
    co_return 1;
  }
  seen.connection = result.connection.get();
  co_await listen_to(*result.connection, program, seen, simulator);
  seen.connection = nullptr;
  co_return 0;
}

SimProgram::Main client(Simulation& sim, Seen& seen, std::string host, Duration patience = 3s,
                        std::string secret = "secret", Duration silence_max = kSilence) {
  return [=, &sim, &seen](SimProgram& program) {
    return call_server(program, sim.simulator, seen, host, patience, secret, silence_max);
  };
}

// A server on node1 and a client on node2, connected.
class Pair : public testing::Test {
 protected:
  void connect(Duration client_silence = kSilence) {
    server_program = &sim.machine(1).start("server", server(sim, at_server));
    client_program = &sim.machine(2).start("client", client(sim, at_client, "node1", 3s, "secret", client_silence));
    sim.simulator.run_for(1s);
    ASSERT_TRUE(at_client.connection);
    ASSERT_TRUE(at_server.connection);
    ASSERT_EQ(at_client.messages, std::vector<std::string>{"welcome 10.0.0.2"});
  }
  Simulation sim{7, 3};
  Seen at_server, at_client;
  SimProgram* server_program = nullptr;
  SimProgram* client_program = nullptr;
};

TEST_F(Pair, MessagesArriveInOrderWhateverIsLost) {
  connect();
  sim.network.faults.loss = 0.3;
  sim.network.faults.stall = 0.1;
  std::vector<std::string> sent;
  for (int i = 0; i < 200; ++i) {
    sent.push_back(std::to_string(i));
    at_client.connection->send(sent.back());
  }
  sim.simulator.run_for(10min);
  EXPECT_EQ(at_server.messages, sent);
  EXPECT_GT(sim.simulator.marked("network.loss"), 0u);
  EXPECT_GT(sim.simulator.marked("network.stall"), 0u);
}

TEST_F(Pair, AKilledProgramIsHeardToClose) {
  connect();
  at_client.connection->send("last words");
  client_program->kill();
  sim.simulator.run_for(100ms);
  EXPECT_EQ(at_server.messages, std::vector<std::string>{"last words"});
  EXPECT_EQ(at_server.end, Connection::End::kClosed);
  EXPECT_FALSE(client_program->running());
  EXPECT_EQ(client_program->exit_code(), std::nullopt);
  EXPECT_EQ(sim.network.connections(), 0u);
}

TEST_F(Pair, ACrashedMachineIsSilent) {
  connect(4s);
  const Instant crashed = sim.now();
  sim.machine(1).crash();
  EXPECT_FALSE(server_program->running());
  sim.simulator.run_for(3900ms);
  EXPECT_EQ(at_client.end, std::nullopt);
  sim.simulator.run_for(2s);
  EXPECT_EQ(at_client.end, Connection::End::kSilent);
  EXPECT_GE(*at_client.ended_at - crashed, 3990ms);
  EXPECT_EQ(sim.network.connections(), 0u);
}

TEST_F(Pair, ARebootedMachineResetsWhatItForgot) {
  connect();
  sim.machine(1).crash();
  sim.simulator.run_for(1s);
  sim.machine(1).reboot();
  sim.simulator.run_for(5s);
  EXPECT_EQ(at_client.end, Connection::End::kClosed);
  EXPECT_EQ(sim.simulator.marked("network.reset"), 1u);
}

TEST_F(Pair, ACutHealedInTimeDelaysOnly) {
  connect();
  const SimNetwork::CutId cut = sim.network.cut({1}, {2});
  at_client.connection->send("a");
  at_server.connection->send("b");
  sim.simulator.run_for(8s);
  EXPECT_TRUE(at_server.messages.empty());
  sim.network.heal(cut);
  sim.simulator.run_for(20s);
  EXPECT_EQ(at_server.messages, std::vector<std::string>{"a"});
  EXPECT_EQ(at_client.messages.back(), "b");
  EXPECT_EQ(at_client.end, std::nullopt);
  EXPECT_EQ(at_server.end, std::nullopt);
  EXPECT_EQ(sim.simulator.marked("network.blocked"), 2u);
}

TEST_F(Pair, ALongCutEndsEachSideByItsOwnPatience) {
  connect(2s);
  const Instant begun = sim.now();
  sim.network.isolate(2);
  sim.simulator.run_for(1min);
  EXPECT_EQ(at_client.end, Connection::End::kSilent);
  EXPECT_EQ(at_server.end, Connection::End::kSilent);
  EXPECT_LT(*at_client.ended_at - begun, 2600ms);
  EXPECT_GT(*at_server.ended_at - begun, 9900ms);
}

TEST_F(Pair, AfterHealingTheSideThatGaveUpResetsTheOther) {
  connect(2s);
  sim.network.isolate(2);
  sim.simulator.run_for(5s);
  EXPECT_EQ(at_client.end, Connection::End::kSilent);
  sim.network.heal();
  sim.simulator.run_for(5s);
  EXPECT_EQ(at_server.end, Connection::End::kClosed);
}

TEST_F(Pair, AOneWayCutStillDeliversTheOtherWay) {
  connect();
  sim.network.cut({1}, {2}, SimNetwork::Direction::kOneWay);
  at_client.connection->send("heard");
  at_server.connection->send("lost");
  sim.simulator.run_for(1s);
  EXPECT_EQ(at_server.messages, std::vector<std::string>{"heard"});
  EXPECT_EQ(at_client.messages.size(), 1u);
  sim.simulator.run_for(20s);
  EXPECT_EQ(at_client.end, Connection::End::kSilent);
  EXPECT_EQ(at_server.end, Connection::End::kSilent);
}

TEST_F(Pair, AFrozenMachineGoesOnWhenThawedInTime) {
  connect();
  sim.machine(1).freeze();
  at_client.connection->send("while frozen");
  sim.simulator.run_for(5s);
  EXPECT_TRUE(at_server.messages.empty());
  sim.machine(1).thaw();
  sim.simulator.run_for(5s);
  EXPECT_EQ(at_server.messages, std::vector<std::string>{"while frozen"});
  EXPECT_EQ(at_client.end, std::nullopt);
}

TEST_F(Pair, AStoppedProgramHearsLateButIsNotSilent) {
  connect();
  server_program->stop();
  at_client.connection->send("while stopped");
  sim.simulator.run_for(1min);
  EXPECT_TRUE(at_server.messages.empty());
  EXPECT_EQ(at_client.end, std::nullopt);
  server_program->resume();
  sim.simulator.run_for(1ms);
  EXPECT_EQ(at_server.messages, std::vector<std::string>{"while stopped"});
}

TEST_F(Pair, APeerThatDoesNotReadIsCutOff) {
  connect();
  server_program->stop();
  const std::string megabyte(1 << 20, 'x');
  for (int i = 0; i < 65; ++i) at_client.connection->send(megabyte);
  sim.simulator.run_for(1s);
  EXPECT_EQ(at_client.end, Connection::End::kClosed);
  EXPECT_EQ(sim.simulator.marked("network.peer_does_not_read"), 1u);
}

TEST(Connect, IsRefusedWhereNothingListens) {
  Simulation sim(1, 2);
  Seen seen;
  sim.machine(2).start("client", client(sim, seen, "10.0.0.1"));
  sim.simulator.run_for(1s);
  ASSERT_TRUE(seen.failure);
  EXPECT_EQ(seen.failure->kind, ConnectFailure::Kind::kRefused);
  EXPECT_EQ(seen.failure->message, "connect to 10.0.0.1:29400 from 10.0.0.2: connection refused");
}

TEST(Connect, IsRefusedAfterTheListenerWasKilled) {
  Simulation sim(1, 2);
  Seen at_server, seen;
  sim.machine(1).start("server", server(sim, at_server)).kill();
  sim.machine(2).start("client", client(sim, seen, "node1"));
  sim.simulator.run_for(1s);
  EXPECT_EQ(seen.failure->kind, ConnectFailure::Kind::kRefused);
}

TEST(Connect, IsRejectedWithAnotherKey) {
  Simulation sim(1, 2);
  Seen at_server, seen;
  sim.machine(1).start("server", server(sim, at_server));
  sim.machine(2).start("client", client(sim, seen, "node1", 3s, "other"));
  sim.simulator.run_for(1s);
  EXPECT_EQ(seen.failure->kind, ConnectFailure::Kind::kRejected);
  EXPECT_FALSE(at_server.connection);
}

TEST(Connect, ReachesNobodyBehindACutOrAtACrashedOrFrozenMachine) {
  for (int fault = 0; fault < 4; ++fault) {
    Simulation sim(1, 2);
    Seen at_server, seen;
    SimProgram& program = sim.machine(1).start("server", server(sim, at_server));
    if (fault == 0) sim.network.cut({1}, {2});
    if (fault == 1) sim.machine(1).crash();
    if (fault == 2) sim.machine(1).freeze();
    if (fault == 3) program.stop();
    sim.machine(2).start("client", client(sim, seen, "node1", 3s));
    sim.simulator.run_for(10s);
    ASSERT_TRUE(seen.failure) << fault;
    EXPECT_EQ(seen.failure->kind, ConnectFailure::Kind::kUnreachable) << fault;
    EXPECT_NEAR(to_seconds(*seen.ended_at - Instant{}), 3.0, 0.01) << fault;
  }
}

TEST(Connect, SucceedsWhenTheCutHealsBeforeTheDeadline) {
  Simulation sim(1, 2);
  Seen at_server, seen;
  sim.machine(1).start("server", server(sim, at_server));
  sim.network.isolate(1);
  sim.simulator.at(Instant{} + 2s, [&] { sim.network.heal(); });
  sim.machine(2).start("client", client(sim, seen, "node1", 10s));
  sim.simulator.run_for(10s);
  EXPECT_FALSE(seen.failure);
  EXPECT_TRUE(seen.connection);
}

TEST(Connect, KnowsNamesAndLoopback) {
  Simulation sim(1, 2);
  Seen at_server, local, remote, unknown;
  sim.machine(1).start("server", server(sim, at_server, kPort, "localhost"));
  sim.machine(1).start("local", client(sim, local, "127.0.0.1"));
  sim.machine(2).start("remote", client(sim, remote, "node1"));
  sim.machine(2).start("unknown", client(sim, unknown, "nowhere"));
  sim.simulator.run_for(2s);
  EXPECT_TRUE(local.connection);
  EXPECT_EQ(remote.failure->kind, ConnectFailure::Kind::kRefused);
  EXPECT_EQ(unknown.failure->kind, ConnectFailure::Kind::kUnreachable);
}

TEST(Listen, PortsAreHeldAndLeased) {
  Simulation sim(1, 1);
  SimProgram& program = sim.machine(1).start("ports", [](SimProgram& self) -> Task<int> {
    Network& network = self.world().network;
    const ChannelKey key{"k"};
    const Endpoint any{"", 0};
    std::unique_ptr<Listener> listener = network.listen(any, key, kSilence);
    std::unique_ptr<PortLease> lease = network.lease_port(0);
    EXPECT_NE(lease->port(), listener->port());
    const Endpoint same{"", lease->port()};
    EXPECT_THROW(network.listen(same, key, kSilence), Error);
    EXPECT_THROW(network.lease_port(listener->port()), Error);
    lease.reset();
    std::unique_ptr<Listener> second = network.listen(same, key, kSilence);
    const Endpoint elsewhere{"10.0.0.9", 1};
    EXPECT_THROW(network.listen(elsewhere, key, kSilence), Error);
    std::string own = "10.0.0.1", other = "etcd";
    EXPECT_TRUE(co_await network.is_local(own));
    EXPECT_FALSE(co_await network.is_local(other));
    EXPECT_EQ(network.addresses(), std::vector<std::string>{"10.0.0.1"});
    const HttpRequest request;
    bool unavailable = false;
    try {
      HttpResponse response = co_await network.call(any, TlsFiles(), request, self.loop().now() + 1s);
    } catch (const Error& error) {
      unavailable = error.code == ErrorCode::kUnavailable;
    }
    EXPECT_TRUE(unavailable);
    co_return 0;
  });
  EXPECT_EQ(program.exit_code(), 0) << program.console().err_text();
}

struct Met {
  std::string at_server, at_client;
  std::optional<ConnectFailure> failure;
};

Task<int> admit(SimProgram& program, ChannelKey key, Met& met) {
  const Endpoint endpoint{"", kPort};
  std::unique_ptr<Listener> listener = program.world().network.listen(endpoint, key, kSilence);
  std::unique_ptr<Connection> connection = co_await listener->accept();
  met.at_server = connection->peer_name();
  co_await connection->receive();
  co_return 0;
}

Task<int> show(SimProgram& program, ChannelKey key, Met& met) {
  const Endpoint endpoint{"node1", kPort};
  const Instant deadline = program.loop().now() + 3s;
  ConnectResult result = co_await program.world().network.connect(endpoint, key, deadline, kSilence);
  met.failure = result.failure;
  if (!result.connection) co_return 1;
  met.at_client = result.connection->peer_name();
  co_await result.connection->receive();
  co_return 0;
}

Met meeting(const ChannelKey& server_key, const ChannelKey& client_key) {
  Simulation sim(7, 3);
  Met met;
  sim.machine(1).start("server", [&](SimProgram& program) { return admit(program, server_key, met); });
  sim.machine(2).start("client", [&](SimProgram& program) { return show(program, client_key, met); });
  sim.simulator.run_for(5s);
  return met;
}

ChannelKey identity(const std::string& ca, const std::string& certificate) {
  ChannelKey key;
  key.identity.use_tls = true;
  key.identity.ca = ca;
  key.identity.certificate = certificate;
  return key;
}

TEST(Identity, HoldersOfOneCaMeetAndKnowTheirNames) {
  const Met met = meeting(identity("ca", "head"), identity("ca", "node/n-1"));
  EXPECT_FALSE(met.failure);
  EXPECT_EQ(met.at_server, "node/n-1");
  EXPECT_EQ(met.at_client, "head");
}

TEST(Identity, OthersAreRejected) {
  for (const ChannelKey& stranger : {identity("other ca", "node/n-1"), identity("ca", ""), ChannelKey{"secret"}}) {
    const Met met = meeting(identity("ca", "head"), stranger);
    ASSERT_TRUE(met.failure);
    EXPECT_EQ(met.failure->kind, ConnectFailure::Kind::kRejected);
    EXPECT_EQ(met.at_server, "");
  }
}

TEST(Partition, GroupsReachTheirOwnSideOnly) {
  Simulation sim(1, 4);
  const SimNetwork::CutId cut = sim.network.cut({1, 2}, {3, 4, 0});
  EXPECT_TRUE(sim.network.round_trip(1, 2));
  EXPECT_TRUE(sim.network.round_trip(3, 4));
  EXPECT_FALSE(sim.network.round_trip(2, 3));
  EXPECT_FALSE(sim.network.round_trip(1, sim.store.node()));
  sim.network.isolate(4);
  EXPECT_FALSE(sim.network.round_trip(3, 4));
  EXPECT_TRUE(sim.network.round_trip(4, 4));
  sim.network.heal(cut);
  EXPECT_TRUE(sim.network.round_trip(1, 3));
  EXPECT_FALSE(sim.network.round_trip(1, 4));
}

}  // namespace
}  // namespace rubato::sim
