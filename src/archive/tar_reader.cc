#include "archive/tar_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace rubato::archive {

namespace {

constexpr uint64_t kRecordsMax = uint64_t{256} << 10;  // a path has 4 KiB; extended attributes may have 64 KiB
constexpr uint64_t kTrailerMax = uint64_t{1} << 20;    // GNU tar fills up to 10 KiB, tapes up to 1 MiB

bool is_zero(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char c) { return c == '\0'; });
}

// Without "./" at the front, doubled slashes and slashes at the end, which other tars write; "" for the root itself.
std::string tidy_path(std::string_view path) {
  std::string out(path.starts_with('/') ? "/" : "");
  for (const std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (!out.empty() && out != "/") out += '/';
    out += part;
  }
  return out;
}

std::optional<uint64_t> decimal(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

TarReader::TarReader(std::string name, const TarLimits& limits, TarSink& sink)
    : name_(std::move(name)), limits_(limits), sink_(sink) {}

void TarReader::refuse(const std::string& why) const {
  throw Error(ErrorCode::kUsage, fmt::format("the archive is refused: {}", why), name_);
}

void TarReader::refuse_entry(const std::string& path, const std::string& why) const {
  std::string shown;
  for (const char c : path.substr(0, 200)) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  refuse(fmt::format("'{}': {}", shown, why));
}

void TarReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (state_ == State::kEnded) return take_trailer(bytes);
    if (state_ == State::kHeader) {
      const size_t taken = std::min(bytes.size(), kTarBlock - block_.size());
      block_ += bytes.substr(0, taken);
      bytes.remove_prefix(taken);
      if (block_.size() < kTarBlock) return;
      take_header();
      block_.clear();
      continue;
    }
    const std::string_view piece = bytes.substr(0, std::min<uint64_t>(bytes.size(), left_));
    bytes.remove_prefix(piece.size());
    left_ -= piece.size();
    if (state_ == State::kData) sink_.data(piece);
    if (state_ == State::kRecords) records_ += piece;
    if (left_ > 0) return;
    if (state_ == State::kData) sink_.end();
    if (state_ == State::kRecords) take_records();
    if (state_ != State::kPadding) {
      left_ = std::exchange(padding_, 0);
      state_ = State::kPadding;
    }
    if (left_ == 0) state_ = State::kHeader;
  }
}

void TarReader::finish() {
  if (state_ != State::kEnded) refuse("it is cut off, or no tar archive");
}

void TarReader::take_trailer(std::string_view bytes) {
  trailer_ += bytes.size();
  if (!is_zero(bytes)) refuse("it goes on after its end");
  if (trailer_ > kTrailerMax) refuse("too many zeros after its end");
}

std::string_view TarReader::field(size_t at, size_t size) const {
  const std::string_view bytes = std::string_view(block_).substr(at, size);
  return bytes.substr(0, bytes.find('\0'));
}

