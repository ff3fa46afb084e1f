// FetchedSource: what `submit` is to send, where that lies in S3 or Cloud Storage: brought here first.
#pragma once

#include <string>

#include "cli/cli.h"
#include "terminal/flags.h"
#include "world/files.h"

namespace rubato::cli {

// SCRIPT, PACKAGE or DIR/ as s3://BUCKET/KEY or gs://BUCKET/KEY. Fetches it into a folder that goes with this object;
// parsed() is the command then, with that place instead of the address. Otherwise it does nothing.
class FetchedSource {
 public:
  FetchedSource(const ParsedCommand& parsed, const Shell& shell, Files& files);
  FetchedSource(const FetchedSource&) = delete;
  ~FetchedSource();

  const ParsedCommand& parsed() const { return parsed_; }

 private:
  void fetch(std::string& word, const Shell& shell);

  Files& files_;
  ParsedCommand parsed_;
  std::string folder_;  // empty: nothing was fetched
};

}  // namespace rubato::cli
