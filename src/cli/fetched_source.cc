#include "cli/fetched_source.h"

#include <fmt/format.h>

#include "archive/package.h"
#include "cli/command_world.h"
#include "client/session.h"
#include "daemon/object_store.h"
#include "terminal/layout.h"

namespace rubato::cli {
namespace {

constexpr size_t kFilesMax = 10'000;  // of a folder: it is code, and each file is a request

std::string last_part(const std::string& key) { return key.substr(key.rfind('/') + 1); }

class Fetch {
 public:
  Fetch(World& world, const Shell& shell, std::string folder)
      : world_(world), shell_(shell), folder_(std::move(folder)), line_(shell) {}

  // The path of what was fetched.
  Task<int> run(ObjectAddress address, std::string& path) {
    aws::Settings settings;
    settings.env = shell_.env;
    store_ = co_await open_store(world_, address, std::move(settings));
    const bool whole_folder = address.key.empty() || address.key.ends_with('/');
    std::vector<ObjectFile> wanted;
    if (whole_folder) {
      wanted = co_await find_below(*store_, address, folder_, kFilesMax);
      path = folder_;
    } else {
      ObjectFile file;
      file.key = address.key;
      file.path = folder_ + "/" + last_part(address.key);
      path = file.path;
      wanted.push_back(std::move(file));
    }
    for (const ObjectFile& file : wanted) co_await fetch_one(file);
    line_.clear();
    shell_.err(fmt::format("fetched {} from {}\n", archive::human_bytes(bytes_), clean(store_->address(address.key))));
    co_return 0;
  }

 private:
  Task<void> fetch_one(ObjectFile file) {
    world_.files.make_folders(file.path.substr(0, file.path.rfind('/')));
    rest::TransferRules rules;
    rules.state = folder_ + ".transfers";
    const std::string name = clean(last_part(file.key));
    rest::Progress progress = [this, name](uint64_t done, uint64_t total) {
      line_.show(
          fmt::format("fetching {}: {} of {}", name, archive::human_bytes(done), archive::human_bytes(total)));
    };
    const rest::TransferReport done = co_await store_->download(file.key, file.path, rules, std::move(progress));
    bytes_ += done.bytes;
  }

  World& world_;
  const Shell& shell_;
  const std::string folder_;
  LiveLine line_;
  std::unique_ptr<ObjectStore> store_;
  uint64_t bytes_ = 0;
};

}  // namespace

FetchedSource::FetchedSource(const ParsedCommand& parsed, const Shell& shell, Files& files)
    : files_(files), parsed_(parsed) {
  if (parsed_.has("module") || parsed_.has("file") || parsed_.positionals.empty()) return;
  if (is_object_address(parsed_.positionals.front())) fetch(parsed_.positionals.front(), shell);
}

FetchedSource::~FetchedSource() {
  if (folder_.empty()) return;
  try {
    files_.remove_tree(folder_);
  } catch (const Error&) {
    // Nobody can do anything about it here; the system cleans its temporary folder.
  }
}

void FetchedSource::fetch(std::string& word, const Shell& shell) {
  ObjectAddress address = parse_object_address(word);
  if (address.key == "." || address.key == ".." || address.key.ends_with("/..") || address.key.ends_with("/.")) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' names no object", word), "",
                "write BUCKET/KEY, or BUCKET/FOLDER/");
  }
  folder_ = files_.make_temporary_folder("rubato-fetch-");
  CommandWorld command;
  std::string path;
  Fetch fetch(command.world, shell, folder_ + "/source");
  command.runtime.run(fetch.run(std::move(address), path));
  word = path;
}

}  // namespace rubato::cli
