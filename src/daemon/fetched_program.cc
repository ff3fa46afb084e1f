#include "daemon/fetched_program.h"

#include <fmt/format.h>

#include <filesystem>

#include "daemon/object_store.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/processes.h"
#include "os/runtime.h"
#include "world/world.h"

namespace rubato::cli {
namespace {

// The word that names what is to run; null: it is no file, or not found by looking.
std::string* program_word(LaunchSpec& spec) {
  if (spec.kind == ProgramKind::kModule) return nullptr;
  if (spec.kind != ProgramKind::kBinary || is_object_address(spec.program)) return &spec.program;
  if (!std::filesystem::path(spec.program).filename().string().starts_with("python")) return nullptr;
  for (std::string& word : spec.args) {
    if (!word.starts_with('-')) return &word;
  }
  return nullptr;
}

Task<int> fetch(World& world, ObjectAddress address, std::string path, aws::Settings settings) {
  const std::unique_ptr<ObjectStore> store = co_await open_store(world, address, std::move(settings));
  rest::TransferRules rules;
  rules.state = path + ".transfers";
  rest::Progress unseen;
  co_await store->download(address.key, path, rules, std::move(unseen));
  co_return 0;
}

}  // namespace

FetchedProgram::FetchedProgram(LaunchSpec& spec, const os::EnvironmentMap& environment) {
  std::string* const word = program_word(spec);
  if (word == nullptr || !is_object_address(*word)) return;
  ObjectAddress address = parse_object_address(*word);
  const std::string name = address.key.substr(address.key.rfind('/') + 1);
  if (name.empty() || name == "." || name == "..") {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' names no file", *word), "",
                "write BUCKET/KEY of one script; a folder is copied by rubato cp -r");
  }
  os::Runtime runtime;
  os::RealProcesses processes(runtime);
  os::RealNetwork network(runtime);
  os::RealFiles files;
  os::RealConsole console;
  Random random(os::entropy());
  const MachineFacts machine = os::read_machine_facts(environment);
  World world{runtime, network, processes, files, console, random, machine};
  folder_.path = files.make_temporary_folder("rubato-program-");
  const std::string path = folder_.path + "/" + name;
  aws::Settings settings;
  settings.env = environment;
  if (!spec.quiet) console.err(fmt::format("rubato: fetching {}\n", *word));
  runtime.run(fetch(world, std::move(address), path, std::move(settings)));
  files.set_mode(path, 0700);
  *word = path;
}

FetchedProgram::Folder::~Folder() {
  if (path.empty()) return;
  try {
    os::RealFiles().remove_tree(path);
  } catch (const Error&) {
    // Nobody can do anything about it here; the system cleans its temporary folder.
  }
}

}  // namespace rubato::cli
