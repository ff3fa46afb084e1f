// The file that a worker writes at an uncaught exception ($TORCHELASTIC_ERROR_FILE, torch's @record).
#pragma once

#include <string>
#include <string_view>

namespace rubato::agent {

struct ErrorReport {
  std::string message;
  std::string traceback;
};

// Never throws: a torn or foreign file is reported as what it is.
ErrorReport read_error_report(std::string_view bytes);

}  // namespace rubato::agent
