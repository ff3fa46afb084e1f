// `rubato cp`: files to and from S3 and Cloud Storage.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/aws_command.h"
#include "cli/command_world.h"
#include "client/session.h"
#include "core/sha256.h"
#include "core/text.h"
#include "daemon/object_store.h"
#include "rest/cloud_error.h"

namespace rubato::cli {
namespace {

constexpr size_t kCopiedMax = 1'000'000;  // objects of one command
constexpr size_t kBarWidth = 24;
constexpr int kNotAllowed = 405, kNotImplemented = 501;  // what servers that are not the clouds' own say

enum class Direction { kUp, kDown, kAcross };  // to a store, from one, between two

struct Copy {
  std::string path;    // but across
  std::string key;     // of the store that a file goes to or comes from
  std::string to_key;  // across
};

std::string size_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

class CopyCommand {
 public:
  CopyCommand(const ParsedCommand& parsed, const Shell& shell) : parsed_(parsed), shell_(shell), line_(shell) {
    const std::string usage = "rubato cp SRC DST";
    from_ = require_word(parsed, 0, "SRC", usage);
    to_ = require_word(parsed, 1, "DST", usage);
    if (!is_object_address(from_) && !is_object_address(to_)) {
      throw Error(ErrorCode::kUsage, "neither is in S3 or Cloud Storage", "",
                  "one of them must be s3://BUCKET/KEY or gs://BUCKET/KEY");
    }
    direction_ = !is_object_address(from_) ? Direction::kUp
                 : is_object_address(to_)  ? Direction::kAcross
                                           : Direction::kDown;
    address_ = parse_object_address(direction_ == Direction::kUp ? to_ : from_);
    if (direction_ == Direction::kAcross) to_address_ = parse_object_address(to_);
    rules_.parallel = parallel();
    rules_.state = transfer_state(shell.env);
  }

  int run() {
    command_.runtime.run(copy_all());
    line_.clear();
    if (parsed_.has("json")) shell_.out(json_text(report_));
    return 0;
  }

 private:
  int parallel() const {
    const Given* const given = parsed_.find("parallel");
    if (given == nullptr) return rest::TransferRules().parallel;
    const std::string& text = given->values.back();
    int out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc() || end != text.data() + text.size() || out < 1 || out > 8)
      throw bad_value(*given, "not a number from 1 to 8", "write --parallel 4");
    return out;
  }

  Task<int> copy_all() {
    store_ = co_await open_store(command_.world, address_, aws_settings(parsed_, shell_));
    if (direction_ == Direction::kAcross) {
      to_store_ = co_await open_store(command_.world, to_address_, aws_settings(parsed_, shell_));
    }
    std::vector<Copy> copies;
    if (!parsed_.has("recursive")) {
      copies.push_back(single());
    } else if (direction_ == Direction::kUp) {
      copies = below_folder();
    } else {
      copies = co_await below_prefix();
    }
    for (const Copy& copy : copies) co_await copy_one(copy);
    co_return 0;
  }

  Copy single() const {
    const bool up = direction_ == Direction::kUp;
    Copy copy;
    copy.key = address_.key;
    if (!up && copy.key.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' names no object", from_), "", "write BUCKET/KEY, or add -r");
    }
    const std::string name = copy.key.substr(copy.key.rfind('/') + 1);
    if (direction_ == Direction::kAcross) {
      copy.to_key = to_address_.key;
      if (copy.to_key.empty() || copy.to_key.ends_with('/')) copy.to_key += name;
      return copy;
    }
    copy.path = std::filesystem::absolute(up ? from_ : to_).lexically_normal().string();
    if (up && std::filesystem::is_directory(copy.path)) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is a folder", from_), "", "add -r to copy what is in it");
    }
    if (up && (copy.key.empty() || copy.key.ends_with('/'))) {
      copy.key += std::filesystem::path(copy.path).filename().string();
    }
    if (!up && (to_.ends_with('/') || std::filesystem::is_directory(copy.path))) {
      const bool is_folder = name.empty() || name == "." || name == "..";
      if (is_folder) {
        throw Error(ErrorCode::kUsage, fmt::format("'{}' has no file's name at its end", clean(from_)), "",
                    "write the path of the file, or add -r");
      }
      copy.path = (std::filesystem::path(copy.path) / name).string();
    }
    return copy;
  }

