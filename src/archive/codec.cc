#include "archive/codec.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include "core/error.h"

namespace rubato::archive {

namespace {

constexpr int kLevel = 3, kWindowLog = 21;
constexpr int kOwnWindowLogMax = 23, kAnyWindowLogMax = 27;
constexpr size_t kPiece = size_t{128} << 10;

[[noreturn]] void damaged(const std::string& name, std::string_view why) {
  throw Error(ErrorCode::kUsage, fmt::format("the archive cannot be unpacked: {}", why), name);
}

class PlainDecoder final : public Decoder {
 public:
  void decode(std::string_view bytes, const Output& output) override { output(bytes); }
  void finish() override {}
};

class ZstdDecoder final : public Decoder {
 public:
  ZstdDecoder(std::string name, int window_log_max)
      : name_(std::move(name)), stream_(ZSTD_createDStream(), ZSTD_freeDStream), piece_(kPiece, '\0') {
    CHECK(stream_ && !ZSTD_isError(ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, window_log_max)));
  }

  void decode(std::string_view bytes, const Output& output) override {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    bool full = false;  // then there may be more to come although all bytes are in
    while (in.pos < in.size || full) {
      ZSTD_outBuffer out{piece_.data(), piece_.size(), 0};
      const size_t left = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(left)) damaged(name_, ZSTD_getErrorName(left));
      whole_ = left == 0;
      full = out.pos == out.size && !whole_;
      if (out.pos > 0) output(std::string_view(piece_).substr(0, out.pos));
    }
  }

  void finish() override {
    if (!whole_) damaged(name_, "it is cut off");
  }

 private:
  const std::string name_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  std::string piece_;
  bool whole_ = false;  // between two frames
};

class GzipDecoder final : public Decoder {
 public:
  explicit GzipDecoder(std::string name) : name_(std::move(name)), piece_(kPiece, '\0') {
    constexpr int kGzipOnly = 16;
    CHECK(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK);
  }
  ~GzipDecoder() override { inflateEnd(&stream_); }

  void decode(std::string_view bytes, const Output& output) override {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    bool full = false;
    while (stream_.avail_in > 0 || full) {
      if (whole_) {  // gzip files may be put one after the other
        CHECK(inflateReset(&stream_) == Z_OK);
        whole_ = false;
      }
      stream_.next_out = reinterpret_cast<Bytef*>(piece_.data());
      stream_.avail_out = static_cast<uInt>(piece_.size());
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
        damaged(name_, stream_.msg ? stream_.msg : "its gzip stream is malformed");
      }
      whole_ = code == Z_STREAM_END;
      full = stream_.avail_out == 0 && !whole_;
      const size_t size = piece_.size() - stream_.avail_out;
      if (size > 0) output(std::string_view(piece_).substr(0, size));
    }
  }

  void finish() override {
    if (!whole_) damaged(name_, "it is cut off");
  }

 private:
  const std::string name_;
  std::string piece_;
  z_stream stream_{};
  bool whole_ = false;
};

}  // namespace

struct ZstdEncoder::Context {
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> stream{ZSTD_createCCtx(), ZSTD_freeCCtx};
};

ZstdEncoder::ZstdEncoder() : context_(std::make_unique<Context>()) {
  const auto set = [this](ZSTD_cParameter parameter, int value) {
    CHECK(context_->stream && !ZSTD_isError(ZSTD_CCtx_setParameter(context_->stream.get(), parameter, value)));
  };
  set(ZSTD_c_compressionLevel, kLevel);
  set(ZSTD_c_windowLog, kWindowLog);
  set(ZSTD_c_checksumFlag, 1);
}

ZstdEncoder::~ZstdEncoder() = default;

void ZstdEncoder::add(std::string_view bytes, std::string& out) { run(bytes, ZSTD_e_continue, out); }
void ZstdEncoder::flush(std::string& out) { run({}, ZSTD_e_flush, out); }
void ZstdEncoder::finish(std::string& out) { run({}, ZSTD_e_end, out); }

void ZstdEncoder::run(std::string_view bytes, int directive, std::string& out) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (size_t left = 1; left > 0;) {
    const size_t before = out.size();
    out.resize(before + kPiece);
    ZSTD_outBuffer to{out.data() + before, kPiece, 0};
    left = ZSTD_compressStream2(context_->stream.get(), &to, &in, static_cast<ZSTD_EndDirective>(directive));
    out.resize(before + to.pos);
    CHECK(!ZSTD_isError(left));  // memory and misuse are all that can go wrong
    if (directive == ZSTD_e_continue && in.pos == in.size) return;
  }
}

std::unique_ptr<Decoder> make_zstd_decoder(std::string name) {
  return std::make_unique<ZstdDecoder>(std::move(name), kOwnWindowLogMax);
}

std::unique_ptr<Decoder> make_decoder(std::string name, std::string_view first_bytes) {
  using namespace std::string_view_literals;
  if (first_bytes.starts_with("\x1f\x8b"sv)) return std::make_unique<GzipDecoder>(std::move(name));
  if (first_bytes.starts_with("\x28\xb5\x2f\xfd"sv)) {
    return std::make_unique<ZstdDecoder>(std::move(name), kAnyWindowLogMax);
  }
  const std::string_view other = first_bytes.starts_with("PK\3\4"sv) ? "zip"
                                 : first_bytes.starts_with(
                                       "\xfd"
                                       "7zXZ"sv)
                                     ? "xz"
                                 : first_bytes.starts_with("BZh"sv) ? "bzip2"
                                                                    : "";
  if (!other.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("a package cannot be a {} file", other), name,
                "pack the folder with: tar -czf package.tar.gz -C FOLDER .");
  }
  return std::make_unique<PlainDecoder>();
}

}  // namespace rubato::archive
