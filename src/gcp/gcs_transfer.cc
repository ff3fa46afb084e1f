#include "gcp/gcs_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "rest/crc32c.h"
#include "rest/json.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;

constexpr std::string_view kChecked = "CRC32C";
constexpr uint64_t kWholeMax = uint64_t{1} << 30;  // of an emulator, in memory
constexpr int kStallsMax = 20;  // pieces of which Google kept nothing, one after the other

Error no_such(const std::string& name) {
  return Error(ErrorCode::kNotFound, "there is no " + name, "", "list what is there: gcloud storage ls");
}

class GcsReader final : public rest::ObjectReader {
 public:
  GcsReader(Client& client, GcsAddress from) : client_(client), from_(std::move(from)) {}

  std::string name() const override { return to_string(from_); }
  Task<Version> open() override {
    const std::optional<GcsObject> found = co_await get_object(client_, from_);
    if (!found) throw no_such(name());
    object_ = *found;
    Version out;
    out.id = object_.generation;
    out.size = object_.size;
    co_return out;
  }
  Task<std::string> read(uint64_t offset, uint64_t size) override {
    return get_range(client_, from_, object_.generation, offset, size);
  }
  void check(std::string_view bytes) override { crc_.update(bytes); }
  std::optional<std::string> mismatch() override {
    if (object_.crc32c.empty() || crc_.base64() == object_.crc32c) return std::nullopt;
    return fmt::format("its CRC32C is {}, not {}", crc_.base64(), object_.crc32c);
  }
  std::string_view checked_by() const override { return object_.crc32c.empty() ? "length" : kChecked; }

 private:
  Client& client_;
  const GcsAddress from_;
  GcsObject object_;
  rest::Crc32c crc_;
};

class Upload {
 public:
  Upload(Client& client, std::string path, GcsAddress to, const TransferRules& rules, Progress progress)
      : client_(client),
        files_(client.world().files),
        path_(std::move(path)),
        to_(std::move(to)),
        rules_(rules),
        progress_(std::move(progress)),
        size_(files_.open_read(path_)->size()),
        modified_(files_.modified(path_).value_or(WallTime())),
        note_path_(rules.state.empty() ? "" : rules.state + "/" + sha256_hex(path_ + "\n" + to_string(to_)) + ".json") {
  }

  Task<TransferReport> run() {
    const std::string crc32c = checksum();
    co_await begin_or_resume(crc32c);
    if (is_another(state_, crc32c)) co_await begin(crc32c);
    int stalls = 0;
    while (!state_.is_done) {
      const uint64_t from = state_.kept;
      const uint64_t piece = is_whole_ ? size_ : rules_.part_size;
      const auto wanted = static_cast<size_t>(std::min(piece, size_ - from));
      std::string bytes = wanted == 0 ? std::string() : files_.read_range(path_, from, wanted);
      if (bytes.size() != wanted) throw changed();
      state_ = co_await send_piece(client_, session_, from, std::move(bytes), size_);
      // Firebase's emulator takes the first piece for all of it.
      const bool took_for_all = wanted < size_ && is_another(state_, crc32c) && state_.object->size == from + wanted;
      if (took_for_all && !is_whole_ && client_.is_elsewhere(kStorage) && size_ <= kWholeMax) {
        is_whole_ = true;
        co_await begin(crc32c);
        continue;
      }
      stalls = state_.kept > from || state_.is_done ? 0 : stalls + 1;
      if (stalls >= kStallsMax) {
        throw Error(ErrorCode::kUnavailable, "Cloud Storage keeps nothing of what is sent", to_string(to_),
                    "try again later: what is there is not lost");
      }
      if (progress_) progress_(state_.kept, size_);
    }
    if (!note_path_.empty()) files_.remove_tree(note_path_);
    if (is_another(state_, crc32c)) {
      throw Error(ErrorCode::kFailed, fmt::format("what is kept of {} is not what was sent", to_string(to_)), path_,
                  "upload it again");
    }
    if (files_.open_read(path_)->size() != size_ || files_.modified(path_).value_or(WallTime()) != modified_) {
      throw changed();
    }
    TransferReport report;
    report.bytes = size_;
    report.resumed = resumed_;
    report.verified = kChecked;  // Google refuses what has not the checksum that was promised
    co_return report;
  }

