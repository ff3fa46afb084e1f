// Python: the interpreter of this machine, found without running it.
#pragma once

#include <optional>
#include <string>

#include "os/machine.h"

namespace rubato::os {

// What Python would find at the path of a script.
enum class ScriptKind {
  kMissing,
  kFile,
  kFolder,
  kRunnableFolder,  // holds __main__.py
};
ScriptKind script_kind(const std::string& path);

// The path of a program as a shell would find it in `env`'s PATH; nullopt when there is none that can be executed.
std::optional<std::string> find_program(const std::string& name, const EnvironmentMap& env);

// The interpreter: `wanted` if not empty, else $PYTHON_EXEC, else python3 or python in PATH. Throws a usage Error
// when what was asked for is not there, and when there is no Python at all.
std::string find_python(const std::string& wanted, const EnvironmentMap& env);

// The version of PyTorch that `interpreter` would import, read from its folders: "2.4.1+cu121". It sees PYTHONPATH,
// virtual environments, user packages and Debian's folders; nullopt when it cannot tell (pyenv's shims, .pth files).
std::optional<std::string> installed_torch(const std::string& interpreter, const EnvironmentMap& env,
                                           const std::string& root = "");

// Whether `interpreter` would find a package or module of this name there, as far as installed_torch can tell.
bool has_package(const std::string& name, const std::string& interpreter, const EnvironmentMap& env,
                 const std::string& root = "");

}  // namespace rubato::os
