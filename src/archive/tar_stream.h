// What streams of tar.zst are made of: the bytes of one file as tar has them, and pieces of a tar as compressed chunks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "archive/codec.h"
#include "world/files.h"

namespace rubato::archive {

// One file's bytes with their padding, in pieces of up to 256 KiB.
class TarBody {
 public:
  TarBody(std::unique_ptr<Reader> reader, std::string path);

  uint64_t size() const { return reader_->size(); }
  bool executable() const { return reader_->executable(); }
  bool ended() const { return left_ == 0; }
  // Not after the end. Throws kConflict when the file has shrunk.
  std::string next();

 private:
  std::unique_ptr<Reader> reader_;
  std::string path_;  // for the Error
  uint64_t left_;
};

class ZstdChunks {
 public:
  // At most 1 MiB and never none; nullopt after the last. Takes at most 4 MiB of pieces, so that a loop that calls it
  // is not held up for long. `next_piece` gives nullopt after the last.
  std::optional<std::string> next(const std::function<std::optional<std::string>()>& next_piece);

 private:
  ZstdEncoder encoder_;
  bool finished_ = false;
};

}  // namespace rubato::archive
