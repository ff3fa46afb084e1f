#include "provider/sync.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/listening_clock.h"
#include "core/scope.h"
#include "core/text.h"
#include "provider/sync_tree.h"

namespace rubato::provider {

namespace {

using Kind = Files::Entry::Kind;

constexpr size_t kListingMax = size_t{256} << 20;
constexpr int kNotFoundCode = 127;
constexpr std::string_view kSentMark = "rubato-sent ";  // before each line of rsync that tells of a file
constexpr int kVanished = 24;                           // rsync: some files went away before they were read

// What the other side is and has: the first words of kLook's output, then the names.
struct Far {
  bool folder = false, file = false, rsync = false;
  std::string path;  // absolute
  std::vector<std::string> files, folders;
};

// "$list": yes prints the entries of a folder, NUL after each; an empty one between folders and the rest.
constexpr std::string_view kLook = R"sh(
k=none; q=$p; if [ -d "$p" ]; then k=folder; cd "$p" || exit 1; q=$(pwd -P); elif [ -e "$p" ]; then k=file; fi
r=no; command -v rsync >/dev/null 2>&1 && r=yes
printf '%s\0%s\0%s\0' "$k" "$r" "$q"
[ $k = folder ] && [ "$list" = yes ] || exit 0
find . -type d -print0 && printf '\0' && find . ! -type d -print0
)sh";

// A tar of the names on standard input, each ended by a zero byte. Busybox's tar, as in small images, takes names only
// as arguments: for many of them it runs several times, and what comes are several tars in a row.
constexpr std::string_view kPackNames =
    "case $(tar --version 2>/dev/null) in *GNU*) exec tar -czf - --no-recursion --null -T - ;; esac; "
    "if (set -o pipefail) 2>/dev/null; then set -o pipefail; fi; xargs -0 tar -cf - --no-recursion -- | gzip";
constexpr size_t kOnePackBytes = 16 << 10;  // busybox's xargs takes at least this much for one run

// A tar of one file: "$1" is what it becomes, "$2" the folder of that, "$3" its name in the tar.
constexpr const char* kUnpackFile = R"sh(
if [ -d "$1" ]; then echo "$1 is a folder" >&2; exit 1; fi
d=$(mktemp -d "$2/.rubato-XXXXXX") && tar -xzpof - -C "$d" && mv -f "$d/$3" "$1"; c=$?
rm -rf "$d"; exit $c
)sh";

std::string name_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

uint64_t count_files(const SyncTree& tree) {
  return static_cast<uint64_t>(std::ranges::count(tree.entries, Kind::kFile, &SyncEntry::kind));
}

// Files of our own in the scratch folder, gone with this object.
class Scratch {
 public:
  Scratch(World& world, const RunnerSettings& settings, std::string_view kind) : files_(world.files) {
    files_.make_folders(settings.scratch);
    files_.set_mode(settings.scratch, 0700);
    path_ = fmt::format("{}/{}-{}", settings.scratch, kind, world.random.hex(16));
  }
  ~Scratch() { files_.remove_tree(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }
  void write(std::string_view bytes) { files_.open_append(path_)->append(bytes); }

 private:
  Files& files_;
  std::string path_;
};

class Sync {
 public:
  Sync(World& world, RunnerSettings settings, CommandRunner& runner, SyncRoute route, SyncOptions options)
      : world_(world),
        settings_(std::move(settings)),
        runner_(runner),
        route_(std::move(route)),
        options_(std::move(options)),
        listening_(world.clock.now()),
        deadline_(world.clock.now() + options_.timeout),
        scope_(world.clock.loop()) {
    scope_.spawn(keep_listening(world.clock.loop(), listening_));
  }

  Task<void> up(std::string local, std::string remote);
  Task<void> down(std::string remote, std::string local);

