#include "elastic/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato::elastic {
namespace {

using nlohmann::json;

constexpr Instant kNow = Instant{} + 1000s;

MemberInfo some_member() {
  MemberInfo member;
  member.id.value = "0123abcd";
  member.host = "node7";
  member.machine = "machine-id";
  member.address = "10.0.0.7";
  member.addresses = {"10.0.0.7", "fe80::7"};
  member.peer_port = 65535;
  member.nproc = 8;
  member.role = "trainer";
  member.node_rank = 0;
  member.identity = "worker-0";
  return member;
}

Claim some_claim() {
  Claim claim;
  claim.epoch = 3;
  claim.generation = 9;
  claim.round = 8;
  claim.round_size = 5;
  claim.in_round = true;
  claim.running = true;
  claim.succeeded = true;
  claim.seniority = 4;
  claim.restarts_used = 2;
  claim.peers = {{AgentId{"p"}, "node3", "10.0.0.3", 4000, true}};
  return claim;
}

Failure some_failure(int rank = 3) {
  Failure failure;
  failure.host = "node7";
  failure.rank = rank;
  failure.local_rank = 1;
  failure.pid = 4711;
  failure.generation = 8;
  failure.exit_code = 1;
  failure.signal = 9;
  failure.at = kNow - 1500ms;
  failure.message = "RuntimeError: \"x\"\n";
  failure.traceback = "Traceback\n  File";
  failure.error_file = "/tmp/error.json";
  return failure;
}

View some_view() {
  View view;
  view.legacy.epoch = 3;
  view.legacy.generation = uint64_t{1} << 63;
  view.legacy.round = 8;
  view.legacy.round_size = 5;
  view.legacy.restarts_used = 2;
  view.legacy.causes = {"rank 0 on a: exit code 1", "rank 1 on b: exit code 2"};
  view.legacy.next_seniority = 12;
  view.legacy.spares = 3;
  view.legacy.terms.min_nodes = 2;
  view.legacy.terms.max_nodes = 5;
  view.legacy.terms.max_restarts = 7;
  view.legacy.terms.last_call = 250ms;
  view.legacy.terms.join_timeout = 90s;
  view.legacy.terms.heartbeat = 1500ms;
  view.legacy.terms.first_round_after = 5s;
  view.legacy.terms.needs_quorum = false;
  view.phase = Phase::kEnded;
  view.reason = "why";
  view.provisional = true;
  view.seniority = 4;
  view.assignment = Assignment{1, 2, 3, 4, 5, 6};
  view.master_addr = "10.0.0.1";
  view.master_port = 29500;
  view.host.value = "host-id";
  view.host_in_round = view.host_leaves = true;
  Successor successor;
  successor.id.value = "s";
  successor.host = "node2";
  successor.address = "10.0.0.2";
  successor.port = 4000;
  successor.in_round = true;
  successor.identity = "worker-0";
  view.successors = {successor};
  view.missing = {successor, successor};
  view.plan = GroupPlan{{{"a-1", 0, 0}, {"b-2", 1, 1}}, {"c-3"}, {"10.0.0.1", 4711, "a token"}};
  view.restart = view.prepare = true;
  view.legacy.terms.spares = 2;
  view.legacy.terms.step = 2;
  view.succeeded = true;
  view.failures = {some_failure(3), some_failure(4)};
  return view;
}

Ready some_ready() {
  Ready ready{9, 29501};
  ready.workers.slots = {{"0123abcd-1", 0, WorkerStage::kVeteran}, {"0123abcd-7", 1, WorkerStage::kFresh}};
  ready.workers.store = {"", 4711, "a token"};
  ready.workers.stopped = ready.workers.finished = true;
  return ready;
}

std::vector<Message> one_of_each() {
  return {Join{"run", some_member(), some_claim()},
          some_ready(),
          Failed{8, {some_failure()}},
          Succeeded{8},
          Leave{"SIGTERM"},
          Beat{-5, 7, 8, 9},
          some_view(),
          Refused{"no room"},
          Moved{"node2", 4000, 4, 3},
          Where{4, 3, true, 2, AgentId{"w"}},
          Settled{8},
          Offer{8},
          Broken{8, "a peer was lost"}};
}

template <class T>
T round_trip(const T& message) {
  return std::get<T>(decode(encode(message, kNow), kNow));
}

// The whole contract of decode: a message, or an Error.
bool is_message(const std::string& text) {
  try {
    decode(text, kNow);
    return true;
  } catch (const Error& error) {
    EXPECT_FALSE(error.message.empty());
    return false;
  }
}

void expect_same(const Failure& a, const Failure& b) {
  EXPECT_EQ(a.host, b.host);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.local_rank, b.local_rank);
  EXPECT_EQ(a.pid, b.pid);
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.exit_code, b.exit_code);
  EXPECT_EQ(a.signal, b.signal);
  EXPECT_EQ(a.at, b.at);
  EXPECT_EQ(a.message, b.message);
  EXPECT_EQ(a.traceback, b.traceback);
  EXPECT_EQ(a.error_file, b.error_file);
}

