// `rubato dataset get`. In the folder:
//
//   .lock                one command at a time; the others wait, and find what they need
//   .kept/ID/data/...    one dataset, ID being the hash of its address
//   .kept/ID/note.json   where it is from, which version of each file is there, when it was last wanted
//   NAME -> .kept/ID/data
//
// A file is fetched when the bucket's version of it is not the noted one. What nobody has wanted for longest goes when
// there is not room enough.
#include "cli/dataset_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command_world.h"
#include "core/scope.h"
#include "core/sha256.h"
#include "core/text.h"
#include "daemon/object_store.h"
#include "model/resources.h"
#include "os/file_lock.h"
#include "rest/environment.h"
#include "rest/json.h"
#include "terminal/layout.h"

namespace rubato::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kDatasetsFolder = "~/.rubato/datasets";
constexpr size_t kNameMax = 100;
constexpr size_t kFilesMax = 5'000'000;
constexpr int kFilesAtOnce = 8;
constexpr int kDatasetsMax = 1000;
constexpr size_t kIdDigits = 16;
constexpr Duration kLockPause = 200ms;
constexpr Duration kReportPause = 5s;  // between two lines of progress
constexpr Duration kNotePause = 10s;   // so much may be fetched again after a failure
constexpr uint64_t kRoomLeft = uint64_t{256} << 20;  // on the disk, for everybody else

struct Wanted {
  std::string name, from, folder;  // folder: .kept/ID
  ObjectAddress address;
  std::unique_ptr<ObjectStore> store;
  std::vector<ObjectFile> files;
  json note = json::object();
  uint64_t bytes = 0, missing = 0, fetched = 0;
  std::vector<const ObjectFile*> to_fetch;
};

// A name is a file's name in the folder, and needs no quotes anywhere.
bool valid_dataset_name(std::string_view name) {
  const auto fine = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !name.empty() && name.size() <= kNameMax && name.front() != '.' && name.front() != '-' &&
         std::ranges::all_of(name, fine);
}

json version_of(const ObjectFile& file) { return {file.version, file.size}; }

class DatasetGet {
 public:
  DatasetGet(const ParsedCommand& parsed, const Shell& shell) : shell_(shell) {
    const Given* const into = parsed.find("into");
    std::string folder = into == nullptr ? std::string(kDatasetsFolder) : into->values.back();
    if (const auto below = strip_prefix(folder, "~/")) folder = rest::home_of(shell.env) + "/" + std::string(*below);
    folder_ = fs::absolute(folder).lexically_normal().string();
    const Given* const most = parsed.find("max");
    if (most != nullptr) room_max_ = static_cast<uint64_t>(parse_bytes(most->values.back()));
    for (const std::string& word : parsed.positionals) read(word);
    if (wanted_.empty()) {
      throw Error(ErrorCode::kUsage, "no dataset is named", "", "rubato dataset get NAME=s3://BUCKET/FOLDER/");
    }
  }

  int run() {
    files().make_folders(folder_ + "/.kept");
    command_.runtime.run(get_all());
    return 0;
  }

 private:
  Files& files() { return command_.world.files; }

