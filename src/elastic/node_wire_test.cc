#include "elastic/node_wire.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/limits.h"

namespace rubato::elastic {
namespace {

using nlohmann::json;

constexpr Instant kNow = Instant{} + 1000s;
const std::string kHash(64, 'a');

JobSpec node_spec() {
  JobSpec spec;
  spec.name = "train";
  spec.program = "train.py";
  spec.args = {"--lr", "0.1"};
  spec.env = {{"SEED", "7"}};
  spec.package = kHash;
  spec.workers_min = 2;
  spec.workers_max = 4;
  spec.per_worker.set(kCpu, 1500);
  return spec;
}

JobOrder node_job_order() {
  JobOrder job_order;
  job_order.job.value = "j-7f3a9c2e";
  job_order.generation = 9;
  job_order.phase = Phase::kRunning;
  job_order.workers = 2;
  job_order.grace = 1500ms;
  job_order.place = Assignment{1, 2, 3, 4, 5, 6};
  job_order.master_addr = "10.0.0.7";
  job_order.master_port = 65535;
  job_order.restarts_used = 2;
  job_order.spec = node_spec();
  job_order.output = "/state/jobs/j-7f3a9c2e/output";
  return job_order;
}

JobOrderReport node_report() {
  Failure failure;
  failure.host = "node7";
  failure.rank = 3;
  failure.signal = 9;
  failure.at = kNow - 1500ms;
  failure.message = "RuntimeError: \"x\"\n";
  JobOrderReport report;
  report.job.value = "j-7f3a9c2e";
  report.generation = 9;
  report.state = JobOrderState::kFailed;
  report.port = 29500;
  report.failures = {failure};
  report.problem = "the package does not unpack";
  report.forced = {"rank 3"};
  report.succeeded = 8;
  return report;
}

Hello node_hello() {
  Hello hello;
  hello.version = "0.1.0";
  hello.node.value = "small-3";
  hello.agent.value = "0123abcd";
  hello.info.host = "node7";
  hello.info.addresses = {"10.0.0.7"};
  hello.resources.set(kCpu, 4000);
  hello.head_epoch = 3;
  hello.started = WallTime(5s);
  hello.job_orders = {node_report()};
  return hello;
}

std::string refused_by_agent(std::string_view text) {
  try {
    decode_to_agent(text);
  } catch (const Error& error) {
    return error.message;
  }
  return "";
}
std::string refused_by_head(std::string_view text) {
  try {
    decode_to_head(text);
  } catch (const Error& error) {
    return error.message;
  }
  return "";
}
std::string changed(const std::string& text, std::string_view pointer, const json& value) {
  json j = json::parse(text);
  j[json::json_pointer(std::string(pointer))] = value;
  return j.dump();
}

TEST(NodeWire, OrdersSurviveTheJourney) {
  Orders orders;
  orders.revision = UINT64_MAX;
  orders.job_orders = {node_job_order()};
  orders.drain = true;
  orders.drain_in = 30s;
  const auto back = std::get<Orders>(decode_to_agent(encode(ToAgent{orders})));
  EXPECT_EQ(back.revision, UINT64_MAX);
  EXPECT_TRUE(back.drain);
  EXPECT_EQ(back.drain_in, 30s);
  ASSERT_EQ(back.job_orders.size(), 1u);
  const JobOrder& e = back.job_orders[0];
  EXPECT_EQ(e.job.value, "j-7f3a9c2e");
  EXPECT_EQ(e.generation, 9u);
  EXPECT_EQ(e.phase, Phase::kRunning);
  EXPECT_EQ(e.workers, 2);
  EXPECT_EQ(e.grace, 1500ms);
  EXPECT_EQ(e.place, (Assignment{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(e.master_addr, "10.0.0.7");
  EXPECT_EQ(e.master_port, 65535);
  EXPECT_EQ(e.restarts_used, 2);
  EXPECT_EQ(e.spec, node_spec());
  EXPECT_EQ(e.output, "/state/jobs/j-7f3a9c2e/output");
}

TEST(NodeWire, AJobIsEndedWithoutKnowingIt) {
  JobOrder job_order;
  job_order.job.value = "j-1";
  job_order.phase = Phase::kEnded;
  Orders orders;
  orders.job_orders = {job_order};
  const auto back = std::get<Orders>(decode_to_agent(encode(ToAgent{orders})));
  EXPECT_EQ(back.job_orders.at(0).spec, JobSpec{});
  orders.job_orders[0].phase = Phase::kRunning;
  EXPECT_NE(refused_by_agent(encode(ToAgent{orders})), "");
}

// Many jobs with large environments on one node: each message is one that an agent reads.
TEST(NodeWire, OrdersThatAreTooLongComeInParts) {
  Orders orders;
  orders.revision = 7;
  orders.drain = true;
  for (int i = 0; i < 40; ++i) {
    JobOrder job_order;
    job_order.job.value = "j-" + std::to_string(i);
    job_order.phase = Phase::kRunning;
    job_order.spec.name = "train";
    job_order.spec.program = "train.py";
    for (int v = 0; v < 8; ++v)
      job_order.spec.env["V" + std::to_string(v)] = std::string(100'000, v == 0 ? '\x01' : 'x');
    orders.job_orders.push_back(std::move(job_order));
  }
  for (int i = 0; i < 2'000; ++i) {
    JobOrder many;
    many.job.value = "m-" + std::to_string(i);
    many.phase = Phase::kRunning;
    many.spec.name = "train";
    many.spec.program = "train.py";
    many.spec.args.assign(300, "a");
    orders.job_orders.push_back(std::move(many));
  }
  for (size_t i = 0; i < kOutputsMax; ++i) orders.outputs.push_back({JobId{"o-" + std::to_string(i)}, true});
  ASSERT_NE(refused_by_agent(encode(ToAgent{orders})), "") << "they are too long for one";
  const std::vector<std::string> messages = encode_orders(orders);
  EXPECT_GT(messages.size(), 5u);
  std::vector<std::string> jobs, wanted;
  size_t outputs = 0;
  for (const std::string& message : messages) {
    const auto part = std::get<Orders>(decode_to_agent(message));
    EXPECT_EQ(part.more, &message != &messages.back());
    EXPECT_EQ(part.revision, 7u);
    EXPECT_TRUE(part.drain);
    for (const JobOrder& job_order : part.job_orders) jobs.push_back(job_order.job.value);
    outputs += part.outputs.size();
  }
  for (const JobOrder& job_order : orders.job_orders) wanted.push_back(job_order.job.value);
  EXPECT_EQ(jobs, wanted);
  EXPECT_EQ(outputs, kOutputsMax);
  EXPECT_EQ(encode_orders(Orders{}).size(), 1u);
}

TEST(NodeWire, SmallMessagesToTheAgentSurvive) {
  Welcome welcome;
  welcome.head_epoch = 7;
  welcome.heartbeat = 1500ms;
  const auto w = std::get<Welcome>(decode_to_agent(encode(ToAgent{welcome})));
  EXPECT_EQ(w.head_epoch, 7u);
  EXPECT_EQ(w.heartbeat, 1500ms);
  const auto a = std::get<LogAck>(decode_to_agent(encode(ToAgent{LogAck{JobId{"j-1"}, 12}})));
  EXPECT_EQ(a.job.value, "j-1");
  EXPECT_EQ(a.sequence, 12u);
  EXPECT_FALSE(a.refused);
  const LogAck no_room{.job = JobId{"j-1"}, .sequence = 12, .refused = true};
  EXPECT_TRUE(std::get<LogAck>(decode_to_agent(encode(ToAgent{no_room}))).refused);
  const auto g = std::get<Goodbye>(decode_to_agent(encode(ToAgent{Goodbye{"down", true}})));
  EXPECT_EQ(g.reason, "down");
  EXPECT_TRUE(g.refused);
}

TEST(NodeWire, LeasesSurviveTheJourney) {
  Orders orders;
  orders.job_orders = {node_job_order()};
  orders.job_orders[0].lease = 90s;
  orders.job_orders[0].witnesses = {{AgentId{"a1"}, "10.0.0.1", 4000}, {AgentId{"a2"}, "10.0.0.2", 0}};
  orders.fence = {AgentId{"a3"}};
  const auto read = std::get<Orders>(decode_to_agent(encode(ToAgent(orders))));
  EXPECT_EQ(read.job_orders[0].lease, 90s);
  EXPECT_EQ(read.job_orders[0].witnesses, orders.job_orders[0].witnesses);
  EXPECT_EQ(read.fence, orders.fence);

  LeaseAsk ask;
  ask.node.value = "n-1";
  ask.agent.value = "a1";
  ask.head_epoch = 3;
  ask.sent_us = -5;
  ask.stopped = true;
  ask.rounds = {{JobId{"j-1"}, 5}};
  const auto asked = std::get<LeaseAsk>(decode_to_head(encode(ToHead(ask))));
  EXPECT_EQ(std::tie(asked.node, asked.agent, asked.head_epoch, asked.sent_us, asked.stopped, asked.rounds),
            std::tie(ask.node, ask.agent, ask.head_epoch, ask.sent_us, ask.stopped, ask.rounds));

  LeaseAnswer answer;
  answer.word = LeaseAnswer::Word::kGivenUp;
  answer.sent_us = 77;
  answer.agent.value = "a2";
  answer.rounds = {{JobId{"j-1"}, 5}, {JobId{"j-2"}, 1}};
  const auto answered = std::get<LeaseAnswer>(decode_to_agent(encode(ToAgent(answer))));
  EXPECT_EQ(answered.word, answer.word);
  EXPECT_EQ(answered.sent_us, 77);
  EXPECT_EQ(answered.agent, answer.agent);
  EXPECT_EQ(answered.rounds, answer.rounds);

  const auto reports = std::get<Reports>(decode_to_head(encode(ToHead(Reports{{}, {AgentId{"a3"}}}))));
  EXPECT_EQ(reports.fenced, std::vector<AgentId>{AgentId{"a3"}});
}

TEST(NodeWire, WorkersThatLiveOnSurviveTheJourney) {
  Orders orders;
  orders.job_orders = {node_job_order(), node_job_order()};
  orders.job_orders[0].plan = GroupPlan{{{"a-1", 0, 0}, {"b-2", 1, 1}}, {"c-3"}, {"10.0.0.1", 4711, "a token"}};
  orders.job_orders[1].phase = Phase::kGathering;
  orders.job_orders[1].kept = 6;
  orders.job_orders[1].lease = 77s;
  orders.job_orders[1].witnesses = {{AgentId{"a1"}, "10.0.0.1", 4000}};
  const auto read = std::get<Orders>(decode_to_agent(encode(ToAgent(orders))));
  EXPECT_EQ(read.job_orders[0].plan, orders.job_orders[0].plan);
  EXPECT_EQ(read.job_orders[1].kept, 6u);
  const LeaseTerms terms = lease_terms(read.job_orders[1]);
  EXPECT_EQ(terms.round.generation, 6u) << "they hold the lease of the generation that they train in";
  EXPECT_EQ(terms.lease, Duration(77s));
  EXPECT_EQ(terms.witnesses, orders.job_orders[1].witnesses);

  Reports reports{{node_report()}, {}};
  InPlaceReport& in_place = reports.job_orders[0].in_place.emplace();
  in_place.workers.slots = {{"0123-1", 0, WorkerStage::kVeteran}, {"0123-2", 1, WorkerStage::kFresh}};
  in_place.workers.store = {"", 4711, "a token"};
  in_place.workers.finished = true;
  in_place.planned = 6;
  in_place.living = 2;
  in_place.settled = true;
  in_place.broken = "a peer closed the connection";
  const auto told = std::get<Reports>(decode_to_head(encode(ToHead(reports))));
  EXPECT_EQ(told.job_orders[0].in_place, in_place);
}

TEST(NodeWire, PackageBytesTravelAsTheyAre) {
  PackagePart part;
  part.hash = kHash;
  part.offset = 5;
  part.bytes = std::string("\n\0\xff{\n", 5);
  part.size = 10;
  const auto back = std::get<PackagePart>(decode_to_agent(encode(ToAgent{part})));
  EXPECT_EQ(back.hash, kHash);
  EXPECT_EQ(back.offset, 5u);
  EXPECT_EQ(back.size, 10u);
  EXPECT_EQ(back.bytes, part.bytes);
  part.bytes += 'x';  // beyond its size
  EXPECT_NE(refused_by_agent(encode(ToAgent{part})), "");
  part.bytes.clear();
  EXPECT_EQ(refused_by_agent(encode(ToAgent{part})), "");
  part.hash = "../../etc";
  EXPECT_NE(refused_by_agent(encode(ToAgent{part})), "");
}

TEST(NodeWire, OnlyAPackagePartCarriesBytes) {
  EXPECT_NE(refused_by_agent(encode(ToAgent{Goodbye{}}) + "\nmore"), "");
  EXPECT_NE(refused_by_head(encode(ToHead{NodeBeat{}}) + "\nmore"), "");
}

TEST(NodeWire, HelloSurvivesAndTimesOfFailuresBecomeTheReceivers) {
  const Hello hello = node_hello();
  const auto back = std::get<Hello>(decode_to_head(encode(ToHead{hello}, kNow), kNow + 50s));
  EXPECT_EQ(back.version, "0.1.0");
  EXPECT_EQ(back.node, hello.node);
  EXPECT_EQ(back.agent, hello.agent);
  EXPECT_EQ(back.info.addresses, hello.info.addresses);
  EXPECT_EQ(back.resources, hello.resources);
  EXPECT_EQ(back.head_epoch, 3u);
  EXPECT_EQ(back.started, hello.started);
  EXPECT_EQ(back.job_orders, hello.job_orders);
  EXPECT_EQ(back.job_orders.at(0).failures.at(0).at, kNow + 50s - 1500ms);
}

TEST(NodeWire, SmallMessagesToTheHeadSurvive) {
  EXPECT_EQ(std::get<NodeBeat>(decode_to_head(encode(ToHead{NodeBeat{4}}))).orders, 4u);
  const Reports reports{{node_report()}};
  EXPECT_EQ(std::get<Reports>(decode_to_head(encode(ToHead{reports}))).job_orders, reports.job_orders);
  const auto wanted = std::get<PackageWanted>(decode_to_head(encode(ToHead{PackageWanted{kHash, 7}})));
  EXPECT_EQ(wanted.hash, kHash);
  EXPECT_EQ(wanted.offset, 7u);
  const auto leaving = std::get<Leaving>(decode_to_head(encode(ToHead{Leaving{"spot", 120s}})));
  EXPECT_EQ(leaving.reason, "spot");
  EXPECT_EQ(leaving.in, 120s);
  EXPECT_FALSE(leaving.ends) << "an older agent promises nothing";
  EXPECT_TRUE(std::get<Leaving>(decode_to_head(encode(ToHead{Leaving{"spot", 120s, true}}))).ends);
}

TEST(NodeWire, LogLinesSurviveEvenWhenTheyAreNotText) {
  LogLine line;
  line.sequence = 3;
  line.time_us = -1;
  line.generation = 2;
  line.rank = 5;
  line.is_stderr = true;
  line.text = "loss 0.1\r\t\"";
  LogLine bytes = line;
  bytes.text = std::string(kLogTextMax, '\xff');
  LogLine piece = line;
  piece.continues = true;
  const LogLines lines{.job = JobId{"j-1"}, .lines = {line, bytes, piece}, .agent = {}, .follows = 2};
  const auto back = std::get<LogLines>(decode_to_head(encode(ToHead{lines})));
  EXPECT_EQ(back.job.value, "j-1");
  EXPECT_EQ(back.follows, 2u);
  ASSERT_EQ(back.lines.size(), 3u);
  EXPECT_FALSE(back.lines[0].continues);
  EXPECT_TRUE(back.lines[2].continues);
  EXPECT_EQ(back.lines[0].sequence, 3u);
  EXPECT_EQ(back.lines[0].time_us, -1);
  EXPECT_EQ(back.lines[0].generation, 2u);
  EXPECT_EQ(back.lines[0].rank, 5);
  EXPECT_TRUE(back.lines[0].is_stderr);
  EXPECT_EQ(back.lines[0].text, line.text);
  EXPECT_EQ(back.lines[1].text.substr(0, 3), "\xef\xbf\xbd");
}

TEST(NodeWire, AReportComparesByWhatItSays) {
  JobOrderReport later = node_report();
  later.failures[0].at += 1s;
  EXPECT_EQ(later, node_report());
  later.failures[0].exit_code = 4;
  EXPECT_FALSE(later == node_report());
}

TEST(NodeWire, AnotherProtocolIsToldFromGarbage) {
  const std::string hello = changed(encode(ToHead{node_hello()}), "/protocol", 99);
  EXPECT_NE(refused_by_head(hello).find("protocol 99"), std::string::npos);
  const std::string welcome = changed(encode(ToAgent{Welcome{}}), "/protocol", 99);
  EXPECT_NE(refused_by_agent(welcome).find("protocol 99"), std::string::npos);
}

TEST(NodeWire, RefusesWhatDoesNotFit) {
  Orders orders;
  orders.job_orders = {node_job_order()};
  const std::string text = encode(ToAgent{orders});
  EXPECT_EQ(refused_by_agent(text), "");
  EXPECT_NE(refused_by_agent(changed(text, "/revision", -1)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/revision", 1.5)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/workers", kOrderWorkersMax + 1)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/workers", -1)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/master_port", 65536)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/phase", 3)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/grace_us", -1)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/grace_us", INT64_MAX)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/place", {1, 2, 3})), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/place/2", uint64_t{1} << 40)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands/0/spec/workers_min", -5)), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands", json::object())), "");
  EXPECT_NE(refused_by_agent(changed(text, "/errands", std::vector<int>(kJobOrdersMax + 1))), "");
  EXPECT_NE(refused_by_agent("{\"type\":\"what\"}"), "");
  EXPECT_NE(refused_by_agent("[1]"), "");
  EXPECT_NE(refused_by_agent(""), "");
  EXPECT_NE(refused_by_agent(std::string(kNodeMessageMax + 1, ' ')), "");
}

// They become folders on the node.
TEST(NodeWire, RefusesIdsThatLeadElsewhere) {
  for (const char* id : {"", ".", "..", "../x", "a/b", "a\nb", "a b"}) {
    EXPECT_NE(refused_by_agent(encode(ToAgent{LogAck{JobId{id}, 1}})), "") << id;
  }
  EXPECT_NE(refused_by_agent(encode(ToAgent{LogAck{JobId{std::string(257, 'a')}, 1}})), "");
}

TEST(NodeWire, TheHeadRefusesWhatDoesNotFit) {
  const std::string hello = encode(ToHead{node_hello()});
  EXPECT_EQ(refused_by_head(hello), "");
  EXPECT_NE(refused_by_head(changed(hello, "/errands/0/state", 6)), "");
  EXPECT_NE(refused_by_head(changed(hello, "/errands/0/port", -1)), "");
  EXPECT_NE(refused_by_head(changed(hello, "/errands/0/failures", "x")), "");
  EXPECT_NE(refused_by_head(changed(hello, "/resources", 3)), "");
  EXPECT_NE(refused_by_head(changed(hello, "/node", "../x")), "");
  EXPECT_NE(refused_by_head(changed(hello, "/version", std::string(300, 'v'))), "");
  const std::string lines = encode(ToHead{LogLines{JobId{"j-1"}, {LogLine{}}}});
  EXPECT_NE(refused_by_head(changed(lines, "/lines/0", {1, 2})), "");
  EXPECT_NE(refused_by_head(changed(lines, "/lines/0/5", std::string(3 * kLogTextMax + 1, 'x'))), "");
  EXPECT_NE(refused_by_head(changed(lines, "/lines", std::vector<int>(kLogLinesMax + 1))), "");
  EXPECT_NE(refused_by_head("{}"), "");
}

// What an agent says becomes a record of the journal: it must fit into one.
TEST(NodeWire, WhatAnAgentSaysIsBounded) {
  Hello hello = node_hello();
  const Failure failure = hello.job_orders.at(0).failures.at(0);
  hello.job_orders[0].failures.assign(100, failure);
  for (Failure& one : hello.job_orders[0].failures) one.traceback = std::string(20'000, 't');
  hello.job_orders[0].failures[0].message = "the root cause";
  hello.job_orders[0].problem = std::string(1'000'000, 'p');
  const auto back = std::get<Hello>(decode_to_head(encode(ToHead{hello}, kNow), kNow));
  ASSERT_EQ(back.job_orders.at(0).failures.size(), 100u);
  EXPECT_EQ(back.job_orders[0].failures[0].message, "the root cause");
  EXPECT_EQ(back.job_orders[0].failures[0].traceback.size(), 20'000u);
  size_t bytes = 0;
  for (const Failure& one : back.job_orders[0].failures) bytes += one.message.size() + one.traceback.size();
  EXPECT_LE(bytes, kFailureTextsMax);
  EXPECT_EQ(back.job_orders[0].problem.size(), kAgentTextMax);

  const std::string text = encode(ToHead{node_hello()});
  EXPECT_NE(refused_by_head(changed(text, "/info/addresses", std::vector<std::string>(kAddressesMax + 1, "a"))), "");
  EXPECT_NE(refused_by_head(changed(text, "/info/addresses", {std::string(1000, 'a')})), "");
  json names = json::object();
  for (int i = 0; i < 1000; ++i) names["r" + std::to_string(i)] = 1;
  EXPECT_NE(refused_by_head(changed(text, "/resources", names)), "");
  EXPECT_NE(refused_by_head(changed(text, "/node", std::vector<int>(1'000'000))), "");
  EXPECT_NE(refused_by_head(std::string(5'000'000, '[')), "");
}

// A traceback with colours: each of its escape characters is six in the journal.
TEST(NodeWire, TextsAreBoundedAsTheyAreWritten) {
  Hello hello = node_hello();
  hello.job_orders[0].failures.resize(1);
  hello.job_orders[0].failures[0].message = "the root \"cause\"";
  hello.job_orders[0].failures[0].traceback = std::string(300'000, '\x1b');
  auto back = std::get<Hello>(decode_to_head(encode(ToHead{hello}, kNow), kNow));
  const Failure& one = back.job_orders.at(0).failures.at(0);
  EXPECT_EQ(one.message, "the root \"cause\"");
  EXPECT_GT(one.traceback.size(), kFailureTextsMax / 6 - 100);
  EXPECT_LE(encode(ToHead{back}, kNow).size(), kFailureTextsMax + 4096);

  hello.job_orders[0].failures[0].traceback.clear();
  for (int i = 0; i < 200'000; ++i) hello.job_orders[0].failures[0].traceback += "\xc3\xa9";
  back = std::get<Hello>(decode_to_head(encode(ToHead{hello}, kNow), kNow));
  EXPECT_EQ(back.job_orders.at(0).failures.at(0).traceback.size() % 2, 0u) << "cut between characters";
  EXPECT_LE(encode(ToHead{back}, kNow).size(), kFailureTextsMax + 4096);
}

TEST(NodeWire, ALongTextIsCutBetweenCharacters) {
  std::string reason(kAgentTextMax - 1, 'x');
  reason += "\xc3\xa9";  // two bytes, of which one would fit
  const auto leaving = std::get<Leaving>(decode_to_head(encode(ToHead{Leaving{reason, 1s}})));
  EXPECT_EQ(leaving.reason, std::string(kAgentTextMax - 1, 'x'));
}

TEST(NodeWire, OutputsAreOrderedAndDelivered) {
  Orders orders;
  orders.outputs = {OutputOrder{JobId{"j-1"}, true}, OutputOrder{JobId{"j-2"}, false}};
  EXPECT_EQ(std::get<Orders>(decode_to_agent(encode(ToAgent{orders}))).outputs, orders.outputs);

  Delivery delivery;
  delivery.node.value = "w-1";
  EXPECT_EQ(std::get<Delivery>(decode_to_head(encode(ToHead{delivery}))).node.value, "w-1");
  EXPECT_EQ(std::get<OutputOffer>(decode_to_head(encode(ToHead{OutputOffer{JobId{"j-1"}}}))).job.value, "j-1");

  OutputPart part;
  part.job.value = "j-1";
  part.offset = UINT64_MAX;
  part.bytes = std::string("a\n\0{b", 6);
  const auto middle = std::get<OutputPart>(decode_to_head(encode(ToHead{part})));
  EXPECT_EQ(middle.bytes, part.bytes);
  EXPECT_EQ(middle.offset, UINT64_MAX);
  EXPECT_FALSE(middle.last);
  part.bytes.clear();
  part.last = true;
  part.hash = kHash;
  part.files = 3;
  part.content_bytes = 7;
  const auto last = std::get<OutputPart>(decode_to_head(encode(ToHead{part})));
  EXPECT_TRUE(last.last);
  EXPECT_EQ(last.hash, kHash);
  EXPECT_EQ(last.files, 3u);
  EXPECT_EQ(last.content_bytes, 7u);

  OutputAck ack;
  ack.job.value = "j-1";
  ack.have = 12;
  ack.state = OutputAck::State::kRefused;
  ack.reason = "no room";
  const auto answer = std::get<OutputAck>(decode_to_agent(encode(ToAgent{ack})));
  EXPECT_EQ(answer.have, 12u);
  EXPECT_EQ(answer.state, OutputAck::State::kRefused);
  EXPECT_EQ(answer.reason, "no room");
  const LogLines lines{JobId{"j-1"}, {LogLine{}}, AgentId{"dead"}};
  EXPECT_EQ(std::get<LogLines>(decode_to_head(encode(ToHead{lines}))).agent.value, "dead");
}

TEST(NodeWire, TheHeadRefusesOutputsThatDoNotFit) {
  OutputPart part;
  part.job.value = "../j";
  EXPECT_NE(refused_by_head(encode(ToHead{part})), "");
  part.job.value = "j-1";
  EXPECT_EQ(refused_by_head(encode(ToHead{part})), "");
  part.bytes.assign(kOutputPartMax + 1, 'x');
  EXPECT_NE(refused_by_head(encode(ToHead{part})), "");
  part.bytes.clear();
  part.last = true;
  part.hash = "abc";
  EXPECT_NE(refused_by_head(encode(ToHead{part})), "");
  EXPECT_NE(refused_by_head(R"({"type":"output_part","job":"j-1","offset":0})"), "") << "no bytes";
  EXPECT_NE(refused_by_head(encode(ToHead{OutputOffer{JobId{"j-1"}}}) + "\nbytes"), "");
  EXPECT_NE(refused_by_head(R"({"type":"delivery","protocol":1,"node":"a/b"})"), "");
}

}  // namespace
}  // namespace rubato::elastic
