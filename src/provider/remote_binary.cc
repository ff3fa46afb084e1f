#include "provider/remote_binary.h"

#include <fmt/format.h>

#include "archive/codec.h"
#include "core/error.h"
#include "core/scope.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/turns.h"
#include "core/while_listening.h"

namespace rubato::provider {

namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kHashInName = 16;
constexpr Duration kPackMax = 120s;

// Prints one line: the machine, the hash of what is there, how it can be sent, its path. "$n" is the name.
constexpr std::string_view kLookForBinary = R"sh(
f=$HOME/.rubato/bin/$n; h=none
if [ -x "$f" ]; then h=$(sha256sum "$f" 2>/dev/null | cut -c1-64); ln -sfn "$n" "$HOME/.rubato/bin/rubato"; fi
z=raw; command -v gzip >/dev/null 2>&1 && z=gzip; command -v zstd >/dev/null 2>&1 && z=zstd
printf '\nrubato-binary %s %s %s %s\n' "$(uname -m)" "${h:-unknown}" "$z" "$f"
)sh";

// "$n" its name, "$h" its hash, "$z" how it is packed. Nothing has the name that is not whole.
constexpr std::string_view kReceive = R"sh(
d=$HOME/.rubato/bin; mkdir -p "$d" && chmod 755 "$d" && t=$(mktemp "$d/.draft-XXXXXX") || exit 1
case $z in zstd) zstd -dcq ;; gzip) gzip -dc ;; *) cat ;; esac >"$t" && chmod 755 "$t" || { rm -f "$t"; exit 1; }
if command -v sha256sum >/dev/null 2>&1 && [ "$(sha256sum "$t" | cut -c1-64)" != "$h" ]; then
  echo "what arrived is not what was sent" >&2; rm -f "$t"; exit 1
fi
if ! "$t" version >/dev/null; then
  echo "the program does not run there (is the home folder mounted noexec?)" >&2; rm -f "$t"; exit 1
fi
mv -f "$t" "$d/$n" && ln -sfn "$n" "$d/rubato"
)sh";

struct Found {
  std::string machine, hash, form, path;
};

Found read_found(const CommandResult& result, const std::string& machine_name) {
  for (const std::string_view line : split(result.out, '\n')) {
    const std::vector<std::string_view> arguments = split(line, ' ');
    if (arguments.size() < 5 || arguments[0] != "rubato-binary") continue;
    Found found;
    found.machine = arguments[1];
    found.hash = arguments[2];
    found.form = arguments[3];
    const size_t size = arguments[0].size() + arguments[1].size() + arguments[2].size() + arguments[3].size() + 4;
    found.path = line.substr(size);
    return found;
  }
  throw Error(ErrorCode::kFailed,
              fmt::format("the shell of {} did not do as it was told{}", machine_name, last_output(result)),
              machine_name, "its login shell must run `sh -c`; look at it with: ssh " + machine_name);
}

}  // namespace

std::string_view RemoteBinary::machine() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "another machine";
#endif
}

RemoteBinary::RemoteBinary(World& world, RunnerSettings settings, std::string program, std::string cache)
    : world_(world),
      settings_(std::move(settings)),
      program_(std::move(program)),
      cache_(std::move(cache)),
      changed_(world.clock.loop()) {}

Task<void> RemoteBinary::turn() {
  while (busy_) co_await changed_.wait_until(world_.clock.now() + kPackMax);
}

Task<std::string> RemoteBinary::hash() {
  co_await turn();
  if (!hash_.empty()) co_return hash_;
  const Busy busy(*this);
  const std::unique_ptr<Reader> reader = world_.files.open_read(program_);
  Sha256 hash;
  Turns turns(world_.clock.loop());
  while (true) {
    const std::string bytes = reader->read(kPiece);
    if (bytes.empty()) break;
    hash.update(bytes);
    co_await turns.step();
  }
  hash_ = hash.hex();
  co_return hash_;
}

Task<void> RemoteBinary::pack_with_zstd(std::string path) {
  const std::unique_ptr<Reader> reader = world_.files.open_read(program_);
  const std::unique_ptr<Appender> file = world_.files.open_append(path);
  archive::ZstdEncoder encoder;
  Turns turns(world_.clock.loop());
  while (true) {
    const std::string bytes = reader->read(kPiece);
    std::string packed;
    if (bytes.empty()) {
      encoder.finish(packed);
    } else {
      encoder.add(bytes, packed);
    }
    if (!packed.empty()) file->append(packed);
    if (bytes.empty()) co_return;
    co_await turns.step();
  }
}

Task<void> RemoteBinary::make_file(Form form, std::string path) {
  const std::string draft = fmt::format("{}.{}", path, world_.random.hex(8));
  world_.files.make_folders(cache_);
  if (form == Form::kZstd) {
    co_await pack_with_zstd(draft);
  } else {
    HereSpec spec;
    spec.argv = {"gzip", "-6", "-c"};
    spec.input_file = program_;
    spec.out_file = draft;
    Task<HereResult> running = run_here(world_, settings_, std::move(spec));
    const std::optional<HereResult> result =
        co_await while_listening(world_.clock.loop(), kPackMax, std::move(running));
    if (!result || !result->command.ok()) {
      world_.files.remove_tree(draft);
      throw Error(ErrorCode::kFailed, "gzip cannot pack this program" + (result ? last_output(result->command) : ""));
    }
  }
  world_.files.move(draft, path);
}

Task<std::string> RemoteBinary::file_of(Form form) {
  if (form == Form::kRaw) co_return program_;
  const std::string id = co_await hash();
  const std::string path =
      fmt::format("{}/rubato-{}.{}", cache_, id.substr(0, kHashInName), form == Form::kZstd ? "zst" : "gz");
  co_await turn();
  if (world_.files.exists(path)) co_return path;
  const Busy busy(*this);
  co_await make_file(form, path);
  co_return path;
}

Task<RemoteBinary::Put> RemoteBinary::put(CommandRunner& runner, Duration timeout) {
  const std::string id = co_await hash();
  const std::string names = fmt::format("n=rubato-{} h={}", id.substr(0, kHashInName), id);
  Command look;
  look.what = "looking for rubato";
  look.script = names + "\n" + std::string(kLookForBinary);
  look.timeout = timeout;
  const CommandResult answer = co_await runner.run(std::move(look));
  const Found found = read_found(answer, runner.describe());
  if (found.machine != machine()) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{} is a {} machine, but this rubato is for {}", runner.describe(), found.machine, machine()),
        runner.describe(), "head and workers need the same kind of processor");
  }
  Put put;
  put.path = found.path;
  if (found.hash == id) co_return put;
  const Form form = found.form == "zstd" ? Form::kZstd : found.form == "gzip" ? Form::kGzip : Form::kRaw;
  Command send;
  send.what = "copying rubato";
  send.script = fmt::format("{} z={}\n{}", names, found.form, kReceive);
  send.input_file = co_await file_of(form);
  send.timeout = timeout;
  const CommandResult sent = co_await runner.run(std::move(send));
  if (!sent.ok()) {
    throw Error(ErrorCode::kFailed,
                fmt::format("rubato cannot be copied to {}{}", runner.describe(), last_output(sent)), runner.describe(),
                "look at the space there: df -h ~");
  }
  put.sent = true;
  co_return put;
}

}  // namespace rubato::provider
