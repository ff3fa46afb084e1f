#include "os/etcd_store.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "os/etcd_for_test.h"
#include "os/http_client.h"

namespace rubato::os {
namespace {

constexpr Duration kLong = 60s;

// HTTP only. It can lose answers: the server acts, but the caller hears of no answer.
class HttpNetwork final : public Network {
 public:
  explicit HttpNetwork(Runtime& runtime) : runtime_(runtime) {}

  bool streams_fail = false;
  int lose_every = 0;  // 0: none; n: every n-th answer of a transaction
  int lost = 0;

  Task<HttpResponse> call(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) override {
    const bool transaction = request.target == "/v3/kv/txn";
    HttpResponse response = co_await http_call(runtime_, endpoint, tls, std::move(request), deadline);
    if (transaction && lose_every > 0 && ++transactions_ % lose_every == 0) {
      ++lost;
      throw Error(ErrorCode::kUnavailable, "the answer was lost");
    }
    co_return response;
  }
  Task<HttpResponse> stream(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant header_deadline,
                            Channel<std::string>& chunks) override {
    if (streams_fail) throw Error(ErrorCode::kUnavailable, "no streams now");
    return http_stream(runtime_, std::move(endpoint), std::move(tls), std::move(request), header_deadline, chunks);
  }

  std::unique_ptr<Listener> listen(const Endpoint&, const ChannelKey&, Duration) override { return nullptr; }
  Task<ConnectResult> connect(Endpoint, ChannelKey, Instant, Duration) override { co_return ConnectResult(); }
  Task<bool> is_local(std::string) override { co_return false; }
  Task<std::vector<std::string>> resolve(std::string) override { co_return std::vector<std::string>(); }
  std::unique_ptr<PortLease> lease_port(uint16_t) override { return nullptr; }
  std::vector<std::string> addresses() override { return {}; }

 private:
  Runtime& runtime_;
  int transactions_ = 0;
};

// What a test's coroutine works with.
struct Bench {
  explicit Bench(EtcdForTest& etcd_in) : Bench(etcd_in, etcd_in.endpoints()) {}
  Bench(EtcdForTest& etcd_in, std::vector<Endpoint> endpoints)
      : etcd(etcd_in), network(runtime), store(network, runtime, std::move(endpoints), etcd_in.tls()) {}

  Instant later() { return runtime.now() + kLong; }
  Task<CommitResult> create(std::string key, std::string value, int64_t lease = 0) {
    std::vector<StoreCondition> conditions(1);
    conditions[0].key = key;
    std::vector<StoreWrite> writes(1);
    writes[0].key = key;
    writes[0].value = value;
    writes[0].lease = lease;
    return store.commit(std::move(conditions), std::move(writes), later());
  }
  Task<CommitResult> remove(std::string key) {
    std::vector<StoreWrite> writes(1);
    writes[0].key = key;
    return store.commit({}, std::move(writes), later());
  }
  void run(Task<int> task) { runtime.run(std::move(task)); }

  EtcdForTest& etcd;
  Runtime runtime;
  HttpNetwork network;
  EtcdStore store;
};

Task<int> get_scan_commit(Bench& bench) {
  const std::string binary("\0\xff\n\"v", 5);
  std::optional<StoreEntry> entry = co_await bench.store.get("a/1", bench.later());
  EXPECT_FALSE(entry);
  const CommitResult made = co_await bench.create("a/1", binary);
  EXPECT_TRUE(made.committed);
  const CommitResult again = co_await bench.create("a/1", "other");
  EXPECT_FALSE(again.committed);
  entry = co_await bench.store.get("a/1", bench.later());
  EXPECT_TRUE(entry && entry->value == binary && entry->created == made.revision && entry->modified == made.revision);

  co_await bench.create("a/2", "");
  co_await bench.create("b", "outside");
  std::vector<StoreCondition> conditions(1);
  conditions[0].key = "a/1";
  conditions[0].created = made.revision;
  std::vector<StoreWrite> writes(2);
  writes[0].key = "a/1";
  writes[0].value = "second";
  writes[1].key = "b";
  const CommitResult changed = co_await bench.store.commit(conditions, writes, bench.later());
  EXPECT_TRUE(changed.committed);
  conditions[0].created = changed.revision;  // modified then, not created
  const CommitResult stale = co_await bench.store.commit(conditions, writes, bench.later());
  EXPECT_FALSE(stale.committed);

  std::vector<StoreEntry> entries = co_await bench.store.scan("a/", bench.later());
  EXPECT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].value, "second");
  EXPECT_EQ(entries[0].modified, changed.revision);
  EXPECT_EQ(entries[1].key, "a/2");
  EXPECT_EQ(entries[1].value, "");
  entries = co_await bench.store.scan("", bench.later());
  EXPECT_EQ(entries.size(), 2u) << "b is deleted and markers are hidden";
  co_return 0;
}

