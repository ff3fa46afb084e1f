// The program of an external provider, from what its kind has compiled of the cluster file: how it is started, and what
// it is told first.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/cluster_file.h"
#include "provider/external_program.h"
#include "world/files.h"

namespace rubato::provider {

// Who asks: a person's machine, which needs the head's machine alone, or the head.
enum class ExternalPlace { kClient, kHead };
std::string_view to_string(ExternalPlace place);

struct ExternalSettings {
  ExternalPlace place = ExternalPlace::kHead;
  std::vector<std::string> env;  // of the program
  // Where the cluster file and what belongs to its provider lies: the program's working folder.
  std::string folder;
  std::string state;                         // a folder of the program's own; made with 0700
  std::string python = "python3";            // for provider.module
  std::string version;                       // rubato's
  std::vector<std::string> authorized_keys;  // public keys that its machines have to let in
  bool look = false;                         // it is only asked what it is, and must not change anything
  nlohmann::json carry;                      // what the program on the person's machine gave for the one on the head
  std::optional<Machine> own;                // the head's machine, when we are on it: never asked for
  Duration create_timeout = 15min;           // until its address is known
  Duration remove_timeout = 10min;
  Duration ask_timeout = 2min;  // list, describe
};

// True for `provider: {type: external}`: a command or a Python class.
bool is_external(const ClusterFile& file);

// The program, its arguments and its greeting. `told`: as the kind `external` compiles it of a file. Throws kUsage for
// one that names neither command nor module.
ExternalProgramSpec external_program_of(const nlohmann::json& told, const ExternalSettings& settings);

// Puts the Python host where external_program_of() looks for it, when the file names a class.
void prepare_external(Files& files, const nlohmann::json& told, const ExternalSettings& settings);

// Relative to `folder`: the files and folders there that the provider's program needs on the head's machine: words of
// the command that are files there, and the module's file or folder. None when all is installed on its own.
std::vector<std::string> external_files(Files& files, const ClusterFile& file, const std::string& folder);

}  // namespace rubato::provider
