#include "petctl/node_order.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text.h"
#include "petctl/job_view.h"

namespace rubato::petctl {
namespace {

NodeOrder sample_order() {
  NodeOrder order;
  order.job = "ann-job";
  order.region = "eu-west-1";
  order.bucket = "bucket";
  order.prefix = "petctl/ann-job";
  order.groups = {"ann-job_rdzv", "ann-job_worker"};
  order.size = 2;
  order.min_size = 1;
  order.max_size = 4;
  order.script = {Script::Kind::kS3File, "s3://bucket/petctl/ann-job/main.py", ""};
  order.args = {"--lr", "0.1 \n'\"ü"};
  return order;
}

TEST(NodeOrder, ComesBackFromItsOneLine) {
  const std::string line = to_json(sample_order());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const NodeOrder back = parse_order(line);
  EXPECT_EQ(back.args, sample_order().args);
  EXPECT_EQ(back.groups, sample_order().groups);
  EXPECT_EQ(back.script.kind, Script::Kind::kS3File);
  EXPECT_EQ(to_json(back), line);
  EXPECT_THROW(parse_order("{}"), Error);
  EXPECT_THROW(parse_order("no"), Error);
}

TEST(NodeOrder, AWorkerRunsTheScriptOnTheHost) {
  const std::string line = shell_join(worker_argv(sample_order(), "10.0.0.7:29400"));
  EXPECT_TRUE(
      line.starts_with("/root/rubato/bin/rubato run --nnodes 1:4 --nproc-per-node 1 --rdzv-endpoint "
                       "10.0.0.7:29400 --rdzv-id ann-job "))
      << line;
  EXPECT_NE(line.find(" /root/rubato/work/main.py --lr '0.1 \n'"), std::string::npos) << line;
}

TEST(NodeOrder, AScriptThatIsNoPythonIsStartedAsItIs) {
  NodeOrder order = sample_order();
  order.script = {Script::Kind::kS3Tar, "s3://bucket/dir.tar.gz", "bin/train.sh"};
  const std::string line = shell_join(worker_argv(order, "10.0.0.7:29400"));
  EXPECT_NE(line.find(" --no-python /root/rubato/work/bin/train.sh --lr "), std::string::npos) << line;
}

TEST(NodeOrder, AContainerHasOurBinaryAsItsEntryPoint) {
  NodeOrder order = sample_order();
  order.docker_image = "torchelastic/aws:0.1.0-rc";
  order.gpu = true;
  order.efs = "fs-1";
  const std::string line = join(worker_argv(order, "10.0.0.7:29400"), " ");
  EXPECT_TRUE(line.starts_with(
      "docker run --rm --network host --ipc host --name rubato-job --gpus all --env RDZV_ENDPOINT=10.0.0.7:29400 "
      "--env JOB_ID=ann-job --env MIN_SIZE=1 --env MAX_SIZE=4 --env SIZE=2 "
      "--volume /root/rubato/bin:/root/rubato/bin:ro --volume /root/rubato/work:/root/rubato/work "
      "--volume /root/rubato/state:/root/rubato/state --volume /mnt/efs1:/mnt/efs1 --workdir /root/rubato/work "
      "--entrypoint /root/rubato/bin/rubato torchelastic/aws:0.1.0-rc run --nnodes 1:4 "))
      << line;
}

TEST(NodeOrder, EfsIsMountedByItsRegionsName) {
  NodeOrder order = sample_order();
  order.efs = "fs-1";
  EXPECT_EQ(efs_mount_argv(order)[5], "fs-1.efs.eu-west-1.amazonaws.com:/");
  order.region = "cn-north-1";
  EXPECT_EQ(efs_mount_argv(order)[5], "fs-1.efs.cn-north-1.amazonaws.com.cn:/");
}

TEST(NodeOrder, TheEndIsReadFromAConsole) {
  const std::string console = "boot\n[   12.3] cloud-init[9]: " + end_line("ann-job", "i-1", 3) +
                              end_line("other", "i-2", 0) + "rubato-job-end ann-job i-3 exit x\n";
  const auto found = read_end_lines(console, "ann-job");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].instance, "i-1");
  EXPECT_EQ(found[0].exit_code, 3);
}

// ---- what a job's phase is ----

JobView view_of(std::vector<std::pair<std::string, std::optional<HostReport::State>>> hosts) {
  JobView view;
  view.name = "ann-job";
  view.groups.resize(1);
  view.groups[0].name = "ann-job_worker";
  for (auto& [id, state] : hosts) {
    HostView host;
    host.instance = id;
    host.state = "running";
    host.address = "10.0.0." + id;
    host.launched = "2026-01-0" + id;
    view.hosts.push_back(host);
    if (!state) continue;
    HostReport report;
    report.instance = id;
    report.role = "worker";
    report.state = *state;
    view.reports.push_back(report);
  }
  return view;
}

TEST(JobPhase, OneThatIsDoneSpeaksForAll) {
  using State = HostReport::State;
  EXPECT_EQ(phase_of(view_of({})), JobPhase::kStarting);
  EXPECT_EQ(phase_of(view_of({{"1", std::nullopt}})), JobPhase::kRunning) << "by EC2";
  JobView booting = view_of({{"1", std::nullopt}});
  booting.hosts[0].state = "pending";
  EXPECT_EQ(phase_of(booting), JobPhase::kStarting);
  EXPECT_EQ(phase_of(view_of({{"1", State::kRunning}, {"2", std::nullopt}})), JobPhase::kRunning);
  EXPECT_EQ(phase_of(view_of({{"1", State::kSucceeded}, {"2", State::kRunning}})), JobPhase::kSucceeded);
}

TEST(JobPhase, OneHostsFailureIsNotTheJobsWhileOthersGoOn) {
  using State = HostReport::State;
  EXPECT_EQ(phase_of(view_of({{"1", State::kFailed}, {"2", State::kRunning}})), JobPhase::kRunning);
  EXPECT_EQ(phase_of(view_of({{"1", State::kFailed}, {"2", std::nullopt}})), JobPhase::kStarting);
  EXPECT_EQ(phase_of(view_of({{"1", State::kFailed}, {"2", State::kFailed}})), JobPhase::kFailed);
  JobView gone = view_of({{"1", State::kFailed}});
  gone.hosts.clear();
  gone.groups.clear();
  EXPECT_EQ(phase_of(gone), JobPhase::kFailed);
  gone.reports.clear();
  EXPECT_EQ(phase_of(gone), JobPhase::kAbsent);
}

TEST(JobView, TheOldestWorkerKeepsTheRendezvousUnlessThereIsAHostForIt) {
  JobView view = view_of({{"2", std::nullopt}, {"1", std::nullopt}});
  EXPECT_EQ(first_host(view)->instance, "1");
  view.groups.resize(2);
  view.groups[1].name = "ann-job_rdzv";
  EXPECT_EQ(first_host(view), nullptr);
  view.hosts[0].role = HostRole::kRdzv;
  EXPECT_EQ(first_host(view)->instance, "2");
  view.hosts[0].address.clear();
  EXPECT_EQ(first_host(view), nullptr);
}

}  // namespace
}  // namespace rubato::petctl
