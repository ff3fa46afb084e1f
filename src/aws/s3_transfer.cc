#include "aws/s3_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "aws/s3_verify.h"
#include "core/scope.h"
#include "core/sha256.h"
#include "rest/cloud_error.h"

namespace rubato::aws {
namespace {

std::string sha256_of_range(Files& files, const std::string& path, uint64_t offset, uint64_t size) {
  Sha256 hash;
  while (size > 0) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(size, rest::kTransferReadAtOnce));
    const std::string piece = files.read_range(path, offset, wanted);
    if (piece.empty()) throw Error(ErrorCode::kFailed, "the file became shorter while it was read", path, "try again");
    hash.update(piece);
    offset += piece.size();
    size -= piece.size();
  }
  return hash.hex();
}

uint64_t size_of_file(Files& files, const std::string& path) { return files.open_read(path)->size(); }

Error no_such(const std::string& name) {
  return Error(ErrorCode::kNotFound, "there is no " + name, "", "list what is there: aws s3 ls");
}

// ---- Download ----

class S3Reader final : public rest::ObjectReader {
 public:
  S3Reader(Client& client, S3Address from) : client_(client), from_(std::move(from)) {}

  std::string name() const override { return to_string(from_); }

  Task<Version> open() override {
    const auto found = co_await head_object(client_, from_);
    if (!found) throw no_such(name());
    object_ = *found;
    uint64_t part_size = 0;
    const int parts = std::max(parts_of_hash(object_.checksum_sha256), parts_of_hash(object_.etag));
    if (parts > 0) {
      try {
        const auto first = co_await head_object(client_, from_, 1);
        part_size = first ? first->size : 0;
      } catch (const rest::CloudError&) {
        part_size = 0;  // a server that keeps no parts: the length alone is checked
      }
    }
    verifier_.emplace(object_, part_size, !client_.has_own_endpoint(kS3));
    Version out;
    out.id = object_.etag;
    out.size = object_.size;
    co_return out;
  }

  Task<std::string> read(uint64_t offset, uint64_t size) override {
    return get_range(client_, from_, offset, size, object_.etag);
  }
  void check(std::string_view bytes) override { verifier_->update(bytes); }
  std::optional<std::string> mismatch() override { return verifier_->mismatch(); }
  std::string_view checked_by() const override { return to_string(verifier_->method()); }

 private:
  Client& client_;
  const S3Address from_;
  S3Object object_;
  std::optional<S3Verifier> verifier_;
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
        note_path_(rules.state.empty() ? "" : rules.state + "/" + sha256_hex(path_ + "\n" + to_string(to_)) + ".json") {
  }

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
    return {{"from", path_},           {"to", to_string(to_)},
            {"size", size_},           {"modified", modified_.time_since_epoch().count()},
            {"part_size", plan_.size}, {"region", client_.region()}};
  }

  Task<void> begin_or_resume() {
    if (!note_path_.empty()) {
      nlohmann::json kept = rest::read_transfer_note(files_, note_path_);
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

// ---- Copy ----

constexpr int kCopiesAtOnce = 4;

class CopyInParts {
 public:
  CopyInParts(Client& client, S3Address from, S3Object object, S3Address to, Progress progress, CopyRules rules)
      : client_(client),
        from_(std::move(from)),
        object_(std::move(object)),
        to_(std::move(to)),
        progress_(std::move(progress)),
        part_size_(std::max(rules.part_size, (object_.size + kPartsMax - 1) / kPartsMax)) {}

  Task<void> run() {
    upload_ = co_await create_upload(client_, to_);
    std::exception_ptr failure;
    try {
      Scope workers(client_.world().clock.loop());
      for (int i = 0; i < kCopiesAtOnce; ++i) workers.spawn(copy_parts());
      co_await workers.join();
      std::vector<S3Part> parts;
      for (auto& [number, part] : parts_) parts.push_back(part);
      co_await complete_upload(client_, to_, upload_, std::move(parts));
    } catch (const Error&) {
      failure = std::current_exception();
    }
    if (!failure) co_return;
    co_await abort_upload(client_, to_, upload_);
    std::rethrow_exception(failure);
  }

 private:
  Task<void> copy_parts() {
    while (part_size_ * static_cast<uint64_t>(next_ - 1) < object_.size) {
      S3Part range;
      range.number = next_++;
      const uint64_t offset = part_size_ * static_cast<uint64_t>(range.number - 1);
      range.size = std::min(part_size_, object_.size - offset);
      S3Part part = co_await copy_part(client_, from_, object_.etag, to_, upload_, range, offset);
      done_ += range.size;
      parts_[range.number] = std::move(part);
      if (progress_) progress_(done_, object_.size);
    }
  }

  Client& client_;
  const S3Address from_;
  const S3Object object_;
  const S3Address to_;
  const Progress progress_;
  const uint64_t part_size_;
  std::string upload_;
  int next_ = 1;
  uint64_t done_ = 0;
  std::map<int, S3Part> parts_;
};

// That version, or whichever there is where its `etag` is empty.
Task<void> copy_that(Client& client, S3Address from, S3Object object, S3Address to, Progress progress,
                     CopyRules rules) {
  if (object.size > rules.whole_max) {
    CopyInParts parts(client, std::move(from), std::move(object), std::move(to), std::move(progress), rules);
    co_await parts.run();
    co_return;
  }
  co_await copy_object(client, std::move(from), object.etag, std::move(to));
  if (progress) progress(object.size, object.size);
}

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
  const auto fit = static_cast<int>(rest::kTransferMemory / (2 * plan.size));
  plan.parallel = std::max(1, std::min({rules.parallel, plan.count, fit}));
  return plan;
}

Task<TransferReport> download(Client& client, S3Address from, std::string path, TransferRules rules,
                              Progress progress) {
  S3Reader reader(client, std::move(from));
  co_return co_await rest::download(client.world(), reader, std::move(path), rules, std::move(progress));
}

Task<TransferReport> upload(Client& client, std::string path, S3Address to, TransferRules rules, Progress progress) {
  Upload transfer(client, std::move(path), std::move(to), rules, std::move(progress));
  co_return co_await transfer.run();
}

Task<TransferReport> copy(Client& client, S3Address from, S3Address to, Progress progress, CopyRules rules) {
  const auto found = co_await head_object(client, from);
  if (!found) throw no_such(to_string(from));
  TransferReport report;
  report.bytes = found->size;
  report.verified = "S3";
  S3Object object = *found;
  bool refused = false;
  try {
    co_await copy_that(client, from, object, to, progress, rules);
  } catch (const rest::CloudError& error) {
    // OpenStack Swift tells of uploads in parts another ETag than it compares.
    refused = error.status == 412 && client.has_own_endpoint(kS3);
    if (!refused) throw;
  }
  if (refused) {
    const auto replaced = [&] {
      return Error(ErrorCode::kConflict, fmt::format("{} was replaced while it was copied", to_string(from)), "",
                   "try again");
    };
    const auto now = co_await head_object(client, from);
    if (!now || now->etag != found->etag) throw replaced();  // it said what it means, and nothing was written
    object.etag.clear();
    co_await copy_that(client, from, object, to, progress, rules);
    const auto still = co_await head_object(client, from);
    const auto made = co_await head_object(client, to);
    const bool is_same = still && still->etag == found->etag && made && made->size == found->size;
    if (!is_same) throw replaced();
    report.verified = "length";
  }
  co_return report;
}

}  // namespace rubato::aws
