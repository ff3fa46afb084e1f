// Tar: the entries of a tree as bytes (POSIX ustar, pax records where that is too small), always the same bytes for
// the same tree: no times, no owners, modes 0644 and 0755 only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rubato::archive {

inline constexpr size_t kTarBlock = 512;

struct TarEntry {
  enum class Kind {
    kFile,
    kFolder,
    kLink,  // symbolic: `target` is as the link says it
    kCopy,  // a hard link in the archive: of the earlier file `target`, a path of the tree
  };
  std::string path;  // relative to the root of the tree, without "." and ".."; no slash at the end
  Kind kind = Kind::kFile;
  uint64_t size = 0;
  bool executable = false;
  std::string target;
  bool replaces = false;  // an entry before it had this path (and this kind)
};
std::string_view to_string(TarEntry::Kind kind);

// The header of an entry, a whole number of blocks. A file's bytes follow, then tar_padding(size).
std::string tar_header(const TarEntry& entry);
std::string tar_padding(uint64_t size);
std::string tar_end();

// Why the path may not be in a tree that we pack or unpack; nullopt when it may. "a/b" is fine, "/a", "a/../b", "",
// a part over 255 bytes and control characters are not.
std::optional<std::string> path_fault(std::string_view path);

// Why a symbolic link at `path` may not say `target`; nullopt when it stays inside of the tree.
//
// A target has ".." only at its front, and not more than the link is deep. That is enough whatever other links the
// tree has and in whatever order they come: a link's own folders are no links (TarReader sees to it), so the ".."
// climb real folders; then names only go down, and a link met on the way leads inside by the same rule. With "a/.."
// allowed, `a -> .` would make it the parent of the tree.
std::optional<std::string> link_fault(std::string_view path, std::string_view target);

}  // namespace rubato::archive
