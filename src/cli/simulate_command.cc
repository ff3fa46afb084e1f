#include "cli/simulate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/pollux_command.h"
#include "client/past_file.h"
#include "client/session.h"
#include "client/user_file.h"
#include "core/text.h"
#include "os/file_mode.h"
#include "os/files.h"
#include "simulate/past.h"
#include "simulate/report.h"
#include "simulate/run.h"

namespace rubato::cli {
namespace {

using nlohmann::ordered_json;
using simulate::Outcome;
using simulate::Scenario;

constexpr uint64_t kSeedsMax = 10'000'000;
constexpr uint64_t kSeedsToExpect = 100;

std::string read_text(const std::string& path, std::string_view what) {
  os::RealFiles files;
  return read_user_file(files, what, path);
}

// For people to pass on: as readable as anything that they make.
void write_text(const std::string& path, const std::string& text) {
  os::RealFiles files;
  const std::string whole = std::filesystem::absolute(path).string();
  files.write_atomically(whole, text);
  files.set_mode(whole, os::usual_file_mode());
}

// Files named in a scenario are beside it.
std::string beside(const std::string& scenario, const std::string& path) {
  const std::filesystem::path named(path);
  return named.is_absolute() ? path : (std::filesystem::path(scenario).parent_path() / named).string();
}

uint64_t seed_of(std::string_view text, const Given& given) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size())
    throw bad_value(given, "not a seed", "write a whole number, or 1..100 with --seeds");
  return seed;
}

std::pair<uint64_t, uint64_t> seeds_of(const Given& given) {
  const std::string& text = given.values.back();
  const size_t dots = text.find("..");
  if (dots == std::string::npos) throw bad_value(given, "not a range of seeds", "write 1..100");
  const uint64_t first = seed_of(std::string_view(text).substr(0, dots), given);
  const uint64_t last = seed_of(std::string_view(text).substr(dots + 2), given);
  if (last < first || last - first >= kSeedsMax) throw bad_value(given, "not a range of seeds", "write 1..100");
  return {first, last};
}

struct Played {
  Scenario scenario;
  simulate::Plan plan;
  std::string file;
  std::vector<std::string> argv;  // of the command line, but seeds and outputs
};

Played played_of(const ParsedCommand& parsed) {
  Played played;
  played.file = require_word(parsed, 0, "the scenario", "rubato simulate SCENARIO.yaml, or rubato simulate --example");
  const std::string text = read_text(played.file, "the scenario");
  const simulate::ReadFile read = [&](const std::string& path) {
    return read_text(beside(played.file, path), "the cluster file");
  };
  played.scenario = simulate::read_scenario(text, played.file, read);
  played.argv.push_back(played.file);
  const std::string agents = parsed.value("agents");
  if (agents == "light" || agents == "real") {
    played.scenario.fidelity = agents == "light" ? simulate::Fidelity::kLight : simulate::Fidelity::kReal;
    played.argv.insert(played.argv.end(), {"--agents", agents});
  } else if (!agents.empty()) {
    throw bad_value(*parsed.find("agents"), "agents are real or light");
  }
  std::string trace = played.scenario.trace_file.empty() ? "" : beside(played.file, played.scenario.trace_file);
  if (parsed.has("jobs-trace")) {
    trace = parsed.value("jobs-trace");
    played.argv.insert(played.argv.end(), {"--jobs-trace", trace});
  }
  if (!trace.empty()) played.plan.jobs = simulate::read_trace(read_text(trace, "the trace"), trace);
  return played;
}

std::string replay_command_of(const Played& played, uint64_t seed) {
  return fmt::format("rubato simulate {} --seed {}", shell_join(played.argv), seed);
}

