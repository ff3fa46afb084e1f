// The file that a worker writes at an uncaught exception ($TORCHELASTIC_ERROR_FILE, torch's @record).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "elastic/restart.h"
#include "world/files.h"

namespace rubato::agent {

struct ErrorReport {
  std::string message;
  std::string traceback;
};

// A longer one (an exception with a whole data set in its message) would keep its reader busy for seconds.
inline constexpr size_t kErrorFileMax = size_t{16} << 20;

// What is in it, or one byte more than kErrorFileMax of it; nullopt: there is none, or it cannot be read.
std::optional<std::string> read_error_file(Files& files, const std::string& path);

// Never throws: a torn, foreign or oversized file is reported as what it is.
ErrorReport read_error_report(std::string_view bytes);

// The launcher's own error file, as torch's @record writes it: the worker's document with its exit code added, or, for
// a failure that left none, one that says what is known. `worker_bytes`: the worker's file, if it can be read here.
std::string failure_document(const elastic::Failure& failure, const std::optional<std::string>& worker_bytes,
                             WallTime now);

// The same for what stopped the launcher itself.
std::string launcher_document(const std::string& message, const std::string& details, WallTime now);

}  // namespace rubato::agent
