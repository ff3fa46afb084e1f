// Several folders as one: what the nodes of a job have written, as if they had had one disk.
//
// Where two have the same path, the earlier folder has it; what another one has there, if it differs, is found under
// kOthers/NAME/, so that nothing is lost. Folders on both sides are merged.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "archive/folder_stream.h"

namespace rubato::archive {

struct Layer {
  std::string folder;
  std::string name;
};

inline constexpr const char* kOthers = "rubato-others";

struct MergedEntry {
  TarEntry entry;      // its path in the whole
  std::string source;  // of a file: where its bytes are
};

struct MergedTree {
  std::vector<MergedEntry> entries;  // a folder before what is in it
  uint64_t conflicts = 0;            // files, links or folders that went to kOthers
};

// Reads all names, and the bytes of files that several have in the same size: takes long, for a loop has others to
// serve. Layers that are not there count as empty.
MergedTree merge(Files& files, const std::vector<Layer>& layers);

// The tar.zst of it, as FolderTar gives one of a folder.
class MergedTar {
 public:
  MergedTar(Files& files, MergedTree tree) : files_(files), tree_(std::move(tree)) {}
  std::optional<std::string> next();  // as FolderTar::next

 private:
  std::optional<std::string> next_piece();

  Files& files_;
  MergedTree tree_;
  size_t at_ = 0;
  std::optional<TarBody> body_;  // of the file that is going out
  ZstdChunks chunks_;
  bool ended_ = false;
};

}  // namespace rubato::archive
