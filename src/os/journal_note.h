// JournalNoteFile: the note of a journal's end (world/journal_chain.h), in a small file of its own.
//
// Two slots of one sector each, written in turn: a write that was cut off leaves the other slot, which lags by one
// commit. Every call may block. Not thread-safe.
#pragma once

#include <optional>
#include <string>

#include "os/fd.h"
#include "world/journal_chain.h"

namespace rubato::os {

class JournalNoteFile {
 public:
  // nullopt: there is none. Throws DamagedError when there is one and neither slot makes sense.
  static std::optional<JournalNote> read(const std::string& path);

  // Puts a new file, durable, in the place of the one before: a writer before, should it live, goes on with that one,
  // which nobody reads any more.
  JournalNoteFile(std::string path, const JournalNote& first);

  // With the kernel when it returns; synced when the last sync is kNoteSyncEvery old.
  void write(const JournalNote& note);
  void sync();  // if something is not synced yet
  // Whether the path still leads to the file that we write.
  bool is_in_place() const;

 private:
  void put(const JournalNote& note);

  const std::string path_;
  Fd file_;
  uint64_t writes_ = 0;
  bool unsynced_ = false;
  int64_t synced_at_ns_ = 0;
};

}  // namespace rubato::os
