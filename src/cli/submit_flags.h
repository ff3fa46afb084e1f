// The words of `rubato submit` → a JobSpec and what has to be packed for it. Pure: the disk is seen through SubmitView.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/cluster_file.h"
#include "model/job_spec.h"
#include "terminal/flags.h"

namespace rubato::cli {

enum class PathKind { kMissing, kFile, kFolder };

struct SubmitView {
  Environment env;
  std::string user;    // who typed it, for where the environment does not say
  std::string folder;  // where the command was typed, absolute
  std::function<PathKind(const std::string&)> kind_of;
  std::function<std::optional<std::string>(const std::string&)> read;
  JobDefaults defaults;  // of the cluster's file
};

// What workers start in.
struct SubmitSource {
  enum class Kind {
    kNothing,  // an empty folder
    kFolder,   // all of it
    kPerhaps,  // all of it if it is small, else `alone`, else nothing
    kArchive,  // a package that the person made
  };
  Kind kind = Kind::kNothing;
  std::string path;   // absolute
  std::string alone;  // the one file that must come along, relative to it; empty: none
};

struct SubmitPlan {
  JobSpec spec;  // without the package's hash
  SubmitSource source;
  std::vector<std::string> notes;  // sentences for people
};

// Throws a usage Error that names the flag and what to write instead.
SubmitPlan plan_submit(const ParsedCommand& parsed, const SubmitView& view);

}  // namespace rubato::cli