 private:
  Task<void> folder_up(std::string local, std::string remote);
  Task<void> file_up(std::string local, std::string remote);
  Task<void> folder_down(Far far, std::string local);
  Task<void> file_down(Far far, std::string local);
  Task<SyncTree> far_tree(const Far& far);
  Task<Far> inspect(std::string remote, bool make, bool list);
  Task<void> remove_there(std::string folder, Leftovers rest);
  Task<void> remove_here(std::string folder, SyncTree wanted);
  Task<bool> rsync(std::vector<std::string> arguments);  // false: there is none here
  Task<CommandResult> far_run(Command command, std::string what);
  Task<HereResult> here(HereSpec spec);
  bool take_sent(std::string_view line);
  void report_pack(const std::string& pack, uint64_t files);
  std::string far_name(const std::string& path) const;
  Duration left() const { return std::max<Duration>(1s, deadline_ - listening_.at(world_.clock.now())); }
  bool by_rsync(const Far& far) const { return far.rsync && (route_.rsync_here || !route_.rsync_host.empty()); }

  World& world_;
  const RunnerSettings settings_;
  CommandRunner& runner_;
  const SyncRoute route_;
  const SyncOptions options_;
  ListeningClock listening_;
  const Instant deadline_;  // in listening time: all of it together
  SyncSent sent_;
  Scope scope_;
};

// "rubato-sent >f+++++++++ 1234": rsync's word for what it did to an entry, and the entry's size.
bool Sync::take_sent(std::string_view line) {
  const auto rest = strip_prefix(line, kSentMark);
  if (!rest) return false;
  const auto parts = split_once(*rest, ' ');
  const bool moved = parts && parts->first.size() > 1 && (parts->first[0] == '<' || parts->first[0] == '>');
  if (!moved || parts->first[1] != 'f') return true;
  ++sent_.files;
  sent_.bytes += static_cast<uint64_t>(std::max(0LL, std::atoll(std::string(parts->second).c_str())));
  if (options_.on_sent) options_.on_sent(sent_);
  return true;
}

void Sync::report_pack(const std::string& pack, uint64_t files) {
  sent_ = {files, world_.files.open_read(pack)->size()};
  if (options_.on_sent) options_.on_sent(sent_);
}

std::string Sync::far_name(const std::string& path) const {
  if (route_.rsync_here) return path;
  const bool v6 = route_.rsync_host.find(':') != std::string::npos;
  return fmt::format("{}:{}", v6 ? "[" + route_.rsync_host + "]" : route_.rsync_host, path);
}

Task<CommandResult> Sync::far_run(Command command, std::string what) {
  command.what = what;
  command.timeout = left();
  CommandResult result = co_await runner_.run(std::move(command));
  if (!result.ok()) {
    throw Error(ErrorCode::kFailed,
                fmt::format("{} on {} failed with exit code {}{}", what, runner_.describe(), result.exit_code,
                            last_output(result)),
                runner_.describe(), "see the output above: a full disk, or a folder that belongs to somebody else?");
  }
  co_return result;
}

Task<HereResult> Sync::here(HereSpec spec) {
  Task<HereResult> running = run_here(world_, settings_, std::move(spec));
  std::optional<HereResult> result = co_await within(world_.clock.loop(), listening_, left(), std::move(running));
  if (!result) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("moving files to or from {} did not end within {}", runner_.describe(),
                            format_duration(options_.timeout)),
                runner_.describe(), "leave out what is not needed, with files.exclude in the cluster file");
  }
  co_return std::move(*result);
}