void write_outputs(const ParsedCommand& parsed, const Outcome& outcome, const simulate::PageExtras& extras,
                   const Shell& shell) {
  if (parsed.has("html")) {
    write_text(parsed.value("html"), simulate::html_report(outcome, extras));
    shell.err(fmt::format("the report is in {}\n", parsed.value("html")));
  }
  if (parsed.has("svg")) {
    const std::string folder = std::filesystem::absolute(parsed.value("svg")).string();
    os::RealFiles files;
    files.make_folders(folder);
    for (const auto& [name, svg] : simulate::svg_plots(outcome)) write_text(folder + "/" + name + ".svg", svg);
  }
}

int one_seed(const ParsedCommand& parsed, const Shell& shell, const Played& played) {
  const uint64_t seed = parsed.has("seed") ? seed_of(parsed.value("seed"), *parsed.find("seed")) : 1;
  Outcome outcome;
  {
    LiveLine line(shell);
    simulate::Run run(played.scenario, played.plan, seed);
    outcome = run.play([&](Duration done) {
      line.show(fmt::format("simulated {} of {}", format_duration(done), format_duration(played.scenario.duration)));
    });
  }
  simulate::PageExtras extras;
  extras.command = replay_command_of(played, seed);
  write_outputs(parsed, outcome, extras, shell);
  if (parsed.has("json")) {
    shell.out(simulate::json_report(outcome, parsed.has("samples")).dump(1) + "\n");
  } else {
    shell.out(simulate::text_report(outcome));
  }
  if (outcome.broken.empty()) return 0;
  shell.err(fmt::format("an invariant is broken; see it again: {}\n", replay_command_of(played, seed)));
  return 1;
}

// What many runs have in common.
struct Tally {
  uint64_t runs = 0;
  size_t jobs = 0;
  uint64_t events = 0, hash = 0;
  std::map<std::string, uint64_t> marks, checks;
  ordered_json failures = ordered_json::array();

  void add(const Outcome& outcome) {
    ++runs;
    jobs += outcome.submitted;
    events += outcome.events;
    hash = hash * 0x100000001b3ULL ^ outcome.hash;
    for (const auto& [name, count] : outcome.marks) marks[name] += count;
    for (const auto& [name, count] : outcome.checks) checks[name] += count;
  }
};

std::string tally_text(const Tally& tally) {
  uint64_t checks = 0;
  for (const auto& [name, count] : tally.checks) checks += count;
  std::string out = fmt::format(
      "{} seeds, {} jobs, {} events: {} checks of {} rules, {}\n", tally.runs, tally.jobs, tally.events, checks,
      tally.checks.size(), tally.failures.empty() ? "all held" : fmt::format("{} seeds broken", tally.failures.size()));
  out += "reached:\n";
  for (const auto& [mark, count] : tally.marks) out += fmt::format("  {:>9}  {}\n", count, mark);
  return out + fmt::format("hash {:016x}\n", tally.hash);
}

int many_seeds(const ParsedCommand& parsed, const Shell& shell, const Played& played) {
  const auto [first, last] = seeds_of(*parsed.find("seeds"));
  for (const char* flag : {"html", "svg", "samples", "seed"}) {
    if (parsed.has(flag)) {
      throw Error(ErrorCode::kUsage, fmt::format("--{} is for one run, --seeds for many", flag), "",
                  fmt::format("write --seed {} instead of --seeds", first));
    }
  }
  Tally tally;
  constexpr size_t kFailuresMax = 10;
  {
    LiveLine line(shell);
    for (uint64_t seed = first; seed <= last && tally.failures.size() < kFailuresMax; ++seed) {
      line.show(fmt::format("seed {} of {}..{}", seed, first, last));
      simulate::Run run(played.scenario, played.plan, seed);
      const Outcome outcome = run.play();
      tally.add(outcome);
      if (outcome.broken.empty()) continue;
      const std::string command = replay_command_of(played, seed);
      tally.failures.push_back({{"seed", seed}, {"broken", outcome.broken}, {"command", command}});
      shell.err(fmt::format("seed {}: {}\n  see it again: {}\n", seed, outcome.broken.front(), command));
    }
  }
  // A few seeds prove nothing about what is seldom.
  std::vector<std::string> missed;
  for (const std::string& mark : played.scenario.expect) {
    if (tally.runs >= kSeedsToExpect && !tally.marks.contains(mark)) missed.push_back(mark);
  }
  if (parsed.has("json")) {
    const ordered_json out = {{"seeds", tally.runs},
                              {"jobs", tally.jobs},
                              {"events", tally.events},
                              {"ok", tally.failures.empty() && missed.empty()},
                              {"failures", tally.failures},
                              {"missed", missed},
                              {"checks", tally.checks},
                              {"marks", tally.marks},
                              {"hash", fmt::format("{:016x}", tally.hash)}};
    shell.out(out.dump(1) + "\n");
  } else {
    shell.out(tally_text(tally));
  }
  for (const std::string& mark : missed)
    shell.err(fmt::format("the scenario expects '{}', and no seed reached it\n", mark));
  return tally.failures.empty() && missed.empty() ? 0 : 1;
}

