#include "aws/s3_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "aws/s3_verify.h"
#include "core/scope.h"
#include "core/sha256.h"

namespace rubato::aws {
namespace {

constexpr size_t kReadAtOnce = size_t{1} << 20;
constexpr uint64_t kMemoryForParts = uint64_t{48} << 20;

std::string sha256_of_range(Files& files, const std::string& path, uint64_t offset, uint64_t size) {
  Sha256 hash;
  while (size > 0) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(size, kReadAtOnce));
    const std::string piece = files.read_range(path, offset, wanted);
    if (piece.empty()) throw Error(ErrorCode::kFailed, "the file became shorter while it was read", path, "try again");
    hash.update(piece);
    offset += piece.size();
    size -= piece.size();
  }
  return hash.hex();
}

nlohmann::json read_note(Files& files, const std::string& path) {
  const auto text = files.read(path);
  auto document = text && text->size() < kReadAtOnce ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  return document.is_object() ? document : nlohmann::json::object();
}

uint64_t size_of_file(Files& files, const std::string& path) { return files.open_read(path)->size(); }

// ---- Download ----

class Download {
 public:
  Download(Client& client, S3Address from, std::string path, const TransferRules& rules, Progress progress)
      : client_(client),
        files_(client.world().files),
        from_(std::move(from)),
        path_(std::move(path)),
        part_path_(path_ + ".rubato-part"),
        note_path_(part_path_ + ".json"),
        rules_(rules),
        progress_(std::move(progress)),
        changed_(client.world().clock.loop()) {}

  Task<TransferReport> run() {
    const auto found = co_await head_object(client_, from_);
    if (!found) {
      throw Error(ErrorCode::kNotFound, "there is no " + to_string(from_), "", "list what is there: aws s3 ls");
    }
    object_ = *found;
    co_await prepare_verifier();
    begin_or_resume();
    Scope workers(client_.world().clock.loop());
    for (int i = 0; i < rules_.parallel; ++i) workers.spawn(fetch_chunks());
    co_await workers.join();
    out_.reset();
    if (const auto wrong = verifier_->mismatch()) {
      discard();
      throw Error(ErrorCode::kFailed, fmt::format("what came of {} is damaged: {}", to_string(from_), *wrong), path_,
                  "try again; if it stays so, the object itself is damaged");
    }
    files_.rename(part_path_, path_);
    files_.remove_tree(note_path_);
    TransferReport report;
    report.bytes = object_.size;
    report.resumed = resumed_;
    report.verified = to_string(verifier_->method());
    co_return report;
  }

 private:
  Task<void> prepare_verifier() {
    uint64_t part_size = 0;
    const int parts = std::max(parts_of_hash(object_.checksum_sha256), parts_of_hash(object_.etag));
    if (parts > 0) {
      const auto first = co_await head_object(client_, from_, 1);
      part_size = first ? first->size : 0;
    }
    verifier_.emplace(object_, part_size);
  }

  void discard() {
    files_.remove_tree(part_path_);
    files_.remove_tree(note_path_);
  }

  void begin_or_resume() {
    const nlohmann::json wanted = {{"from", to_string(from_)}, {"etag", object_.etag}, {"size", object_.size}};
    if (read_note(files_, note_path_) == wanted && files_.exists(part_path_)) {
      resume();
    } else {
      discard();
      files_.write_atomically(note_path_, wanted.dump() + "\n");
    }
    out_ = files_.open_append(part_path_);
    next_ = written_ = resumed_;
    report_progress();
  }

  // What an earlier try has left is hashed again: it may have been damaged since.
  void resume() {
    const auto reader = files_.open_read(part_path_);
    resumed_ = reader->size();
    if (resumed_ > object_.size) {
      resumed_ = 0;
      files_.remove_tree(part_path_);
      return;
    }
    for (std::string piece = reader->read(kReadAtOnce); !piece.empty(); piece = reader->read(kReadAtOnce)) {
      verifier_->update(piece);
    }
  }

