#include "cli/run_rendezvous.h"

#include <gtest/gtest.h>

#include "cli/run_flags.h"
#include "cli/testing.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

LaunchSpec parse(std::string_view line, const Environment& env = {}) {
  std::vector<std::string> arguments;
  for (const std::string_view word : split(line, ' ')) arguments.emplace_back(word);
  arguments.emplace_back("train.py");
  return parse_run(arguments, env, MachineFacts{});
}

Error error_of(std::string_view line, const Environment& env = {}) {
  return usage_error([&] { parse(line, env); });
}

TEST(Rendezvous, OneNodeWithoutAnEndpointIsAlone) {
  EXPECT_TRUE(parse("--nnodes 1").standalone);
  EXPECT_TRUE(parse("--rdzv-backend c10d").standalone);
  EXPECT_TRUE(parse("--rdzv-backend static --master-port 5000").standalone);
  EXPECT_EQ(parse("--rdzv-backend static --master-port 5000").master_port, 5000);
  EXPECT_FALSE(parse("--rdzv-endpoint localhost:29400").standalone);
  // How torchrun's manual asks for any free port.
  EXPECT_TRUE(parse("--rdzv-backend c10d --rdzv-endpoint localhost:0").standalone);
  EXPECT_NE(error_of("--nnodes 2 --rdzv-endpoint node0:0").message.find("cannot meet at port 0"), std::string::npos);
}

TEST(Rendezvous, OneNodeKeepsTheMasterAddressAsItWasGiven) {
  const LaunchSpec spec = parse("--nnodes 1 --node-rank 0 --master-addr localhost --master-port 5000");
  EXPECT_TRUE(spec.standalone);
  EXPECT_EQ(spec.backend, Backend::kStatic);
  EXPECT_EQ(spec.master_addr, "localhost");
  EXPECT_EQ(spec.master_port, 5000);
  EXPECT_EQ(spec.run_id, "none");
  EXPECT_NE(parse("--standalone --master-addr localhost").backend, Backend::kStatic);  // torchrun's c10d
}

TEST(Rendezvous, StandaloneHasAnIdOfItsOwn) {
  const LaunchSpec spec = parse("--standalone --rdzv-id mine");
  EXPECT_EQ(spec.run_id, "");  // the launcher makes one
  EXPECT_EQ(spec.notes.size(), 1u);
  EXPECT_EQ(parse("--rdzv-id mine").run_id, "mine");
  EXPECT_EQ(parse("--nnodes 1").run_id, "none");
}

TEST(Rendezvous, AnEndpointMeansEmbeddedAndTorchrunsDefaultId) {
  const LaunchSpec spec = parse("--nnodes 1:4 --rdzv-endpoint node0:29400");
  EXPECT_EQ(spec.backend, Backend::kEmbedded);
  EXPECT_EQ(spec.endpoint, "node0:29400");
  EXPECT_EQ(spec.run_id, "none");
}

// A ConfigMap or a file often ends with a newline.
TEST(Rendezvous, SpaceAroundAnEndpointIsNoPartOfIt) {
  EXPECT_EQ(parse("--nnodes 2", {{"PET_RDZV_ENDPOINT", "node0:29400\n"}}).endpoint, "node0:29400");
  EXPECT_EQ(parse("--nnodes 2", {{"PET_RDZV_ENDPOINT", " node0 "}}).endpoint, "node0");
  EXPECT_TRUE(parse("--nnodes 1", {{"PET_RDZV_ENDPOINT", " \n"}}).standalone);
  const LaunchSpec fixed = parse("--nnodes 2 --rdzv-backend static", {{"PET_RDZV_ENDPOINT", "node0:5000\n"}});
  EXPECT_EQ(fixed.master_addr, "node0");
  EXPECT_EQ(fixed.master_port, 5000);
}

TEST(Rendezvous, FixedRanksMeanStatic) {
  const LaunchSpec spec = parse("--nnodes 2 --node-rank 1 --master-addr node0");
  EXPECT_EQ(spec.backend, Backend::kStatic);
  EXPECT_EQ(spec.node_rank, 1);
  EXPECT_EQ(spec.master_addr, "node0");
  EXPECT_EQ(spec.master_port, 29500);
  EXPECT_EQ(parse("--nnodes 2 --master-addr node0").node_rank, 0);
  // With an endpoint there is a better way than fixed ranks.
  EXPECT_EQ(parse("--nnodes 2 --node-rank 1 --rdzv-endpoint node0").backend, Backend::kEmbedded);
}

