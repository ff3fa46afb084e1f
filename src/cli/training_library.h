// The training library (python/), which the binary carries: unpacked once, and put on the path of workers.
#pragma once

#include <cstddef>
#include <string>

#include "agent/worker_env.h"
#include "core/log.h"
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

// Unpacks the library below `folder` (the node's own: it goes with the node), unless it is there, and appends it to the
// workers' PYTHONPATH: what the user has there comes first. AdaptDL's names (`import adaptdl`) are added only where
// `python` finds no such package. Where the folder cannot be written, workers go without, and the log says why: most
// need no library.
void add_training_library(Files& files, const std::string& folder, const std::string& python,
                          agent::Environment& workers, const Log& log);

}  // namespace rubato::cli
