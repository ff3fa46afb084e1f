#include "os/journal_note.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "core/text.h"

namespace rubato::os {

namespace {

constexpr size_t kSlotBytes = 512;  // a sector: it is written whole or not at all
constexpr off_t kSlotEvery = 4096;
constexpr int kSlots = 2;
constexpr std::string_view kMagic = "rubato-journal-note-1";
constexpr std::string_view kNoChain = "-";

[[noreturn]] void fail(const std::string& doing, const std::string& path) {
  const int code = errno;
  throw Error(ErrorCode::kUnavailable, fmt::format("cannot {} '{}': {}", doing, path, strerror(code)), path,
              code == ENOSPC ? "free some space on that disk" : "");
}

int64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

uint32_t sum_of(std::string_view text) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

std::string slot_text(const JournalNote& note) {
  const std::string body = fmt::format("{} {} {} {}", kMagic, note.offset,
                                       note.chain.empty() ? kNoChain : std::string_view(note.chain), note.epoch);
  std::string slot = fmt::format("{} {:08x}\n", body, sum_of(body));
  CHECK(slot.size() <= kSlotBytes);
  slot.resize(kSlotBytes, '\n');
  return slot;
}

std::optional<uint64_t> number(std::string_view text, int base) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<JournalNote> parse_slot(std::string_view slot) {
  const std::string_view line = slot.substr(0, slot.find('\n'));
  const std::vector<std::string_view> fields = split(line, ' ');
  if (fields.size() != 5 || fields[0] != kMagic) return std::nullopt;
  const auto offset = number(fields[1], 10), epoch = number(fields[3], 10), sum = number(fields[4], 16);
  if (!offset || !epoch || !sum || *sum != sum_of(line.substr(0, line.rfind(' ')))) return std::nullopt;
  JournalNote note;
  note.offset = *offset;
  if (fields[2] != kNoChain) note.chain = std::string(fields[2]);
  note.epoch = *epoch;
  return note;
}

void sync_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const Fd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) fail("sync the folder of", path);
}

}  // namespace

std::optional<JournalNote> JournalNoteFile::read(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) fail("open", path);
  std::optional<JournalNote> newest;
  for (int i = 0; i < kSlots; ++i) {
    std::array<char, kSlotBytes> slot;
    const ssize_t got = ::pread(file.get(), slot.data(), slot.size(), i * kSlotEvery);
    if (got < 0) fail("read", path);
    const auto note = parse_slot(std::string_view(slot.data(), static_cast<size_t>(got)));
    if (note && (!newest || note->offset >= newest->offset)) newest = note;
  }
  if (!newest) {
    throw DamagedError(
        fmt::format("'{}' is damaged: it should say how far the journal goes, so nobody knows whether the "
                    "journal is whole",
                    path),
        path, "put it back from a copy; or go on with the journal as it is: rubato up --accept-journal-loss");
  }
  return newest;
}

JournalNoteFile::JournalNoteFile(std::string path, const JournalNote& first) : path_(std::move(path)) {
  const std::string fresh = path_ + ".new";
  file_ = Fd(::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) fail("create", fresh);
  // Both slots: later writes change no size, and so cost one sector each.
  put(first);
  put(first);
  if (::fsync(file_.get()) != 0) fail("sync", fresh);
  if (::rename(fresh.c_str(), path_.c_str()) != 0) fail("put in place", path_);
  sync_folder_of(path_);
  unsynced_ = false;
  synced_at_ns_ = monotonic_ns();
}

void JournalNoteFile::put(const JournalNote& note) {
  const std::string slot = slot_text(note);
  const off_t at = static_cast<off_t>(writes_++ % kSlots) * kSlotEvery;
  if (::pwrite(file_.get(), slot.data(), slot.size(), at) != static_cast<ssize_t>(slot.size())) fail("write", path_);
  unsynced_ = true;
}

void JournalNoteFile::write(const JournalNote& note) {
  put(note);
  if (monotonic_ns() - synced_at_ns_ >= kNoteSyncEvery.count()) sync();
}

void JournalNoteFile::sync() {
  if (!unsynced_) return;
  if (::fdatasync(file_.get()) != 0) fail("sync", path_);
  unsynced_ = false;
  synced_at_ns_ = monotonic_ns();
}

bool JournalNoteFile::is_in_place() const {
  struct stat ours {
  }, there{};
  return ::fstat(file_.get(), &ours) == 0 && ::stat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

}  // namespace rubato::os
