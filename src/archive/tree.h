// TreeWalk: what of a folder goes into a package, one entry after the other. TreeTar: the same as a tar stream.
//
// The order is fixed (a folder, then what is in it, by name), and memory is that of the listings on the way down. Both
// only ever look at one place at a time, so a tree that changes meanwhile gives a mix of before and after; but no file
// is torn: it is read through one open Reader.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "archive/ignore.h"
#include "archive/tar.h"
#include "archive/tar_reader.h"
#include "archive/tar_stream.h"
#include "world/files.h"

namespace rubato::archive {

struct TreeOptions {
  bool ignore_files = false;  // obey .gitignore and .rubatoignore, and leave out what is never wanted
  // Only these, by their path in the folder, with all that is in them; their own names are taken even if an ignore
  // file says no. Empty: everything.
  std::vector<std::string> only;
  // A file that comes along whatever ignore files say; of a folder that they leave out, nothing else does. Empty: none.
  std::string needed;
};

class TreeWalk {
 public:
  // An absolute folder inside of a git repository obeys the .gitignore files above it too.
  TreeWalk(Files& files, std::string folder, const TreeOptions& options);

  // nullopt at the end. Throws kNotFound when the folder or one of `only` is not there, kUsage for a path in `only`
  // that is not inside of the folder.
  std::optional<TarEntry> next();

  // Sentences about what cannot be in a package: links that lead outside, sockets, odd names. The first hundred.
  const std::vector<std::string>& left_out() const { return left_out_; }
  bool reads_ignore_files() const { return ignore_files_; }

 private:
  struct Level {
    std::string path;  // from the root of the tree
    std::vector<Files::Entry> entries;
    size_t next = 0;
    bool left_out = false;  // an ignore file says so; we are on the way to what is needed
  };
  enum class Choice { kNo, kWayThere, kNamed, kInside };

  bool enter(const std::string& path, bool left_out);  // false: it is gone
  void read_ignore_files_above();
  Choice choice(const std::string& path) const;
  bool is_wanted(const std::string& path, bool is_folder);
  bool is_left_out(const std::string& path, bool is_folder) const;
  bool can_be_packed(const std::string& path, const Files::Entry& entry);

  Files& files_;
  const std::string folder_;
  const bool ignore_files_;
  const std::string needed_;
  std::set<std::string> only_;
  std::set<std::string> missing_;  // of `only_`
  std::vector<Level> levels_;
  IgnoreStack ignore_;
  std::vector<std::string> left_out_;
  bool begun_ = false;
};

struct TreeCounts {
  uint64_t files = 0;
  uint64_t folders = 0;
  uint64_t links = 0;
  uint64_t content_bytes = 0;
};

class TreeTar {
 public:
  // Refuses, as TarReader would, more than the limits.
  TreeTar(Files& files, std::string folder, const TreeOptions& options, const TarLimits& limits);

  // Pieces of up to 256 KiB; nullopt after the last. Throws kConflict when a file shrinks while it is read.
  std::optional<std::string> next();

  const TreeCounts& counts() const { return counts_; }
  const std::vector<std::string>& left_out() const { return walk_.left_out(); }

 private:
  std::optional<std::string> next_entry();

  Files& files_;
  const std::string folder_;
  const TarLimits limits_;
  TreeWalk walk_;
  std::optional<TarBody> body_;  // of the file that is going out
  uint64_t names_bytes_ = 0;
  bool ended_ = false;
  TreeCounts counts_;
};

}  // namespace rubato::archive