Task<Far> Sync::inspect(std::string remote, bool make, bool list) {
  Command command;
  command.script = fmt::format("p={}; list={}\n", quote_path(remote), list ? "yes" : "no");
  if (make) command.script += "mkdir -p \"$p\" || exit 1\n";
  command.script += kLook;
  command.out_max = kListingMax;
  const CommandResult result = co_await far_run(std::move(command), "looking at the folder " + remote);
  if (result.out_cut) {
    throw Error(ErrorCode::kFailed, fmt::format("the folder {} on {} has too many files", remote, runner_.describe()));
  }
  const std::vector<std::string_view> parts = split(result.out, '\0');
  if (parts.size() < 3)
    throw Error(ErrorCode::kFailed, fmt::format("{} did not say what {} is", runner_.describe(), remote));
  // What a .bashrc prints comes before it.
  const std::string_view kind = parts[0].substr(parts[0].rfind('\n') + 1);
  Far far;
  far.folder = kind == "folder";
  far.file = kind == "file";
  far.rsync = parts[1] == "yes";
  far.path = parts[2];
  bool folders = true;
  for (size_t i = 3; i < parts.size(); ++i) {
    if (parts[i].empty()) folders = false;
    const auto inside = strip_prefix(parts[i], "./");
    if (inside) (folders ? far.folders : far.files).emplace_back(*inside);
  }
  co_return far;
}

Task<bool> Sync::rsync(std::vector<std::string> arguments) {
  HereSpec spec;
  // No owner and group, as in tar's -o. Protected: paths go as they are, whatever shell is there.
  spec.argv = {"rsync", "--links", "--perms", "--times", "--compress", "--protect-args"};
  spec.argv.push_back(fmt::format("--out-format={}%i %l", kSentMark));
  if (!route_.rsync_here) spec.argv.insert(spec.argv.end(), {"-e", route_.rsync_shell});
  spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
  spec.on_line = [this](std::string_view line) {
    if (!take_sent(line) && options_.on_line) options_.on_line(line);
  };
  HereResult result = co_await here(std::move(spec));
  std::erase_if(result.command.last_lines, [](const std::string& line) { return line.starts_with(kSentMark); });
  const int code = result.command.exit_code;
  if (code == kNotFoundCode && result.err.find("rsync: not found") != std::string::npos) co_return false;
  if (code != 0 && code != kVanished) {
    const bool lost = code == 255 || code == 12 || code == 30 || code == 35;
    throw Error(
        lost ? ErrorCode::kUnavailable : ErrorCode::kFailed,
        fmt::format("rsync with {} failed with exit code {}{}", runner_.describe(), code, last_output(result.command)),
        runner_.describe(), "see the output above: a full disk, or a file that cannot be read?");
  }
  co_return true;
}

Task<void> Sync::remove_there(std::string folder, Leftovers rest) {
  const auto listed = [](const std::vector<std::string>& paths) {
    std::string text;
    for (const std::string& path : paths) text += "./" + path + '\0';
    return text;
  };
  if (!rest.files.empty()) {
    Command command;
    command.script = fmt::format("cd {} && xargs -0 rm -f --", quote_path(folder));
    command.input = listed(rest.files);
    (void)co_await far_run(std::move(command), "removing files");
  }
  if (!rest.folders.empty()) {
    Command command;
    // One that holds something left out here is not empty, and stays.
    command.script = fmt::format("cd {} && {{ xargs -0 rmdir -- 2>/dev/null; true; }}", quote_path(folder));
    command.input = listed(rest.folders);
    (void)co_await far_run(std::move(command), "removing folders");
  }
}

Task<void> Sync::up(std::string local, std::string remote) {
  bool folder = true;
  try {
    (void)world_.files.list(local);
  } catch (const Error&) {
    folder = false;
  }
  if (!folder && !world_.files.exists(local)) {
    throw Error(ErrorCode::kNotFound, "there is no such file or folder", local, "check files.mounts (file_mounts)");
  }
  if (folder) {
    co_await folder_up(std::move(local), std::move(remote));
  } else {
    co_await file_up(std::move(local), std::move(remote));
  }
}

