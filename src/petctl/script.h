// What a job runs: the forms of petctl's positional arguments, and which scripts are refused. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::petctl {

struct Script {
  enum class Kind {
    kFile,    // a file here: uploaded
    kFolder,  // a folder here, and a script in it: uploaded as an archive of its contents
    kS3File,  // s3://BUCKET/script.py
    kS3Tar,   // s3://BUCKET/dir.tar.gz, and a script in it
    kOnHost,  // --no_upload: a path on the host, or in the container
  };
  Kind kind = Kind::kFile;
  std::string source;  // the path here, the s3:// address, or the path there
  std::string entry;   // the script inside of a folder or archive; empty for the other kinds
};

// The positionals before `--`: one or two. Throws a usage Error for other numbers, an entry that leads out of its
// folder, a folder without a script. `is_folder` says what the first one is, here.
Script read_script(const std::vector<std::string>& positionals, bool no_upload, bool is_folder);

// Why a script cannot run: it is written for torchelastic 0.1's train_loop, whose coordinator is gone. Empty: it can.
std::string refusal_of(std::string_view text);
inline constexpr size_t kScriptBytesMax = size_t{4} << 20;  // so much of it is looked into
inline constexpr std::string_view kPortingPage = "docs/petctl.md, \"Porting a train_loop script\"";

}  // namespace rubato::petctl
