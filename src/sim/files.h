// SimDisk: the files of one simulated machine, in memory; they survive a reboot. ProgramFiles: the Files seam on it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "sim/program_network.h"
#include "sim/simulator.h"
#include "world/files.h"

namespace rubato::sim {

struct SimFile {
  std::string bytes;
  bool executable = false;
  WallTime modified;  // by the machine's wall clock
};

class SimDisk {
 public:
  SimDisk(Simulator& simulator, const LocalClock& clock) : simulator_(simulator), clock_(clock) {}

  // Writes that need more bytes than this throw from now on; 0 is "disk full".
  void set_free_bytes(uint64_t bytes) { free_bytes_ = bytes; }
  uint64_t free_bytes() const { return free_bytes_; }

  const std::map<std::string, SimFile>& files() const { return files_; }

  const SimFile* find(const std::string& path) const;
  bool exists(const std::string& path) const;
  void write(const std::string& path, std::string_view bytes);
  void append(const std::string& path, std::string_view bytes);
  void make_folders(const std::string& path);
  void remove_tree(const std::string& path);
  std::string make_temporary_folder(const std::string& prefix);
  std::vector<Files::Entry> list(const std::string& folder) const;
  void make_link(const std::string& target, const std::string& path);
  void set_mode(const std::string& path, uint32_t mode);
  void rename(const std::string& from, const std::string& to);

 private:
  std::string follow(std::string path) const;  // where its links lead
  bool is_folder(const std::string& path) const;
  void use(const std::string& path, uint64_t bytes);

  Simulator& simulator_;
  const LocalClock& clock_;
  uint64_t free_bytes_ = uint64_t{1} << 40;
  uint64_t next_temporary_ = 0;
  std::map<std::string, SimFile> files_;
  std::set<std::string> folders_;
  std::map<std::string, std::string> links_;  // path to target
};

class ProgramFiles final : public Files {
 public:
  ProgramFiles(SimDisk& disk, const ProgramLife& life) : disk_(disk), life_(life) {}

  std::optional<std::string> read(const std::string& path) override;
  std::optional<WallTime> modified(const std::string& path) override;
  void write_atomically(const std::string& path, std::string_view bytes) override;
  bool exists(const std::string& path) override { return disk_.exists(path); }
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

 private:
  SimDisk& disk_;
  const ProgramLife& life_;
};

}  // namespace rubato::sim
