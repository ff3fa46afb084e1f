// RealFiles, RealConsole: this machine's disk and terminal.
#pragma once

#include "world/world.h"

namespace rubato::os {

class RealFiles final : public Files {
 public:
  std::optional<std::string> read(const std::string& path) override;
  std::optional<WallTime> modified(const std::string& path) override;
  void write_atomically(const std::string& path, std::string_view bytes) override;
  bool exists(const std::string& path) override;
  void make_folders(const std::string& path) override;
  void remove_tree(const std::string& path) override;
  std::string make_temporary_folder(const std::string& prefix) override;
  std::unique_ptr<Appender> open_append(const std::string& path) override;
};

class RealConsole final : public Console {
 public:
  void out(std::string_view text) override;
  void err(std::string_view text) override;
};

}  // namespace rubato::os
