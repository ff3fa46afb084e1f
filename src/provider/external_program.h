// ExternalProgram: somebody's program that answers requests, started when first needed and again when it dies.
//
//             a request waits                    hello answered
//   kDown  ------------------->  kGreeting  ------------------------>  kUp
//     ^  after the back-off          |                                  |
//     +------------------------------+----------------------------------+
//        it ended, broke the protocol, or let a deadline pass (then it is stopped: SIGTERM, 2 s, SIGKILL)
//
// All deadlines are in listening time: a head that stood still has not heard what the program answered meanwhile.
// Requests may be repeated, so one that a death interrupted is sent again to the next process. What the program writes
// to standard error goes to the log.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/listening_clock.h"
#include "core/log.h"
#include "core/scope.h"
#include "provider/external_protocol.h"
#include "world/world.h"

namespace rubato::provider {

struct ExternalProgramSpec {
  std::string name;               // for people: the command, or the Python class
  std::vector<std::string> argv;  // argv[0] is searched in PATH
  std::vector<std::string> env;
  std::string cwd;
  nlohmann::json hello;  // the parameters of the first request
  Duration hello_timeout = 60s;
};

class ExternalProgram {
 public:
  using OnProgress = std::function<void(std::string text)>;

  ExternalProgram(World& world, ExternalProgramSpec spec, Log log);
  ~ExternalProgram();  // ends the program

  // The result. A program that says "throttled" is asked again. Throws what to_error() makes of its error; kUnavailable
  // when it did not answer in time, died again and again, or wrote what is no answer; kUsage when it cannot be run at
  // all. `what` is for people: "create small-3".
  Task<nlohmann::json> request(std::string method, nlohmann::json params, std::string what, Duration timeout,
                               OnProgress on_progress = {});

  // What it said of itself; starts it if need be. Throws as request().
  Task<ExternalGreeting> greeting();
  // The same without waiting: null while it is down.
  const ExternalGreeting* greeted() const { return greeting_ ? &*greeting_ : nullptr; }

  const ExternalProgramSpec& spec() const { return spec_; }

 private:
  enum class State { kDown, kGreeting, kUp };
  struct Call {
    bool hello = false;
    std::optional<ExternalReply> reply;
    bool lost = false;  // the process that it was sent to is gone
    OnProgress on_progress;
  };
  // What the program works on. A request that was given up keeps its place until it is answered: the program still
  // does it, and must not be asked for the same node meanwhile.
  struct Sent {
    Call* call = nullptr;  // null: given up
    std::string node;
    Instant deadline{};
  };
  class Place;  // of a request, from its coming to its end

  Task<void> keep();
  Task<void> run_once();
  Task<void> greet();
  Task<void> listen();
  Task<void> wait_for_room(Instant deadline, uint64_t since, std::string node, std::string what);
  bool has_room(const std::string& node) const;
  Instant stop_what_hangs();  // returns when to look again
  Task<void> exchange(Call& call, std::string line, Instant deadline);
  void take_line(std::string line);
  void take_words(std::string_view bytes);
  void condemn(Error why);
  void kill_if_due();
  Instant listened() const { return listening_.at(world_.clock.now()); }
  Instant due(Instant deadline) const { return listening_.due(deadline, world_.clock.now()); }
  void over(Error why);
  Error too_late(const std::string& what, Duration timeout) const;

  World& world_;
  const ExternalProgramSpec spec_;
  const Log log_;

  State state_ = State::kDown;
  std::shared_ptr<Process> process_;  // shared with the writes to it that are under way
  std::optional<ExternalGreeting> greeting_;
  std::optional<Error> condemned_;  // why it is being stopped
  LineBuffer out_, err_;
  std::deque<std::string> last_output_;  // of its standard error

  uint64_t next_id_ = 1;
  std::map<uint64_t, Sent> sent_;
  size_t wanted_by_ = 0;      // requests that are not answered yet
  uint64_t failures_ = 0;     // starts that came to nothing, ever
  std::optional<Error> why_;  // of the newest of them
  int in_a_row_ = 0;
  Instant not_before_{};

  Event changed_;
  ListeningClock listening_;
  Instant kill_at_{};  // in listening time
  Alarm kill_;
  Scope tasks_;
};

}  // namespace rubato::provider