  void read(const std::string& word) {
    const auto parts = split_once(word, '=');
    Wanted one;
    if (parts) one.name = parts->first;
    if (!parts || !valid_dataset_name(one.name) || !is_object_address(std::string(parts->second))) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is no dataset", word), "",
                  "write NAME=s3://BUCKET/FOLDER/ or NAME=gs://BUCKET/FOLDER/");
    }
    one.from = parts->second;
    one.address = parse_object_address(one.from);
    one.folder = fmt::format("{}/.kept/{}", folder_, sha256_hex(one.from).substr(0, kIdDigits));
    wanted_.push_back(std::move(one));
  }

  Task<int> get_all() {
    const os::FileLock lock = co_await take_lock();
    refuse_names_of_others();
    for (Wanted& one : wanted_) co_await compare(one);
    make_room();
    for (Wanted& one : wanted_) {
      co_await fetch(one);
      link(one);
      shell_.err(fmt::format("{}: {} files, {} ({} fetched)\n", one.name, one.files.size(),
                             format_bytes(static_cast<int64_t>(one.bytes)),
                             format_bytes(static_cast<int64_t>(one.fetched))));
    }
    co_return 0;
  }

  Task<os::FileLock> take_lock() {
    const std::string path = folder_ + "/.lock";
    for (bool said = false;; said = true) {
      std::optional<os::FileLock> lock = os::FileLock::try_take(path);
      if (lock) co_return std::move(*lock);
      if (!said) shell_.err("another command fetches datasets here: waiting for it\n");
      co_await Sleep(command_.world.clock.loop(), command_.runtime.now() + kLockPause);
    }
  }

  void refuse_names_of_others() {
    std::set<std::string> names;
    for (const Wanted& one : wanted_) names.insert(one.name);
    for (const Files::Entry& entry : files().list(folder_)) {
      if (!names.contains(entry.name) || entry.kind == Files::Entry::Kind::kLink) continue;
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is there already, and no dataset of ours", entry.name), folder_,
                  "give the dataset another name, or another folder with --into");
    }
  }

  // What the bucket has, and what of it is not here. A bucket that does not answer is no reason to be without what is
  // here, whole.
  Task<void> compare(Wanted& one) {
    one.note = rest::parse_bounded(files().read(one.folder + "/note.json").value_or("{}"));
    if (!one.note.is_object()) one.note = json::object();
    try {
      aws::Settings settings;
      settings.env = shell_.env;
      one.store = co_await open_store(command_.world, one.address, std::move(settings));
      one.files = co_await list(one);
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable || !one.note.value("whole", false)) throw;
      shell_.err(fmt::format("warning: {} cannot be asked, what is here is taken: {}\n", one.from, error.message));
      one.files.clear();
      one.bytes = one.note.value("bytes", uint64_t{0});
      co_return;
    }
    const json& has = one.note["files"];
    for (const ObjectFile& file : one.files) {
      one.bytes += file.size;
      const auto noted = has.is_object() ? has.find(name_of(one, file)) : has.end();
      const bool is_here = has.is_object() && noted != has.end() && *noted == version_of(file) && is_whole(file);
      if (is_here) continue;
      one.to_fetch.push_back(&file);
      one.missing += file.size;
    }
  }

  // An address of one object is a dataset of one file.
  Task<std::vector<ObjectFile>> list(Wanted& one) {
    const std::string data = one.folder + "/data";
    const std::string& key = one.address.key;
    if (!key.empty() && !key.ends_with('/')) {
      const std::vector<ObjectEntry> found = co_await one.store->list(key, 1);
      if (!found.empty() && found.front().key == key) {
        std::vector<ObjectFile> out;
        out.push_back({key, data + "/" + fs::path(key).filename().string(), found.front().size,
                       found.front().version});
        co_return out;
      }
    }
    ObjectAddress below = one.address;
    if (!below.key.empty() && !below.key.ends_with('/')) below.key += '/';
    co_return co_await find_below(*one.store, std::move(below), data, kFilesMax);
  }

  static std::string name_of(const Wanted& one, const ObjectFile& file) {
    return file.path.substr(one.folder.size() + std::string_view("/data/").size());
  }

  static bool is_whole(const ObjectFile& file) {
    std::error_code failed;
    const auto size = fs::file_size(file.path, failed);
    return !failed && size == file.size;
  }

  // ---- room ----

  struct Kept {
    std::string folder;
    int64_t used = 0;
    uint64_t bytes = 0;
  };

  void make_room() {
    std::set<std::string> ours;
    uint64_t all = 0, missing = 0;
    for (const Wanted& one : wanted_) {
      if (!ours.insert(one.folder).second) continue;
      all += one.bytes;
      missing += one.missing;
    }
    if (room_max_ > 0 && all > room_max_) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("the datasets have {}, and {} are allowed", format_bytes(static_cast<int64_t>(all)),
                              format_bytes(static_cast<int64_t>(room_max_))),
                  folder_, "raise --max");
    }
    std::vector<Kept> others = others_than(ours);
    uint64_t kept = all;
    for (const Kept& one : others) kept += one.bytes;
    for (const Kept& one : others) {
      const bool too_much = room_max_ > 0 && kept > room_max_;
      if (!too_much && has_room(missing)) break;
      shell_.err(fmt::format("removed: {} ({}), which nobody has wanted for longest\n", one.folder,
                             format_bytes(static_cast<int64_t>(one.bytes))));
      remove(one.folder);
      kept -= one.bytes;
    }
    if (has_room(missing)) return;
    throw Error(ErrorCode::kFailed,
                fmt::format("the disk has no room for {} of datasets", format_bytes(static_cast<int64_t>(missing))),
                folder_, "use machines with larger disks");
  }

  bool has_room(uint64_t missing) {
    const auto room = files().room(folder_);
    return missing == 0 || !room || room->free >= missing + kRoomLeft;
  }

  // The one that was wanted longest ago first.
  std::vector<Kept> others_than(const std::set<std::string>& ours) {
    std::vector<Kept> out;
    for (const Files::Entry& entry : files().list(folder_ + "/.kept")) {
      const std::string folder = folder_ + "/.kept/" + entry.name;
      if (ours.contains(folder)) continue;
      const json note = rest::parse_bounded(files().read(folder + "/note.json").value_or("{}"));
      out.push_back({folder, note.is_object() ? note.value("used", int64_t{0}) : 0, size_below(folder)});
    }
    std::ranges::sort(out, {}, &Kept::used);
    return out;
  }

  static uint64_t size_below(const std::string& folder) {
    uint64_t out = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && !entry.is_symlink()) out += entry.file_size();
    }
    return out;
  }

  // Its links first, so that nobody sees half of it.
  void remove(const std::string& folder) {
    for (const Files::Entry& entry : files().list(folder_)) {
      const bool is_its = entry.kind == Files::Entry::Kind::kLink && folder_ + "/" + entry.target == folder + "/data";
      if (is_its) files().remove_tree(folder_ + "/" + entry.name);
    }
    files().remove_tree(folder);
  }

  // ---- fetching ----

  Task<void> fetch(Wanted& one) {
    if (one.files.empty()) {  // nobody could be asked
      write_note(one);
      co_return;
    }
    files().make_folders(one.folder + "/data");
    forget_others(one);
    one.note["from"] = one.from;
    one.note["whole"] = one.to_fetch.empty();
    write_note(one);
    reported_ = noted_ = command_.runtime.now();
    next_ = 0;
    {
      Scope workers(command_.world.clock.loop());
      for (int i = 0; i < kFilesAtOnce; ++i) workers.spawn(fetch_some(one));
      co_await workers.join();
    }
    one.note["whole"] = true;
    one.note["bytes"] = one.bytes;
    write_note(one);
  }

  // What is not in the bucket any more.
  void forget_others(Wanted& one) {
    std::set<std::string> names;
    for (const ObjectFile& file : one.files) names.insert(name_of(one, file));
    json& has = one.note["files"];
    if (!has.is_object()) has = json::object();
    for (auto each = has.begin(); each != has.end();) {
      if (names.contains(each.key())) {
        ++each;
        continue;
      }
      files().remove_tree(one.folder + "/data/" + each.key());
      each = has.erase(each);
    }
  }

  Task<void> fetch_some(Wanted& one) {
    while (next_ < one.to_fetch.size()) {
      const ObjectFile& file = *one.to_fetch[next_++];
      files().make_folders(fs::path(file.path).parent_path().string());
      rest::TransferRules rules;  // little for each: many are fetched at a time
      rules.part_size = uint64_t{4} << 20;
      rules.parallel = 2;
      uint64_t before = 0;
      rest::Progress progress = [this, &one, before](uint64_t done, uint64_t) mutable {
        one.fetched += done - std::min(before, done);
        before = done;
        report(one);
      };
      co_await one.store->download(file.key, file.path, rules, std::move(progress));
      one.note["files"][name_of(one, file)] = version_of(file);
      if (command_.runtime.now() - noted_ >= kNotePause) write_note(one);
    }
  }

  void report(const Wanted& one) {
    if (command_.runtime.now() - reported_ < kReportPause) return;
    reported_ = command_.runtime.now();
    shell_.err(fmt::format("{}: {} of {}\n", one.name, format_bytes(static_cast<int64_t>(one.fetched)),
                           format_bytes(static_cast<int64_t>(one.missing))));
  }

  void write_note(Wanted& one) {
    noted_ = command_.runtime.now();
    const auto now = command_.world.clock.wall().time_since_epoch();
    one.note["used"] = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    files().write_atomically(one.folder + "/note.json", one.note.dump() + "\n");
  }

  void link(const Wanted& one) {
    const std::string path = folder_ + "/" + one.name, draft = one.folder + "/link";  // no name of a dataset
    files().remove_tree(draft);
    files().make_link(fs::path(one.folder + "/data").lexically_relative(folder_).string(), draft);
    files().rename(draft, path);
  }

  const Shell& shell_;
  CommandWorld command_;
  std::string folder_;
  uint64_t room_max_ = 0;
  std::vector<Wanted> wanted_;
  size_t next_ = 0;
  Instant reported_{}, noted_{};
};

}  // namespace

