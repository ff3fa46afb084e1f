#include "archive/tar_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "archive/tar.h"
#include "core/error.h"

namespace rubato::archive {

namespace {

constexpr size_t kBodyPieceBytes = size_t{256} << 10;
constexpr size_t kChunkBytes = size_t{256} << 10;        // returned when there are as many; a piece may add to it
constexpr uint64_t kPiecesBytesMax = uint64_t{4} << 20;  // for one chunk

}  // namespace

TarBody::TarBody(std::unique_ptr<Reader> reader, std::string path)
    : reader_(std::move(reader)), path_(std::move(path)), left_(reader_->size()) {}

std::string TarBody::next() {
  std::string piece = reader_->read(std::min<uint64_t>(left_, kBodyPieceBytes));
  if (piece.empty()) {
    throw Error(ErrorCode::kConflict, fmt::format("'{}' was cut short while it was read", path_), "",
                "try again when nothing writes to it");
  }
  left_ -= piece.size();
  if (left_ == 0) piece += tar_padding(reader_->size());
  return piece;
}

std::optional<std::string> ZstdChunks::next(const std::function<std::optional<std::string>()>& next_piece) {
  if (finished_) return std::nullopt;
  std::string chunk;
  uint64_t read = 0;
  while (chunk.size() < kChunkBytes) {
    const std::optional<std::string> piece = next_piece();
    if (!piece) {
      encoder_.finish(chunk);
      finished_ = true;
      break;
    }
    encoder_.add(*piece, chunk);
    read += piece->size();
    if (read < kPiecesBytesMax) continue;
    if (chunk.empty()) encoder_.flush(chunk);  // zeros compress to next to nothing, but an empty chunk would be an end
    break;
  }
  return chunk;
}

}  // namespace rubato::archive