void expect_same(const Legacy& a, const Legacy& b) {
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.round, b.round);
  EXPECT_EQ(a.round_size, b.round_size);
  EXPECT_EQ(a.spares, b.spares);
  EXPECT_EQ(a.restarts_used, b.restarts_used);
  EXPECT_EQ(a.causes, b.causes);
  EXPECT_EQ(a.next_seniority, b.next_seniority);
  EXPECT_EQ(a.terms, b.terms);
}

TEST(Wire, EveryKindOfMessageComesBackAsThatKindAndTheSameText) {
  const std::vector<Message> messages = one_of_each();
  for (size_t kind = 0; kind < messages.size(); ++kind) {
    EXPECT_EQ(messages[kind].index(), kind) << "one_of_each() must have every kind";
    const std::string text = encode(messages[kind], kNow);
    const Message back = decode(text, kNow);
    EXPECT_EQ(back.index(), kind);
    EXPECT_EQ(encode(back, kNow), text);
  }
  EXPECT_EQ(messages.size(), std::variant_size_v<Message>);
}

TEST(Wire, AJoinKeepsTheMemberAndItsClaim) {
  const Join sent{"run", some_member(), some_claim()};
  const Join back = round_trip(sent);
  EXPECT_EQ(back.run_id, "run");
  EXPECT_EQ(back.member.id, sent.member.id);
  EXPECT_EQ(back.member.host, sent.member.host);
  EXPECT_EQ(back.member.machine, sent.member.machine);
  EXPECT_EQ(back.member.address, sent.member.address);
  EXPECT_EQ(back.member.addresses, sent.member.addresses);
  EXPECT_EQ(back.member.peer_port, 65535);
  EXPECT_EQ(back.member.nproc, 8);
  EXPECT_EQ(back.member.role, "trainer");
  EXPECT_EQ(back.member.node_rank, 0);
  EXPECT_EQ(back.member.identity, "worker-0");
  EXPECT_EQ(back.claim.epoch, 3u);
  EXPECT_EQ(back.claim.generation, 9u);
  EXPECT_EQ(back.claim.round, 8u);
  EXPECT_EQ(back.claim.round_size, 5);
  EXPECT_TRUE(back.claim.in_round && back.claim.running && back.claim.succeeded);
  EXPECT_EQ(back.claim.seniority, 4u);
  ASSERT_EQ(back.claim.peers.size(), 1u);
  EXPECT_EQ(back.claim.peers[0].address, "10.0.0.3");
  EXPECT_EQ(back.claim.restarts_used, 2);
}

TEST(Wire, AnAgentWithoutANodeRankStaysWithout) {
  Join join{"run", some_member(), {}};
  join.member.node_rank.reset();
  EXPECT_EQ(round_trip(join).member.node_rank, std::nullopt);
}

TEST(Wire, AViewKeepsEveryField) {
  const View sent = some_view();
  const View back = round_trip(sent);
  expect_same(back.legacy, sent.legacy);
  EXPECT_EQ(back.phase, sent.phase);
  EXPECT_EQ(back.reason, sent.reason);
  EXPECT_TRUE(back.provisional);
  EXPECT_EQ(back.seniority, sent.seniority);
  EXPECT_EQ(back.assignment, sent.assignment);
  EXPECT_EQ(back.master_addr, sent.master_addr);
  EXPECT_EQ(back.master_port, sent.master_port);
  EXPECT_EQ(back.host, sent.host);
  EXPECT_TRUE(back.host_in_round && back.host_leaves);
  EXPECT_EQ(back.plan, sent.plan);
  EXPECT_TRUE(back.restart);
  EXPECT_TRUE(back.prepare);
  EXPECT_TRUE(back.succeeded);
  ASSERT_EQ(back.missing.size(), 2u);
  EXPECT_EQ(back.missing[1].id.value, "s");
  ASSERT_EQ(back.successors.size(), 1u);
  EXPECT_EQ(back.successors[0].id.value, "s");
  EXPECT_EQ(back.successors[0].host, "node2");
  EXPECT_EQ(back.successors[0].address, "10.0.0.2");
  EXPECT_EQ(back.successors[0].port, 4000);
  EXPECT_TRUE(back.successors[0].in_round);
  EXPECT_EQ(back.successors[0].identity, "worker-0");
  ASSERT_EQ(back.failures.size(), 2u);
  expect_same(back.failures[1], sent.failures[1]);
}