TEST(Rendezvous, VariablesOfKubernetesOperatorsMeanStatic) {
  const LaunchSpec spec = parse(
      "--quiet",
      {{"PET_NNODES", "3"}, {"PET_NODE_RANK", "2"}, {"PET_MASTER_ADDR", "job-worker-0"}, {"PET_MASTER_PORT", "23456"}});
  EXPECT_EQ(spec.backend, Backend::kStatic);
  EXPECT_EQ(spec.master_addr, "job-worker-0");
  EXPECT_EQ(spec.master_port, 23456);
}

TEST(Rendezvous, AStaticEndpointIsTheMaster) {
  const LaunchSpec spec = parse("--nnodes 2 --rdzv-backend static --rdzv-endpoint node0:4000 --node-rank 1");
  EXPECT_EQ(spec.master_addr, "node0");
  EXPECT_EQ(spec.master_port, 4000);
  EXPECT_EQ(spec.endpoint, "");
}

TEST(Rendezvous, StaticGroupsAreCheckedForRangeAndRank) {
  EXPECT_NE(error_of("--nnodes 1:2 --master-addr a").message.find("--nnodes 1:2 is a range"), std::string::npos);
  EXPECT_EQ(error_of("--nnodes 2 --master-addr a --node-rank 2").message, "node rank 2 is not in a group of 2 nodes");
}

TEST(Rendezvous, SeveralNodesNeedAPlaceToMeet) {
  for (const char* line :
       {"--nnodes 2", "--nnodes 2 --node-rank 1", "--nnodes 1:2 --rdzv-backend c10d", "--nnodes 2 --rdzv-endpoint="}) {
    const Error error = error_of(line);
    EXPECT_NE(error.message.find("needs a place where the machines meet"), std::string::npos) << line;
    EXPECT_NE(error.hint.find("--rdzv-endpoint"), std::string::npos);
    EXPECT_NE(error.hint.find("--master-addr"), std::string::npos);
  }
}

TEST(Rendezvous, StandaloneIsForOneMachine) {
  EXPECT_EQ(error_of("--standalone --nnodes 2").message,
            "--standalone is for this machine alone, but --nnodes asks for 2 nodes");
  EXPECT_EQ(error_of("--standalone", {{"PET_NNODES", "2:4"}}).message,
            "--standalone is for this machine alone, but PET_NNODES asks for 2:4 nodes");
  const LaunchSpec one = parse("--standalone", {{"PET_NNODES", "1:4"}});  // as torchrun, after its last call
  EXPECT_EQ(one.max_nodes, 1);
  EXPECT_EQ(one.notes.size(), 1u);
  const LaunchSpec spec = parse("--standalone --rdzv-endpoint node0:1 --rdzv-backend etcd");
  EXPECT_TRUE(spec.standalone);
  EXPECT_EQ(spec.endpoint, "");
  EXPECT_EQ(spec.notes.size(), 2u);
}

TEST(Rendezvous, EtcdTakesSeveralServersAndSaysWhichApiItSpeaks) {
  EXPECT_EQ(parse("--rdzv-backend etcd --rdzv-endpoint a:2379,b:2379").endpoint, "a:2379,b:2379");
  const LaunchSpec secure = parse("--rdzv-backend etcd --rdzv-endpoint https://a:2379/,https://b");
  EXPECT_EQ(secure.endpoint, "a:2379,b:2379");
  EXPECT_TRUE(secure.etcd.https);
  EXPECT_TRUE(parse("--rdzv-backend etcd --rdzv-endpoint a:1").notes.empty());
  EXPECT_EQ(parse("--rdzv-backend etcd-v2 --rdzv-endpoint a:1").notes.size(), 1u);
  EXPECT_EQ(error_of("--rdzv-backend etcd").message, "the etcd backend needs to know where etcd is");
}

TEST(Rendezvous, UnknownBackendsAndBadEndpointsNameTheFlag) {
  EXPECT_EQ(error_of("--rdzv-backend ectd --rdzv-endpoint a:1").hint, "did you mean etcd?");
  EXPECT_TRUE(error_of("--nnodes 2 --rdzv-endpoint node0:99999").message.starts_with("--rdzv-endpoint: "));
}

