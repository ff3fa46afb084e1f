// external: machines from somebody's program, in any language. docs/external-providers.md is for those who write one.
#include <fmt/format.h>

#include <array>

#include "clouds/kinds.h"
#include "model/cluster_file.h"

namespace rubato::clouds {
namespace {

using nlohmann::ordered_json;

constexpr std::array<ConfigKey, 2> kExternalKeys{{
    {"provider.module", KeyType::kText, "", "the Python class of an external provider, package.Class", KeyEra::kShared,
     "", "", "external"},
    {"provider.command", KeyType::kTexts, "",
     "the program of an external provider and its arguments: JSON lines on its standard input and output",
     KeyEra::kOurs, "", "", "external"},
}};

// The program may stand before any cloud, and take that one's words.
bool external_asks_for_spot(const ordered_json& config) {
  for (const ProviderKind* kind : provider_kinds()) {
    if (kind != &kExternal && kind->asks_for_spot != nullptr && kind->asks_for_spot(config)) return true;
  }
  return false;
}

void read_external(const ConfigSection& top, ProviderConfig& out) {
  if (!out.module.empty() || !out.command.empty()) return;
  top.findings().error(*top.node().find("provider"), "an external provider needs a module or a command",
                       "add module: package.Class, or command: [/path/to/program]");
}

}  // namespace

constexpr ProviderKind kExternal{.type = "external",
                                 .supported_as = "external",
                                 .can_make_head = true,
                                 .offers_spot = true,
                                 .runs_program = true,
                                 .has_open_section = true,
                                 .keys = kExternalKeys,
                                 .asks_for_spot = external_asks_for_spot,
                                 .read = read_external};

}  // namespace rubato::clouds
