#include "deploy/remote_machine.h"

#include <fmt/format.h>

#include "client/remote_place.h"
#include "core/text.h"
#include "model/provider_kind.h"
#include "os/files.h"

namespace rubato::cli {

ClusterPlace lock_of(const ClusterPlace& place) { return {place.name, place.folder + "/ssh"}; }

Error failed_there(const std::string& what, const provider::SshTarget& target, const provider::CommandResult& result,
                   std::string fix) {
  return Error(ErrorCode::kFailed,
               fmt::format("{} on {} ended with {}{}", what, provider::to_string(target), result.exit_code,
                           provider::last_output(result)),
               "", std::move(fix));
}

bool asks_cloud(const ClusterFile& file) {
  const ProviderKind& kind = provider_kind(file.provider.type);
  return kind.can_make_head && !kind.runs_program;
}

std::string provider_name(const ClusterFile& file) {
  if (!file.provider.command.empty()) return shell_join(file.provider.command);
  return file.provider.module.empty() ? file.provider.type : file.provider.module;
}

provider::HeadMachineSettings head_settings_here(const ClusterPlace& place, const ClusterFile& file,
                                                 const std::string& folder, const Environment& env) {
  provider::HeadMachineSettings settings;
  settings.folder = folder;
  settings.cluster_folder = place.folder;
  os::RealFiles files;
  std::string key = file.auth.ssh_public_key;
  if (key.empty() && !file.auth.ssh_private_key.empty()) key = file.auth.ssh_private_key + ".pub";
  if (const auto text = key.empty() ? std::nullopt : files.read(expand_home(key, env))) {
    settings.authorized_keys.emplace_back(trim(*text));
  }
  return settings;
}

}  // namespace rubato::cli