const Command& dataset_get_table() {
  static const Command table{
      .name = "dataset get",
      .summary = "fetch datasets from buckets into a folder that keeps them",
      .usage = "rubato dataset get [--into FOLDER] [--max SIZE] NAME=s3://BUCKET/FOLDER/ ...",
      .about =
          "FOLDER/NAME is then what the bucket has: only what is new there is fetched, several files at a time,\n"
          "each checked by its hash. Commands for the same folder wait for each other: the first one fetches.\n"
          "The same command again goes on where a broken one ended.",
      .positional = {.name = "NAME=ADDRESS",
                     .help = "a name, and s3://BUCKET/FOLDER/ or gs://BUCKET/FOLDER/",
                     .at_most = kDatasetsMax},
      .flags = {{.name = "into",
                 .kind = FlagKind::kValue,
                 .value = "FOLDER",
                 .help = "where datasets are kept",
                 .default_text = "~/.rubato/datasets"},
                {.name = "max",
                 .kind = FlagKind::kValue,
                 .value = "SIZE",
                 .help = "the most that FOLDER may hold: the least recently used goes first",
                 .default_text = "the room on its disk"}},
      .examples = {{"into the usual folder", "rubato dataset get imagenet=s3://my-data/imagenet/"},
                   {"at most 500 GiB", "rubato dataset get --max 500GiB coco=gs://my-data/coco/"}}};
  return table;
}

int dataset_get_command(const ParsedCommand& parsed, const Shell& shell) { return DatasetGet(parsed, shell).run(); }

}  // namespace rubato::cli