Task<void> Sync::folder_up(std::string local, std::string remote) {
  const SyncTree tree = co_await walk_tree(world_, local, options_);
  const Far far = co_await inspect(std::move(remote), true, options_.remove_others);
  if (options_.remove_others) {
    Leftovers rest = leftovers(tree, far.files, far.folders);
    co_await remove_there(far.path, std::move(rest));
  }
  if (tree.entries.empty()) co_return;
  Scratch list(world_, settings_, "list");
  std::string names;
  for (const SyncEntry& entry : tree.entries) names += "./" + entry.path + '\0';
  list.write(names);
  if (by_rsync(far)) {
    std::vector<std::string> arguments = {"--from0", "--files-from=" + list.path(), local + "/",
                                          far_name(far.path + "/")};
    if (co_await rsync(std::move(arguments))) co_return;
  }
  const Scratch pack(world_, settings_, "pack");
  HereSpec tar;
  tar.argv = {"tar",
              "--create",
              "--gzip",
              "--file=" + pack.path(),
              "--directory=" + local,
              "--no-recursion",
              "--null",
              "--files-from=" + list.path()};
  const HereResult packed = co_await here(std::move(tar));
  if (!packed.command.ok()) {
    throw Error(ErrorCode::kFailed, "tar cannot pack the folder" + last_output(packed.command), local);
  }
  Command unpack;
  unpack.script = fmt::format("cd {} && tar -xzpof -", quote_path(far.path));
  unpack.input_file = pack.path();
  (void)co_await far_run(std::move(unpack), "unpacking files");
  report_pack(pack.path(), count_files(tree));
}

Task<void> Sync::file_up(std::string local, std::string remote) {
  if (remote.ends_with('/')) remote += name_of(local);
  const std::string folder = folder_of(remote), name = name_of(remote);
  const Far far = co_await inspect(folder, true, false);
  const std::string target = far.path + "/" + name;
  if (by_rsync(far)) {
    std::vector<std::string> arguments = {"--copy-links", local, far_name(target)};
    if (co_await rsync(std::move(arguments))) co_return;
  }
  const Scratch pack(world_, settings_, "pack");
  HereSpec tar;
  tar.argv = {"tar",
              "--create",
              "--gzip",
              "--dereference",
              "--file=" + pack.path(),
              "--directory=" + folder_of(local),
              "--",
              "./" + name_of(local)};
  const HereResult packed = co_await here(std::move(tar));
  if (!packed.command.ok()) {
    throw Error(ErrorCode::kFailed, "tar cannot pack the file" + last_output(packed.command), local);
  }
  Command unpack;
  unpack.argv = {"sh", "-c", kUnpackFile, "sh", target, far.path, name_of(local)};
  unpack.input_file = pack.path();
  (void)co_await far_run(std::move(unpack), "unpacking the file");
  report_pack(pack.path(), 1);
}

Task<void> Sync::down(std::string remote, std::string local) {
  Far far = co_await inspect(remote, false, true);
  if (!far.folder && !far.file) {
    throw Error(ErrorCode::kNotFound, fmt::format("there is no such file or folder on {}", runner_.describe()), remote);
  }
  if (far.folder) {
    co_await folder_down(std::move(far), std::move(local));
  } else {
    co_await file_down(std::move(far), std::move(local));
  }
}

// The tree there, less what the patterns and its own ignore files leave out.
Task<SyncTree> Sync::far_tree(const Far& far) {
  SyncTree tree{{}, SyncFilter(options_.exclude)};
  for (const std::string& path : far.files) {
    if (!std::ranges::count(options_.ignore_files, name_of(path))) continue;
    Command command;
    command.script = fmt::format("cat {}", quote_path(far.path + "/" + path));
    const CommandResult text = co_await far_run(std::move(command), "reading " + path);
    const size_t slash = path.rfind('/');
    tree.filter.add_file(slash == std::string::npos ? "" : path.substr(0, slash), text.out);
  }
  const auto add = [&](const std::string& path, Kind kind) {
    if (tree.filter.leaves_out(path, kind == Kind::kFolder)) return;
    SyncEntry entry;
    entry.path = path;
    entry.kind = kind;
    tree.entries.push_back(std::move(entry));
  };
  for (const std::string& path : far.folders) add(path, Kind::kFolder);
  for (const std::string& path : far.files) add(path, Kind::kFile);
  co_return tree;
}

