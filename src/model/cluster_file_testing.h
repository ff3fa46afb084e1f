// For the tests of cluster files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/source_testing.h"
#include "model/cluster_file.h"

namespace rubato {

inline std::string source_file(const std::string& path) {
  std::ifstream in(source_path(path));
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The cluster files under tests/data that are fine.
inline std::vector<std::string> sample_files() {
  std::vector<std::string> out;
  const std::string root = source_path("");
  for (const char* folder : {"tests/data/ray-yaml", "tests/data/cluster-files"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root + folder)) {
      const std::string path = entry.path().string().substr(root.size());
      if (path.ends_with(".yaml") && path.find("/broken/") == std::string::npos) out.push_back(path);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline ClusterFile read_text(const std::string& text) { return read_cluster_file(text, "c.yaml"); }

// "line:column message" of each finding of this severity; but not that a name is missing: few texts in tests have one.
inline std::vector<std::string> said(const ClusterFile& file, Severity severity) {
  std::vector<std::string> out;
  for (const Finding& one : file.findings) {
    if (one.severity == severity && !one.message.starts_with("the file has no cluster_name")) {
      out.push_back(std::to_string(one.line) + ":" + std::to_string(one.column) + " " + one.message);
    }
  }
  return out;
}
inline std::vector<std::string> errors(const ClusterFile& file) { return said(file, Severity::kError); }

// A file that must be without errors.
inline ClusterFile fine(const std::string& text) {
  ClusterFile out = read_text(text);
  EXPECT_EQ(errors(out), std::vector<std::string>());
  return out;
}

}  // namespace rubato
