// The training library (python/), which the binary carries: unpacked once, and put on the path of workers.
#pragma once

#include <cstddef>
#include <string>

#include "agent/worker_env.h"
#include "terminal/flags.h"
#include "world/files.h"

namespace rubato::embedded {

struct LibraryFile {
  const char* path;  // "rubato/torch/data.py", "adaptdl/adaptdl/env.py"
  const char* text;
};
extern const LibraryFile kLibrary[];
extern const size_t kLibrarySize;
extern const char kLibraryHash[];

}  // namespace rubato::embedded

namespace rubato::cli {

// Unpacks the library below `folder`, unless it is there, and appends it to the workers' PYTHONPATH: what the user has
// there comes first. AdaptDL's names (`import adaptdl`) are added only where `python` finds no such package.
// RUBATO_LIBRARY names the library's folder for what comes later (node/job_launch). Throws where it cannot be unpacked.
void add_training_library(Files& files, const std::string& folder, const std::string& python,
                          agent::Environment& workers);

// `--adaptdl auto|rubato`; a usage Error for anything else.
bool wants_our_adaptdl(const Given& given);

// A folder for it that outlives a run; empty where there is none.
std::string library_cache(const std::map<std::string, std::string>& environment);

}  // namespace rubato::cli
