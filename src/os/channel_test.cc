#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>

#include "os/certificates.h"
#include "os/channel_connection.h"
#include "os/etcd_for_test.h"
#include "os/neighbour_for_test.h"
#include "os/network.h"

namespace rubato::os {
namespace {

constexpr Duration kPatience = 60s;  // a deadline that is not meant to come

// The files of one cluster, and keys for its members.
class ClusterForTest {
 public:
  ClusterForTest() { make_cluster_ca(folder_.path); }
  std::string at(const std::string& name) const { return folder_.path + "/" + name; }
  ChannelKey member(const std::string& name, std::chrono::seconds life = kCertificateLife) {
    const std::string file = "m" + std::to_string(++members_);
    issue_certificate(folder_.path, name, {}, at(file + ".pem"), at(file + ".key"), life);
    ChannelKey key = nameless();
    key.identity.certificate = at(file + ".pem");
    key.identity.key = at(file + ".key");
    return key;
  }
  // Trusts the CA, but has nothing to show.
  ChannelKey nameless() const {
    ChannelKey key;
    key.identity.use_tls = true;
    key.identity.ca = at("ca.pem");
    return key;
  }

 private:
  FolderForTest folder_;
  int members_ = 0;
};

ChannelKey secret(const std::string& text) {
  ChannelKey key;
  key.secret = text;
  return key;
}

struct Seen {
  std::string name_at_server, name_at_client, heard_at_server, heard_at_client;
  std::optional<ConnectFailure> failure;
  bool accepted = false;
};

Task<void> accept_one(Listener& listener, Seen& seen) {
  std::unique_ptr<Connection> connection = co_await listener.accept();
  seen.accepted = true;
  seen.name_at_server = connection->peer_name();
  connection->send("from server");
  seen.heard_at_server = (co_await connection->receive()).value_or("(end)");
  co_await connection->receive();
}

Task<int> meet(Runtime& runtime, ChannelKey server, ChannelKey client, Seen& seen) {
  RealNetwork network(runtime);
  const Endpoint anywhere{"127.0.0.1", 0};
  const std::unique_ptr<Listener> listener = network.listen(anywhere, server, kPatience);
  Scope scope(runtime);
  scope.spawn(accept_one(*listener, seen));
  const Endpoint there{"127.0.0.1", listener->port()};
  const Instant deadline = runtime.now() + kPatience;
  ConnectResult result = co_await network.connect(there, client, deadline, kPatience);
  seen.failure = result.failure;
  if (!result.connection) {
    co_await Sleep(runtime, runtime.now() + 50ms);  // for the server to take in what it should not
    co_return 1;
  }
  seen.name_at_client = result.connection->peer_name();
  result.connection->send("from client");
  seen.heard_at_client = (co_await result.connection->receive()).value_or("(end)");
  while (seen.heard_at_server.empty() && runtime.now() < deadline) co_await Sleep(runtime, runtime.now() + 1ms);
  co_return 0;
}

Seen meeting(const ChannelKey& server, const ChannelKey& client) {
  Runtime runtime;
  Seen seen;
  runtime.run(meet(runtime, server, client, seen));
  return seen;
}

void expect_rejected(const ChannelKey& server, const ChannelKey& client) {
  const Seen seen = meeting(server, client);
  EXPECT_FALSE(seen.accepted);
  ASSERT_TRUE(seen.failure);
  EXPECT_EQ(seen.failure->kind, ConnectFailure::Kind::kRejected) << seen.failure->message;
}

TEST(ChannelIdentity, MembersOfOneClusterMeetAndKnowTheirNames) {
  ClusterForTest cluster;
  const Seen seen = meeting(cluster.member("head"), cluster.member("node/n-7"));
  ASSERT_FALSE(seen.failure) << seen.failure->message;
  EXPECT_EQ(seen.name_at_server, "node/n-7");
  EXPECT_EQ(seen.name_at_client, "head");
  EXPECT_EQ(seen.heard_at_server, "from client");
  EXPECT_EQ(seen.heard_at_client, "from server");
}

TEST(ChannelIdentity, OneOfAnotherCaIsRejected) {
  ClusterForTest cluster, other;
  expect_rejected(cluster.member("head"), other.member("node/n-7"));
}

TEST(ChannelIdentity, ACertificateOfAnotherCaIsRejectedByAServerThatTheClientTrusts) {
  ClusterForTest cluster, other;
  ChannelKey impostor = other.member("node/n-7");
  impostor.identity.ca = cluster.at("ca.pem");
  expect_rejected(cluster.member("head"), impostor);
}

TEST(ChannelIdentity, AServerOfAnotherCaIsRejectedThoughItTrustsTheClient) {
  ClusterForTest cluster, other;
  ChannelKey impostor = other.member("head");
  impostor.identity.ca = cluster.at("ca.pem");
  expect_rejected(impostor, cluster.member("node/n-7"));
}

TEST(ChannelIdentity, OneWithoutACertificateIsRejected) {
  ClusterForTest cluster;
  expect_rejected(cluster.member("head"), cluster.nameless());
}

TEST(ChannelIdentity, AnExpiredCertificateIsRejectedOnEitherSide) {
  ClusterForTest cluster;
  const std::chrono::seconds over(-60);
  expect_rejected(cluster.member("head"), cluster.member("node/n-7", over));
  expect_rejected(cluster.member("head", over), cluster.member("node/n-7"));
}

TEST(ChannelIdentity, ASecretIsNoCertificate) {
  ClusterForTest cluster;
  expect_rejected(cluster.member("head"), secret("words"));
  expect_rejected(secret("words"), cluster.member("node/n-7"));
}

TEST(ChannelIdentity, NamesTheFileThatCannotBeUsed) {
  ClusterForTest cluster;
  ChannelKey broken = cluster.member("head");
  broken.identity.certificate = "/no/such/head.pem";
  try {
    meeting(broken, cluster.member("node/n-7"));
    FAIL() << "listened without a certificate";
  } catch (const Error& error) {
    EXPECT_EQ(error.where, "/no/such/head.pem");
  }
}

// Talks to the port without TLS, or not at all.
Task<int> strangers_come(Runtime& runtime, ChannelKey server, ChannelKey client, Seen& seen) {
  RealNetwork network(runtime);
  const Endpoint anywhere{"127.0.0.1", 0};
  const std::unique_ptr<Listener> listener = network.listen(anywhere, server, kPatience);
  Scope scope(runtime);
  scope.spawn(accept_one(*listener, seen));
  std::vector<int> strangers;
  for (const char* text : {"", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02"}) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(listener->port());
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::send(fd, text, strlen(text), MSG_NOSIGNAL);
    strangers.push_back(fd);
  }
  const Endpoint there{"127.0.0.1", listener->port()};
  const Instant deadline = runtime.now() + kPatience;
  ConnectResult result = co_await network.connect(there, client, deadline, kPatience);
  EXPECT_FALSE(result.failure);
  while (!seen.accepted && runtime.now() < deadline) co_await Sleep(runtime, runtime.now() + 1ms);
  EXPECT_EQ(seen.name_at_server, "node/n-7");
  for (const int fd : strangers) ::close(fd);
  co_return 0;
}

TEST(ChannelIdentity, StrangersDoNotKeepMembersWaiting) {
  ClusterForTest cluster;
  Runtime runtime;
  Seen seen;
  runtime.run(strangers_come(runtime, cluster.member("head"), cluster.member("node/n-7"), seen));
}

// Another user's connections fill his own places, whatever they say or do not say.
Task<int> crowd_comes(Runtime& runtime, ChannelKey server, ChannelKey client) {
  RealNetwork network(runtime);
  const Endpoint anywhere{"127.0.0.1", 0};
  const std::unique_ptr<Listener> listener = network.listen(anywhere, server, kPatience);
  const NeighbourForTest idle(listener->port(), 300, "");
  const NeighbourForTest half(listener->port(), 300, std::string_view("\x16\x03\x01\x02\x00\x01", 6));
  const Endpoint there{"127.0.0.1", listener->port()};
  std::vector<std::unique_ptr<Connection>> members;
  for (int i = 0; i < 20; ++i) {
    const Instant deadline = runtime.now() + kPatience;
    ConnectResult result = co_await network.connect(there, client, deadline, kPatience);
    EXPECT_FALSE(result.failure) << result.failure->message;
    if (result.failure) break;
    members.push_back(std::move(result.connection));
    const std::unique_ptr<Connection> accepted = co_await listener->accept();
    EXPECT_EQ(accepted->peer_name(), server.identity.use_tls ? "node/n-7" : "");
  }
  co_return 0;
}

TEST(ChannelIdentity, AnotherUsersCrowdKeepsNobodyOut) {
  if (!NeighbourForTest::possible()) GTEST_SKIP() << "needs root";
  ClusterForTest cluster;
  Runtime runtime;
  runtime.run(crowd_comes(runtime, cluster.member("head"), cluster.member("node/n-7")));
}

TEST(ChannelSecret, AnotherUsersCrowdKeepsNobodyOut) {
  if (!NeighbourForTest::possible()) GTEST_SKIP() << "needs root";
  Runtime runtime;
  runtime.run(crowd_comes(runtime, secret("words"), secret("words")));
}

// At a port and at a socket's file, which may have a long path.
Task<int> meet_at_file(Runtime& runtime, ChannelKey server, ChannelKey client, std::string file) {
  RealNetwork network(runtime);
  const std::vector<Endpoint> endpoints = {Endpoint{"127.0.0.1", 0}, Endpoint{file, 0}};
  std::unique_ptr<Listener> listener = make_listener(runtime, endpoints, server, kPatience);
  const std::vector<Endpoint> targets = {Endpoint{"127.0.0.1", listener->port()}, Endpoint{file, 0}};
  for (const Endpoint& there : targets) {
    const Instant deadline = runtime.now() + kPatience;
    ConnectResult result = co_await network.connect(there, client, deadline, kPatience);
    EXPECT_FALSE(result.failure) << result.failure->message;
    if (result.failure) co_return 1;
    const std::unique_ptr<Connection> accepted = co_await listener->accept();
    EXPECT_EQ(accepted->peer_name(), "node/n-7");
    EXPECT_EQ(accepted->peer_address(), "127.0.0.1");
    EXPECT_EQ(result.connection->local_address(), "127.0.0.1");
    result.connection->send(std::string(3 << 20, 'x'));
    const std::optional<std::string> heard = co_await accepted->receive();
    EXPECT_EQ(heard.value_or("").size(), size_t{3} << 20);
  }
  listener.reset();
  const Endpoint gone{file, 0};
  const Instant deadline = runtime.now() + kPatience;
  const ConnectResult refused = co_await network.connect(gone, client, deadline, kPatience);
  EXPECT_TRUE(refused.failure && refused.failure->kind == ConnectFailure::Kind::kRefused);
  co_return 0;
}

TEST(ChannelFile, MembersMeetAtASocketsFileHoweverLongItsPath) {
  ClusterForTest cluster;
  FolderForTest folder;
  for (const std::string& part : {std::string("s"), std::string(150, 'l')}) {
    std::filesystem::create_directory(folder.path + "/" + part);
    Runtime runtime;
    runtime.run(meet_at_file(runtime, cluster.member("head"), cluster.member("node/n-7"),
                             folder.path + "/" + part + "/agents.sock"));
  }
}

// It reads nothing: what is written to it is not taken for long.
Task<int> write_to_a_stopped_one(Runtime& runtime, std::string file) {
  RealNetwork network(runtime);
  const std::vector<Endpoint> endpoints = {Endpoint{file, 0}};
  const ChannelKey key = secret("words");
  const std::unique_ptr<Listener> listener = make_listener(runtime, endpoints, key, kPatience);
  const Instant deadline = runtime.now() + kPatience;
  ConnectResult result = co_await network.connect(endpoints[0], key, deadline, 200ms);
  const std::unique_ptr<Connection> accepted = co_await listener->accept();
  // More than a thousand messages wait for a receiver that never asks: reading stops, then the kernel is full.
  for (int i = 0; i < 3000; ++i) result.connection->send(std::string(4096, 'x'));
  while (result.connection->ended() == Connection::End::kOpen && runtime.now() < deadline)
    co_await Sleep(runtime, runtime.now() + 10ms);
  EXPECT_EQ(result.connection->ended(), Connection::End::kSilent);
  co_return 0;
}

TEST(ChannelFile, ASilentPeerIsNoticed) {
  FolderForTest folder;
  Runtime runtime;
  runtime.run(write_to_a_stopped_one(runtime, folder.path + "/agents.sock"));
}

TEST(ChannelSecret, StillMeetsAndHasNoName) {
  const Seen seen = meeting(secret("words"), secret("words"));
  ASSERT_FALSE(seen.failure) << seen.failure->message;
  EXPECT_EQ(seen.name_at_server, "");
  EXPECT_EQ(seen.heard_at_client, "from server");
  expect_rejected(secret("words"), secret("other words"));
}

}  // namespace
}  // namespace rubato::os