TEST(EtcdStore, GetsScansAndCommits) {
  EtcdForTest etcd;
  Bench bench(etcd);
  bench.run(get_scan_commit(bench));
}

Task<void> try_create(Bench& bench, int i, std::vector<int>& winners) {
  const CommitResult result = co_await bench.create("leader", std::to_string(i));
  if (result.committed) winners.push_back(i);
}

Task<int> ten_creators(Bench& bench) {
  std::vector<int> winners;
  Scope scope(bench.runtime);
  for (int i = 0; i < 10; ++i) scope.spawn(try_create(bench, i, winners));
  co_await scope.join();
  EXPECT_EQ(winners.size(), 1u);
  const std::optional<StoreEntry> entry = co_await bench.store.get("leader", bench.later());
  EXPECT_TRUE(entry && entry->value == std::to_string(winners.at(0)));
  co_return 0;
}

TEST(EtcdStore, LetsOneOfTenConcurrentCreatorsWin) {
  EtcdForTest etcd;
  Bench bench(etcd);
  bench.run(ten_creators(bench));
}

TEST(EtcdStore, LetsOneOfTenCreatorsWinWhenAnswersAreLost) {
  EtcdForTest etcd;
  Bench bench(etcd);
  bench.network.lose_every = 2;
  bench.run(ten_creators(bench));
  EXPECT_GT(bench.network.lost, 0);
}

Task<int> count_up(Bench& bench, int count) {
  for (int i = 0; i < count; ++i) {
    const std::string key = "k/" + std::to_string(i);
    const CommitResult result = co_await bench.create(key, "v");
    EXPECT_TRUE(result.committed) << key;
    const std::optional<StoreEntry> entry = co_await bench.store.get(key, bench.later());
    EXPECT_TRUE(entry && entry->created == entry->modified && entry->modified == result.revision) << key;
    // Unconditional writes hold again after they took effect: only the marker keeps them from happening twice.
    std::vector<StoreWrite> writes(1);
    writes[0].key = key;
    writes[0].value = "w";
    const std::vector<StoreCondition> always;
    const CommitResult written = co_await bench.store.commit(always, writes, bench.later());
    const std::optional<StoreEntry> after = co_await bench.store.get(key, bench.later());
    EXPECT_TRUE(written.committed && after && after->modified == written.revision) << key;
  }
  co_return 0;
}

TEST(EtcdStore, CommitsExactlyOnceWhenAnswersAreLost) {
  EtcdForTest etcd;
  Bench bench(etcd);
  bench.network.lose_every = 3;
  bench.run(count_up(bench, 20));
  EXPECT_GT(bench.network.lost, 0);
}

// The state of a watch, as far as seen.
struct Seen {
  std::map<std::string, std::optional<std::string>> last;
  std::map<std::string, int> puts;
  int read_again = 0;
  bool in_order = true;
  int64_t revision = 0;
};

Task<void> follow(Channel<StoreChange>& changes, Seen& seen, Event& changed) {
  for (;;) {
    std::optional<StoreChange> change = co_await changes.pop();
    if (!change) co_return;
    seen.in_order = seen.in_order && change->revision >= seen.revision;
    seen.revision = std::max(seen.revision, change->revision);
    if (change->key.empty()) {
      ++seen.read_again;
    } else {
      seen.puts[change->key] += change->value ? 1 : 0;
      seen.last[change->key] = change->value;
    }
    changed.notify();
  }
}

