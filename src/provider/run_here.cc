#include "provider/run_here.h"

#include <fmt/format.h>

#include <csignal>

#include "core/error.h"
#include "provider/shell_stream.h"

namespace rubato::provider {

namespace {

constexpr size_t kErrMax = size_t{16} << 10;

// Processes of this program carry tokens by which they are killed with it (os/family.h). What runs in the background
// on purpose must not: these go before the program starts. "$1" is its input, "$2" a file that follows it.
constexpr const char* kStart =
    "unset RUBATO_AGENT_TOKEN RUBATO_PROCESS_TOKEN; in=$1; more=$2; shift 2; "
    "if [ -n \"$more\" ]; then cat \"$in\" \"$more\" | \"$@\"; else exec \"$@\" <\"$in\"; fi";

// A file with the input, in a folder that only we can read, for as long as the process may read it.
class InputFile {
 public:
  InputFile(World& world, const std::string& scratch, const std::string& bytes) : files_(world.files) {
    if (bytes.empty()) {
      path_ = "/dev/null";
      return;
    }
    files_.make_folders(scratch);
    files_.set_mode(scratch, 0700);
    path_ = fmt::format("{}/in-{}", scratch, world.random.hex(16));
    owned_ = true;
    files_.open_append(path_)->append(bytes);
  }
  ~InputFile() {
    if (owned_) files_.remove_tree(path_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  Files& files_;
  std::string path_;
  bool owned_ = false;
};

}  // namespace

void LineTail::line(std::string_view text) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (is_shell_noise(text)) return;
  if (on_line_) on_line_(text);
  if (last_.size() == kLastLines) last_.erase(last_.begin());
  last_.emplace_back(text.substr(0, kLineMax));
}

void LineTail::feed(bool is_stderr, std::string_view bytes) {
  LineBuffer& lines = lines_[is_stderr ? 1 : 0];
  lines.add(bytes);
  while (const auto whole = lines.next_text()) line(*whole);
  if (lines.size() > (size_t{64} << 10)) line(lines.take_rest());  // a progress bar without line ends
}

void LineTail::finish() {
  for (LineBuffer& lines : lines_) {
    if (lines.size() > 0) line(lines.take_rest());
  }
}

Task<HereResult> run_here(World& world, RunnerSettings settings, HereSpec spec) {
  const Instant began = world.clock.now();
  if (!spec.input_file.empty() && !world.files.exists(spec.input_file)) {
    throw Error(ErrorCode::kNotFound, "there is no such file", spec.input_file);
  }
  const InputFile input(world, settings.scratch, spec.input);
  SpawnSpec spawn;
  spawn.argv = {"/bin/sh", "-c", kStart, "sh", input.path(), spec.input_file};
  spawn.argv.insert(spawn.argv.end(), spec.argv.begin(), spec.argv.end());
  spawn.env = settings.env;
  spawn.out.kind = spec.out_file.empty() ? OutputTarget::Kind::kPipe : OutputTarget::Kind::kFile;
  spawn.out.path = spec.out_file;
  spawn.err.kind = OutputTarget::Kind::kPipe;
  const std::unique_ptr<Process> process = world.processes.spawn(spawn);

  HereResult result;
  LineTail tail(std::move(spec.on_line));
  while (true) {
    const std::optional<OutputChunk> chunk = co_await process->output().pop();
    if (!chunk) break;
    tail.feed(chunk->is_stderr, chunk->bytes);
    if (chunk->is_stderr) {
      result.err += chunk->bytes;
      if (result.err.size() > 2 * kErrMax) result.err.erase(0, result.err.size() - kErrMax);
    } else {
      const size_t room = spec.out_max - std::min(spec.out_max, result.command.out.size());
      result.command.out_cut |= chunk->bytes.size() > room;
      result.command.out += std::string_view(chunk->bytes).substr(0, room);
    }
  }
  const ExitStatus status = co_await process->wait();
  tail.finish();
  result.command.exit_code = status.signal ? 128 + status.signal : status.code;
  result.command.last_lines = tail.take();
  result.command.took = world.clock.now() - began;
  co_return result;
}

}  // namespace rubato::provider
