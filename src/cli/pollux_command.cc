#include "cli/pollux_command.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "client/session.h"
#include "core/error.h"
#include "core/text.h"
#include "os/files.h"
#include "simulate/pollux_run.h"

namespace rubato::cli {
namespace {

using simulate::PolluxPolicy;
using simulate::PolluxScenario;

constexpr int kPolluxNodesMax = 1000;

std::string read_pollux_file(os::RealFiles& files, const std::string& path) {
  auto text = files.read(path);
  if (!text) throw Error(ErrorCode::kUsage, fmt::format("'{}' cannot be read", path), "", "give the path of a file");
  return std::move(*text);
}

int count_of(const ParsedCommand& parsed, std::string_view flag, int absent, int most) {
  const Given* const given = parsed.find(flag);
  if (given == nullptr) return absent;
  const std::string& text = given->values.back();
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
    throw bad_value(*given, fmt::format("not a whole number from 1 to {}", most));
  return value;
}

PolluxPolicy policy_of(const ParsedCommand& parsed) {
  const std::string name = parsed.value("policy", "adaptive");
  for (const PolluxPolicy policy : {PolluxPolicy::kAdaptive, PolluxPolicy::kFifo, PolluxPolicy::kTiresias,
                                    PolluxPolicy::kOptimus, PolluxPolicy::kPollux}) {
    if (name == to_string(policy)) return policy;
  }
  throw bad_value(*parsed.find("policy"), "unknown policy", "write adaptive, fifo, tiresias, optimus or pollux");
}

// Each folder with a placements.csv is an application.
void read_applications(const std::string& folder, PolluxScenario& scenario) {
  os::RealFiles files;
  const std::string root = std::filesystem::absolute(folder).string();
  for (const Files::Entry& entry : files.list(root)) {
    const std::string inner = root + "/" + entry.name;
    if (!files.exists(inner + "/placements.csv")) continue;
    simulate::CsvTexts texts;
    for (const Files::Entry& file : files.list(inner)) {
      if (file.name.ends_with(".csv")) texts[file.name] = read_pollux_file(files, inner + "/" + file.name);
    }
    scenario.applications.emplace(entry.name, simulate::PolluxApplication(entry.name, texts));
  }
  if (scenario.applications.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' has no traces", folder), "",
                "give the folder of Pollux' artifact with bert/placements.csv and others");
  }
}

}  // namespace

int pollux_command(const ParsedCommand& parsed, const Shell& shell) {
  const Given* const workload = parsed.find("workload");
  if (workload == nullptr) {
    throw Error(ErrorCode::kUsage, "--pollux needs --workload FILE", "",
                "write --workload DIR/workloads/workload-1.csv");
  }
  PolluxScenario scenario;
  scenario.policy = policy_of(parsed);
  scenario.declared = !parsed.has("undeclared");
  scenario.nodes = count_of(parsed, "nodes", scenario.nodes, kPolluxNodesMax);
  scenario.gpus_per_node = count_of(parsed, "gpus", scenario.gpus_per_node, 4);
  const std::string conventions = parsed.value("conventions", "pollux");
  if (conventions == "rubato") {
    scenario.conventions = simulate::kOurConventions;
  } else if (conventions != "pollux") {
    throw bad_value(*parsed.find("conventions"), "unknown conventions", "write pollux or rubato");
  }
  read_applications(parsed.value("pollux"), scenario);
  os::RealFiles files;
  const std::string& path = workload->values.back();
  scenario.jobs =
      simulate::read_pollux_workload(read_pollux_file(files, std::filesystem::absolute(path).string()), path);
  const simulate::PolluxOutcome outcome = simulate::run_pollux(scenario);
  shell.out(parsed.has("json") ? simulate::pollux_json(scenario, outcome).dump(1) + "\n"
                               : simulate::pollux_text(scenario, outcome));
  return 0;
}

}  // namespace rubato::cli
