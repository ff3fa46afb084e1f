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
  std::vector<Entry> list(const std::string& folder) override;
  std::string read_range(const std::string& path, uint64_t offset, size_t size_max) override;
  std::unique_ptr<Reader> open_read(const std::string& path) override;
  void make_link(const std::string& target, const std::string& path) override;
  void set_mode(const std::string& path, uint32_t mode) override;
  void rename(const std::string& from, const std::string& to) override;
  void move(const std::string& from, const std::string& to) override;
  void give_back(const std::string& path, uint64_t size) override;
  std::optional<Room> room(const std::string& folder) override;
  void sync_tree(const std::string& folder) override;
  bool in_use(const std::string& path) override;
};

class RealConsole final : public Console {
 public:
  void out(std::string_view text) override;
  void err(std::string_view text) override;
};

}  // namespace rubato::os
