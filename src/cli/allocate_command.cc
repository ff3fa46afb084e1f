#include "cli/allocate_command.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "client/session.h"
#include "client/user_file.h"
#include "core/error.h"
#include "core/text.h"
#include "os/files.h"
#include "policy/allocate_state.h"

namespace rubato::cli {
namespace {

double number_of(std::string_view text, const Given& given, std::string_view hint) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    throw bad_value(given, "not a number of at least 0", std::string(hint));
  return value;
}

policy::AllocateOptions allocate_options(const ParsedCommand& parsed) {
  policy::AllocateOptions options;
  const std::string name = parsed.value("policy", "adaptive");
  if (name == "fair") {
    options.policy = policy::AllocatePolicy::kFair;
  } else if (name != "adaptive") {
    throw bad_value(*parsed.find("policy"), "unknown policy", "write adaptive or fair");
  }
  if (const Given* given = parsed.find("max-slowdown"))
    options.max_slowdown = number_of(given->values.back(), *given, "write --max-slowdown 3");
  if (const Given* given = parsed.find("budget"))
    options.budget_per_hour = number_of(given->values.back(), *given, "write dollars an hour: --budget 40");
  if (const Given* given = parsed.find("utility-band")) {
    constexpr std::string_view kHint = "write --utility-band 0.35:0.65";
    const auto parts = split_once(given->values.back(), ':');
    if (!parts) throw bad_value(*given, "not a band", std::string(kHint));
    options.utility_band = {number_of(parts->first, *given, kHint), number_of(parts->second, *given, kHint)};
    if (options.utility_band->first > options.utility_band->second)
      throw bad_value(*given, "the band is upside down", std::string(kHint));
  }
  return options;
}

std::string read_allocate_text(const std::string& path, const Shell& shell) {
  if (path == "-") return shell.read_input();
  os::RealFiles files;
  return read_user_file(files, "the state", path, "give the path of a file, or - for standard input");
}

}  // namespace

int allocate_command(const ParsedCommand& parsed, const Shell& shell) {
  const Given* const path = parsed.find("state");
  if (path == nullptr) {
    throw Error(ErrorCode::kUsage, "there is nothing to decide on", "",
                "write rubato allocate --state FILE, or --state - for standard input");
  }
  const policy::AllocateOptions options = allocate_options(parsed);
  const std::string& file = path->values.back();
  const policy::AllocateState state =
      policy::read_allocate_state(read_allocate_text(file, shell), file == "-" ? "standard input" : file);
  const policy::AllocateDecision decision = policy::allocate(state.input, options);
  if (parsed.has("json")) {
    const auto replace = nlohmann::ordered_json::error_handler_t::replace;
    shell.out(policy::to_json(state, decision).dump(-1, ' ', false, replace) + "\n");
  } else {
    shell.out(policy::allocate_text(state, decision));
  }
  return 0;
}

}  // namespace rubato::cli
