#include "cli/plan_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/render_plan.h"
#include "client/session.h"
#include "client/user_file.h"
#include "core/error.h"
#include "head/scale_documents.h"
#include "model/cluster_spec.h"
#include "os/files.h"
#include "policy/scale_state.h"
#include "terminal/document.h"
#include "terminal/render_scale.h"

namespace rubato::cli {
namespace {

using nlohmann::ordered_json;

std::string read_state(const std::string& path, const Shell& shell) {
  if (path == "-") return shell.read_input();
  os::RealFiles files;
  return read_user_file(files, "the state", path, "give the path of a file, or - for standard input");
}

int plan_state(const std::string& path, const ParsedCommand& parsed, const Shell& shell) {
  const policy::ScaleInput input =
      policy::read_scale_state(read_state(path, shell), path == "-" ? "standard input" : path);
  const policy::ScalePlan plan = policy::plan_scale(input);
  if (parsed.has("json")) {
    shell.out(policy::to_json(plan).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else {
    shell.out(plan_text(plan, style_of(shell)));
  }
  return 0;
}

// What `up` and the autoscaler would do with a file: decided by the cluster's head where there is one, else here.
int plan_file(const std::string& path, const ParsedCommand& parsed, const Shell& shell) {
  os::RealFiles files;
  const std::string text = read_user_file(files, "the cluster file", path);
  const ClusterSpec spec = read_cluster_spec(text, path);
  const auto found = list_clusters(clusters_folder(shell.env));
  const bool open =
      std::any_of(found.begin(), found.end(), [&](const auto& one) { return one.open && one.name == spec.name; });
  nlohmann::json plan;
  if (open) {
    const std::unique_ptr<Api> api = shell.open_api(place_of(shell.env, spec.name));
    plan = post(*api, "plan", {{"text", text}, {"file", path}});
  } else {
    plan = api::to_json(head::plan_document(cluster::State{}, spec, shell.now()));
  }
  shell.out(parsed.has("json") ? json_text(plan)
                               : file_plan_text(read_document<api::Plan>(plan), open, style_of(shell)));
  return 0;
}

}  // namespace

int plan_command(const ParsedCommand& parsed, const Shell& shell) {
  if (const Given* state = parsed.find("state")) return plan_state(state->values.back(), parsed, shell);
  if (!parsed.positionals.empty()) return plan_file(parsed.positionals.front(), parsed, shell);
  throw Error(ErrorCode::kUsage, "there is nothing to plan for", "",
              "write rubato plan cluster.yaml, or rubato plan --state FILE");
}

}  // namespace rubato::cli
