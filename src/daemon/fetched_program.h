// FetchedProgram: a script in a bucket (s3://, gs://) brought to this machine for one `rubato run`, as images of
// torchelastic do it. The program itself, or the script of a python that is started by --no-python.
#pragma once

#include <string>

#include "model/launch_spec.h"
#include "os/machine.h"

namespace rubato::cli {

class FetchedProgram {
 public:
  // Where the program lies in a bucket, it is fetched, and `spec` names the file here. Credentials are found as each
  // cloud's own tools find them. Throws when it cannot be fetched.
  FetchedProgram(LaunchSpec& spec, const os::EnvironmentMap& environment);
  FetchedProgram(const FetchedProgram&) = delete;

 private:
  struct Folder {
    std::string path;  // empty: nothing was fetched
    ~Folder();         // the file goes
  };
  Folder folder_;
};

}  // namespace rubato::cli