  // One of several: takes the next range, and writes what is ready in order. Nobody runs ahead of the slowest by more
  // than a few ranges.
  Task<void> fetch_chunks() {
    const uint64_t ranges = static_cast<uint64_t>(rules_.parallel) + 1;
    const uint64_t range_size = std::min(rules_.part_size, kMemoryForParts / ranges);
    const uint64_t ahead_max = range_size * ranges;
    while (next_ < object_.size) {
      if (next_ - written_ >= ahead_max) {
        co_await changed_.wait();
        continue;
      }
      const uint64_t offset = next_;
      const uint64_t size = std::min(range_size, object_.size - offset);
      next_ += size;
      std::string bytes = co_await get_range(client_, from_, offset, size, object_.etag);
      ready_.emplace(offset, std::move(bytes));
      write_ready();
    }
  }

  void write_ready() {
    for (auto first = ready_.begin(); first != ready_.end() && first->first == written_; first = ready_.begin()) {
      out_->append(first->second);
      verifier_->update(first->second);
      written_ += first->second.size();
      ready_.erase(first);
      report_progress();
    }
    changed_.notify();
  }

  void report_progress() const {
    if (progress_) progress_(written_, object_.size);
  }

  Client& client_;
  Files& files_;
  const S3Address from_;
  const std::string path_, part_path_, note_path_;
  const TransferRules rules_;
  const Progress progress_;
  Event changed_;
  S3Object object_;
  std::optional<S3Verifier> verifier_;
  std::unique_ptr<Appender> out_;
  uint64_t next_ = 0, written_ = 0, resumed_ = 0;
  std::map<uint64_t, std::string> ready_;  // by offset
};

// ---- Upload ----

class Upload {
 public:
  Upload(Client& client, std::string path, S3Address to, const TransferRules& rules, Progress progress)
      : client_(client),
        files_(client.world().files),
        path_(std::move(path)),
        to_(std::move(to)),
        rules_(rules),
        progress_(std::move(progress)),
        size_(size_of_file(files_, path_)),
        modified_(files_.modified(path_).value_or(WallTime())),
        plan_(plan_parts(size_, rules)),
        note_path_(rules.state.empty() ? ""
                                       : rules.state + "/" + sha256_hex(path_ + "\n" + to_string(to_)) + ".json") {}

  Task<TransferReport> run() {
    if (plan_.count <= 1) {
      S3Bytes bytes = bytes_of(0, size_);
      co_await put_object(client_, to_, std::move(bytes));
      advance(size_);
    } else {
      co_await begin_or_resume();
      Scope workers(client_.world().clock.loop());
      for (int i = 0; i < plan_.parallel; ++i) workers.spawn(send_parts());
      co_await workers.join();
      check_unchanged();
      std::vector<S3Part> parts;
      for (auto& [number, part] : parts_) parts.push_back(part);
      co_await complete_upload(client_, to_, upload_, std::move(parts));
      if (!note_path_.empty()) files_.remove_tree(note_path_);
    }
    check_unchanged();
    TransferReport report;
    report.bytes = size_;
    report.resumed = resumed_;
    report.verified = to_string(S3Verifier::Method::kSha256);  // S3 refuses a body that has not the hash we signed
    co_return report;
  }

 private:
  S3Bytes bytes_of(uint64_t offset, uint64_t size) {
    S3Bytes out;
    out.sha256 = sha256_of_range(files_, path_, offset, size);
    out.read = [this, offset, size] {
      return size == 0 ? std::string() : files_.read_range(path_, offset, static_cast<size_t>(size));
    };
    return out;
  }

  void check_unchanged() const {
    if (size_of_file(files_, path_) == size_ && files_.modified(path_).value_or(WallTime()) == modified_) return;
    throw Error(ErrorCode::kFailed, "the file changed while it was uploaded", path_, "upload it again");
  }

