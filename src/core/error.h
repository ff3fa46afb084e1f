// Error: the one exception type. CHECK: for programmer errors.
//
// Foreseen outcomes are values. What a caller cannot go on after is an Error; the CLI prints it as
// what failed, where, why and the fix. A separate code exists only if some caller reacts to it.
#pragma once

#include <exception>
#include <source_location>
#include <string>
#include <string_view>

namespace rubato {

enum class ErrorCode {
  kFailed,       // the ordinary failure: exit code 1
  kUsage,        // the user's words are wrong: exit code 2
  kUnavailable,  // the other side did not answer; trying again may help
  kConflict,     // somebody else holds it (port in use, compare-and-commit lost)
  kNotFound,
  // Of those who make machines; the autoscaler looks elsewhere, or waits, for each in its own way.
  kNoCapacity,  // this kind of machine cannot be had now, here
  kQuota,       // the account may not have more of them
  kAuth,        // the account may not do this at all: a person has to help
};
std::string_view to_string(ErrorCode code);

// What a caller may have to tell apart beneath a code, so that nobody has to read a message for it.
enum class ErrorCause {
  kOther,
  kRefused,    // that machine answers, and nobody listens there
  kCut,        // the connection, or the socket's file, is gone
  kNoCluster,  // no cluster of this name is up here
  kDeadHead,   // its cluster is, and the head's process is not
};

class Error : public std::exception {
 public:
  ErrorCode code;
  std::string message;  // what failed and why, one sentence without a final stop
  std::string where;    // file:line:column, host:port, or empty
  std::string hint;     // how to fix it, or empty

  Error(ErrorCode code_in, std::string message_in, std::string where_in = {}, std::string hint_in = {})
      : code(code_in), message(std::move(message_in)), where(std::move(where_in)), hint(std::move(hint_in)) {}

  ErrorCause cause = ErrorCause::kOther;

  const char* what() const noexcept override { return message.c_str(); }
};

inline Error because(ErrorCause cause, Error error) {
  error.cause = cause;
  return error;
}

// "error: MESSAGE\n  at  WHERE\n  fix HINT\n"; empty parts are left out.
std::string render(const Error& error);

// The process's exit code for an error: 2 for usage, else 1.
int exit_code(const Error& error);

[[noreturn]] void check_failed(std::string_view expression, std::source_location where);

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) ::rubato::check_failed(#condition, std::source_location::current()); \
  } while (false)

}  // namespace rubato
