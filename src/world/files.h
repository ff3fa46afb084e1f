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
  virtual void make_link(const std::string& target, const std::string& path) = 0;
  virtual void set_mode(const std::string& path, uint32_t mode) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;  // replaces; durable when it returns
};

}  // namespace rubato