  nlohmann::json note() const {
    return {{"from", path_},
            {"to", to_string(to_)},
            {"size", size_},
            {"modified", modified_.time_since_epoch().count()},
            {"part_size", plan_.size},
            {"region", client_.region()}};
  }

  Task<void> begin_or_resume() {
    if (!note_path_.empty()) {
      nlohmann::json kept = read_note(files_, note_path_);
      const auto id = kept.find("upload");
      const std::string begun = id != kept.end() && id->is_string() ? id->get<std::string>() : "";
      kept.erase("upload");
      if (!begun.empty() && kept == note()) {
        const auto parts = co_await list_parts(client_, to_, begun);
        if (parts) take_over(begun, *parts);
      }
    }
    if (!upload_.empty()) co_return;
    upload_ = co_await create_upload(client_, to_);
    if (note_path_.empty()) co_return;
    nlohmann::json kept = note();
    kept["upload"] = upload_;
    files_.make_folders(rules_.state);
    files_.write_atomically(note_path_, kept.dump() + "\n");
  }

  void take_over(const std::string& upload, const std::vector<S3Part>& parts) {
    upload_ = upload;
    for (const S3Part& part : parts) {
      if (part.number < 1 || part.number > plan_.count || part.size != size_of_part(part.number)) continue;
      parts_[part.number] = part;
      resumed_ += part.size;
    }
    advance(resumed_);
  }

  uint64_t size_of_part(int number) const {
    const uint64_t offset = static_cast<uint64_t>(number - 1) * plan_.size;
    return std::min(plan_.size, size_ - offset);
  }

  Task<void> send_parts() {
    while (next_ <= plan_.count) {
      const int number = next_++;
      if (parts_.contains(number)) continue;
      const uint64_t size = size_of_part(number);
      S3Bytes bytes = bytes_of(static_cast<uint64_t>(number - 1) * plan_.size, size);
      S3Part part = co_await upload_part(client_, to_, upload_, number, std::move(bytes));
      parts_[number] = std::move(part);
      advance(size);
    }
  }

  void advance(uint64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, size_);
  }

  Client& client_;
  Files& files_;
  const std::string path_;
  const S3Address to_;
  const TransferRules rules_;
  const Progress progress_;
  const uint64_t size_;
  const WallTime modified_;
  const PartPlan plan_;
  const std::string note_path_;
  std::string upload_;
  int next_ = 1;
  uint64_t done_ = 0, resumed_ = 0;
  std::map<int, S3Part> parts_;
};

}  // namespace

PartPlan plan_parts(uint64_t size, const TransferRules& rules) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  PartPlan plan;
  plan.size = rules.part_size;
  const uint64_t least = (size + kPartsMax - 1) / kPartsMax;
  if (least > plan.size) plan.size = (least + kMiB - 1) / kMiB * kMiB;
  if (plan.size > std::max(kPartSizeMax, rules.part_size)) {
    throw Error(ErrorCode::kUsage, fmt::format("a file of {} bytes is too large for one object", size), "",
                "upload it in pieces of at most 312 GiB");
  }
  plan.count = static_cast<int>((size + plan.size - 1) / plan.size);
  // A part is there twice: one is sent, one is kept in case that it must be sent again.
  const auto fit = static_cast<int>(kMemoryForParts / (2 * plan.size));
  plan.parallel = std::max(1, std::min({rules.parallel, plan.count, fit}));
  return plan;
}

Task<TransferReport> download(Client& client, S3Address from, std::string path, TransferRules rules,
                              Progress progress) {
  Download transfer(client, std::move(from), std::move(path), rules, std::move(progress));
  co_return co_await transfer.run();
}

Task<TransferReport> upload(Client& client, std::string path, S3Address to, TransferRules rules, Progress progress) {
  Upload transfer(client, std::move(path), std::move(to), rules, std::move(progress));
  co_return co_await transfer.run();
}

}  // namespace rubato::aws