TEST(Wire, AStepMustDivideTheLeastSize) {
  for (const int step : {0, -1, 3}) {
    View view = some_view();
    view.legacy.terms.step = step;
    EXPECT_FALSE(is_message(encode(view, kNow))) << step;
  }
}

TEST(Wire, AWorkersNameMustFitIntoAFilesName) {
  for (const char* name : {"", "../a", "a b", "a\n"}) {
    Ready ready = some_ready();
    ready.workers.slots[0].id = name;
    EXPECT_FALSE(is_message(encode(ready, kNow))) << name;
  }
}

TEST(Wire, ASparesViewHasNoPlace) {
  View view = some_view();
  view.assignment.reset();
  view.plan.reset();
  EXPECT_EQ(round_trip(view).assignment, std::nullopt);
  EXPECT_EQ(round_trip(view).plan, std::nullopt);
}

TEST(Wire, SmallMessagesKeepTheirFields) {
  EXPECT_EQ(round_trip(Ready{9, 29501}).generation, 9u);
  EXPECT_EQ(round_trip(Ready{9, 29501}).port, 29501);
  EXPECT_EQ(round_trip(some_ready()).workers, some_ready().workers);
  EXPECT_EQ(round_trip(Settled{8}).generation, 8u);
  EXPECT_EQ(round_trip(Offer{8}).generation, 8u);
  EXPECT_EQ(round_trip(Broken{8, "why"}).reason, "why");
  EXPECT_FALSE(round_trip(Failed{8, {}, false}).in_group);
  EXPECT_EQ(round_trip(Succeeded{8}).generation, 8u);
  EXPECT_EQ(round_trip(Leave{"SIGTERM"}).reason, "SIGTERM");
  EXPECT_EQ(round_trip(Refused{"no"}).reason, "no");
  const Beat beat = round_trip(Beat{123456789, 42, 43, 44});
  EXPECT_EQ(beat.sent_us, 123456789);
  EXPECT_EQ(beat.proof_us, 42);
  EXPECT_EQ(beat.since_us, 43);
  EXPECT_EQ(beat.at_us, 44);
  const Where where = round_trip(Where{4, 3, true, 2, AgentId{"w"}});
  EXPECT_EQ(where.from.value, "w");
  EXPECT_EQ(where.epoch, 4u);
  EXPECT_EQ(where.round, 3u);
  EXPECT_TRUE(where.incumbent);
  EXPECT_EQ(where.seniority, 2u);
  const Moved moved = round_trip(Moved{"node2", 4000, 4, 3});
  EXPECT_EQ(moved.host, "node2");
  EXPECT_EQ(moved.port, 4000);
  EXPECT_EQ(moved.epoch, 4u);
  EXPECT_EQ(moved.round, 3u);
  const Failed failed = round_trip(Failed{8, {some_failure()}});
  EXPECT_EQ(failed.generation, 8u);
  ASSERT_EQ(failed.failures.size(), 1u);
  expect_same(failed.failures[0], some_failure());
}

TEST(Wire, TimesTravelAsAges) {
  const std::string text = encode(Failed{8, {some_failure()}}, kNow);
  const auto failed = std::get<Failed>(decode(text, Instant{} + 5s));
  EXPECT_EQ(failed.failures[0].at, Instant{} + 3500ms);
}

TEST(Wire, BytesThatAreNotUtf8AreReplacedAndNeverThrow) {
  Failure failure = some_failure();
  failure.host = "caf\xe9";
  failure.traceback = "\xff\xfe\x80";
  const std::string text = encode(Failed{8, {failure}}, kNow);
  EXPECT_EQ(std::get<Failed>(decode(text, kNow)).failures[0].host, "caf\xef\xbf\xbd");
}

TEST(Wire, JunkIsRefusedWithAnError) {
  for (const char* junk : {"", " ", "{", "null", "[]", "17", "\"join\"", "{}", "{\"type\":1}", "{\"type\":\"what\"}",
                           "{\"type\":\"ready\"}", "{\"type\":\"ready\",\"generation\":\"9\",\"port\":1}",
                           "{\"type\":\"beat\",\"sent_us\":1}x", "\xff\xfe", "GET / HTTP/1.1\r\n\r\n"}) {
    EXPECT_FALSE(is_message(junk)) << junk;
  }
  EXPECT_FALSE(is_message(std::string(kMessageMax + 1, ' ')));
  EXPECT_FALSE(is_message(std::string(1 << 20, '[')));
}