 private:
  Error changed() const {
    return Error(ErrorCode::kFailed, "the file changed while it was uploaded", path_, "upload it again");
  }

  // Google refuses what is not right. Others keep it, and take even the question how far an upload is for its end.
  bool is_another(const UploadState& state, const std::string& crc32c) const {
    if (!state.is_done || !state.object) return false;
    const GcsObject& kept = *state.object;
    return kept.size != size_ || (!kept.crc32c.empty() && kept.crc32c != crc32c);
  }

  std::string checksum() {
    rest::Crc32c crc;
    const auto reader = files_.open_read(path_);
    for (std::string piece = reader->read(rest::kTransferReadAtOnce); !piece.empty();
         piece = reader->read(rest::kTransferReadAtOnce)) {
      crc.update(piece);
    }
    return crc.base64();
  }

  json note_of(const std::string& crc32c) const {
    return {{"from", path_}, {"to", to_string(to_)}, {"size", size_}, {"crc32c", crc32c}};
  }

  Task<void> begin_or_resume(std::string crc32c) {
    const json wanted = note_of(crc32c);
    if (!note_path_.empty()) {
      json kept = rest::read_transfer_note(files_, note_path_);
      const std::string begun = rest::text_at(kept, "session");
      kept.erase("session");
      if (!begun.empty() && kept == wanted) {
        const std::optional<UploadState> found = co_await find_upload(client_, begun, size_);
        if (found) {
          session_ = begun;
          state_ = *found;
          resumed_ = state_.kept;
          co_return;
        }
      }
    }
    co_await begin(crc32c);
  }

  Task<void> begin(std::string crc32c) {
    state_ = UploadState();
    resumed_ = 0;
    session_ = co_await begin_upload(client_, to_, size_, crc32c);
    if (note_path_.empty()) co_return;
    json note = note_of(crc32c);
    note["session"] = session_;
    files_.make_folders(rules_.state);
    files_.write_atomically(note_path_, note.dump() + "\n");
  }

  Client& client_;
  Files& files_;
  const std::string path_;
  const GcsAddress to_;
  const TransferRules rules_;
  const Progress progress_;
  const uint64_t size_;
  const WallTime modified_;
  const std::string note_path_;
  std::string session_;
  UploadState state_;
  uint64_t resumed_ = 0;
  bool is_whole_ = false;  // sent at once: the server knows no pieces
};

}  // namespace

Task<TransferReport> download(Client& client, GcsAddress from, std::string path, TransferRules rules,
                              Progress progress) {
  GcsReader reader(client, std::move(from));
  co_return co_await rest::download(client.world(), reader, std::move(path), rules, std::move(progress));
}

Task<TransferReport> upload(Client& client, std::string path, GcsAddress to, TransferRules rules, Progress progress) {
  Upload transfer(client, std::move(path), std::move(to), rules, std::move(progress));
  co_return co_await transfer.run();
}

Task<TransferReport> copy(Client& client, GcsAddress from, GcsAddress to, Progress progress) {
  const std::optional<GcsObject> found = co_await get_object(client, from);
  if (!found) throw no_such(to_string(from));
  std::function<void(uint64_t)> advanced = [&progress, size = found->size](uint64_t done) {
    if (progress) progress(std::min(done, size), size);
  };
  co_await rewrite_object(client, from, found->generation, to, std::move(advanced));
  const std::optional<GcsObject> made = co_await get_object(client, to);
  const bool is_another = !made || made->size != found->size || made->crc32c != found->crc32c;
  if (is_another) {
    throw Error(ErrorCode::kFailed, fmt::format("{} is not what {} was", to_string(to), to_string(from)), "",
                "copy it again; is somebody else writing there?");
  }
  TransferReport report;
  report.bytes = found->size;
  report.verified = found->crc32c.empty() ? "length" : kChecked;
  co_return report;
}

}  // namespace rubato::gcp