  std::vector<Copy> below_folder() {
    const std::filesystem::path root = std::filesystem::absolute(from_).lexically_normal();
    if (!std::filesystem::is_directory(root)) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is no folder", from_), "", "leave out -r for a file");
    }
    std::string prefix = address_.key;
    if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
    std::vector<Copy> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_symlink() || !entry.is_regular_file()) continue;
      Copy copy;
      copy.path = entry.path().string();
      copy.key = prefix + entry.path().lexically_relative(root).string();
      out.push_back(std::move(copy));
      if (out.size() > kCopiedMax) throw too_many();
    }
    std::ranges::sort(out, {}, &Copy::path);
    return out;
  }

  // As with `aws s3 cp --recursive`, s3://BUCKET/a are the keys below "a/", not those of "ab" too.
  Task<std::vector<Copy>> below_prefix() {
    ObjectAddress below = address_;
    if (!below.key.empty() && !below.key.ends_with('/')) below.key += '/';
    std::vector<Copy> out;
    if (direction_ == Direction::kAcross) {
      std::string prefix = to_address_.key;
      if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
      for (const ObjectEntry& entry : co_await store_->list(below.key, kCopiedMax + 1)) {
        if (out.size() == kCopiedMax) throw too_many();
        out.push_back({"", entry.key, prefix + entry.key.substr(std::min(below.key.size(), entry.key.size()))});
      }
      if (!out.empty()) co_return out;
      throw Error(ErrorCode::kNotFound, fmt::format("nothing begins with {}", to_string(below)), "",
                  "check the bucket and the prefix");
    }
    std::string root = std::filesystem::absolute(to_).lexically_normal().string();
    for (ObjectFile& file : co_await find_below(*store_, below, std::move(root), kCopiedMax)) {
      out.push_back({std::move(file.path), std::move(file.key), ""});
    }
    co_return out;
  }

  Error too_many() const {
    return Error(ErrorCode::kUsage, fmt::format("more than {} files", kCopiedMax), from_, "copy it part by part");
  }

  Task<void> copy_one(Copy copy) {
    const Instant begin = command_.runtime.now();
    const bool across = direction_ == Direction::kAcross;
    const std::string name = across ? copy.key : std::filesystem::path(copy.path).filename().string();
    rest::Progress progress = [this, name, begin](uint64_t done, uint64_t total) { show(name, done, total, begin); };
    rest::TransferReport done;
    std::string from = store_->address(copy.key), to = copy.path;
    switch (direction_) {
      case Direction::kUp:
        std::swap(from, to);
        done = co_await store_->upload(copy.path, copy.key, rules_, std::move(progress));
        break;
      case Direction::kDown:
        command_.world.files.make_folders(std::filesystem::path(copy.path).parent_path().string());
        done = co_await store_->download(copy.key, copy.path, rules_, std::move(progress));
        break;
      case Direction::kAcross:
        to = to_store_->address(copy.to_key);
        if (from == to) {
          throw Error(ErrorCode::kUsage, fmt::format("'{}' would be copied onto itself", clean(from)), "",
                      "name another place");
        }
        done = co_await copy_across(copy, std::move(progress));
        break;
    }
    line_.clear();
    const double took = std::max(1e-3, to_seconds(command_.runtime.now() - begin));
    std::string size = size_text(double(done.bytes));
    if (done.resumed > 0) size += fmt::format(" ({} of it before)", size_text(double(done.resumed)));
    const std::string rate = size_text(double(done.bytes - done.resumed) / took);
    shell_.err(fmt::format("{} -> {}: {}, {}/s, checked by {}\n", clean(from), clean(to), size, rate, done.verified));
    report_.push_back(
        {{"from", from}, {"to", to}, {"bytes", done.bytes}, {"resumed", done.resumed}, {"checked_by", done.verified}});
  }

  // Within one cloud it copies by itself. From one to the other by a file here, which stays where the copy is cut off,
  // so that the next try goes on.
  Task<rest::TransferReport> copy_across(Copy copy, rest::Progress progress) {
    if (address_.in_gcs == to_address_.in_gcs) {
      ObjectAddress from = address_;
      from.key = copy.key;
      try {
        co_return co_await to_store_->copy(from, copy.to_key, progress);
      } catch (const rest::CloudError& error) {
        const bool cannot = error.status == kNotImplemented || error.status == kNotAllowed;
        if (!cannot) throw;
      }
    }
    const std::string both = store_->address(copy.key) + "\n" + to_store_->address(copy.to_key);
    const std::string folder = rules_.state + "/between/" + sha256_hex(both);
    const std::string path = folder + "/object";
    Files& files = command_.world.files;
    files.make_folders(folder);
    const rest::TransferReport down = co_await store_->download(copy.key, path, rules_, progress);
    rest::TransferReport up = co_await to_store_->upload(path, copy.to_key, rules_, progress);
    up.resumed = std::min(up.bytes, std::max(up.resumed, down.resumed));
    files.remove_tree(folder);
    co_return up;
  }

  void show(const std::string& name, uint64_t done, uint64_t total, Instant begin) {
    if (!shell_.live) return;
    const double share = total == 0 ? 1 : double(done) / double(total);
    const auto full = static_cast<size_t>(share * kBarWidth);
    const double rate = double(done) / std::max(1e-3, to_seconds(command_.runtime.now() - begin));
    line_.show(fmt::format("{} [{}{}] {:3.0f}% {} of {}, {}/s", clean(name), std::string(full, '='),
                           std::string(kBarWidth - full, ' '), share * 100, size_text(double(done)),
                           size_text(double(total)), size_text(rate)));
  }

  const ParsedCommand& parsed_;
  const Shell& shell_;
  CommandWorld command_;
  LiveLine line_;
  std::string from_, to_;
  Direction direction_ = Direction::kDown;
  ObjectAddress address_, to_address_;  // the store's; across: of both
  rest::TransferRules rules_;
  std::unique_ptr<ObjectStore> store_, to_store_;
  nlohmann::json report_ = nlohmann::json::array();
};

}  // namespace

int cp_command(const ParsedCommand& parsed, const Shell& shell) { return CopyCommand(parsed, shell).run(); }

}  // namespace rubato::cli