Task<void> Sync::remove_here(std::string folder, SyncTree wanted) {
  SyncOptions all;
  const SyncTree here = co_await walk_tree(world_, folder, all);
  std::vector<std::string> files, folders;
  for (const SyncEntry& entry : here.entries) {
    (entry.kind == Kind::kFolder ? folders : files).push_back(entry.path);
  }
  const Leftovers rest = leftovers(wanted, files, folders);
  for (const std::string& path : rest.files) world_.files.remove_tree(folder + "/" + path);
  for (const std::string& path : rest.folders) {
    if (world_.files.list(folder + "/" + path).empty()) world_.files.remove_tree(folder + "/" + path);
  }
}

Task<void> Sync::folder_down(Far far, std::string local) {
  world_.files.make_folders(local);
  const SyncTree tree = co_await far_tree(far);
  if (options_.remove_others) co_await remove_here(local, tree);
  if (tree.entries.empty()) co_return;
  std::string names;
  for (const SyncEntry& entry : tree.entries) names += "./" + entry.path + '\0';
  if (by_rsync(far)) {
    Scratch list(world_, settings_, "list");
    list.write(names);
    std::vector<std::string> arguments = {"--from0", "--files-from=" + list.path(), far_name(far.path + "/"),
                                          local + "/"};
    if (co_await rsync(std::move(arguments))) co_return;
  }
  const Scratch pack(world_, settings_, "pack");
  const bool several = names.size() > kOnePackBytes;
  Command command;
  command.script = fmt::format("cd {} && {}", quote_path(far.path), kPackNames);
  command.input = std::move(names);
  command.out_file = pack.path();
  (void)co_await far_run(std::move(command), "packing files");
  report_pack(pack.path(), count_files(tree));
  HereSpec tar;
  tar.argv = {"tar", "-xzpof", pack.path(), "-C", local};
  if (several) tar.argv.push_back("-i");
  const HereResult unpacked = co_await here(std::move(tar));
  if (!unpacked.command.ok()) {
    throw Error(ErrorCode::kFailed, "tar cannot unpack into the folder" + last_output(unpacked.command), local);
  }
}

Task<void> Sync::file_down(Far far, std::string local) {
  if (local.ends_with('/')) local += name_of(far.path);
  world_.files.make_folders(folder_of(local));
  if (by_rsync(far)) {
    std::vector<std::string> arguments = {"--copy-links", far_name(far.path), local};
    // A path that is not absolute is relative to the home folder for rsync too.
    if (co_await rsync(std::move(arguments))) co_return;
  }
  const Scratch pack(world_, settings_, "pack");
  Command command;
  command.script =
      fmt::format("cd {} && tar -czhf - -- {}", quote_path(folder_of(far.path)), shell_quote("./" + name_of(far.path)));
  command.out_file = pack.path();
  (void)co_await far_run(std::move(command), "packing the file");
  report_pack(pack.path(), 1);
  HereSpec tar;
  tar.argv = {"sh", "-c", kUnpackFile, "sh", local, folder_of(local), name_of(far.path)};
  tar.input_file = pack.path();
  const HereResult unpacked = co_await here(std::move(tar));
  if (!unpacked.command.ok()) {
    throw Error(ErrorCode::kFailed, "tar cannot unpack the file" + last_output(unpacked.command), local);
  }
}

}  // namespace

Task<void> sync_up(World& world, RunnerSettings settings, CommandRunner& runner, SyncRoute route, std::string local,
                   std::string remote, SyncOptions options) {
  Sync sync(world, std::move(settings), runner, std::move(route), std::move(options));
  co_await sync.up(std::move(local), std::move(remote));
}

Task<void> sync_down(World& world, RunnerSettings settings, CommandRunner& runner, SyncRoute route, std::string remote,
                     std::string local, SyncOptions options) {
  Sync sync(world, std::move(settings), runner, std::move(route), std::move(options));
  co_await sync.down(std::move(remote), std::move(local));
}

}  // namespace rubato::provider
