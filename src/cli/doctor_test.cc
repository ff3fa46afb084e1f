#include "cli/doctor.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rubato::cli {
namespace {

constexpr uint64_t kGiB = 1024ull * 1024 * 1024;

os::ProbeFacts healthy() {
  os::ProbeFacts facts;
  facts.hostname = "node0";
  facts.own_name.addresses = {"10.0.0.1"};
  facts.addresses = {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.1", false}};
  facts.port_low = 32768;
  facts.port_high = 60999;
  facts.clock_synchronised = true;
  facts.year = 2026;
  facts.open_files = {65536, 65536};
  facts.processes = {os::kUnlimited, os::kUnlimited};
  facts.locked_memory = {os::kUnlimited, os::kUnlimited};
  facts.shared_memory = os::Space{16 * kGiB, 16 * kGiB};
  facts.temporary_folder = "/tmp";
  facts.temporary_space = {100 * kGiB, 50 * kGiB};
  facts.python = {.path = "/usr/bin/python3", .version = "3.11.2", .torch = "2.4.1", .gloo = true};
  facts.pidfd = true;
  facts.kernel = "6.1.0";
  return facts;
}

Finding finding(const os::ProbeFacts& facts, std::string_view check) {
  for (const Finding& entry : judge(facts)) {
    if (entry.check == check) return entry;
  }
  ADD_FAILURE() << "no check " << check;
  return {};
}

// Every finding that is not ok says how to fix it.
void expect(const os::ProbeFacts& facts, std::string_view check, Health health, std::string_view text) {
  const Finding found = finding(facts, check);
  EXPECT_EQ(found.health, health) << found.found;
  EXPECT_NE(found.found.find(text), std::string::npos) << found.found;
  EXPECT_EQ(found.fix.empty(), health == Health::kOk) << found.fix;
}

TEST(Doctor, AHealthyMachineHasNothingToFix) {
  for (const Finding& entry : judge(healthy())) EXPECT_EQ(entry.health, Health::kOk) << entry.check << entry.found;
  EXPECT_EQ(doctor_exit_code(judge(healthy())), 0);
}

TEST(Doctor, WarnsOfAHostNameThatIsLoopback) {
  os::ProbeFacts facts = healthy();
  facts.own_name.addresses = {"127.0.1.1"};
  expect(facts, "host name", Health::kWarn, "node0 is 127.0.1.1");
  facts.addresses = {{"lo", "127.0.0.1", true}};  // nobody else is there to be misled
  expect(facts, "host name", Health::kOk, "127.0.1.1");
  expect(facts, "addresses", Health::kWarn, "loopback only");
  facts.own_name = {.error = "Name or service not known"};
  expect(facts, "host name", Health::kWarn, "does not resolve: Name or service not known");
}

TEST(Doctor, FailsWithoutLoopbackOrPorts) {
  os::ProbeFacts facts = healthy();
  facts.loopback_error = "Network is unreachable";
  facts.port_error = "Address already in use";
  expect(facts, "loopback", Health::kFail, "Network is unreachable");
  expect(facts, "ports", Health::kFail, "no port can be bound");
  EXPECT_EQ(doctor_exit_code(judge(facts)), 1);
}

TEST(Doctor, TellsTheWaysApartInWhichAnEndpointFails) {
  using Result = os::EndpointProbe::Result;
  os::ProbeFacts facts = healthy();
  facts.endpoint = os::EndpointProbe{
      .host = "node1", .port = 29400, .address = "10.0.0.2", .source = "10.0.0.1", .interface = "eth0"};
  const auto with = [&](Result result, std::string error) {
    facts.endpoint->result = result;
    facts.endpoint->error = std::move(error);
    return facts;
  };
  expect(with(Result::kConnected, ""), "endpoint", Health::kOk, "connected to 10.0.0.2 from 10.0.0.1 (eth0)");
  expect(with(Result::kRefused, "x"), "endpoint", Health::kWarn, "answers, but nothing listens");
  expect(with(Result::kTimedOut, "x"), "endpoint", Health::kFail, "no answer from 10.0.0.2 from 10.0.0.1 (eth0)");
  expect(with(Result::kUnreachable, "No route to host"), "endpoint", Health::kFail, "No route to host");
  expect(with(Result::kNoSuchHost, "Name or service not known"), "endpoint", Health::kFail, "no such host");
  expect(with(Result::kPortFree, ""), "endpoint", Health::kOk, "this machine, and the port is free");
  expect(with(Result::kPortTaken, "Address already in use"), "endpoint", Health::kWarn, "the port is taken");
}

TEST(Doctor, JudgesTheClock) {
  os::ProbeFacts facts = healthy();
  facts.clock_synchronised = false;
  expect(facts, "clock", Health::kWarn, "not synchronised");
  facts.clock_synchronised.reset();
  expect(facts, "clock", Health::kOk, "does not say");
  facts.year = 1970;
  expect(facts, "clock", Health::kFail, "1970");
}

TEST(Doctor, JudgesLimitsAndSpace) {
  os::ProbeFacts facts = healthy();
  facts.open_files = {256, 4096};
  facts.processes = {100, 100};
  facts.locked_memory = {65536, 65536};
  facts.shared_memory = os::Space{kGiB / 16, kGiB / 16};
  facts.temporary_error = "Read-only file system";
  expect(facts, "open files", Health::kWarn, "256 (at most 4096)");
  expect(facts, "processes", Health::kWarn, "100");
  expect(facts, "locked memory", Health::kOk, "64 KiB");  // matters to GPUs only
  expect(facts, "/dev/shm", Health::kWarn, "64 MiB");
  expect(facts, "temporary folder", Health::kFail, "Read-only file system");
  facts.gpus = facts.gpu_devices = 1;
  expect(facts, "locked memory", Health::kWarn, "64 KiB");
  facts.shared_memory.reset();
  expect(facts, "/dev/shm", Health::kWarn, "not there");
}

TEST(Doctor, JudgesPythonAndPyTorch) {
  os::ProbeFacts facts = healthy();
  facts.python = {.error = "there is no python3 or python in PATH"};
  expect(facts, "Python", Health::kFail, "no python3");
  expect(facts, "PyTorch", Health::kWarn, "not known");
  facts.python = {.path = "/usr/bin/python", .version = "2.7.18"};
  expect(facts, "Python", Health::kFail, "is Python 2.7.18");
  facts.python = {.path = "/p", .version = "3.11.2"};
  expect(facts, "PyTorch", Health::kWarn, "not installed for /p");
  facts.python.torch_error = "OSError: libcudart.so.12";
  expect(facts, "PyTorch", Health::kFail, "libcudart");
  facts.python = {.path = "/p", .timed_out = true, .version = "3.11.2"};
  expect(facts, "PyTorch", Health::kWarn, "more than 20 s");
  facts.python = {.path = "/p", .timed_out = true};
  expect(facts, "Python", Health::kFail, "did not answer");
}

TEST(Doctor, JudgesGpusAgainstPyTorch) {
  os::ProbeFacts facts = healthy();
  facts.gpu_driver = "535.104.05";
  expect(facts, "GPUs", Health::kWarn, "no /dev/nvidia0");
  facts.gpu_devices = 8;
  facts.gpus = 2;
  expect(facts, "GPUs", Health::kOk, "2 of 8");
  expect(facts, "PyTorch", Health::kWarn, "will not use the 2 GPU(s)");
  facts.python.cuda = "12.1";
  expect(facts, "PyTorch", Health::kFail, "sees none of the 2 GPU(s)");
  facts.python.devices = 2;
  expect(facts, "PyTorch", Health::kWarn, "without nccl");
  facts.python.nccl = true;
  expect(facts, "PyTorch", Health::kOk, "2.4.1 (CUDA 12.1, gloo, nccl)");
}

TEST(Doctor, FailsOnAKernelWithoutPidfd) {
  os::ProbeFacts facts = healthy();
  facts.pidfd = false;
  expect(facts, "kernel", Health::kFail, "pidfd");
}

TEST(Doctor, PrintsATableAndJson) {
  os::ProbeFacts facts = healthy();
  facts.loopback_error = "down";
  const auto findings = judge(facts);
  const std::string table = findings_table(findings, false);
  EXPECT_TRUE(table.starts_with("CHECK             STATE  FOUND\n")) << table;
  EXPECT_NE(table.find("loopback          fail   127.0.0.1 does not work: down\n                  fix    ip link"),
            std::string::npos)
      << table;
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  const auto json = nlohmann::json::parse(findings_json(findings));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["checks"].size(), findings.size());
}

}  // namespace
}  // namespace rubato::cli
