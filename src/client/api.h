// Api: the head of one cluster as a command sees it. Calls block; waiting happens here too, so that Ctrl-C is noticed.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/time.h"

namespace rubato::cli {

struct ApiRequest {
  std::string method = "GET";
  std::string target;  // path and query, below /api/v1 unless it begins with "//" (then it is the path after one '/')
  std::string body;
  std::string type = "application/json";
  Duration limit = 20s;    // for the whole exchange
  Duration patience = 0s;  // a head that does not answer is asked again for so long: it may be restarting
  // Called once when it has not answered for a second and will be asked on.
  std::function<void(const Error&)> on_waiting;
};

enum class StreamEnd {
  kEnded,        // the server had no more to say
  kInterrupted,  // Ctrl-C, after hold_interrupts()
};

class Api {
 public:
  virtual ~Api() = default;

  // The reply's document. Error documents are thrown as the Error that they were at the head; no answer is
  // kUnavailable with what to do about it.
  virtual nlohmann::json call(const ApiRequest& request) = 0;

  // Gives the body to `sink` as it comes. Throws as call() does; kUnavailable when the head went away in the middle.
  virtual StreamEnd stream(const std::string& target, const std::function<void(std::string_view)>& sink) = 0;

  // From now on Ctrl-C (and SIGTERM) ends stream() and pause() instead of the process.
  virtual void hold_interrupts() = 0;

  // False when it was interrupted, now or since hold_interrupts().
  virtual bool pause(Duration length) = 0;
};

// One part of a path, or a value in a query: what is not a letter, digit or one of -._~ is percent-encoded.
std::string url_part(std::string_view text);

nlohmann::json get(Api& api, std::string target);
nlohmann::json post(Api& api, std::string target, const nlohmann::json& body = nlohmann::json::object());
nlohmann::json remove(Api& api, std::string target);

}  // namespace rubato::cli