TEST(Wire, AMessageWithoutOneOfItsFieldsIsRefused) {
  for (const Message& message : one_of_each()) {
    const json whole = json::parse(encode(message, kNow));
    for (const auto& [name, value] : whole.items()) {
      if (name == "assignment" || name == "plan" || name == "host_leaves") continue;  // may be absent
      json part = whole;
      part.erase(name);
      EXPECT_FALSE(is_message(part.dump())) << whole["type"] << " without " << name;
      part[name] = json::array({json::array()});
      EXPECT_FALSE(is_message(part.dump())) << whole["type"] << " with a wrong " << name;
    }
  }
}

TEST(Wire, AnotherProtocolIsRefusedWithAHint) {
  json join = json::parse(encode(Join{"run", some_member(), {}}, kNow));
  join["protocol"] = kProtocol + 1;
  try {
    decode(join.dump(), kNow);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_FALSE(error.hint.empty());
  }
}

TEST(Wire, APhaseOrPlaceThatDoesNotExistIsRefused) {
  json view = json::parse(encode(some_view(), kNow));
  for (const int phase : {-1, 3}) {
    json other = view;
    other["phase"] = phase;
    EXPECT_FALSE(is_message(other.dump()));
  }
  view["assignment"] = {1, 2, 3, 4, 5};
  EXPECT_FALSE(is_message(view.dump()));
}

TEST(Wire, NumbersThatDoNotFitAreRefusedNotCutOff) {
  EXPECT_FALSE(is_message(R"({"type":"ready","generation":1,"port":65537})"));
  EXPECT_FALSE(is_message(R"({"type":"ready","generation":-1,"port":1})"));
  EXPECT_FALSE(is_message(R"({"type":"ready","generation":1.5,"port":1})"));
  json failed = json::parse(encode(Failed{8, {some_failure()}}, kNow));
  failed["failures"][0]["rank"] = int64_t{1} << 32;
  EXPECT_FALSE(is_message(failed.dump()));
}

// Microseconds become nanoseconds: an age of 2^60 overflows.
TEST(Wire, AnAgeBeyondTheClockIsRefused) {
  for (const int64_t age : {int64_t{1} << 60, INT64_MIN, INT64_MAX}) {
    json failed = json::parse(encode(Failed{8, {some_failure()}}, kNow));
    failed["failures"][0]["age_us"] = age;
    EXPECT_FALSE(is_message(failed.dump())) << age;
    json view = json::parse(encode(some_view(), kNow));
    view["legacy"]["terms"]["join_us"] = age;
    EXPECT_FALSE(is_message(view.dump())) << age;
  }
}

RC_GTEST_PROP(Wire, MutatedTextIsAMessageOrAnError, ()) {
  const std::vector<Message> messages = one_of_each();
  std::string text = encode(messages[*rc::gen::inRange<size_t>(0, messages.size())], kNow);
  for (int change = *rc::gen::inRange(1, 4); change > 0; --change) {
    const size_t at = *rc::gen::inRange<size_t>(0, text.size());
    const char byte =
        *rc::gen::oneOf(rc::gen::elementOf(std::string("{}[]\",:0123456789-.eE\\ ntf")), rc::gen::arbitrary<char>());
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      case 2:
        text.erase(at, *rc::gen::inRange<size_t>(1, 20));
        break;
    }
    if (text.empty()) return;
  }
  is_message(text);
}

RC_GTEST_PROP(Wire, AnyTextSurvivesTheTrip, (const std::string& sentence, uint64_t generation)) {
  const std::string valid = round_trip(Leave{sentence}).reason;  // what is no UTF-8 is replaced here
  RC_ASSERT(round_trip(Leave{valid}).reason == valid);
  RC_ASSERT(round_trip(Succeeded{generation}).generation == generation);
}

TEST(WouldBeHosts, RankByEpochThenRoundThenOfficeThenAge) {
  const std::vector<Where> best_first{
      {3, 1, false, 9}, {2, 5, false, 9}, {2, 4, true, 9}, {2, 4, false, 1}, {2, 4, false, 2}};
  for (size_t a = 0; a < best_first.size(); ++a) {
    for (size_t b = 0; b < best_first.size(); ++b) EXPECT_EQ(outranks(best_first[a], best_first[b]), a < b) << a << b;
  }
}

TEST(Wire, CausesThatAreNotUtf8AreReplaced) {
  View view;
  view.legacy.causes = {"rank 0 on caf\xe9: exit code 1"};
  EXPECT_NO_THROW(decode(encode(view, Instant{}), Instant{}));
}

}  // namespace
}  // namespace rubato::elastic
