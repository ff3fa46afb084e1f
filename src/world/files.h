// Files: whole files, folders and appended lines.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
};

}  // namespace rubato
