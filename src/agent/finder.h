// Finder: how an agent finds the host of its rendezvous, or becomes it. One per backend.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/host_role.h"
#include "elastic/wire.h"
#include "model/launch_spec.h"

namespace rubato::agent {

// What the agent remembers of its group when it has to look again.
struct Past {
  std::optional<elastic::View> view;   // the last word of a real host; none before the first
  std::optional<Endpoint> host;        // where that host was reached
  bool was_closed = false;             // its kernel said that it is gone (else: it fell silent)
  std::optional<elastic::Moved> hint;  // someone said where the host is
  std::set<Endpoint> unanswered;       // places that let us in and then said nothing: they look for a host themselves
  Instant heard{};                     // the last time at which that host surely heard this agent
  Instant since{};                     // when the search began: join_timeout counts from here
};

// What the past says of the host that was lost.
elastic::LostHost lost_host(const Past& past);

class Finder {
 public:
  virtual ~Finder() = default;

  // A connection on which to say Join: to a host, or to an agent that will know. Throws Error when the time is over.
  virtual Task<std::unique_ptr<Connection>> find(Past past) = 0;

  // The agent follows a would-be host for now: who asks at the door is sent there.
  virtual void following(const elastic::View& view) = 0;

  // The agent is joined: who asks at the door is sent to the host that find() found last.
  virtual void settled(const elastic::View& view) = 0;

  // Runs beside everything: what must go on while this agent hosts or is hosted.
  virtual Task<void> watch() = 0;

  // The endpoint of the connection that find() returned last.
  virtual Endpoint found() const = 0;

  // This agent hosts, and others still need it: returns when they do not.
  virtual Task<void> farewell() = 0;

  // This agent leaves, and its workers are gone. If it hosts, it says so to the others, so that one of them takes over
  // without having to find out whether this machine lives; returns when they have heard it.
  virtual Task<void> hand_over(std::string reason) = 0;

  // This agent is, or tries to become, the host.
  virtual bool hosting() const = 0;

  // Where others reach this agent's doorway; 0: nowhere.
  virtual uint16_t peer_port() const = 0;
};

// A would-be host, or one that has just taken over, looks after the agents of the last view that have not come to it:
// a refused connection proves that an agent is dead, and another host may answer, there or `elsewhere`. Null, or who
// hosts instead.
Task<std::optional<elastic::Moved>> find_missing(World& world, const ChannelKey& key, AgentId self, elastic::View last,
                                                std::optional<Endpoint> host, std::vector<Endpoint> elsewhere,
                                                HostRole& role);

struct FinderContext {
  World& world;
  const LaunchSpec& spec;
  AgentId self;
  ChannelKey key;
  elastic::Terms terms;
  EventLog& events;
};

std::unique_ptr<Finder> make_solo_finder(const FinderContext& context);
std::unique_ptr<Finder> make_embedded_finder(const FinderContext& context);
std::unique_ptr<Finder> make_etcd_finder(const FinderContext& context, Store& store);

}  // namespace rubato::agent
