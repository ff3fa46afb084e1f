// libFuzzer: any bytes are a tar that stays inside of its folder and its limits, or an Error.
//
// The first byte chooses: how large the pieces are, whether the bytes are compressed, and whether checksums are put
// right first (else hardly any input would get past its first header).
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "archive/codec.h"
#include "archive/tar_reader.h"
#include "core/error.h"

namespace rubato::archive {
namespace {

constexpr TarLimits kLimits = {.bytes_max = 1 << 20, .entries_max = 100, .names_bytes_max = 1 << 16};

// A folder that believes nothing.
class DoubtingSink final : public TarSink {
 public:
  void begin(const TarEntry& entry) override {
    CHECK(left_ == 0 && !open_);
    CHECK(!path_fault(entry.path));
    for (size_t slash = entry.path.find('/'); slash != std::string::npos; slash = entry.path.find('/', slash + 1)) {
      const auto parent = kinds_.emplace(entry.path.substr(0, slash), TarEntry::Kind::kFolder).first;
      CHECK(parent->second == TarEntry::Kind::kFolder);
    }
    const auto kind = entry.kind == TarEntry::Kind::kCopy ? TarEntry::Kind::kFile : entry.kind;
    const auto [known, is_new] = kinds_.emplace(entry.path, kind);
    CHECK(is_new != entry.replaces && known->second == kind);
    if (entry.kind == TarEntry::Kind::kLink) CHECK(!link_fault(entry.path, entry.target));
    if (entry.kind == TarEntry::Kind::kCopy) {
      const auto source = sizes_.find(entry.target);
      CHECK(source != sizes_.end());
      grow(entry.path, source->second);
    }
    CHECK(kinds_.size() <= kLimits.entries_max);
    if (entry.kind != TarEntry::Kind::kFile) return;
    open_ = true;
    left_ = entry.size;
    grow(entry.path, entry.size);
  }
  void data(std::string_view bytes) override {
    CHECK(open_ && !bytes.empty() && bytes.size() <= left_);
    left_ -= bytes.size();
  }
  void end() override {
    CHECK(open_ && left_ == 0);
    open_ = false;
  }

 private:
  void grow(const std::string& path, uint64_t size) {
    sizes_[path] = size;
    total_ += size;
    CHECK(total_ <= kLimits.bytes_max);
  }

  std::map<std::string, TarEntry::Kind> kinds_;
  std::map<std::string, uint64_t> sizes_;
  uint64_t total_ = 0;
  uint64_t left_ = 0;
  bool open_ = false;
};

void mend_checksums(std::string& bytes) {
  for (size_t block = 0; block + kTarBlock <= bytes.size(); block += kTarBlock) {
    if (bytes.compare(block + 257, 5, "ustar") != 0) continue;
    bytes.replace(block + 148, 8, "        ");
    unsigned sum = 0;
    for (size_t at = 0; at < kTarBlock; ++at) sum += static_cast<unsigned char>(bytes[block + at]);
    for (size_t digit = 0; digit < 6; ++digit) {
      bytes[block + 153 - digit] = static_cast<char>('0' + (sum >> (3 * digit)) % 8);
    }
    bytes[block + 154] = '\0';
  }
}

void read(std::string bytes, unsigned choice) {
  DoubtingSink sink;
  TarReader reader("fuzz.tar", kLimits, sink);
  if (choice & 1) mend_checksums(bytes);
  if (choice & 2) {
    const auto decoder = make_decoder("fuzz.tar", bytes);
    const size_t piece = 1 + (choice >> 2) * 16;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      decoder->decode(std::string_view(bytes).substr(at, piece), [&](std::string_view out) { reader.feed(out); });
    }
    decoder->finish();
  } else {
    const size_t piece = 1 + (choice >> 2) * 32;
    for (size_t at = 0; at < bytes.size(); at += piece) reader.feed(std::string_view(bytes).substr(at, piece));
  }
  reader.finish();
  CHECK(reader.bytes() <= kLimits.bytes_max && reader.entries() <= kLimits.entries_max);
}

}  // namespace
}  // namespace rubato::archive

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    rubato::archive::read(std::string(reinterpret_cast<const char*>(data) + 1, size - 1), data[0]);
  } catch (const rubato::Error& error) {
    CHECK(error.code == rubato::ErrorCode::kUsage && !error.message.empty() && error.where == "fuzz.tar");
  }
  return 0;
}
