#pragma once

#include <string>

namespace rubato {

// The folder of this checkout, for tests that read files of the repository. It lies in a small file that CMake makes
// (cmake/tests.cmake): as a macro it would be part of each test's command line, and no checkout would find in ccache
// what another one has compiled.
extern const char kSourceFolder[];

inline std::string source_path(const std::string& path) { return std::string(kSourceFolder) + "/" + path; }

}  // namespace rubato