// Octal digits, or GNU's binary form for what these cannot say.
uint64_t TarReader::number(size_t at, size_t size, std::string_view what) const {
  const std::string_view bytes = std::string_view(block_).substr(at, size);
  uint64_t value = 0;
  if (static_cast<unsigned char>(bytes[0]) == 0x80) {
    for (const char c : bytes.substr(1)) {
      if (value >> 55) refuse(fmt::format("its {} is too large", what));
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  std::string_view digits = bytes.substr(0, bytes.find('\0'));
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  for (const char c : digits) {  // twelve digits at most: no overflow
    if (c < '0' || c > '7') refuse(fmt::format("its {} is no number", what));
    value = value * 8 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

void TarReader::take_header() {
  if (is_zero(block_)) {
    if (std::exchange(zero_block_, true)) {
      if (extension_.any) refuse("it ends after an extended header");
      state_ = State::kEnded;
    }
    return;
  }
  if (zero_block_) refuse("a block of zeros stands between its entries");
  uint64_t sum = 0;
  for (size_t at = 0; at < kTarBlock; ++at) {
    sum += at >= 148 && at < 156 ? uint64_t{' '} : static_cast<unsigned char>(block_[at]);
  }
  if (number(148, 8, "checksum") != sum) refuse("a checksum is wrong: it is damaged, or no tar archive");
  const char type = block_[156];
  if (type == 'x' || type == 'g' || type == 'L' || type == 'K') {
    begin_records(type, number(124, 12, "size"));
  } else {
    take_entry(type);
  }
}

void TarReader::begin_records(char type, uint64_t size) {
  if (size > kRecordsMax) refuse(fmt::format("an extended header has {} bytes, at most {}", size, kRecordsMax));
  records_bytes_ += size + kTarBlock;
  // What an honest archive may need; a stream of nothing but extended headers has to end too.
  const uint64_t records_bytes_max = 2 * limits_.names_bytes_max + limits_.entries_max * 4096;
  if (records_bytes_ > records_bytes_max) refuse("its extended headers are too many");
  if (type != 'g') extension_.any = true;
  records_type_ = type;
  records_.clear();
  if (size == 0) return take_records();
  skip_to_header(size);
  state_ = State::kRecords;
}

void TarReader::skip_to_header(uint64_t size) {
  left_ = size;
  padding_ = (kTarBlock - size % kTarBlock) % kTarBlock;
}

void TarReader::take_records() {
  if (records_type_ == 'x' || records_type_ == 'g') return take_pax(records_, records_type_ == 'g');
  std::string name = records_.substr(0, records_.find('\0'));
  if (!is_zero(std::string_view(records_).substr(name.size()))) refuse("a long name has a NUL byte");
  (records_type_ == 'L' ? extension_.gnu_path : extension_.gnu_target) = std::move(name);
}

void TarReader::take_pax(std::string_view records, bool global) {
  while (!records.empty()) {
    const size_t blank = records.find(' ');
    const std::optional<uint64_t> length =
        blank == std::string_view::npos ? std::nullopt : decimal(records.substr(0, blank));
    if (!length || *length > records.size() || *length < blank + 3 || records[*length - 1] != '\n') {
      refuse("an extended header is malformed");
    }
    const auto record = split_once(records.substr(blank + 1, *length - blank - 2), '=');
    if (!record) refuse("an extended header is malformed");
    records.remove_prefix(*length);
    const auto& [key, value] = *record;
    if (key.starts_with("GNU.sparse.")) refuse("it has a sparse file; pack it with tar --format=pax without -S");
    if (key != "path" && key != "linkpath" && key != "size") continue;  // times, owners, attributes, comments
    if (global) refuse(fmt::format("a global header sets the {} of all entries", key));
    if (key == "path") extension_.path = value;
    if (key == "linkpath") extension_.target = value;
    if (key != "size") continue;
    extension_.size = decimal(value);
    if (!extension_.size) refuse("a size in an extended header is no number");
  }
}

TarEntry TarReader::entry_of(char type) const {
  TarEntry entry;
  const bool posix = std::string_view(block_).substr(257, 6) == std::string_view("ustar\0", 6);
  std::string path(field(0, 100));
  if (posix && !field(345, 155).empty()) path = std::string(field(345, 155)) + "/" + path;
  if (extension_.gnu_path) path = *extension_.gnu_path;
  if (extension_.path) path = *extension_.path;
  entry.target = extension_.target       ? *extension_.target
                 : extension_.gnu_target ? *extension_.gnu_target
                                         : std::string(field(157, 100));
  entry.size = extension_.size ? *extension_.size : number(124, 12, "size");
  entry.executable = (number(100, 8, "mode") & 0100) != 0;
  switch (type) {
    case '0':
    case '7':   // contiguous, which Linux has no notion of
    case '\0':  // before POSIX; a folder was told by its slash
      entry.kind = path.ends_with('/') ? TarEntry::Kind::kFolder : TarEntry::Kind::kFile;
      break;
    case '1':
      entry.kind = TarEntry::Kind::kCopy;
      break;
    case '2':
      entry.kind = TarEntry::Kind::kLink;
      break;
    case '5':
      entry.kind = TarEntry::Kind::kFolder;
      break;
    case '3':
    case '4':
      refuse_entry(path, "it is a device");
    case '6':
      refuse_entry(path, "it is a named pipe");
    default:
      refuse_entry(path, fmt::format("its type {:#x} is unknown", static_cast<unsigned char>(type)));
  }
  if (entry.kind != TarEntry::Kind::kFile && entry.size != 0) {
    refuse_entry(path, fmt::format("a {} with contents", to_string(entry.kind)));
  }
  entry.path = tidy_path(path);
  return entry;
}

void TarReader::take_entry(char type) {
  TarEntry entry = entry_of(type);
  extension_ = Extension();
  // The root of the tree: "./", or "/" as Python's tarfile writes an empty name (petctl's archives have it).
  if ((entry.path.empty() || entry.path == "/") && entry.kind == TarEntry::Kind::kFolder) return;
  admit(entry);
  sink_.begin(entry);
  if (entry.kind != TarEntry::Kind::kFile) return;
  if (entry.size == 0) return sink_.end();
  skip_to_header(entry.size);
  state_ = State::kData;
}

void TarReader::admit(TarEntry& entry) {
  if (const auto fault = path_fault(entry.path)) refuse_entry(entry.path, *fault);
  if (const size_t slash = entry.path.rfind('/'); slash != std::string::npos) {
    admit_folder(entry.path.substr(0, slash), entry.path);
  }
  if (entry.kind == TarEntry::Kind::kLink) {
    if (const auto fault = link_fault(entry.path, entry.target)) refuse_entry(entry.path, *fault);
    names_bytes_ += entry.target.size();
  }
  uint64_t copied = 0;
  if (entry.kind == TarEntry::Kind::kCopy) {
    entry.target = tidy_path(entry.target);
    const auto source = known_.find(entry.target);
    if (source == known_.end() || source->second.kind != TarEntry::Kind::kFile || entry.target == entry.path) {
      refuse_entry(entry.path, "a hard link to something that is no earlier file of the archive");
    }
    copied = source->second.size;
  }
  charge(entry.path, entry.size + copied);
  const Known known{entry.kind == TarEntry::Kind::kCopy ? TarEntry::Kind::kFile : entry.kind, entry.size + copied};
  const auto before = known_.find(entry.path);
  entry.replaces = before != known_.end();
  if (!entry.replaces) return remember(entry.path, known);
  if (before->second.kind != known.kind) {
    refuse_entry(entry.path, fmt::format("it is there twice, as a {} and as a {}", to_string(before->second.kind),
                                         to_string(known.kind)));
  }
  if (++entries_ > limits_.entries_max) refuse(fmt::format("it has more than {} entries", limits_.entries_max));
  before->second = known;
}

void TarReader::admit_folder(const std::string& path, const std::string& for_whom) {
  // A known folder's parents are known folders too, so the first one found ends the way up.
  for (std::string at = path;;) {
    const auto found = known_.find(at);
    if (found != known_.end()) {
      if (found->second.kind == TarEntry::Kind::kFolder) return;
      refuse_entry(for_whom, fmt::format("its path goes through the {} '{}'", to_string(found->second.kind), at));
    }
    remember(at, {TarEntry::Kind::kFolder, 0});
    const size_t slash = at.rfind('/');
    if (slash == std::string::npos) return;
    at.resize(slash);
  }
}

void TarReader::remember(const std::string& path, Known known) {
  names_bytes_ += path.size();
  if (++entries_ > limits_.entries_max) refuse(fmt::format("it has more than {} entries", limits_.entries_max));
  if (names_bytes_ > limits_.names_bytes_max) {
    refuse(fmt::format("its names have more than {} bytes", limits_.names_bytes_max));
  }
  known_.emplace(path, known);
}

void TarReader::charge(const std::string& path, uint64_t bytes) {
  if (bytes > limits_.bytes_max - bytes_) {
    refuse_entry(path, fmt::format("with its {} bytes the archive has more than {}", bytes, limits_.bytes_max));
  }
  bytes_ += bytes;
}

}  // namespace rubato::archive
