#include "agent/finder.h"

namespace rubato::agent {

using namespace elastic;

namespace {

constexpr Duration kLookMax = 400ms;

// Who may host yields to nobody. A would-be host yields to the last real one, or to one that is its equal but older; a
// host in office that lost its quorum only to a newer one. A new group at the old endpoint has run nothing: no host of
// ours.
bool is_better(const Moved& other, const Coordinator& ours) {
  const Legacy legacy = ours.legacy();
  if (!ours.provisional() || other.round < legacy.round) return false;
  return other.epoch >= (ours.incumbent() ? legacy.epoch + 1 : legacy.epoch - 1);
}

}  // namespace

LostHost lost_host(const Past& past) {
  LostHost lost;
  if (!past.view) return lost;
  lost.id = past.view->host;
  lost.in_round = past.view->host_in_round;
  lost.heard = past.heard;
  lost.elders = past.view->successors;
  lost.elders.insert(lost.elders.end(), past.view->missing.begin(), past.view->missing.end());
  return lost;
}

Task<std::optional<Moved>> find_missing(World& world, const ChannelKey& key, AgentId self, View last,
                                       std::optional<Endpoint> host, std::vector<Endpoint> elsewhere, HostRole& role) {
  struct Place {
    Endpoint endpoint;
    AgentId id;  // empty: whoever it is
    bool in_round;
  };
  std::vector<Place> places;
  if (host && last.host != self && !last.host_leaves) places.push_back({*host, last.host, last.host_in_round});
  for (const Successor& other : last.successors) {
    if (other.id != self) places.push_back({{other.address, other.port}, other.id, other.in_round});
  }
  if (role.active()) {
    for (const Successor& lost : role.coordinator().missing()) {
      places.push_back({{lost.address, lost.port}, lost.id, lost.in_round});
    }
  }
  for (const Endpoint& endpoint : elsewhere) places.push_back({endpoint, AgentId{}, false});
  const Endpoint here = role.active() ? role.coordinator().address() : Endpoint{};
  for (const Place& place : places) {
    if (!role.active() || role.coordinator().has(place.id)) continue;
    const Instant deadline = world.clock.now() + kLookMax;
    ConnectResult result = co_await world.network.connect(place.endpoint, key, deadline, last.legacy.terms.heartbeat);
    if (!role.active()) co_return std::nullopt;
    if (!result.connection) {
      const bool refused = result.failure->kind == ConnectFailure::Kind::kRefused;
      if (refused && !place.id.value.empty()) role.coordinator().declare_dead(place.id, place.in_round);
      continue;
    }
    result.connection->send(encode(role.coordinator().standing(), world.clock.now()));
    auto answer = co_await with_deadline(world.clock.loop(), deadline, result.connection->receive());
    if (!answer || !*answer || !role.active()) continue;
    const Message message = decode(**answer, world.clock.now());
    const auto* moved = std::get_if<Moved>(&message);
    if (moved && !place.id.value.empty() && moved->from != place.id)
      role.coordinator().declare_dead(place.id, place.in_round);
    const bool ourselves = moved && Endpoint{moved->host, moved->port} == here;
    if (moved && !ourselves && is_better(*moved, role.coordinator())) co_return *moved;
  }
  co_return std::nullopt;
}

}  // namespace rubato::agent
