// `rubato cp`: files to and from S3.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "aws/credentials.h"
#include "aws/s3_transfer.h"
#include "cli/aws_command.h"
#include "cli/command_world.h"
#include "cli/session.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

constexpr size_t kCopiedMax = 1'000'000;  // objects of one command
constexpr size_t kBarWidth = 24;

struct Copy {
  bool up = false;  // to S3
  std::string path;
  aws::S3Address address;
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
    if (aws::is_s3_address(from_) == aws::is_s3_address(to_)) {
      throw Error(ErrorCode::kUsage, aws::is_s3_address(from_) ? "both are in S3" : "neither is in S3", "",
                  aws::is_s3_address(from_) ? "copy it to a file first; between buckets: aws s3 cp"
                                            : "one of them must be s3://BUCKET/KEY");
    }
    up_ = aws::is_s3_address(to_);
    address_ = aws::parse_s3_address(up_ ? to_ : from_);
    rules_.parallel = parallel();
    rules_.state = state_folder(shell.env);
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
    if (given == nullptr) return aws::TransferRules().parallel;
    const std::string& text = given->values.back();
    int out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc() || end != text.data() + text.size() || out < 1 || out > 8)
      throw bad_value(*given, "not a number from 1 to 8", "write --parallel 4");
    return out;
  }

  static std::string state_folder(const Environment& env) {
    const auto state = env.find("XDG_STATE_HOME");
    if (state != env.end() && state->second.starts_with('/')) return state->second + "/rubato/transfers";
    return aws::home_of(env) + "/.local/state/rubato/transfers";
  }

  Task<int> copy_all() {
    client_ = co_await aws::open_client(command_.world, aws_settings(parsed_, shell_));
    std::vector<Copy> copies;
    if (!parsed_.has("recursive")) {
      copies.push_back(single());
    } else if (up_) {
      copies = below_folder();
    } else {
      copies = co_await below_prefix();
    }
    for (const Copy& copy : copies) co_await copy_one(copy);
    co_return 0;
  }

  Copy single() const {
    Copy copy;
    copy.up = up_;
    copy.address = address_;
    copy.path = std::filesystem::absolute(up_ ? from_ : to_).lexically_normal().string();
    if (up_ && std::filesystem::is_directory(copy.path)) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is a folder", from_), "", "add -r to copy what is in it");
    }
    if (up_ && (copy.address.key.empty() || copy.address.key.ends_with('/'))) {
      copy.address.key += std::filesystem::path(copy.path).filename().string();
    }
    if (!up_ && copy.address.key.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' names no object", from_), "", "write s3://BUCKET/KEY, or add -r");
    }
    if (!up_ && (to_.ends_with('/') || std::filesystem::is_directory(copy.path))) {
      copy.path = (std::filesystem::path(copy.path) / std::filesystem::path(copy.address.key).filename()).string();
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
      copy.up = true;
      copy.path = entry.path().string();
      copy.address.bucket = address_.bucket;
      copy.address.key = prefix + entry.path().lexically_relative(root).string();
      out.push_back(std::move(copy));
      if (out.size() > kCopiedMax) throw too_many();
    }
    std::ranges::sort(out, {}, &Copy::path);
    return out;
  }

  Task<std::vector<Copy>> below_prefix() {
    const std::vector<aws::S3Object> objects = co_await aws::list_objects(*client_, address_, kCopiedMax + 1);
    if (objects.size() > kCopiedMax) throw too_many();
    const std::filesystem::path root = std::filesystem::absolute(to_).lexically_normal();
    std::vector<Copy> out;
    for (const aws::S3Object& object : objects) {
      std::string name = object.key.substr(std::min(address_.key.size(), object.key.size()));
      while (name.starts_with('/')) name.erase(0, 1);
      if (name.empty() || name.ends_with('/')) continue;  // a console's folder, which is an empty object
      const std::filesystem::path path = (root / name).lexically_normal();
      // A key may hold "../": nobody's bucket writes outside of the folder that was named.
      if (path.lexically_relative(root).string().starts_with("..")) {
        throw Error(ErrorCode::kFailed, fmt::format("the key '{}' leads out of the folder", clean(object.key)), to_,
                    "copy such objects one by one");
      }
      Copy copy;
      copy.path = path.string();
      copy.address.bucket = address_.bucket;
      copy.address.key = object.key;
      out.push_back(std::move(copy));
    }
    if (out.empty()) {
      throw Error(ErrorCode::kNotFound, fmt::format("nothing begins with {}", from_), "",
                  "check the bucket and the prefix");
    }
    co_return out;
  }

  Error too_many() const {
    return Error(ErrorCode::kUsage, fmt::format("more than {} files", kCopiedMax), from_, "copy it part by part");
  }

  Task<void> copy_one(Copy copy) {
    const Instant begin = command_.runtime.now();
    const std::string name = std::filesystem::path(copy.path).filename().string();
    aws::Progress progress = [this, name, begin](uint64_t done, uint64_t total) { show(name, done, total, begin); };
    aws::TransferReport done;
    if (copy.up) {
      done = co_await aws::upload(*client_, copy.path, copy.address, rules_, std::move(progress));
    } else {
      command_.world.files.make_folders(std::filesystem::path(copy.path).parent_path().string());
      done = co_await aws::download(*client_, copy.address, copy.path, rules_, std::move(progress));
    }
    line_.clear();
    const double took = std::max(1e-3, to_seconds(command_.runtime.now() - begin));
    const std::string from = copy.up ? copy.path : to_string(copy.address);
    const std::string to = copy.up ? to_string(copy.address) : copy.path;
    std::string size = size_text(double(done.bytes));
    if (done.resumed > 0) size += fmt::format(" ({} of it before)", size_text(double(done.resumed)));
    const std::string rate = size_text(double(done.bytes - done.resumed) / took);
    shell_.err(fmt::format("{} -> {}: {}, {}/s, checked by {}\n", clean(from), clean(to), size, rate, done.verified));
    report_.push_back({{"from", from},
                       {"to", to},
                       {"bytes", done.bytes},
                       {"resumed", done.resumed},
                       {"checked_by", done.verified}});
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
  bool up_ = false;
  aws::S3Address address_;
  aws::TransferRules rules_;
  std::unique_ptr<aws::Client> client_;
  nlohmann::json report_ = nlohmann::json::array();
};

}  // namespace

int cp_command(const ParsedCommand& parsed, const Shell& shell) { return CopyCommand(parsed, shell).run(); }

}  // namespace rubato::cli
