#include "cli/plan_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/render_plan.h"
#include "cli/session.h"
#include "core/error.h"
#include "os/files.h"
#include "policy/scale_state.h"

namespace rubato::cli {
namespace {

using nlohmann::ordered_json;

std::string read_state(const std::string& path, const Shell& shell) {
  if (path == "-") return shell.read_input();
  os::RealFiles files;
  auto text = files.read(std::filesystem::absolute(path).string());
  if (!text) {
    throw Error(ErrorCode::kUsage, fmt::format("the state '{}' cannot be read", path), "",
                "give the path of a file, or - for standard input");
  }
  return std::move(*text);
}

int plan_state(const std::string& path, const ParsedCommand& parsed, const Shell& shell) {
  const policy::ScaleInput input =
      policy::read_scale_state(read_state(path, shell), path == "-" ? "standard input" : path);
  const policy::ScalePlan plan = policy::plan_scale(input);
  if (parsed.has("json")) {
    shell.out(policy::to_json(plan).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else {
    shell.out(plan_text(plan, look_of(shell)));
  }
  return 0;
}

}  // namespace

int plan_command(const ParsedCommand& parsed, const Shell& shell) {
  if (const Given* state = parsed.find("state")) return plan_state(state->values.back(), parsed, shell);
  throw Error(ErrorCode::kUsage, "there is nothing to plan for", "", "write rubato plan --state FILE");
}

}  // namespace rubato::cli