Task<int> watch_lease(Bench& bench) {
  Channel<StoreChange> changes(bench.runtime);
  Seen seen;
  Event changed(bench.runtime);
  Scope scope(bench.runtime);
  scope.spawn(follow(changes, seen, changed));
  scope.spawn(bench.store.watch("w/", changes));
  while (seen.read_again == 0) co_await changed.wait();

  const int64_t lease = co_await bench.store.grant_lease(4s, bench.later());  // not over before it is used
  const int64_t revoked = co_await bench.store.grant_lease(600s, bench.later());
  bool alive = co_await bench.store.renew_lease(lease, bench.later());
  EXPECT_TRUE(alive);
  co_await bench.create("w/short", "x", lease);
  co_await bench.create("w/long", "y", revoked);
  co_await bench.create("elsewhere", "z");
  co_await bench.create("w/deleted", "z");
  co_await bench.remove("w/deleted");
  co_await bench.store.revoke_lease(revoked, bench.later());
  co_await bench.store.revoke_lease(revoked, bench.later());
  while (seen.last.size() < 3 || seen.last["w/short"] || seen.last["w/long"] || seen.last["w/deleted"]) {
    co_await changed.wait();
  }
  EXPECT_TRUE(seen.in_order);
  EXPECT_EQ(seen.last.size(), 3u);
  alive = co_await bench.store.renew_lease(lease, bench.later());
  EXPECT_FALSE(alive);
  std::optional<Error> error;
  try {
    co_await bench.create("w/late", "x", lease);
  } catch (const Error& thrown) {
    error = thrown;
  }
  EXPECT_TRUE(error && error->code == ErrorCode::kNotFound);
  co_return 0;
}

TEST(EtcdStore, ShowsExpiredLeasesAndDeletionsToAWatch) {
  EtcdForTest etcd;
  Bench bench(etcd);
  bench.run(watch_lease(bench));
}

Task<int> lose_leader(Bench& bench) {
  constexpr int kCommits = 120;
  Channel<StoreChange> changes(bench.runtime);
  Seen seen;
  Event changed(bench.runtime);
  Scope scope(bench.runtime);
  scope.spawn(follow(changes, seen, changed));
  scope.spawn(bench.store.watch("k/", changes));
  while (seen.read_again == 0) co_await changed.wait();
  const int64_t lease = co_await bench.store.grant_lease(600s, bench.later());
  for (int i = 0; i < kCommits; ++i) {
    if (i == 40) bench.etcd.kill(bench.etcd.leader());
    const std::string key = "k/" + std::to_string(i);
    const CommitResult result = co_await bench.create(key, "v", lease);
    EXPECT_TRUE(result.committed) << key;
  }
  while (seen.last.size() < kCommits) co_await changed.wait();
  EXPECT_TRUE(seen.in_order);
  const std::vector<StoreEntry> entries = co_await bench.store.scan("k/", bench.later());
  EXPECT_EQ(entries.size(), static_cast<size_t>(kCommits));
  for (const StoreEntry& entry : entries) EXPECT_EQ(entry.created, entry.modified) << entry.key;
  const bool alive = co_await bench.store.renew_lease(lease, bench.later());
  EXPECT_TRUE(alive);
  EXPECT_EQ(bench.store.endpoints().size(), 3u);
  co_return 0;
}

TEST(EtcdStoreCluster, LosesNeitherCommitNorChangeWithTheLeader) {
  EtcdForTest etcd(3);
  // Told of one member only, the leader, which dies: the others are learned.
  Bench bench(etcd, {etcd.endpoints()[etcd.leader()]});
  bench.run(lose_leader(bench));
}

