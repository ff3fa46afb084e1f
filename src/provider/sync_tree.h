// What of a folder is moved to another machine: the entries of a tree, less what patterns and ignore files leave out.
//
// Patterns are git's (gitignore(5)): a later one wins over an earlier, a file deeper in the tree over one higher up,
// and SyncOptions::exclude over all files. Nothing is left out but by them: a mount is what the person named.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "archive/ignore.h"
#include "provider/command_runner.h"
#include "world/world.h"

namespace rubato::provider {

class SyncFilter {
 public:
  explicit SyncFilter(const std::vector<std::string>& exclude);

  // An ignore file in `folder`, a path from the root of the tree, "" for the root.
  void add_file(const std::string& folder, std::string_view text);

  // Whether the path, or a folder that it is in, is left out.
  bool leaves_out(std::string_view path, bool is_folder) const;

 private:
  bool leaves_out_itself(std::string_view path, bool is_folder) const;

  archive::IgnoreFile exclude_;
  std::map<std::string, std::vector<archive::IgnoreFile>, std::less<>> files_;
};

struct SyncEntry {
  std::string path;  // from the root of the tree
  Files::Entry::Kind kind = Files::Entry::Kind::kFile;
  bool executable = false;
  std::string target;  // of a link
};

struct SyncTree {
  std::vector<SyncEntry> entries;  // a folder before what is in it; sockets and devices are not among them
  SyncFilter filter;
};

// Of a folder here. Throws kNotFound when it is none.
Task<SyncTree> walk_tree(World& world, std::string folder, SyncOptions options);

// What is only there and has to go, so that there is what is here: files and links first, then folders, the deepest
// first. A folder that holds something left out stays.
struct Leftovers {
  std::vector<std::string> files, folders;
};
Leftovers leftovers(const SyncTree& here, const std::vector<std::string>& files_there,
                    const std::vector<std::string>& folders_there);

// A hash of names, contents, exec bits and links of a file or folder; 64 digits, the same on every machine for the
// same tree. "absent" when nothing is there.
Task<std::string> tree_hash(World& world, std::string path, SyncOptions options);

}  // namespace rubato::provider
