// Shell: what a command sees of the outside. Whoever starts commands makes one; tests give their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "client/api.h"
#include "client/cluster_home.h"
#include "model/launch_spec.h"
#include "terminal/flags.h"

namespace rubato::cli {

class ClusterTools;
class Remote;
struct HeadStart;

struct Shell {
  Environment env;
  bool colour = false;                           // on standard output
  size_t width = 0;                              // of standard output; 0: it is no terminal
  bool live = false;                             // standard error is a terminal: a line may be written over
  bool asks = false;                             // and so is standard input: a person can be asked
  std::function<void(std::string_view)> out;     // data
  std::function<void(std::string_view)> err;     // errors and words
  std::function<int(const LaunchSpec&)> launch;  // `rubato run`

  std::function<WallTime()> now;
  std::function<std::string()> read_line;     // an answer, with the end of its line; empty at the end of the input
  std::function<std::string()> read_input;    // all of standard input
  std::function<std::string()> random_token;  // 32 hexadecimal digits that nobody used before
  std::function<std::unique_ptr<Api>(const ClusterPlace&)> open_api;
  std::function<std::unique_ptr<ClusterTools>()> cluster_tools;       // what `up` and `down` do to this machine
  std::function<std::unique_ptr<Remote>()> remote;                    // and what commands do to others
  std::function<int(const std::string& dir, const HeadStart&)> head;  // `rubato head`
  std::function<int(const std::string& dir)> agent;                   // `rubato agent`
  std::function<int(const std::string& dir)> deliver;                 // `rubato agent --deliver`
};

}  // namespace rubato::cli
