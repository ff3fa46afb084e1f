// Package: a job's working folder as one file. Made on the machine of who submits, sent once, verified, unpacked once
// on each node.
//
// A package is a tar.zst. Its name is the SHA-256 of these compressed bytes: everyone can verify it with `sha256sum`
// and without unpacking, and nothing of it is read before that. The same tree gives the same bytes (no times, no
// owners, a fixed order and level) with the same build of rubato; another version of zstd may give others, which
// costs an upload and nothing else.
//
// All of it streams: memory is a few MiB, and the names in an archive that is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "archive/tree.h"
#include "world/files.h"

namespace rubato::archive {

// How far the packing is. The sizes are those of the files, before compression.
struct PackProgress {
  uint64_t bytes = 0;
  uint64_t of_bytes = 0;
  std::vector<std::pair<uint64_t, std::string>> largest;  // at the beginning only: the largest files and folders
};

struct PackOptions {
  uint64_t size_max = uint64_t{512} << 20;  // of the files in it, before compression
  uint64_t entries_max = 200'000;
  bool ignore_files = true;       // obey .gitignore and .rubatoignore
  std::vector<std::string> only;  // as in TreeOptions: for a script that is submitted without its folder
  std::string needed;             // as in TreeOptions: for the script itself
  std::function<void(const PackProgress&)> on_progress;  // first when all is counted, then for each piece
};

struct Package {
  std::string hash;    // 64 lowercase hexadecimal digits
  uint64_t bytes = 0;  // of the package
  TreeCounts counts;
  std::vector<std::string> left_out;  // sentences for people: what could not be packed, and why
};

// Packs the folder (an absolute path) into the file, which is not inside of it and appears when it is whole. Over a
// limit: kUsage, with the largest files and folders by name.
Package pack(Files& files, const std::string& folder, const std::string& package_file, const PackOptions& options = {});

// Makes a package of a person's .tar, .tar.gz or .tar.zst. `ignore_files` and `only` have no say. Refuses what
// TarReader refuses.
Package repack(Files& files, const std::string& archive, const std::string& package_file,
               const PackOptions& options = {});

// Unpacks a package whose hash is this one. The target is there whole afterwards, or not at all; if it was there
// before, nothing is done. Throws kUsage when the bytes have another hash or are refused.
void unpack(Files& files, const std::string& package_file, const std::string& hash, const std::string& target,
            const TarLimits& limits = {});

// The hash of a file's bytes, as in Package. Throws kNotFound.
std::string hash_of_file(Files& files, const std::string& path);

// "1.5 MiB".
std::string human_bytes(uint64_t bytes);

}  // namespace rubato::archive