Task<int> watch_paused(Bench& bench) {
  Channel<StoreChange> changes(bench.runtime);
  Seen seen;
  Event changed(bench.runtime);
  Scope scope(bench.runtime);
  scope.spawn(follow(changes, seen, changed));
  scope.spawn(bench.store.watch("k/", changes));
  while (seen.read_again == 0) co_await changed.wait();
  bench.etcd.pause(0);  // its kernel still acknowledges; the watch is with it, as the first endpoint
  for (int i = 0; i < 3; ++i) {
    const std::string key = "k/" + std::to_string(i);
    const CommitResult result = co_await bench.create(key, "v");
    EXPECT_TRUE(result.committed);
  }
  while (seen.last.size() < 3) co_await changed.wait();
  co_return 0;
}

TEST(EtcdStoreCluster, LeavesAMemberThatHangs) {
  EtcdForTest etcd(3);
  Bench bench(etcd);
  bench.run(watch_paused(bench));
}

Task<int> compact_behind(Bench& bench) {
  Channel<StoreChange> changes(bench.runtime);
  Seen seen;
  Event changed(bench.runtime);
  Scope scope(bench.runtime);
  scope.spawn(follow(changes, seen, changed));
  scope.spawn(bench.store.watch("k/", changes));
  while (seen.read_again == 0) co_await changed.wait();

  // Before the watch can reconnect, the revisions that it wants are compacted away.
  bench.network.streams_fail = true;
  bench.etcd.kill(0);
  bench.etcd.start(0);
  bench.etcd.wait_healthy(0);
  int64_t revision = 0;
  for (int i = 0; i < 5; ++i) {
    const CommitResult result = co_await bench.create("k/" + std::to_string(i), "v");
    revision = result.revision;
  }
  HttpRequest request;
  request.method = "POST";
  request.target = "/v3/kv/compaction";
  request.body = "{\"revision\":\"" + std::to_string(revision) + "\",\"physical\":true}";
  const Endpoint endpoint = bench.etcd.endpoints()[0];
  const TlsFiles plain;
  const HttpResponse response = co_await bench.network.call(endpoint, plain, std::move(request), bench.later());
  EXPECT_EQ(response.status, 200);
  bench.network.streams_fail = false;
  while (seen.read_again < 2) co_await changed.wait();
  EXPECT_TRUE(seen.last.empty());
  co_await bench.create("k/after", "v");
  while (!seen.last.contains("k/after")) co_await changed.wait();
  co_return 0;
}

TEST(EtcdStore, SaysReadAgainWhenAWatchMissedCompactedChanges) {
  EtcdForTest etcd;
  Bench bench(etcd);
  bench.run(compact_behind(bench));
}

Task<int> expect_unavailable(Bench& bench, std::optional<Error>& error) {
  try {
    co_await bench.store.get("a", bench.runtime.now() + 3s);
  } catch (const Error& thrown) {
    error = thrown;
  }
  co_return 0;
}

TEST(EtcdStore, NamesEveryEndpointThatDidNotAnswer) {
  EtcdForTest etcd(1);
  const std::vector<uint16_t> ports = free_ports_for_test(2);
  std::vector<Endpoint> nobody(2);
  for (size_t i = 0; i < 2; ++i) {
    nobody[i].host = "127.0.0.1";
    nobody[i].port = ports[i];
  }
  Bench bench(etcd, nobody);
  std::optional<Error> error;
  bench.run(expect_unavailable(bench, error));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kUnavailable);
  for (const Endpoint& endpoint : nobody) {
    EXPECT_NE(error->message.find(to_string(endpoint) + ": connection refused"), std::string::npos) << error->message;
    EXPECT_NE(error->hint.find("http://" + to_string(endpoint)), std::string::npos) << error->hint;
  }
  EXPECT_NE(error->hint.find("etcdctl --endpoints="), std::string::npos);
}

TEST(EtcdStore, WorksOverTlsWithAClientCertificate) {
  CertificatesForTest certificates;
  EtcdForTest etcd(1, &certificates);
  Bench bench(etcd);
  bench.run(get_scan_commit(bench));
}

}  // namespace
}  // namespace rubato::os
