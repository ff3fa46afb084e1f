// Files: whole files, folders and appended lines.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"

namespace rubato {

// A file that lines are added to; each append is one write.
class Appender {
 public:
  virtual ~Appender() = default;
  virtual void append(std::string_view bytes) = 0;  // throws Error when the disk is full
};

// A file that is open for reading: what a rename puts in its place meanwhile does not mix into what is read.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual uint64_t size() const = 0;  // when it was opened
  virtual bool executable() const = 0;
  virtual std::string read(size_t size_max) = 0;  // fewer only at the end; throws Error when the disk fails
};

class Files {
 public:
  virtual ~Files() = default;
  virtual std::optional<std::string> read(const std::string& path) = 0;  // nullopt: not there or not readable
  virtual std::optional<WallTime> modified(const std::string& path) = 0;
  virtual void write_atomically(const std::string& path, std::string_view bytes) = 0;
  virtual bool exists(const std::string& path) = 0;
  virtual void make_folders(const std::string& path) = 0;
  virtual void remove_tree(const std::string& path) = 0;
  virtual std::string make_temporary_folder(const std::string& prefix) = 0;  // 0700
  virtual std::unique_ptr<Appender> open_append(const std::string& path) = 0;

  struct Entry {
    enum class Kind { kFile, kFolder, kLink, kOther };
    std::string name;
    Kind kind = Kind::kFile;
    uint64_t size = 0;
    bool executable = false;
    std::string target;  // of a link
  };
  // What is in a folder, by name, links not followed. Throws kNotFound when it is none.
  virtual std::vector<Entry> list(const std::string& folder) = 0;
  // Up to `size_max` bytes from `offset`; fewer only at the end. Throws kNotFound.
  virtual std::string read_range(const std::string& path, uint64_t offset, size_t size_max) = 0;
  // From its start. Throws kNotFound when nothing is there, kFailed for what is no plain file (a link is none).
  virtual std::unique_ptr<Reader> open_read(const std::string& path) = 0;
  // A symbolic link that says `target`. Throws kConflict when the path is taken.
  virtual void make_link(const std::string& target, const std::string& path) = 0;
  virtual void set_mode(const std::string& path, uint32_t mode) = 0;
  // Replaces a file, a link or an empty folder; kConflict for a folder with something in it. Durable when it returns:
  // a file with its bytes; of a folder only the name, for it may hold much.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // The same without waiting for the disk, which may take seconds for a folder whose files are new.
  virtual void move(const std::string& from, const std::string& to) { rename(from, to); }
  // The first bytes of a file are not needed any more: they take no room, read as zeros, and the rest stays where it
  // is. Nothing happens where a disk cannot do that.
  virtual void give_back(const std::string& path, uint64_t size) {
    (void)path;
    (void)size;
  }
  // Of the disk that a folder is on; nullopt where that cannot be told.
  struct Room {
    uint64_t free = 0;
    uint64_t size = 0;
  };
  virtual std::optional<Room> room(const std::string& folder) {
    (void)folder;
    return std::nullopt;
  }
  // All that was written below this folder is durable when it returns. Takes long: not for the loop.
  virtual void sync_tree(const std::string& folder) { (void)folder; }
  // A process still adds to this file: it keeps what comes through a pipe (OutputTarget).
  virtual bool in_use(const std::string& path) {
    (void)path;
    return false;
  }
};

}  // namespace rubato
