// CommandRunner: runs commands and moves files on one machine: this one, one over SSH, or inside a container of either.
//
// All calls may be made at once from several tasks. Each is bounded by its deadline; cancelling a call (destroying its
// frame) ends what runs here, and the far side notices when it next writes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/task.h"
#include "core/time.h"

namespace rubato::provider {

struct Command {
  std::string script;             // for sh; with `login` for bash where there is one
  std::vector<std::string> argv;  // instead of a script: quoted by us
  std::string what;               // for people: "looking for Python"; empty: the first line of the script
  // Exported before the script. They travel by standard input, as the script does: nobody sees them in `ps`.
  std::map<std::string, std::string> env;
  bool login = false;      // with the user's profile and bashrc, as at a terminal: for what people wrote
  std::string input;       // standard input; may be secret
  std::string input_file;  // a file here whose bytes follow `input`
  std::string out_file;    // a file here that standard output is added to, instead of CommandResult::out
  Duration timeout = 60s;
  size_t out_max = size_t{256} << 10;             // of CommandResult::out
  std::function<void(std::string_view)> on_line;  // each line of both outputs as it comes, without its end
};

struct CommandResult {
  int exit_code = 0;  // 128 + the signal when one ended it
  std::string out;    // standard output, its first out_max bytes
  bool out_cut = false;
  std::vector<std::string> last_lines;  // of both outputs; at most kLastLines, each at most kLineMax bytes
  Duration took{};
  bool ok() const { return exit_code == 0; }
};
inline constexpr size_t kLastLines = 12;
inline constexpr size_t kLineMax = 2000;

// What was moved so far. Files that the other side had already are not among them.
struct SyncSent {
  uint64_t files = 0;
  uint64_t bytes = 0;
};

// What of a folder is moved, and what happens to the rest. See docs/files.md.
struct SyncOptions {
  bool remove_others = true;              // what is only there goes, unless it is left out here
  std::vector<std::string> exclude;       // patterns in the syntax of .gitignore, relative to the folder
  std::vector<std::string> ignore_files;  // names such as ".gitignore": each is obeyed in its folder and below
  Duration timeout = 600s;
  std::function<void(std::string_view)> on_line;
  std::function<void(const SyncSent&)> on_sent;  // again and again, and at the end; not when nothing had to be moved
};

class CommandRunner {
 public:
  virtual ~CommandRunner() = default;

  // Returns when the command has ended, whatever its exit code. Throws kUnavailable when the machine was not reached,
  // was lost on the way, or the deadline came first; kUsage when it can never work (a host key or login is refused).
  virtual Task<CommandResult> run(Command command) = 0;

  // A folder's contents appear in the folder `remote`; a file as the file `remote`, or in it if it ends with '/'. Paths
  // there may begin with "~/". Folders above are made. A repetition finishes what was begun.
  virtual Task<void> upload(std::string local, std::string remote, SyncOptions options) = 0;
  virtual Task<void> download(std::string remote, std::string local, SyncOptions options) = 0;

  // For people: "ubuntu@10.0.0.7", "this machine", "container ray in ubuntu@10.0.0.7".
  virtual std::string describe() const = 0;
};

// "~/a b" as one word of a shell's script that still means the home folder: "$HOME"/'a b'.
std::string quote_path(std::string_view path);

// The last lines, each on a line of its own and indented, for the end of an Error's message; empty without any.
std::string last_output(const CommandResult& result);

// What it is, or the first line of what it runs, shortened, in backquotes.
std::string summary(const Command& command);

// For a command whose deadline came first.
Error too_late(const std::string& machine, const Command& command);

}  // namespace rubato::provider
