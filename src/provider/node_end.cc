// Ending a node: the other half of node_setup.h.
#include <fmt/format.h>

#include "core/error.h"
#include "core/text.h"
#include "provider/docker_runner.h"
#include "provider/node_scripts.h"

namespace rubato::provider {

namespace {

// The words that run something in a container if it is there, and nothing else.
std::string in_container(const ContainerSpec& spec, const std::string& script) {
  const std::string docker = spec.use_podman ? "podman" : "docker";
  return fmt::format(
      "if [ \"$({} inspect -f '{{{{.State.Running}}}}' {} 2>/dev/null)\" = true ]; then "
      "{} exec {} sh -c {}; else exit 3; fi\n",
      docker, shell_quote(spec.container.name), docker, shell_quote(spec.container.name), shell_quote(script));
}

constexpr int kNoContainer = 3;

}  // namespace

Task<void> salvage_node(CommandRunner& host, NodeEnd end) {
  const std::string script = salvage_script(node_folder(end.cluster, end.node), end.grace);
  Command command;
  command.what = "bringing what the node's workers have left";
  command.script = end.container ? in_container(*end.container, script) : script;
  command.timeout = end.salvage_max;
  const CommandResult result = co_await host.run(std::move(command));
  if (result.ok() || (end.container && result.exit_code == kNoContainer)) co_return;
  throw Error(ErrorCode::kFailed,
              fmt::format("what the workers of node {} on {} have left could not be brought{}", end.node.value,
                          host.describe(), last_output(result)),
              host.describe());
}

Task<void> stop_node(CommandRunner& host, NodeEnd end) {
  const std::string folder = node_folder(end.cluster, end.node);
  std::string script;
  if (end.container) {
    const std::string docker = end.container->use_podman ? "podman" : "docker";
    script = fmt::format("({})\nc=$?; [ $c = 0 ] || [ $c = {} ] || exit $c\n{} rm -f {} >/dev/null 2>&1\n",
                         in_container(*end.container, stop_script(folder, end.grace)), kNoContainer, docker,
                         shell_quote(end.container->container.name));
  }
  // On the machine itself too: an initialization may run there.
  script += stop_script(folder, end.grace);
  Command command;
  command.what = "stopping the agent";
  command.script = std::move(script);
  command.timeout = end.timeout;
  const CommandResult result = co_await host.run(std::move(command));
  if (!result.ok()) {
    throw Error(ErrorCode::kFailed,
                fmt::format("node {} on {} cannot be ended{}", end.node.value, host.describe(), last_output(result)),
                host.describe());
  }
}

Task<bool> is_running(CommandRunner& host, NodeEnd end) {
  const std::string script = running_script(node_folder(end.cluster, end.node));
  Command command;
  command.what = "looking for the agent";
  command.script = end.container ? in_container(*end.container, script) : script;
  command.timeout = end.timeout;
  const CommandResult result = co_await host.run(std::move(command));
  co_return result.ok();
}

}  // namespace rubato::provider
