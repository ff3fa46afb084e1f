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

 private:
  void use(const std::string& path, uint64_t bytes);

  Simulator& simulator_;
  const LocalClock& clock_;
  uint64_t free_bytes_ = uint64_t{1} << 40;
  uint64_t next_temporary_ = 0;
  std::map<std::string, SimFile> files_;
  std::set<std::string> folders_;
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

 private:
  SimDisk& disk_;
  const ProgramLife& life_;
};

}  // namespace rubato::sim