Outcome play(const simulate::Past& past, uint64_t seed, const Shell& shell, std::string_view what) {
  LiveLine line(shell);
  simulate::Run run(past.scenario, past.plan, seed);
  return run.play([&](Duration done) {
    line.show(
        fmt::format("{}: simulated {} of {}", what, format_duration(done), format_duration(past.scenario.duration)));
  });
}

// Broken invariants make no difference to the question, but must not go unseen.
int what_if(const ParsedCommand& parsed, const Shell& shell) {
  const simulate::Past past = read_past_file(parsed.value("replay"));
  const uint64_t seed = parsed.has("seed") ? seed_of(parsed.value("seed"), *parsed.find("seed")) : 1;
  simulate::Columns columns;
  columns.emplace_back("as it was", past.measured);
  columns.emplace_back("same file, simulated", play(past, seed, shell, "same file"));
  const Given* changes = parsed.find("change");
  if (changes) {
    const simulate::Past changed = simulate::changed_past(past, changes->values);
    columns.emplace_back("changed, simulated", play(changed, seed, shell, "changed file"));
  }
  simulate::PageExtras extras;
  extras.compared = columns;
  extras.note = past.assumptions;
  write_outputs(parsed, columns.back().second, extras, shell);
  if (parsed.has("json")) {
    ordered_json out = ordered_json::object();
    const char* names[] = {"history", "same", "changed"};
    for (size_t i = 0; i < columns.size(); ++i)
      out[names[i]] = simulate::json_report(columns[i].second, parsed.has("samples"));
    out["assumptions"] = past.assumptions;
    shell.out(out.dump(1) + "\n");
  } else {
    shell.out(simulate::compare_report(columns));
    shell.err(past.assumptions + "\n");
  }
  int code = 0;
  for (const auto& [name, outcome] : columns) {
    for (const std::string& argv : outcome.broken) {
      shell.err(fmt::format("{}: an invariant is broken: {}\n", name, argv));
      code = 1;
    }
  }
  return code;
}

}  // namespace

int simulate_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.has("example")) {
    shell.out(simulate::example_scenario());
    return 0;
  }
  if (parsed.has("pollux")) return pollux_command(parsed, shell);
  if (parsed.has("replay")) return what_if(parsed, shell);
  if (parsed.has("change"))
    throw Error(ErrorCode::kUsage, "--change needs --replay", "", "change the scenario's cluster file instead");
  for (const char* flag : {"workload", "policy", "conventions", "undeclared", "nodes", "gpus"}) {
    if (parsed.has(flag))
      throw Error(ErrorCode::kUsage, fmt::format("--{} needs --pollux", flag), "",
                  "write --pollux DIR --workload FILE");
  }
  const Played played = played_of(parsed);
  return parsed.has("seeds") ? many_seeds(parsed, shell, played) : one_seed(parsed, shell, played);
}

}  // namespace rubato::cli
