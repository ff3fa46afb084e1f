#include "rest/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/scope.h"

namespace rubato::rest {
namespace {

class Download {
 public:
  Download(World& world, ObjectReader& from, std::string path, const TransferRules& rules, Progress progress)
      : world_(world),
        files_(world.files),
        from_(from),
        path_(std::move(path)),
        part_path_(path_ + ".rubato-part"),
        note_path_(part_path_ + ".json"),
        rules_(rules),
        progress_(std::move(progress)),
        changed_(world.clock.loop()) {}

  Task<TransferReport> run() {
    version_ = co_await from_.open();
    begin_or_resume();
    Scope workers(world_.clock.loop());
    for (int i = 0; i < rules_.parallel; ++i) workers.spawn(fetch_chunks());
    co_await workers.join();
    out_.reset();
    if (const auto wrong = from_.mismatch()) {
      discard();
      throw Error(ErrorCode::kFailed, fmt::format("what came of {} is damaged: {}", from_.name(), *wrong), path_,
                  "try again; if it stays so, the object itself is damaged");
    }
    files_.rename(part_path_, path_);
    files_.remove_tree(note_path_);
    TransferReport report;
    report.bytes = version_.size;
    report.resumed = resumed_;
    report.verified = from_.checked_by();
    co_return report;
  }

 private:
  void discard() {
    files_.remove_tree(part_path_);
    files_.remove_tree(note_path_);
  }

  void begin_or_resume() {
    const nlohmann::json wanted = {{"from", from_.name()}, {"etag", version_.id}, {"size", version_.size}};
    if (read_transfer_note(files_, note_path_) == wanted && files_.exists(part_path_)) {
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
    if (resumed_ > version_.size) {
      resumed_ = 0;
      files_.remove_tree(part_path_);
      return;
    }
    for (std::string piece = reader->read(kTransferReadAtOnce); !piece.empty();
         piece = reader->read(kTransferReadAtOnce)) {
      from_.check(piece);
    }
  }

  // One of several: takes the next range, and writes what is ready in order. Nobody runs ahead of the slowest by more
  // than a few ranges.
  Task<void> fetch_chunks() {
    const uint64_t ranges = static_cast<uint64_t>(rules_.parallel) + 1;
    const uint64_t range_size = std::min(rules_.part_size, kTransferMemory / ranges);
    const uint64_t ahead_max = range_size * ranges;
    while (next_ < version_.size) {
      if (next_ - written_ >= ahead_max) {
        co_await changed_.wait();
        continue;
      }
      const uint64_t offset = next_;
      const uint64_t size = std::min(range_size, version_.size - offset);
      next_ += size;
      std::string bytes = co_await from_.read(offset, size);
      ready_.emplace(offset, std::move(bytes));
      write_ready();
    }
  }

  void write_ready() {
    for (auto first = ready_.begin(); first != ready_.end() && first->first == written_; first = ready_.begin()) {
      out_->append(first->second);
      from_.check(first->second);
      written_ += first->second.size();
      ready_.erase(first);
      report_progress();
    }
    changed_.notify();
  }

  void report_progress() const {
    if (progress_) progress_(written_, version_.size);
  }

  World& world_;
  Files& files_;
  ObjectReader& from_;
  const std::string path_, part_path_, note_path_;
  const TransferRules rules_;
  const Progress progress_;
  Event changed_;
  ObjectReader::Version version_;
  std::unique_ptr<Appender> out_;
  uint64_t next_ = 0, written_ = 0, resumed_ = 0;
  std::map<uint64_t, std::string> ready_;  // by offset
};

}  // namespace

void cut_to_range(HttpResponse& response, uint64_t offset, uint64_t size) {
  if (response.status != 200 || response.body.size() < offset + size) return;
  response.body.resize(offset + size);
  response.body.erase(0, offset);
}

nlohmann::json read_transfer_note(Files& files, const std::string& path) {
  const auto text = files.read(path);
  auto document =
      text && text->size() < kTransferReadAtOnce ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  return document.is_object() ? document : nlohmann::json::object();
}

Task<TransferReport> download(World& world, ObjectReader& from, std::string path, TransferRules rules,
                              Progress progress) {
  Download transfer(world, from, std::move(path), rules, std::move(progress));
  co_return co_await transfer.run();
}

}  // namespace rubato::rest
