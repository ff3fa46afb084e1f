// Findings: everything that a reader has to say about a file, collected, so that a person sees all of it at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/yaml.h"

namespace rubato {

enum class Severity {
  kError,     // the file cannot be used
  kUnfilled,  // a word left from a template: the file reads, but a cluster cannot be made of it yet
  kWarning,   // it works, and there is a better way to say it
  kNote,      // what we do with it, where that may surprise
};
std::string_view to_string(Severity severity);

struct Finding {
  Severity severity = Severity::kError;
  std::string message;
  std::string where;  // file:line:column
  std::string hint;
  size_t line = 0, column = 0;
  bool operator==(const Finding&) const = default;
};

class Findings {
 public:
  void error(const Yaml& at, std::string message, std::string hint = {});
  void unfilled(const Yaml& at, std::string message, std::string hint = {});
  void warning(const Yaml& at, std::string message, std::string hint = {});
  void note(const Yaml& at, std::string message, std::string hint = {});
  // A usage Error that carries file:line:column.
  void error(const Error& error);
  void add(Finding finding);

  bool has_errors() const;
  bool has_unfilled() const;
  // Whether an error or an unfilled word was found at exactly this node: it needs no second complaint.
  bool blames(const Yaml& at) const;

  // In the order of the file.
  std::vector<Finding> sorted() const;

 private:
  std::vector<Finding> all_;
};

// Runs `read`, and notes the Error that it throws. False when it threw.
template <class Read>
bool attempt(Findings& findings, Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    findings.error(error);
    return false;
  }
}

}  // namespace rubato