TEST(RdzvConf, SettingsOfAllBackendsAreRead) {
  const LaunchSpec spec = parse(
      "--rdzv-conf join_timeout=60,last_call_timeout=5,is_host=True,rank=0,protocol=https,cacert=/ca,cert=/c,key=/k");
  EXPECT_EQ(spec.join_timeout, 60s);
  EXPECT_EQ(spec.last_call, 5s);
  EXPECT_EQ(spec.is_host, true);
  EXPECT_TRUE(spec.etcd.https);
  EXPECT_EQ(spec.etcd.ca, "/ca");
  EXPECT_EQ(spec.etcd.certificate, "/c");
  EXPECT_EQ(spec.etcd.key, "/k");
  EXPECT_EQ(parse("--rdzv-conf timeout=9").join_timeout, 9s);
  EXPECT_EQ(parse("--rdzv-conf ssl_cert=/c,ssl_cert_key=/k,ca_cert=/a").etcd.certificate, "/c");
  EXPECT_EQ(parse("--rdzv-conf is_host=0").is_host, false);
}

TEST(RdzvConf, KeepAlivesMakeTheHeartbeatBoundUnlessItIsGiven) {
  EXPECT_EQ(parse("--quiet").heartbeat, 3s);
  EXPECT_EQ(parse("--rdzv-conf keep_alive_interval=2,keep_alive_max_attempt=4").heartbeat, 8s);
  EXPECT_EQ(parse("--rdzv-conf keep_alive_interval=1").heartbeat, 3s);
  EXPECT_EQ(parse("--rdzv-conf keep_alive_interval=2 --heartbeat 1s").heartbeat, 1s);
}

TEST(RdzvConf, TheRankIsTheNodeRankUnlessThatIsGiven) {
  EXPECT_EQ(parse("--nnodes 3 --master-addr a --rdzv-conf rank=2").node_rank, 2);
  EXPECT_EQ(parse("--nnodes 3 --master-addr a --node-rank 1 --rdzv-conf rank=2").node_rank, 1);
}

TEST(RdzvConf, WhatMeansNothingIsNoted) {
  EXPECT_EQ(parse("--rdzv-conf close_timeout=3,read_timeout=4").notes.size(), 2u);
  EXPECT_TRUE(parse("--rdzv-conf store_type=tcp").notes.empty());
  // As torchrun, whose own tests pass such keys.
  const LaunchSpec unknown = parse("--rdzv-conf join_timout=3,last_call_timeout=2");
  ASSERT_EQ(unknown.notes.size(), 1u);
  EXPECT_EQ(unknown.notes[0],
            "--rdzv-conf join_timout has no effect: no such setting is known (did you mean join_timeout?)");
  EXPECT_EQ(unknown.last_call, 2s);
}

TEST(RdzvConf, QuotesThatNoShellTookAreNoPartOfIt) {
  for (const char* conf : {"'join_timeout=5,last_call_timeout=2,timeout=5'", "\"join_timeout=5,last_call_timeout=2\"",
                           "join_timeout='5',last_call_timeout=\"2\""}) {
    const LaunchSpec spec = parse(std::string("--rdzv-conf=") + conf);
    EXPECT_EQ(spec.join_timeout, 5s) << conf;
    EXPECT_EQ(spec.last_call, 2s) << conf;
    EXPECT_TRUE(spec.notes.empty()) << conf;
  }
  EXPECT_EQ(parse("--rdzv-conf=").join_timeout, 600s);
}

TEST(RdzvConf, ErrorsNameFlagAndKey) {
  EXPECT_EQ(error_of("--rdzv-conf join_timeout").message, "--rdzv-conf: 'join_timeout' is not KEY=VALUE");
  EXPECT_EQ(error_of("--rdzv-conf join_timeout=x").message, "--rdzv-conf join_timeout=x: expected a time");
  EXPECT_EQ(error_of("--rdzv-conf is_host=maybe").message, "--rdzv-conf is_host=maybe: expected true or false");
  EXPECT_EQ(error_of("--rdzv-conf store_type=file").message, "--rdzv-conf store_type=file: only tcp is here");
  EXPECT_EQ(error_of("--rdzv-conf cert=/c").message, "--rdzv-conf: cert and key belong together, only one is given");
  EXPECT_EQ(error_of("--quiet", {{"PET_RDZV_CONF", "rank=x"}}).message,
            "PET_RDZV_CONF=rank=x: expected a whole number");
}

}  // namespace
}  // namespace rubato::cli
