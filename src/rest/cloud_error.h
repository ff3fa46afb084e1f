// CloudError: an Error that a cloud answered, with the cloud's own code. Whoever must tell one refusal from another
// looks at `reason`; everybody else catches Error.
#pragma once

#include "core/error.h"

namespace rubato::rest {

class CloudError : public Error {
 public:
  int status = 0;          // of HTTP; 0: there was no answer
  std::string reason;      // "InsufficientInstanceCapacity"
  std::string request_id;  // what the cloud's support asks for

  CloudError(ErrorCode code_in, std::string message_in, std::string where_in, std::string hint_in)
      : Error(code_in, std::move(message_in), std::move(where_in), std::move(hint_in)) {}
};

// A cloud's own message as a part of ours: not too long, and our sentence ends it.
inline std::string shown_message(const std::string& message) {
  constexpr size_t kShownMax = 600;
  std::string out = message.size() > kShownMax ? message.substr(0, kShownMax) + "…" : message;
  while (out.ends_with('.')) out.pop_back();
  return out;
}

}  // namespace rubato::rest
