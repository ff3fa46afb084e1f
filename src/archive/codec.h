// Codec: zstd and gzip streams, in pieces.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace rubato::archive {

using Output = std::function<void(std::string_view)>;

// One zstd frame at a fixed level and window: the same pieces give the same bytes, and a reader needs 2 MiB.
class ZstdEncoder {
 public:
  ZstdEncoder();
  ~ZstdEncoder();
  ZstdEncoder(const ZstdEncoder&) = delete;
  ZstdEncoder& operator=(const ZstdEncoder&) = delete;

  // Each adds to `out`; add() may keep bytes back, flush() does not, nothing comes after finish().
  void add(std::string_view bytes, std::string& out);
  void flush(std::string& out);
  void finish(std::string& out);

 private:
  struct Context;
  void run(std::string_view bytes, int directive, std::string& out);
  std::unique_ptr<Context> context_;
};

// Pieces of up to 128 KiB come out while bytes go in; how many, the reader behind it has to bound.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void decode(std::string_view bytes, const Output& output) = 0;  // throws kUsage when they are damaged
  virtual void finish() = 0;                                              // throws kUsage when the end is missing
};

// For packages and streams of our own: refuses a window over 8 MiB.
std::unique_ptr<Decoder> make_zstd_decoder(std::string name);

// For what a person gives us, by its first bytes: tar, tar.gz or tar.zst (a window up to 128 MiB, as the zstd tool
// has it). Throws kUsage for other kinds, such as zip. `name` is what errors call it.
std::unique_ptr<Decoder> make_decoder(std::string name, std::string_view first_bytes);

}  // namespace rubato::archive
