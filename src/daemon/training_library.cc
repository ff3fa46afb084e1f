#include "daemon/training_library.h"

#include "archive/folder_stream.h"
#include "core/error.h"
#include "os/python.h"

namespace rubato::cli {

namespace {

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Whole or not there: a folder beside it gets the name when every file is in it.
std::string unpack(Files& files, const std::string& folder) {
  const std::string target = folder + "/python-" + embedded::kLibraryHash;
  if (files.exists(target)) return target;
  const std::string draft = archive::make_draft(files, target);
  try {
    for (size_t i = 0; i < embedded::kLibrarySize; ++i) {
      const std::string path = draft + "/" + embedded::kLibrary[i].path;
      files.make_folders(parent_of(path));
      files.open_append(path)->append(embedded::kLibrary[i].text);
    }
    files.rename(draft, target);
  } catch (const Error& error) {
    files.remove_tree(draft);
    if (error.code != ErrorCode::kConflict) throw;  // another agent was faster: the same files
  }
  return target;
}

void append_path(agent::Environment& workers, const std::string& folder) {
  std::string& path = workers["PYTHONPATH"];
  if (!path.empty()) path += ':';
  path += folder;
}

}  // namespace

void add_training_library(Files& files, const std::string& folder, const std::string& python,
                          agent::Environment& workers) {
  const bool has_adaptdl = os::has_package("adaptdl", python, workers);
  const std::string library = unpack(files, folder);
  append_path(workers, library);
  if (!has_adaptdl) append_path(workers, library + std::string(agent::kAdaptdlNames));
  workers[std::string(agent::kLibraryVariable)] = library;
}

bool wants_our_adaptdl(const Given& given) {
  const std::string& value = given.values.back();
  if (value == agent::kOurAdaptdl) return true;
  if (value == "auto") return false;
  throw bad_value(given, "expected auto or rubato", "auto is what happens without it");
}

std::string library_cache(const std::map<std::string, std::string>& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    const bool usable = found != environment.end() && found->second.starts_with('/');  // XDG: ignore a relative one
    return usable ? found->second : std::string();
  };
  if (const std::string cache = value("XDG_CACHE_HOME"); !cache.empty()) return cache + "/rubato";
  const std::string home = value("HOME");
  return home.empty() ? "" : home + "/.cache/rubato";
}

}  // namespace rubato::cli
