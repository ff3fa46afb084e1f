#include "os/python.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace rubato::os {
namespace {

namespace fs = std::filesystem;

bool can_execute(const fs::path& path) {
  std::error_code ignored;  // not there: cannot be executed
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::string variable(const EnvironmentMap& env, const char* name) {
  const auto it = env.find(name);
  return it == env.end() ? "" : it->second;
}

// `__version__ = '2.4.1+cu121'` of torch/version.py.
std::optional<std::string> version_in(const fs::path& packages) {
  std::ifstream file(packages / "torch" / "version.py");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("__version__")) continue;
    const size_t open = line.find_first_of("'\"");
    const size_t close = open == std::string::npos ? open : line.find(line[open], open + 1);
    if (close != std::string::npos) return line.substr(open + 1, close - open - 1);
  }
  return std::nullopt;
}

// The folders <lib>/python3*/{site,dist}-packages; of several versions only the interpreter's own when its name
// tells it ("python3.11").
std::vector<fs::path> package_folders(const fs::path& lib, const std::string& interpreter_name) {
  std::vector<fs::path> out;
  std::error_code ignored;  // no such folder: no packages
  for (const auto& entry : fs::directory_iterator(lib, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("python3")) continue;
    const bool told = interpreter_name.starts_with("python3.");
    if (told && name != interpreter_name && name != "python3") continue;
    out.push_back(entry.path() / "site-packages");
    out.push_back(entry.path() / "dist-packages");
  }
  return out;
}

struct VirtualEnvironment {
  std::string home;  // the folder of the interpreter that it was made from
  bool sees_system = false;
};

std::optional<VirtualEnvironment> read_virtual_environment(const fs::path& prefix) {
  std::ifstream file(prefix / "pyvenv.cfg");
  if (!file) return std::nullopt;
  VirtualEnvironment out;
  for (std::string line; std::getline(file, line);) {
    const auto pair = split_once(line, '=');
    if (!pair) continue;
    if (trim(pair->first) == "home") out.home = trim(pair->second);
    if (trim(pair->first) == "include-system-site-packages") out.sees_system = to_lower(trim(pair->second)) == "true";
  }
  return out;
}

// Where the interpreter looks for packages, in its order.
class PackageSearch {
 public:
  PackageSearch(const EnvironmentMap& env, std::string root) : env_(env), root_(std::move(root)) {}

  std::vector<fs::path> folders(const fs::path& interpreter) {
    const std::string python_path = variable(env_, "PYTHONPATH");
    for (const std::string_view part : split(python_path, ':')) {
      if (!part.empty()) out_.push_back(root_ + std::string(part));
    }
    std::error_code error;
    const fs::path real = fs::canonical(interpreter, error);
    const std::string name = error ? interpreter.filename() : real.filename();
    const fs::path prefix = interpreter.parent_path().parent_path();
    const auto environment = read_virtual_environment(prefix);
    if (environment) {
      add(package_folders(prefix / "lib", name));
      if (environment->sees_system) add_system(fs::path(root_ + environment->home).parent_path(), name);
      return std::move(out_);
    }
    add_system((error ? interpreter : real).parent_path().parent_path(), name);
    return std::move(out_);
  }

 private:
  void add(const std::vector<fs::path>& folders) { out_.insert(out_.end(), folders.begin(), folders.end()); }

  void add_system(const fs::path& prefix, const std::string& name) {
    const std::string home = variable(env_, "HOME");
    if (!home.empty() && variable(env_, "PYTHONNOUSERSITE").empty()) {
      add(package_folders(root_ + home + "/.local/lib", name));
    }
    // Debian's Python of /usr looks into /usr/local first.
    if (prefix == root_ + "/usr") add(package_folders(root_ + "/usr/local/lib", name));
    add(package_folders(prefix / "lib", name));
  }

  const EnvironmentMap& env_;
  std::string root_;
  std::vector<fs::path> out_;
};

}  // namespace

ScriptKind script_kind(const std::string& path) {
  std::error_code ignored;  // reported as missing
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status)) return ScriptKind::kMissing;
  if (!fs::is_directory(status)) return ScriptKind::kFile;
  return fs::exists(fs::path(path) / "__main__.py", ignored) ? ScriptKind::kRunnableFolder : ScriptKind::kFolder;
}

std::optional<std::string> find_program(const std::string& name, const EnvironmentMap& env) {
  if (name.find('/') != std::string::npos) return can_execute(name) ? std::optional(name) : std::nullopt;
  const auto path = env.find("PATH");
  const std::string folders = path == env.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
  for (const std::string_view folder : split(folders, ':')) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (can_execute(candidate)) return candidate.string();
  }
  return std::nullopt;
}

std::string find_python(const std::string& wanted, const EnvironmentMap& env) {
  const std::string by_variable = variable(env, "PYTHON_EXEC");
  const std::string& asked = wanted.empty() ? by_variable : wanted;
  if (!asked.empty()) {
    if (const auto found = find_program(asked, env)) return *found;
    throw Error(ErrorCode::kUsage,
                fmt::format("{} '{}' is not an interpreter that can be run",
                            wanted.empty() ? "PYTHON_EXEC" : "--python", asked),
                "", "check the path, or leave it out to use python3 of PATH");
  }
  for (const char* name : {"python3", "python"}) {
    if (const auto found = find_program(name, env)) return *found;
  }
  throw Error(ErrorCode::kUsage, "there is no python3 or python in PATH", variable(env, "PATH"),
              "activate your environment, give --python PATH, or start another program with --no-python");
}

std::optional<std::string> installed_torch(const std::string& interpreter, const EnvironmentMap& env,
                                           const std::string& root) {
  for (const fs::path& folder : PackageSearch(env, root).folders(interpreter)) {
    if (const auto version = version_in(folder)) return version;
  }
  return std::nullopt;
}

bool has_package(const std::string& name, const std::string& interpreter, const EnvironmentMap& env,
                 const std::string& root) {
  const std::vector<fs::path> folders = PackageSearch(env, root).folders(interpreter);
  return std::any_of(folders.begin(), folders.end(), [&name](const fs::path& folder) {
    std::error_code ignored;  // not there
    return fs::exists(folder / name / "__init__.py", ignored) || fs::exists(folder / (name + ".py"), ignored);
  });
}

}  // namespace rubato::os
