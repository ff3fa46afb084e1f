// FolderTar and FolderUntar: a folder as a tar.zst stream and back, a piece at a time, for HTTP bodies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "archive/codec.h"
#include "archive/tar_reader.h"
#include "archive/tree.h"
#include "world/files.h"

namespace rubato::archive {

// For a job's output, which may be large; a bound against a stream that does not end.
inline constexpr TarLimits kStreamLimits = {
    .bytes_max = uint64_t{16} << 40, .entries_max = 2'000'000, .names_bytes_max = uint64_t{256} << 20};

class FolderTar {
 public:
  FolderTar(Files& files, std::string folder, const TreeOptions& options = {}, const TarLimits& limits = kStreamLimits);

  // As ZstdChunks::next. Throws what TreeTar throws; the stream is of no use after that.
  std::optional<std::string> next();

  const TreeCounts& counts() const { return tar_.counts(); }
  const std::vector<std::string>& left_out() const { return tar_.left_out(); }

 private:
  TreeTar tar_;
  ZstdChunks chunks_;
};

// A new folder beside `path`, named after it and the mark, for what is renamed to `path` when it is whole. Makes the
// folders above.
inline constexpr const char* kDraftMark = ".partial-";
std::string make_draft(Files& files, const std::string& path);

// Writes what a TarReader admits into a fresh folder.
class FolderSink final : public TarSink {
 public:
  FolderSink(Files& files, std::string folder) : files_(files), folder_(std::move(folder)) {}
  void begin(const TarEntry& entry) override;
  void data(std::string_view bytes) override;
  void end() override;

 private:
  Files& files_;
  const std::string folder_;
  std::string parent_;  // made last
  std::string path_;
  bool executable_ = false;
  std::unique_ptr<Appender> file_;
};

// Unpacks such a stream. The target changes only in finish(), when all of it has come: it is then renamed into place
// if it was not there. Else its files are renamed into it one by one; other files in the target stay, and where one
// side has a folder and the other has none, finish() throws kConflict.
class FolderUntar {
 public:
  FolderUntar(Files& files, std::string target, const TarLimits& limits = kStreamLimits);
  ~FolderUntar();  // what was not finished leaves nothing behind
  FolderUntar(const FolderUntar&) = delete;
  FolderUntar& operator=(const FolderUntar&) = delete;

  void feed(std::string_view bytes);
  void finish();

  uint64_t bytes() const { return reader_.bytes(); }     // of files, so far
  const std::string& draft() const { return draft_; }  // where it is written to; a killed process leaves it

 private:
  void merge(const std::string& from, const std::string& to);

  Files& files_;
  const std::string target_;
  std::string draft_;  // a sibling of the target; empty when finished
  FolderSink sink_;
  TarReader reader_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace rubato::archive
