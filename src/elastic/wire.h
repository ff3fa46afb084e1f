// The messages between agents: JSON, one message a frame. Times travel as ages, so that clocks need not agree.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "elastic/view.h"

namespace rubato::elastic {

// From a member to its host.
struct Join {
  std::string run_id;
  MemberInfo member;
  Claim claim;
};
struct Ready {
  Generation generation = 0;
  uint16_t port = 0;
  AgentWorkers workers;
};
struct Failed {
  Generation generation = 0;
  std::vector<Failure> failures;
  bool in_group = true;  // false: they were in no plan yet, so the group goes on as it is
};
// Its workers of this generation train in their group, so they can change in place.
struct Settled {
  Generation generation = 0;
};
// Its workers that are not in the plan of this generation wait for one.
struct Offer {
  Generation generation = 0;
};
// The group of this generation failed in a worker that lives, or cannot be formed.
struct Broken {
  Generation generation = 0;
  std::string reason;
};
struct Succeeded {
  Generation generation = 0;
};
struct Leave {
  std::string reason;
};

// From an agent to its host six times per heartbeat, and back. A message may be on its way for as long as a network is
// broken, so nobody concludes from when it came: the agent knows that it was heard at `sent` of the newest beat which
// has come back; the host knows that this was after `proof`, an instant of its own clock.
struct Beat {
  int64_t sent_us = 0;   // the agent's clock; 0: it need not come back
  int64_t proof_us = 0;  // `since` of the newest beat that has come back to the agent; 0: none has
  int64_t since_us = 0;  // `at` of the last answer that the agent had when it sent this
  int64_t at_us = 0;     // the host's clock when it answered
};

// "Who hosts this group?", asked by a would-be host without a quorum. A host that has one, or an agent that knows one,
// answers Moved; so does another would-be host that has the better claim, so that their followers come together.
struct Where {
  uint64_t epoch = 0;      // of the last real host that it knows of
  Generation round = 0;    // the last one that it knows of
  bool incumbent = false;  // it hosted that round
  uint64_t seniority = 0;
  AgentId from;
};
bool outranks(const Where& a, const Where& b);

// From the host, or from an agent that was asked but is not the host.
struct Refused {
  std::string reason;
};
struct Moved {
  std::string host;
  uint16_t port = 0;
  uint64_t epoch = 0;
  Generation round = 0;
  AgentId from;  // who says so: another agent at the same port proves that the one before is dead
};

using Message =
    std::variant<Join, Ready, Failed, Succeeded, Leave, Beat, View, Refused, Moved, Where, Settled, Offer, Broken>;

// `now` is the sender's, or the receiver's, clock.
std::string encode(const Message& message, Instant now);
// Throws Error on anything that is not one of our messages.
Message decode(std::string_view text, Instant now);

// Bound on the size of a frame; the largest message is a view with failures.
inline constexpr size_t kMessageMax = 8 << 20;
inline constexpr int kProtocol = 3;

}  // namespace rubato::elastic
