// TarReader: the entries of a tar stream that anybody may have made, in pieces of any size.
//
// It reads ustar, GNU and pax archives and refuses everything that could write outside of the folder it is unpacked
// into, or more than was agreed: see TarLimits, path_fault and link_fault. A sink sees an entry only after all checks,
// so what it is told to write is safe in a fresh folder.
//
//   header ──file with bytes──▶ data ──▶ padding ──▶ header        header ──two blocks of zeros──▶ ended
//   header ──x g L K──────────▶ records ──▶ padding ──▶ header
//
// Memory: the paths seen so far (names_bytes_max), and one extended header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "archive/tar.h"

namespace rubato::archive {

struct TarLimits {
  uint64_t bytes_max = uint64_t{512} << 20;       // of all files, hard links counted like files
  uint64_t entries_max = 200'000;                 // folders that are only implied count too
  uint64_t names_bytes_max = uint64_t{64} << 20;  // of all paths and link targets
};

class TarSink {
 public:
  virtual ~TarSink() = default;
  virtual void begin(const TarEntry& entry) = 0;
  // Only for files, between begin() and end(); the pieces add up to the entry's size.
  virtual void data(std::string_view bytes) = 0;
  virtual void end() = 0;  // of a file
};

class TarReader {
 public:
  // `name` is what errors call the archive. The sink outlives the reader.
  TarReader(std::string name, const TarLimits& limits, TarSink& sink);

  // Throws kUsage when the archive is refused or the sink's Error; the reader is of no use after that.
  void feed(std::string_view bytes);
  // Throws when the archive is cut off.
  void finish();

  uint64_t entries() const { return entries_; }
  uint64_t bytes() const { return bytes_; }

 private:
  enum class State { kHeader, kData, kRecords, kPadding, kEnded };
  struct Known {
    TarEntry::Kind kind;
    uint64_t size;
  };
  // What extended headers say of the next entry.
  struct Extension {
    std::optional<std::string> path, target, gnu_path, gnu_target;
    std::optional<uint64_t> size;
    bool any = false;
  };

  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void refuse_entry(const std::string& path, const std::string& why) const;
  void take_header();
  void take_entry(char type);
  void take_records();
  void take_pax(std::string_view records, bool global);
  void take_trailer(std::string_view bytes);
  void begin_records(char type, uint64_t size);
  TarEntry entry_of(char type) const;
  void admit(TarEntry& entry);
  void admit_folder(const std::string& path, const std::string& for_whom);
  void remember(const std::string& path, Known known);
  void charge(const std::string& path, uint64_t bytes);
  void skip_to_header(uint64_t size);
  std::string_view field(size_t at, size_t size) const;
  uint64_t number(size_t at, size_t size, std::string_view what) const;

  const std::string name_;
  const TarLimits limits_;
  TarSink& sink_;

  State state_ = State::kHeader;
  std::string block_;     // the header so far
  uint64_t left_ = 0;     // bytes until the state changes
  uint64_t padding_ = 0;  // that follow data or records
  char records_type_ = 0;
  std::string records_;
  Extension extension_;
  bool zero_block_ = false;
  uint64_t trailer_ = 0;

  uint64_t entries_ = 0;
  uint64_t bytes_ = 0;
  uint64_t names_bytes_ = 0;
  uint64_t records_bytes_ = 0;
  std::map<std::string, Known> known_;
};

}  // namespace rubato::archive
